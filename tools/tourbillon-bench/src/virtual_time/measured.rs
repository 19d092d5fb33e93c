//! The cases, and the systems that take part.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tourbillon_tools::Random;

use super::{by_hand, multi};
use crate::harness::{Choice, Entry, Interval, WarmUp, arm, measure_with_interval, per_operation, settle};
use crate::report::Report;
use crate::systems::tokio::Tokio;
use crate::systems::tourbillon_rt::TourbillonRt;
use crate::systems::{Runtime, tokio, tourbillon, tourbillon_rt};

const SYSTEMS: &[&str] = &[tourbillon::NAME, tokio::CURRENT, tourbillon_rt::NAME, by_hand::NAME, multi::NAME];

const NANOS: &str = "ns_per_sleep";
const INTERVAL: Interval = Interval { low: "ns_per_sleep_low", high: "ns_per_sleep_high" };
const TIMES: &str = "times_tokio";

/// Runs the scenario.
pub(super) fn run(choice: &Choice, report: &mut Report) {
    choice.check(SYSTEMS);
    let size = if choice.common.quick { 10 } else { 1 };
    // The last case takes a few milliseconds a round, so it gets more of them: its median is then as steady as the others'.
    for (work, rounds) in [(in_turn(2_000), 21), (at_once(100_000 / size), 21), (tasks(50, 50), 201)] {
        let entries = vec![
            entry(tourbillon::NAME, &work, |work| in_runtime(Tokio::paused(), tourbillon::sleep, work)),
            entry(tokio::CURRENT, &work, |work| in_runtime(Tokio::paused(), tokio::sleep, work)),
            entry(tourbillon_rt::NAME, &work, |work| in_runtime(TourbillonRt::paused(), tourbillon::sleep, work)),
            entry(by_hand::NAME, &work, by_hand::run),
            entry(multi::NAME, &work, multi::run),
        ];
        measure_with_interval(entries, choice, choice.rounds(rounds, 5), WarmUp::Yes, INTERVAL, report);
        for system in SYSTEMS.iter().filter(|system| **system != tokio::CURRENT) {
            report.add_times(TIMES, NANOS, (system, &work.case), (tokio::CURRENT, &work.case));
        }
    }
}

/// What a round is to do.
#[derive(Clone)]
pub(super) struct Work {
    case: String,
    /// What each task sleeps.
    pub(super) tasks: Arc<[Sleeps]>,
}

/// What a task sleeps.
#[derive(Clone)]
pub(super) struct Sleeps {
    pub(super) order: Order,
    /// In whole milliseconds, to which Tokio rounds.
    pub(super) durations: Arc<[Duration]>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Each begins when the last one has ended.
    InTurn,
    /// All are armed, each in a box of its own, and then waited for.
    AtOnce,
}

impl Work {
    fn new(case: String, tasks: Vec<Sleeps>) -> Work {
        Work { case, tasks: tasks.into() }
    }

    fn sleeps(&self) -> usize {
        self.tasks.iter().map(|task| task.durations.len()).sum()
    }

    /// The virtual time that passes at least.
    fn takes(&self) -> Duration {
        self.tasks.iter().map(Sleeps::takes).max().unwrap_or_default()
    }
}

impl Sleeps {
    fn takes(&self) -> Duration {
        match self.order {
            Order::InTurn => self.durations.iter().sum(),
            Order::AtOnce => self.longest(),
        }
    }

    pub(super) fn longest(&self) -> Duration {
        self.durations.iter().max().copied().unwrap_or_default()
    }
}

fn in_turn(count: usize) -> Work {
    let durations = millis(count, 1_000, &mut Random::new(0));
    Work::new(format!("in-turn,sleeps={count}"), vec![Sleeps { order: Order::InTurn, durations }])
}

fn at_once(count: usize) -> Work {
    let durations = millis(count, 10_000, &mut Random::new(1));
    Work::new(format!("at-once,sleeps={count}"), vec![Sleeps { order: Order::AtOnce, durations }])
}

fn tasks(tasks: usize, each: usize) -> Work {
    let random = &mut Random::new(2);
    let sleeps = |_| Sleeps { order: Order::InTurn, durations: millis(each, 100, random) };
    Work::new(format!("tasks={tasks},sleeps={each}"), (0..tasks).map(sleeps).collect())
}

/// So many durations of 1 ms to `longest` ms.
fn millis(count: usize, longest: u64, random: &mut Random) -> Arc<[Duration]> {
    (0..count).map(|_| Duration::from_millis(1 + random.below(longest))).collect()
}

/// The function sets up, takes the time for the work alone, and cleans up.
fn entry(system: &'static str, work: &Work, round: fn(&Work) -> Duration) -> Entry {
    let (case, work) = (work.case.clone(), work.clone());
    let start = move || {
        Box::new(move || {
            let time = round(&work);
            assert!(time < work.takes(), "{system} has slept in real time");
            vec![(NANOS, per_operation(time, work.sleeps()))]
        }) as _
    };
    Entry { system, case, start: Box::new(start) }
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// In a new runtime, whose timers have been used once.
fn in_runtime<F, S>(mut runtime: impl Runtime<Task>, sleep: S, work: &Work) -> Duration
where
    F: Future<Output = ()> + Send + 'static,
    S: Fn(Duration) -> F + Copy + Send + Sync + 'static,
{
    runtime.run_one(Box::pin(async move { settle(&sleep).await }));
    let tasks: Vec<Task> = work.tasks.iter().map(|sleeps| Box::pin(task(sleep, sleeps.clone())) as Task).collect();
    let start = Instant::now();
    runtime.run(tasks);
    start.elapsed()
}

pub(super) async fn task<F: Future<Output = ()>>(sleep: impl Fn(Duration) -> F, Sleeps { order, durations }: Sleeps) {
    match order {
        Order::InTurn => {
            for &duration in durations.iter() {
                sleep(duration).await;
            }
        }
        Order::AtOnce => {
            for sleep in arm(&sleep, &durations).await {
                sleep.await;
            }
        }
    }
}
