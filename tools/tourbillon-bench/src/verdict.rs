//! Judges Tourbillon, as a user gets it by default, against Tokio on the same kind of runtime.
//!
//! Round k of both ran next to each other, so their ratio cancels what the machine did meanwhile. The verdict is about the median of
//! these ratios: *level* if 1 lies in its confidence interval.

use crate::figure_line::FigureLine;
use crate::metric::{Better, Metric};
use crate::report::{interval_of_median, median};
use crate::system_kind::{SystemKind, TOKIO_TASKS, variant, work_of};
use crate::systems::tokio;

/// The metrics that are judged, by scenario.
const JUDGED: [(&str, &[&str]); 10] = [
    ("churn", &["ns_per_op"]),
    ("contend", &["ns_per_op"]),
    ("cross", &["ns_per_op"]),
    ("reset", &["ns_per_op"]),
    ("fire", &["cpu_ns_per_fire"]),
    ("lateness", &["p50_us", "p99_us", "cpu_ns_per_fire"]),
    ("memory", &["resident_bytes"]),
    ("jobs", &["ns_per_op", "p50_us", "p99_us", "cpu_ns_per_run"]),
    ("io", &["requests_per_s", "cpu_ns_per_request", "p50_us", "p99_us", "cpu_ns_per_reply"]),
    ("scale", &["churn_ns_per_op", "reset_ns_per_op", "cpu_ns_per_fire", "resident_bytes"]),
];

/// The metrics that are listed with the best peer only.
const LISTED: [(&str, &[&str]); 2] = [("queue", &["ns_per_op"]), ("virtual", &["ns_per_sleep"])];

/// Fewer rounds give no interval of 95 %.
const LEAST_ROUNDS: usize = 6;

/// A case and metric of Tourbillon, compared.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct VerdictRow {
    pub(crate) scenario: String,
    /// The case, without the variant of the system.
    pub(crate) work: String,
    pub(crate) metric: String,
    /// What Tourbillon ran on: a kind of Tokio runtime, or a back end of its own runtime.
    pub(crate) on: String,
    pub(crate) ours: f64,
    pub(crate) tokio: Option<f64>,
    /// The best system that is neither Tourbillon nor Tokio, and its figure.
    pub(crate) peer: Option<(String, f64)>,
    pub(crate) ratio: Option<Ratio>,
    pub(crate) word: Word,
}

/// Tourbillon's figure over Tokio's: the median over the rounds, and the interval of that median.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// The result of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Word {
    Ahead,
    Level,
    Behind,
    /// There are not enough pairs of rounds for an interval.
    FewRounds,
    NoTokio,
}

impl Word {
    pub(crate) const ALL: [Word; 5] = [Word::Ahead, Word::Level, Word::Behind, Word::FewRounds, Word::NoTokio];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Word::Ahead => "ahead",
            Word::Level => "level",
            Word::Behind => "behind",
            Word::FewRounds => "too few rounds",
            Word::NoTokio => "no Tokio",
        }
    }
}

/// Judges all figures of Tourbillon that a user gets by default.
pub(crate) fn judge(lines: &[FigureLine]) -> Vec<VerdictRow> {
    let ours = lines.iter().filter(|line| SystemKind::of(&line.system, &line.case) == SystemKind::Default);
    ours.filter(|line| is_in(&JUDGED, line) || is_in(&LISTED, line)).map(|line| row(line, lines)).collect()
}

/// Returns how many rows have a word.
pub(crate) fn count(rows: &[VerdictRow], word: Word) -> usize {
    rows.iter().filter(|row| row.word == word).count()
}

fn is_in(metrics: &[(&str, &[&str])], line: &FigureLine) -> bool {
    metrics.iter().any(|(scenario, metrics)| line.scenario == *scenario && metrics.contains(&&*line.metric))
}

fn row(ours: &FigureLine, lines: &[FigureLine]) -> VerdictRow {
    let work = work_of(&ours.case);
    let is_same_work = |line: &&FigureLine| {
        (&line.scenario, &line.metric) == (&ours.scenario, &ours.metric) && work_of(&line.case) == work
    };
    let better = Metric::named(&ours.metric).better;
    let same: Vec<&FigureLine> = lines.iter().filter(is_same_work).collect();
    let theirs = same.iter().find(|line| is_in(&JUDGED, line) && line.system == counterpart(ours));
    let ratio = theirs.and_then(|theirs| ratio(&ours.rounds, &theirs.rounds));
    let word = match (theirs, ratio) {
        (None, _) => Word::NoTokio,
        (Some(_), None) => Word::FewRounds,
        (Some(_), Some(ratio)) => word(ratio, better),
    };
    VerdictRow {
        scenario: ours.scenario.clone(),
        metric: ours.metric.clone(),
        on: runs_on(ours),
        ours: ours.value,
        tokio: theirs.map(|line| line.value),
        peer: best_peer(&same, better),
        ratio,
        word,
        work,
    }
}

/// Returns the system of Tokio with which a figure of Tourbillon is compared.
fn counterpart(ours: &FigureLine) -> &'static str {
    match (&*ours.scenario, ours.setting("rt")) {
        ("jobs", _) => TOKIO_TASKS,
        ("io", _) | (_, Some("current")) => tokio::CURRENT,
        _ => tokio::MULTI,
    }
}

fn runs_on(ours: &FigureLine) -> String {
    let runtime = variant(&ours.case).find(|(name, _)| *name == "rt").map(|(_, value)| value);
    match (&*ours.scenario, runtime) {
        ("queue" | "virtual" | "jobs", _) => "-".to_owned(),
        ("io", _) => ours.system.rsplit('-').next().unwrap_or_default().to_owned(),
        (_, runtime) => runtime.unwrap_or("multi").to_owned(),
    }
}

fn best_peer(same: &[&FigureLine], better: Better) -> Option<(String, f64)> {
    let is_peer = |line: &&&FigureLine| match SystemKind::of(&line.system, &line.case) {
        SystemKind::Peer => true,
        // Where Tokio is not judged it is a peer like any other.
        SystemKind::Tokio => !is_in(&JUDGED, line),
        SystemKind::Default | SystemKind::Variant | SystemKind::Floor => false,
    };
    let peers = same.iter().filter(is_peer);
    let best = match better {
        Better::Higher => peers.max_by(|a, b| a.value.total_cmp(&b.value)),
        Better::Lower | Better::Neither => peers.min_by(|a, b| a.value.total_cmp(&b.value)),
    };
    best.map(|line| (line.system.clone(), line.value))
}

/// Returns the ratio over the pairs of rounds; `None` if they are too few.
fn ratio(ours: &[f64], theirs: &[f64]) -> Option<Ratio> {
    let pairs = ours.iter().zip(theirs).filter(|(_, theirs)| **theirs > 0.0);
    let ratios: Vec<f64> = pairs.map(|(ours, theirs)| ours / theirs).collect();
    if ratios.len() < LEAST_ROUNDS {
        return None;
    }
    let (low, high) = interval_of_median(ratios.clone());
    Some(Ratio { median: median(ratios), low, high })
}

fn word(ratio: Ratio, better: Better) -> Word {
    let (is_below, is_above) = (ratio.high < 1.0, ratio.low > 1.0);
    match better {
        Better::Lower if is_below => Word::Ahead,
        Better::Lower if is_above => Word::Behind,
        Better::Higher if is_above => Word::Ahead,
        Better::Higher if is_below => Word::Behind,
        _ => Word::Level,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure_line::line;

    /// Returns a figure with rounds.
    fn rounds(system: &str, case: &str, (scenario, metric): (&str, &str), rounds: &[f64]) -> FigureLine {
        FigureLine { rounds: rounds.to_vec(), ..line(scenario, system, case, metric, median(rounds.to_vec())) }
    }

    const CHURN: (&str, &str) = ("churn", "ns_per_op");
    const THEIRS: [f64; 7] = [100.0, 110.0, 90.0, 105.0, 200.0, 95.0, 100.0];

    fn judged(lines: &[FigureLine]) -> VerdictRow {
        let [row] = &judge(lines)[..] else { panic!("{lines:?} has one row") };
        row.clone()
    }

    #[test]
    fn rounds_are_compared_pair_by_pair() {
        let compare = |factor: f64| {
            let ours = THEIRS.map(|theirs| factor * theirs);
            judged(&[
                rounds("tourbillon", "pending=0", CHURN, &ours),
                rounds("tokio-multi", "pending=0", CHURN, &THEIRS),
            ])
        };
        let row = compare(0.25);
        assert_eq!((row.word, row.ratio), (Word::Ahead, Some(Ratio { median: 0.25, low: 0.25, high: 0.25 })));
        assert_eq!((row.ours, row.tokio, &*row.on), (25.0, Some(100.0), "multi"));
        assert_eq!(compare(1.0).word, Word::Level);
        assert_eq!(compare(1.5).word, Word::Behind);
    }

    #[test]
    fn one_inside_the_interval_is_level() {
        let ours = [90.0, 121.0, 80.0, 120.0, 180.0, 100.0, 130.0];
        let lines =
            [rounds("tourbillon", "pending=0", CHURN, &ours), rounds("tokio-multi", "pending=0", CHURN, &THEIRS)];
        assert_eq!(judged(&lines).word, Word::Level);
    }

    #[test]
    fn a_higher_rate_is_better() {
        let rate = ("io", "requests_per_s");
        let compare = |factor: f64| {
            let ours = THEIRS.map(|theirs| factor * theirs);
            let theirs = rounds("tokio-current", "echo,timeout=none", rate, &THEIRS);
            judged(&[rounds("tourbillon-rt-epoll", "echo,timeout=none", rate, &ours), theirs])
        };
        assert_eq!((compare(1.2).word, compare(0.8).word), (Word::Ahead, Word::Behind));
        assert_eq!(compare(1.2).on, "epoll");
    }

    #[test]
    fn the_runtime_selects_the_counterpart_and_other_variants_are_not_judged() {
        let late = ("lateness", "p50_us");
        let lines = [
            rounds("tourbillon", "tasks=1,slack=adaptive,driver=default,rt=current", late, &[1.0; 7]),
            rounds("tourbillon", "tasks=1,slack=exact,driver=default,rt=current", late, &[9.0; 7]),
            rounds("tourbillon", "tasks=1,slack=adaptive,driver=thread,rt=multi", late, &[9.0; 7]),
            rounds("tokio-current", "tasks=1", late, &[2.0; 7]),
            rounds("tokio-multi", "tasks=1", late, &[0.5; 7]),
            rounds("tokio-current", "tasks=1000", late, &[0.5; 7]),
        ];
        let row = judged(&lines);
        assert_eq!((row.word, row.tokio, &*row.on, &*row.work), (Word::Ahead, Some(2.0), "current", "tasks=1"));
    }

    #[test]
    fn the_best_peer_is_neither_ours_nor_tokios_nor_the_bare_system_call() {
        let late = ("lateness", "p50_us");
        let mut lines = vec![rounds("tourbillon", "tasks=1", late, &[5.0; 7])];
        for (system, value) in
            [("clock_nanosleep", 1.0), ("tourbillon-rt", 2.0), ("tokio-multi", 3.0), ("smol", 9.0), ("libuv", 8.0)]
        {
            lines.push(line("lateness", system, "tasks=1", "p50_us", value));
        }
        assert_eq!(judged(&lines).peer, Some(("libuv".to_owned(), 8.0)));
    }

    #[test]
    fn without_tokio_or_with_few_rounds_there_is_no_verdict() {
        let ours = rounds("tourbillon", "pending=0", CHURN, &[1.0; 5]);
        let row = judged(std::slice::from_ref(&ours));
        assert_eq!((row.word, row.ratio), (Word::NoTokio, None));
        let row = judged(&[ours, rounds("tokio-multi", "pending=0", CHURN, &THEIRS)]);
        assert_eq!((row.word, row.ratio), (Word::FewRounds, None));
        let queue = ("queue", "ns_per_op");
        let row = judged(&[
            rounds("wheel", "pop,pending=1", queue, &THEIRS),
            rounds("nexus-timer", "pop,pending=1", queue, &THEIRS),
        ]);
        assert_eq!((row.word, row.peer), (Word::NoTokio, Some(("nexus-timer".to_owned(), 100.0))));
    }

    #[test]
    fn details_are_not_judged() {
        for metric in ["cpu_ns_per_op", "size_of_sleep"] {
            assert!(judge(&[line("churn", "tourbillon", "pending=0", metric, 1.0)]).is_empty());
        }
    }

    #[test]
    fn every_judged_metric_has_a_direction() {
        for metric in JUDGED.iter().chain(&LISTED).flat_map(|(_, metrics)| *metrics) {
            assert_ne!(Metric::named(metric).better, Better::Neither, "{metric}");
        }
    }
}
