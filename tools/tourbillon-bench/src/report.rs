//! The report of a scenario: JSON lines as they come, or tables at the end.

use std::io::Write;

use crate::figure_line::FigureLine;
use crate::table::tables;

/// Collects figures and prints them.
pub(crate) struct BenchReport {
    scenario: &'static str,
    json: bool,
    lines: Vec<FigureLine>,
}

/// One measured number.
pub(crate) struct Figure {
    pub(crate) system: &'static str,
    /// A comma-separated list of `name` or `name=value`.
    pub(crate) case: String,
    pub(crate) metric: &'static str,
    pub(crate) value: f64,
    /// The values of single rounds; empty if there were none.
    pub(crate) rounds: Vec<f64>,
}

impl Figure {
    /// Returns a figure that was measured or computed once.
    pub(crate) fn once(system: &'static str, case: String, metric: &'static str, value: f64) -> Figure {
        Figure { system, case, metric, value, rounds: Vec::new() }
    }

    /// Returns the median of several rounds.
    pub(crate) fn of_rounds(system: &'static str, case: String, metric: &'static str, rounds: Vec<f64>) -> Figure {
        Figure { system, case, metric, value: median(rounds.clone()), rounds }
    }
}

impl BenchReport {
    pub(crate) fn new(scenario: &'static str, json: bool) -> BenchReport {
        BenchReport { scenario, json, lines: Vec::new() }
    }

    /// Adds a figure, its numbers rounded to two decimals.
    pub(crate) fn add(&mut self, figure: Figure) {
        let rounded = |value: f64| (100.0 * value).round() / 100.0;
        let line = FigureLine {
            scenario: self.scenario.to_owned(),
            system: figure.system.to_owned(),
            case: figure.case,
            metric: figure.metric.to_owned(),
            value: rounded(figure.value),
            rounds: figure.rounds.into_iter().map(rounded).collect(),
        };
        if self.json {
            print(&format!("{}\n", line.to_json()));
        }
        self.lines.push(line);
    }

    /// Adds the ratio of two figures of one metric in percent, if both exist. Each is given by its system and case.
    pub(crate) fn add_percent(
        &mut self,
        name: &'static str,
        metric: &str,
        this: (&'static str, &str),
        that: (&'static str, &str),
    ) {
        if let Some(ratio) = self.ratio(metric, this, that) {
            self.add(Figure::once(this.0, this.1.to_owned(), name, 100.0 * ratio));
        }
    }

    /// Adds the ratio of two figures of one metric, if both exist.
    #[cfg(any(test, feature = "virtual"))]
    pub(crate) fn add_times(
        &mut self,
        name: &'static str,
        metric: &str,
        this: (&'static str, &str),
        that: (&'static str, &str),
    ) {
        if let Some(value) = self.ratio(metric, this, that) {
            self.add(Figure::once(this.0, this.1.to_owned(), name, value));
        }
    }

    fn ratio(&self, metric: &str, this: (&str, &str), that: (&str, &str)) -> Option<f64> {
        let value = |of: (&str, &str)| {
            let is_it = |line: &&FigureLine| (&*line.system, &*line.case, &*line.metric) == (of.0, of.1, metric);
            self.lines.iter().find(is_it).map(|line| line.value)
        };
        let (value, base) = (value(this)?, value(that)?);
        (base > 0.0).then(|| value / base)
    }

    /// Prints the tables, unless lines were printed, and returns the figures.
    pub(crate) fn finish(self) -> Vec<FigureLine> {
        if !self.json {
            print(&tables(&self.lines));
        }
        self.lines
    }
}

/// Prints to standard output. Exits if the reader has closed it.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Returns the median of some measurements.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// Returns the two measurements between which the median lies with a probability of 95 %, whatever the distribution. Fewer than
/// six measurements cannot give that; then they are the least and the greatest.
pub(crate) fn interval_of_median(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let count = values.len();
    // The true median lies above exactly k of n values with the probability C(n, k) / 2^n. Ranks are left out at both ends as
    // long as that loses no more than 2.5 % at each.
    let (mut left_out, mut probability) = (0, 0.5_f64.powi(count as i32));
    let mut lost = probability;
    while lost <= 0.025 && 2 * (left_out + 1) < count {
        left_out += 1;
        probability *= (count - left_out + 1) as f64 / left_out as f64;
        lost += probability;
    }
    // The interval begins at the rank up to which no more than 2.5 % are lost.
    let first = left_out.saturating_sub(1);
    (values[first], values[count - 1 - first])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_in_percent_of_another_is_there_if_both_are() {
        let mut report = BenchReport::new("io", false);
        for (system, value) in [("ours", 97.0), ("theirs", 100.0), ("nothing", 0.0)] {
            report.add(Figure::once(system, "echo".into(), "rate", value));
        }
        for other in ["theirs", "nobody's", "nothing"] {
            report.add_percent("percent", "rate", ("ours", "echo"), (other, "echo"));
        }
        let found: Vec<_> = report.lines.iter().filter(|line| line.metric == "percent").collect();
        assert!(matches!(found[..], [line] if (&*line.system, line.value) == ("ours", 97.0)));
    }

    #[test]
    fn the_interval_of_a_median_has_the_ranks_of_the_binomial_distribution() {
        let interval = |count: usize| interval_of_median((1..=count).rev().map(|rank| rank as f64).collect());
        // From tables of the two-sided sign test at 5 %.
        for (count, first) in [(1, 1), (2, 1), (5, 1), (6, 1), (8, 1), (9, 2), (12, 3), (15, 4), (21, 6), (25, 8)] {
            assert_eq!(interval(count), (first as f64, (count + 1 - first) as f64), "{count} values");
        }
    }

    #[test]
    fn a_figure_can_be_told_in_times_of_another() {
        let mut report = BenchReport::new("virtual", false);
        for (system, value) in [("ours", 150.0), ("theirs", 100.0)] {
            report.add(Figure::once(system, "in-turn".into(), "ns", value));
        }
        report.add_times("times", "ns", ("ours", "in-turn"), ("theirs", "in-turn"));
        assert!(report.lines.iter().any(|line| (&*line.system, &*line.metric, line.value) == ("ours", "times", 1.5)));
    }

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_two_in_it() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
