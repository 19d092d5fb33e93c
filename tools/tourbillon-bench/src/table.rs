//! Formats figures as tables: one table per metric, one row per case, one column per system.

use std::collections::BTreeMap;

use crate::figure_line::FigureLine;
use crate::percentiles::is_detail;

/// Formats the figures of one scenario.
pub(crate) fn tables(lines: &[FigureLine]) -> String {
    let metrics = in_order(lines.iter().map(|line| &*line.metric).filter(|metric| !is_detail(metric)));
    metrics.into_iter().map(|metric| table(metric, lines)).collect()
}

/// Returns the distinct strings in the order of their first occurrence.
pub(crate) fn in_order<'a>(all: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found = Vec::new();
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

fn table(metric: &str, lines: &[FigureLine]) -> String {
    let lines: Vec<&FigureLine> = lines.iter().filter(|line| line.metric == metric).collect();
    let systems = in_order(lines.iter().map(|line| &*line.system));
    let cases = in_order(lines.iter().map(|line| &*line.case));
    let cells: BTreeMap<_, _> = lines.iter().map(|line| ((&*line.case, &*line.system), line.value)).collect();
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
    table + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure_line::lines;

    #[test]
    fn a_metric_has_a_table_with_a_row_a_case_and_a_column_a_system() {
        let lines = lines(concat!(
            r#"{"scenario":"churn","system":"ours","case":"pending=0","metric":"ns_per_op","value":30.04}"#,
            "\n",
            r#"{"scenario":"churn","system":"theirs","case":"pending=0","metric":"ns_per_op","value":300}"#,
            "\n",
            r#"{"scenario":"churn","system":"theirs","case":"pending=1","metric":"ns_per_op","value":301}"#,
            "\n",
            r#"{"scenario":"churn","system":"theirs","case":"pending=1","metric":"p10_us","value":7}"#,
        ));
        let expected = "
ns_per_op      ours    theirs
pending=0      30.0     300.0
pending=1         -     301.0
";
        assert_eq!(tables(&lines.expect("all are lines")), expected, "and none for what is a detail");
    }
}
