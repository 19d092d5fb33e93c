//! What a scenario found: printed as JSON lines as it comes, or as a table at the end.

use std::collections::BTreeMap;
use std::io::Write;

/// Collects figures and prints them.
pub(crate) struct Report {
    scenario: &'static str,
    json: bool,
    figures: Vec<Figure>,
}

/// One measured number.
pub(crate) struct Figure {
    pub(crate) system: &'static str,
    /// A comma list of `name` or `name=value`.
    pub(crate) case: String,
    pub(crate) metric: &'static str,
    pub(crate) value: f64,
}

impl Report {
    pub(crate) fn new(scenario: &'static str, json: bool) -> Report {
        Report { scenario, json, figures: Vec::new() }
    }

    pub(crate) fn add(&mut self, figure: Figure) {
        if self.json {
            print(&format!("{}\n", figure.to_json(self.scenario)));
        }
        self.figures.push(figure);
    }

    /// Adds how one figure stands to another of the same metric, in percent, if both are there. Each is that of a system in a case.
    pub(crate) fn add_percent(
        &mut self,
        name: &'static str,
        metric: &str,
        this: (&'static str, &str),
        that: (&'static str, &str),
    ) {
        let value = |of: (&str, &str)| {
            let is_it = |figure: &&Figure| (figure.system, figure.case.as_str(), figure.metric) == (of.0, of.1, metric);
            self.figures.iter().find(is_it).map(|figure| figure.value)
        };
        if let (Some(value), Some(base)) = (value(this), value(that)) {
            let (system, case) = (this.0, this.1.to_owned());
            self.add(Figure { system, case, metric: name, value: 100.0 * value / base });
        }
    }

    /// Prints the table, one row a case and one column a system.
    pub(crate) fn finish(self) {
        if self.json {
            return;
        }
        let mut metrics: Vec<&str> = Vec::new();
        for figure in &self.figures {
            if !metrics.contains(&figure.metric) {
                metrics.push(figure.metric);
            }
        }
        for metric in metrics {
            self.print_table(metric);
        }
    }

    fn print_table(&self, metric: &str) {
        let (mut systems, mut cases): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
        let mut cells = BTreeMap::new();
        for figure in self.figures.iter().filter(|figure| figure.metric == metric) {
            if !systems.contains(&figure.system) {
                systems.push(figure.system);
            }
            if !cases.contains(&figure.case.as_str()) {
                cases.push(&figure.case);
            }
            cells.insert((figure.case.as_str(), figure.system), figure.value);
        }
        let first = cases.iter().map(|case| case.len()).max().unwrap_or(0).max(metric.len());
        let width = systems.iter().map(|system| system.len()).max().unwrap_or(0).max(8);
        let mut table = format!("\n{metric:first$}");
        systems.iter().for_each(|system| table += &format!("  {system:>width$}"));
        for case in cases {
            table += &format!("\n{case:first$}");
            for system in &systems {
                table += &match cells.get(&(case, *system)) {
                    Some(value) => format!("  {value:>width$.1}"),
                    None => format!("  {:>width$}", "-"),
                };
            }
        }
        print(&(table + "\n"));
    }
}

/// Prints to the standard output. When nobody reads it any more, there is nothing left to do.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

impl Figure {
    fn to_json(&self, scenario: &str) -> String {
        // None of the strings is the user's; none of them needs escaping.
        format!(
            r#"{{"scenario":"{scenario}","system":"{}","case":"{}","metric":"{}","value":{:.2}}}"#,
            self.system, self.case, self.metric, self.value
        )
    }
}

/// The median of some measurements.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_one_json_object_a_line() {
        let figure = Figure { system: "wheel", case: "pop,pending=1000".into(), metric: "ns_per_op", value: 5.8 };
        assert_eq!(
            figure.to_json("queue"),
            r#"{"scenario":"queue","system":"wheel","case":"pop,pending=1000","metric":"ns_per_op","value":5.80}"#
        );
    }

    #[test]
    fn a_figure_in_percent_of_another_is_there_if_both_are() {
        let mut report = Report::new("io", false);
        for (system, value) in [("ours", 97.0), ("theirs", 100.0)] {
            report.add(Figure { system, case: "echo".into(), metric: "rate", value });
        }
        report.add_percent("percent", "rate", ("ours", "echo"), ("theirs", "echo"));
        report.add_percent("percent", "rate", ("ours", "echo"), ("nobody's", "echo"));
        let found: Vec<_> = report.figures.iter().filter(|figure| figure.metric == "percent").collect();
        assert!(matches!(found[..], [figure] if (figure.system, figure.value) == ("ours", 97.0)));
    }

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_two_in_it() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
