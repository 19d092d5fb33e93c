//! Formats figures as tables: one per case and metric, with a row for each system.

use crate::case_words;
use crate::columns::{Align, columns, wrap};
use crate::figure_line::FigureLine;
use crate::metric::{Better, Metric, number};
use crate::percentiles::is_detail;
use crate::report::interval_of_median;
use crate::system_kind::{SystemKind, variant, work_of};

/// Explains the columns of all tables.
const LEGEND: &str = "x ours: the value divided by that of the first row, which is Tourbillon as a user gets it by default. \
                      on current, on multi: the kind of Tokio runtime. Interval: 95 % confidence interval of the median; with fewer than six rounds, the least and the \
                      greatest round.";

/// Formats the figures of one scenario: tables of the same metric one after the other, and a legend.
pub(crate) fn tables(lines: &[FigureLine]) -> String {
    let metrics = in_order(lines.iter().map(|line| &*line.metric).filter(|metric| !is_detail(metric)));
    let tables: String = metrics.into_iter().map(|metric| tables_of(metric, lines)).collect();
    if tables.is_empty() { tables } else { format!("{tables}\n{}", wrap(LEGEND)) }
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

fn tables_of(metric: &str, lines: &[FigureLine]) -> String {
    let lines: Vec<&FigureLine> = lines.iter().filter(|line| line.metric == metric).collect();
    let works: Vec<String> = lines.iter().map(|line| work_of(&line.case)).collect();
    let table = |work: &str| {
        let of_work = lines.iter().zip(&works).filter(|(_, its)| *its == work).map(|(line, _)| *line).collect();
        format!("\n{}{}", title(&lines[0].scenario, work, metric), table(of_work, Metric::named(metric)))
    };
    in_order(works.iter().map(String::as_str)).into_iter().map(table).collect()
}

/// Returns a title in words: operation, size, metric, and which direction is better.
fn title(scenario: &str, work: &str, metric: &str) -> String {
    let parts = [case_words::operation(scenario, work), case_words::size(scenario, work)];
    let case: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    wrap(&format!("{}: {}", case.join(", "), Metric::named(metric).title()))
}

fn table(mut lines: Vec<&FigureLine>, metric: Metric<'_>) -> String {
    if let [first, _, ..] = lines[..]
        && lines.iter().all(|line| line.value == first.value)
    {
        return format!("  {} for all {} systems and variants\n", metric.value(first.value), lines.len());
    }
    // The sort is stable: of two defaults, the one that was measured first stays first.
    lines.sort_by(|a, b| match metric.better {
        Better::Higher => b.value.total_cmp(&a.value),
        Better::Lower | Better::Neither => a.value.total_cmp(&b.value),
    });
    lines.sort_by_key(|line| default_rank(line));
    let ours = lines.first().filter(|line| default_rank(line) < OTHERS).map(|line| line.value);
    let mut rows = vec![["system", "median", "x ours", "interval"].map(str::to_owned).to_vec()];
    for line in lines {
        let times = ours.filter(|ours| *ours > 0.0).map_or_else(|| "-".to_owned(), |ours| number(line.value / ours));
        rows.push(vec![label(line), metric.value(line.value), times, interval(&line.rounds)]);
    }
    columns(&[Align::Left, Align::Right, Align::Right, Align::Right], &rows)
}

/// The rank of all systems other than Tourbillon with its defaults.
const OTHERS: u8 = 2;

/// Returns the rank of a row: Tourbillon by default is first, on a multi-thread runtime before a current-thread one.
fn default_rank(line: &FigureLine) -> u8 {
    match (SystemKind::of(&line.system, &line.case), line.setting("rt")) {
        (SystemKind::Default, Some("current")) => 1,
        (SystemKind::Default, _) => 0,
        _ => OTHERS,
    }
}

/// Returns the system, with what distinguishes this variant of it from the default.
fn label(line: &FigureLine) -> String {
    let words = variant(&line.case).filter_map(|(name, value)| match (name, value) {
        ("slack", "adaptive") | ("driver", "default") => None,
        ("rt", _) => Some(format!("on {value}")),
        _ => Some(format!("{name} {value}")),
    });
    std::iter::once(line.system.clone()).chain(words).collect::<Vec<_>>().join(", ")
}

fn interval(rounds: &[f64]) -> String {
    match rounds {
        [] => "-".to_owned(),
        [_] => "one round".to_owned(),
        _ => {
            let (low, high) = interval_of_median(rounds.to_vec());
            format!("{} .. {}", number(low), number(high))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::WIDTH;
    use crate::figure_line::line;

    #[test]
    fn a_table_has_a_title_in_words_and_ours_first_then_the_others_by_value() {
        let case = "pending=100000,driver=turned";
        let lines = [
            line("churn", "tokio-multi", case, "ns_per_op", 300.0),
            line("churn", "monoio", case, "ns_per_op", 15.0),
            line("churn", "tourbillon", &format!("{case},rt=current"), "ns_per_op", 29.0),
            FigureLine { rounds: vec![28.0, 30.0, 37.5], ..line("churn", "tourbillon", case, "ns_per_op", 30.0) },
            line("churn", "monoio", case, "p10_us", 7.0),
        ];
        let expected = "
Arm and cancel one timer, driver has turned, 100,000 others pending: time, lower is better
  system                   median  x ours      interval
  tourbillon              30.0 ns    1.00  28.0 .. 37.5
  tourbillon, on current  29.0 ns    0.97             -
  monoio                  15.0 ns    0.50             -
  tokio-multi              300 ns    10.0             -

";
        assert_eq!(tables(&lines), format!("{expected}{}", wrap(LEGEND)), "and none for what is a detail");
    }

    #[test]
    fn where_higher_is_better_the_highest_is_first() {
        let case = "echo,timeout=none";
        let lines = [("smol", 10.0), ("monoio", 30.0), ("tourbillon-rt-epoll", 20.0)]
            .map(|(system, value)| line("io", system, case, "requests_per_s", value));
        let text = tables(&lines);
        let place = |system: &str| text.find(system).expect("it has a row");
        assert!(place("tourbillon-rt-epoll") < place("monoio") && place("monoio") < place("smol"), "{text}");
    }

    #[test]
    fn a_table_in_which_all_values_are_equal_is_one_line() {
        let lines = ["tourbillon", "smol", "libuv"].map(|name| line("lateness", name, "tasks=1", "early_percent", 0.0));
        assert!(tables(&lines).contains("better\n  0.00 % for all 3 systems and variants\n"), "{}", tables(&lines));
    }

    #[test]
    fn the_longest_names_fit() {
        let case = "tasks=1000,slack=precise,driver=thread,rt=current";
        let big = 123_456.0;
        let with_rounds = |line: FigureLine| FigureLine { rounds: vec![big; 3], ..line };
        let mut lines = vec![with_rounds(line("lateness", "tourbillon", case, "p99_us", big))];
        for metric in ["p99_us", "bytes_beyond_key_and_closure", "rate_percent_of_untimed"] {
            for (less, system) in
                [(1.0, "tourbillon-rt-uring"), (2.0, "tokio-cron-scheduler"), (3.0, "clock_nanosleep")]
            {
                lines.push(with_rounds(line("lateness", system, "tasks=1000", metric, big - less)));
            }
        }
        let churn = "pending=100000000,driver=turned,window=1000000";
        lines.push(line("churn", "tourbillon", churn, "cpu_ns_per_op", big));
        for text in tables(&lines).lines() {
            assert!(text.chars().count() <= WIDTH, "{text}");
        }
    }
}
