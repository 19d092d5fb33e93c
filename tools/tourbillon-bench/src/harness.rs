//! Runs the scenarios with a clock: every system in a suitable runtime, round by round.
//!
//! The rounds of the systems are interleaved, so that a disturbance of the machine affects all of them, and the median of the
//! rounds is reported. Every other round visits the systems in reverse order, so that none always follows the same other one.
//! Systems that the verdict compares stand next to each other in the list of entries, so that their rounds with one number are a
//! pair. Before each round the process is quiet: no system pays for work that another one left to a background thread.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use tourbillon_tools::Random;

use crate::Common;
use crate::process_usage::own_cpu_time;
use crate::progress::progress;
use crate::report::{BenchReport, Figure};
use crate::system_kind::SystemKind;

/// The options of every scenario with a clock.
#[derive(clap::Args, Clone)]
pub(crate) struct SystemChoice {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Only these systems.
    #[arg(long, value_delimiter = ',')]
    system: Vec<String>,
    /// Number of rounds per case; the median is reported.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
}

impl SystemChoice {
    /// Exits with an error if a selected system does not take part.
    pub(crate) fn check(&self, systems: &[&str]) {
        if let Some(name) = self.system.iter().find(|name| !systems.contains(&name.as_str())) {
            eprintln!("error: there is no system {name:?} in this scenario; there are {}", systems.join(", "));
            std::process::exit(2);
        }
    }

    pub(crate) fn includes(&self, system: &str) -> bool {
        self.system.is_empty() || self.system.iter().any(|name| name == system)
    }

    /// Returns the numbers of rounds: the selected one, or a default. A verdict needs more rounds of the systems that it judges.
    pub(crate) fn rounds(&self, full: usize, quick: usize, length: RoundLength) -> RoundCount {
        let Common { quick: is_quick, verdict, .. } = self.common;
        let default = if is_quick { quick } else { full };
        if let Some(rounds) = self.rounds {
            return RoundCount::same(rounds as usize);
        }
        let for_verdict = match (length, is_quick) {
            _ if !verdict => 0,
            (RoundLength::Brief, true) => 30,
            (RoundLength::Brief, false) => 45,
            (RoundLength::Short, true) => 12,
            (RoundLength::Short, false) => 23,
            (RoundLength::Long, true) => 6,
            (RoundLength::Long, false) => 12,
        };
        RoundCount { judged: default.max(for_verdict), others: default }
    }
}

/// How long a round takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoundLength {
    /// Less than 50 milliseconds.
    Brief,
    /// Less than half a second.
    Short,
    /// A second or more.
    Long,
}

/// Numbers of rounds of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RoundCount {
    /// Rounds of the systems that the verdict compares: Tourbillon with its defaults, and Tokio.
    pub(crate) judged: usize,
    /// Rounds of all other systems.
    pub(crate) others: usize,
}

impl RoundCount {
    /// Returns the same number for all systems.
    pub(crate) fn same(rounds: usize) -> RoundCount {
        RoundCount { judged: rounds, others: rounds }
    }

    fn of(self, kind: SystemKind) -> usize {
        if kind.is_judged() { self.judged } else { self.others }
    }
}

/// The options of a scenario with pending timers.
#[derive(clap::Args, Clone)]
pub(crate) struct PendingOptions {
    #[command(flatten)]
    pub(crate) choice: SystemChoice,
    /// Only these numbers of pending timers.
    #[arg(long, value_delimiter = ',')]
    pending: Vec<usize>,
}

impl PendingOptions {
    /// Returns the numbers of pending timers: the selected ones, or the default.
    pub(crate) fn numbers<'a>(&'a self, default: &'a [usize]) -> &'a [usize] {
        if self.pending.is_empty() { default } else { &self.pending }
    }
}

/// A system in a case of a scenario.
pub(crate) struct BenchEntry {
    pub(crate) system: &'static str,
    pub(crate) case: String,
    /// Sets up the case.
    pub(crate) start: Box<dyn FnOnce() -> RoundFn>,
}

/// Measures one round.
pub(crate) type RoundFn = Box<dyn FnMut() -> Metrics>;

/// The metrics of a round and their values.
pub(crate) type Metrics = Vec<(&'static str, f64)>;

/// Whether the first round is not counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WarmUp {
    Yes,
    /// The scenario warms up by itself.
    No,
}

/// Runs entries with pending timers, and warns if it took so long that those have fired.
pub(crate) fn measure_pending(
    entries: Vec<BenchEntry>,
    choice: &SystemChoice,
    rounds: RoundCount,
    warm_up: WarmUp,
    report: &mut BenchReport,
) {
    let start = Instant::now();
    measure(entries, choice, rounds, warm_up, report);
    if start.elapsed() > FAR {
        eprintln!("warning: this took so long that pending timers may have fired; use fewer --rounds");
    }
}

/// Runs the selected entries, with their rounds interleaved.
pub(crate) fn measure(
    entries: Vec<BenchEntry>,
    choice: &SystemChoice,
    rounds: RoundCount,
    warm_up: WarmUp,
    report: &mut BenchReport,
) {
    for entry in run_rounds(entries, choice, rounds, warm_up) {
        for (metric, values) in entry.figures {
            report.add(Figure::of_rounds(entry.system, entry.case.clone(), metric, values));
        }
    }
}

/// Runs the rounds of the selected entries, and returns the entries with the values of all rounds.
fn run_rounds(
    entries: Vec<BenchEntry>,
    choice: &SystemChoice,
    rounds: RoundCount,
    warm_up: WarmUp,
) -> Vec<RunningEntry> {
    let entries: Vec<BenchEntry> = entries.into_iter().filter(|entry| choice.includes(entry.system)).collect();
    let progress = progress(entries.len());
    let mut running: Vec<RunningEntry> =
        entries.into_iter().map(|entry| RunningEntry::start(entry, rounds, &progress)).collect();
    // Round 0 is the warm-up.
    let first = match warm_up {
        WarmUp::Yes => 0,
        WarmUp::No => 1,
    };
    let last = running.iter().map(|entry| entry.rounds).max().unwrap_or(0);
    progress.set_length((running.len() * (last + 2 - first)) as u64);
    for round in first..=last {
        let mut visited: Vec<&mut RunningEntry> = running.iter_mut().filter(|entry| round <= entry.rounds).collect();
        if round % 2 == 1 {
            visited.reverse();
        }
        for entry in visited {
            entry.run(round, &progress);
        }
    }
    progress.finish_and_clear();
    running
}

/// An entry that is set up.
struct RunningEntry {
    system: &'static str,
    case: String,
    /// Number of rounds that count.
    rounds: usize,
    round: RoundFn,
    /// The values of the rounds so far, by metric.
    figures: Vec<(&'static str, Vec<f64>)>,
}

impl RunningEntry {
    /// Sets up an entry.
    fn start(
        BenchEntry { system, case, start }: BenchEntry,
        rounds: RoundCount,
        progress: &ProgressBar,
    ) -> RunningEntry {
        progress.set_message(format!("{system}, {case}: setting up"));
        let rounds = rounds.of(SystemKind::of(system, &case));
        let entry = RunningEntry { system, case, rounds, round: start(), figures: Vec::new() };
        progress.inc(1);
        entry
    }

    /// Measures a round, and keeps its values unless it is the warm-up.
    fn run(&mut self, round: usize, progress: &ProgressBar) {
        progress.set_message(format!("{}, {}", self.system, self.case));
        wait_until_quiet();
        let figures = (self.round)();
        if round > 0 {
            self.keep(figures);
        }
        progress.inc(1);
    }

    fn keep(&mut self, figures: Metrics) {
        for (metric, value) in figures {
            match self.figures.iter_mut().find(|(name, _)| *name == metric) {
                Some((_, values)) => values.push(value),
                None => self.figures.push((metric, vec![value])),
            }
        }
    }
}

/// Waits until no thread of this process is busy, or for a limited time.
pub(crate) fn wait_until_quiet() {
    const LOOK: Duration = Duration::from_millis(5);
    const QUIET: Duration = Duration::from_micros(500);
    for _ in 0..400 {
        let before = own_cpu_time();
        std::thread::sleep(LOOK);
        if own_cpu_time() - before < QUIET {
            break;
        }
    }
}

/// Returns nanoseconds per operation.
pub(crate) fn per_operation(time: Duration, operations: usize) -> f64 {
    time.as_nanos() as f64 / operations as f64
}

/// The shortest duration of a sleep that should not fire: longer than its case takes.
pub(crate) const FAR: Duration = Duration::from_secs(60);

/// Returns durations of one to two minutes, for sleeps that should not fire.
pub(crate) fn far_durations(count: usize, random: &mut Random) -> Vec<Duration> {
    let spread = FAR.as_nanos() as u64;
    (0..count).map(|_| FAR + Duration::from_nanos(random.any() % spread)).collect()
}

/// Calls `body` inside a poll of the awaiting task.
pub(crate) async fn in_poll<T>(body: impl FnOnce(&mut Context<'_>) -> T) -> T {
    let mut body = Some(body);
    poll_fn(|cx| body.take().map_or(Poll::Pending, |body| Poll::Ready(body(cx)))).await
}

/// Creates boxed sleeps, and polls each once.
pub(crate) async fn arm<F: Future>(sleep: &impl Fn(Duration) -> F, durations: &[Duration]) -> Vec<Pin<Box<F>>> {
    let mut sleeps = Vec::with_capacity(durations.len());
    in_poll(|cx| {
        for &duration in durations {
            let mut new = Box::pin(sleep(duration));
            assert!(new.as_mut().poll(cx).is_pending(), "a sleep of {duration:?} ended at once");
            sleeps.push(new);
        }
    })
    .await;
    sleeps
}

/// Lets the runtime turn once, so that its driver has seen all armed sleeps.
pub(crate) async fn settle<F: Future>(sleep: &impl Fn(Duration) -> F) {
    sleep(Duration::from_millis(2)).await;
}

/// Returns the time from the first start to the last end.
pub(crate) fn span(times: impl IntoIterator<Item = (Instant, Instant)>) -> Duration {
    let whole = times.into_iter().reduce(|(start, end), (s, e)| (start.min(s), end.max(e)));
    whole.map_or(Duration::ZERO, |(start, end)| end - start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_durations_are_of_one_to_two_minutes_and_always_the_same() {
        let durations = far_durations(1_000, &mut Random::new(7));
        assert!(durations.iter().all(|duration| (FAR..2 * FAR).contains(duration)));
        assert_eq!(durations, far_durations(1_000, &mut Random::new(7)));
    }

    fn choice(quick: bool, verdict: bool, rounds: Option<u32>) -> SystemChoice {
        SystemChoice { common: Common { json: false, quick, verdict }, system: Vec::new(), rounds }
    }

    #[test]
    fn a_verdict_has_enough_rounds_of_what_it_judges() {
        let count = |choice: SystemChoice, length| choice.rounds(5, 1, length);
        assert_eq!(count(choice(true, false, None), RoundLength::Short), RoundCount { judged: 1, others: 1 });
        assert_eq!(count(choice(true, true, None), RoundLength::Short), RoundCount { judged: 12, others: 1 });
        assert_eq!(count(choice(true, true, None), RoundLength::Long), RoundCount { judged: 6, others: 1 });
        assert_eq!(count(choice(false, true, None), RoundLength::Long), RoundCount { judged: 12, others: 5 });
        assert_eq!(count(choice(true, true, Some(2)), RoundLength::Long), RoundCount { judged: 2, others: 2 });
    }

    #[test]
    fn rounds_are_interleaved_and_every_other_one_goes_backwards() {
        let visits = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let entry = |system: &'static str| {
            let visits = visits.clone();
            let round = move || {
                visits.borrow_mut().push(system);
                vec![("ns", visits.borrow().len() as f64)]
            };
            BenchEntry { system, case: "pending=1".into(), start: Box::new(move || Box::new(round)) }
        };
        let entries = ["tourbillon", "tokio-multi", "smol"].map(entry).into();
        let rounds = RoundCount { judged: 2, others: 1 };
        let done = run_rounds(entries, &choice(true, true, None), rounds, WarmUp::Yes);
        let expected =
            ["tourbillon", "tokio-multi", "smol", "smol", "tokio-multi", "tourbillon", "tourbillon", "tokio-multi"];
        assert_eq!(*visits.borrow(), expected);
        let figures: Vec<_> = done.into_iter().map(|entry| entry.figures[0].1.clone()).collect();
        assert_eq!(figures, [vec![6.0, 7.0], vec![5.0, 8.0], vec![4.0]], "the warm-up does not count");
    }

    #[test]
    fn a_span_is_from_the_first_start_to_the_last_end() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(span([(at(2), at(5)), (at(1), at(3)), (at(2), at(9))]), Duration::from_secs(8));
    }
}
