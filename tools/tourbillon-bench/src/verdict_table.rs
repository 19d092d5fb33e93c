//! Formats a verdict: a table per operation and metric, and the counts of each word.

use crate::case_words;
use crate::columns::{Align, columns, wrap};
use crate::figure_line::FigureLine;
use crate::metric::{Metric, number};
use crate::report::print;
use crate::table::in_order;
use crate::verdict::{Ratio, VerdictRow, Word, count, judge};

/// Explains the columns.
const LEGEND: &str = "Verdict. ours: Tourbillon as a user gets it by default. on: the Tokio runtime that both use, or the back \
                      end of Tourbillon's own. ratio: ours / Tokio, median over paired rounds, with its 95 % confidence \
                      interval. level: 1 lies in the interval.";

const HEADINGS: [&str; 7] = ["on", "case", "ours", "Tokio", "best peer", "ratio", ""];

const ALIGN: [Align; 7] =
    [Align::Left, Align::Left, Align::Right, Align::Right, Align::Right, Align::Left, Align::Left];

/// Prints the verdict on some figures, to standard error if standard output has JSON lines.
///
/// # Errors
///
/// If Tokio is better anywhere.
pub(crate) fn print_verdict(lines: &[FigureLine], json: bool) -> Result<(), String> {
    let rows = judge(lines);
    let text = format!("\n{}", verdict(&rows));
    if json {
        eprint!("{text}");
    } else {
        print(&text);
    }
    match count(&rows, Word::Behind) {
        0 => Ok(()),
        behind => Err(format!("Tokio is better in {behind} of {} rows", rows.len())),
    }
}

/// Formats a verdict.
pub(crate) fn verdict(rows: &[VerdictRow]) -> String {
    let mut text = wrap(LEGEND);
    let headings: Vec<String> = rows.iter().map(heading).collect();
    for title in in_order(headings.iter().map(String::as_str)) {
        let of_title = rows.iter().zip(&headings).filter(|(_, its)| *its == title).map(|(row, _)| cells(row));
        let cells: Vec<Vec<String>> = std::iter::once(HEADINGS.map(str::to_owned).to_vec()).chain(of_title).collect();
        text += &format!("\n{}{}", wrap(title), columns(&ALIGN, &cells));
    }
    text + "\n" + &counts(rows)
}

fn heading(row: &VerdictRow) -> String {
    let operation = case_words::operation(&row.scenario, &row.work);
    format!("{}: {operation}: {}", row.scenario, Metric::named(&row.metric).title_with_unit())
}

fn cells(row: &VerdictRow) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    vec![
        row.on.clone(),
        // The column is narrow.
        case_words::size(&row.scenario, &row.work).replace(" others", "").replace(" else", ""),
        number(row.ours),
        or_dash(row.tokio.map(number)),
        or_dash(row.peer.as_ref().map(|(name, value)| format!("{name} {}", number(*value)))),
        or_dash(row.ratio.map(ratio)),
        row.word.name().to_owned(),
    ]
}

fn ratio(Ratio { median, low, high }: Ratio) -> String {
    format!("{median:.2} ({low:.2}-{high:.2})")
}

/// Returns how many rows have each word, and names the rows that are behind.
fn counts(rows: &[VerdictRow]) -> String {
    let counts = Word::ALL.map(|word| (word.name(), count(rows, word)));
    let counts = counts.into_iter().filter(|(name, count)| *count > 0 || *name == Word::Behind.name());
    let counts: Vec<String> = counts.map(|(name, count)| format!("{count} {name}")).collect();
    let mut text = format!("{} rows: {}\n", rows.len(), counts.join(", "));
    for row in rows.iter().filter(|row| row.word == Word::Behind) {
        let times = row.ratio.map(ratio).unwrap_or_default();
        let case = format!("{}, {}", row.work, row.on);
        text += &format!("  behind: {} {}, {}, {times}\n", row.scenario, case.trim_end_matches(", -"), row.metric);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::WIDTH;
    use crate::figure_line::line;

    #[test]
    fn a_verdict_lists_every_row_and_the_counts() {
        let of = |system: &str, case: &str, value: f64| FigureLine {
            rounds: vec![value; 9],
            ..line("churn", system, case, "ns_per_op", value)
        };
        let lines = [
            of("tourbillon", "pending=0", 200.0),
            of("tokio-multi", "pending=0", 100.0),
            of("tourbillon", "pending=100000,rt=current", 25.0),
            of("tokio-current", "pending=100000", 100.0),
            of("libuv", "pending=100000", 12.34),
        ];
        let expected = "
churn: Arm and cancel one timer, driver is new: time (ns), lower is better
  on       case             ours  Tokio   best peer  ratio
  multi    nothing pending   200    100           -  2.00 (2.00-2.00)  behind
  current  100,000 pending  25.0    100  libuv 12.3  0.25 (0.25-0.25)  ahead

2 rows: 1 ahead, 1 behind
  behind: churn pending=0, multi, ns_per_op, 2.00 (2.00-2.00)
";
        let text = verdict(&judge(&lines));
        assert_eq!(text, format!("{}{expected}", wrap(LEGEND)));
    }

    #[test]
    fn the_longest_names_fit() {
        let works = [
            ("churn", "pending=1000000,driver=turned,window=1000", "ns_per_op", "pingora-timeout"),
            ("io", "echo,timeout=30s", "cpu_ns_per_request", "monoio"),
            ("io", "delayed,connections=10000", "cpu_ns_per_reply", "smol"),
            ("jobs", "spread=1000000", "cpu_ns_per_run", "tokio-cron-scheduler"),
            ("lateness", "tasks=1000", "cpu_ns_per_fire", "libevent"),
        ];
        let row = |(scenario, work, metric, peer): (&str, &str, &str, &str)| VerdictRow {
            scenario: scenario.into(),
            work: work.into(),
            metric: metric.into(),
            on: "current".into(),
            ours: 123_456.0,
            tokio: Some(123_456.0),
            peer: Some((peer.into(), 12_345.0)),
            ratio: Some(Ratio { median: 1.0, low: 0.9, high: 1.1 }),
            word: Word::Behind,
        };
        for text in verdict(&works.map(row)).lines() {
            assert!(text.chars().count() <= WIDTH, "{text}");
        }
    }
}
