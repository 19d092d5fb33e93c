//! The cases and systems of the scenario `virtual`.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tourbillon_tools::Random;

use super::{manual_engine, tokio_multi};
use crate::harness::{BenchEntry, RoundLength, SystemChoice, WarmUp, arm, measure, per_operation, settle};
use crate::report::BenchReport;
use crate::systems::tokio::Tokio;
use crate::systems::tourbillon_rt::TourbillonRt;
use crate::systems::{TaskRunner, tokio, tourbillon, tourbillon_rt};

const SYSTEMS: &[&str] =
    &[tourbillon::NAME, tokio::CURRENT, tourbillon_rt::NAME, manual_engine::NAME, tokio_multi::NAME];

const NANOS: &str = "ns_per_sleep";
const TIMES: &str = "times_tokio";

/// Runs the scenario.
pub(super) fn run(choice: &SystemChoice, report: &mut BenchReport) {
    choice.check(SYSTEMS);
    let size = if choice.common.quick { 10 } else { 1 };
    // The last case takes a few milliseconds per round, so it gets more rounds, which makes its median as steady as the others.
    for (work, rounds) in [(in_turn(2_000), 21), (at_once(100_000 / size), 21), (tasks(50, 50), 201)] {
        let entries = vec![
            entry(tourbillon::NAME, &work, |work| in_runtime(Tokio::paused(), tourbillon::sleep, work)),
            entry(tokio::CURRENT, &work, |work| in_runtime(Tokio::paused(), tokio::sleep, work)),
            entry(tourbillon_rt::NAME, &work, |work| in_runtime(TourbillonRt::paused(), tourbillon::sleep, work)),
            entry(manual_engine::NAME, &work, manual_engine::run),
            entry(tokio_multi::NAME, &work, tokio_multi::run),
        ];
        measure(entries, choice, choice.rounds(rounds, 5, RoundLength::Short), WarmUp::Yes, report);
        for system in SYSTEMS.iter().filter(|system| **system != tokio::CURRENT) {
            report.add_times(TIMES, NANOS, (system, &work.case), (tokio::CURRENT, &work.case));
        }
    }
}

/// The work of a round.
#[derive(Clone)]
pub(super) struct VirtualWork {
    case: String,
    /// The sleeps of each task.
    pub(super) tasks: Arc<[TaskSleeps]>,
}

/// The sleeps of a task.
#[derive(Clone)]
pub(super) struct TaskSleeps {
    pub(super) order: SleepOrder,
    /// Whole milliseconds, since Tokio rounds to them.
    pub(super) durations: Arc<[Duration]>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SleepOrder {
    /// Each begins when the last one has ended.
    InTurn,
    /// All are armed in boxes, and then awaited.
    AtOnce,
}

impl VirtualWork {
    fn new(case: String, tasks: Vec<TaskSleeps>) -> VirtualWork {
        VirtualWork { case, tasks: tasks.into() }
    }

    fn sleeps(&self) -> usize {
        self.tasks.iter().map(|task| task.durations.len()).sum()
    }

    /// Returns the least virtual time that passes.
    fn takes(&self) -> Duration {
        self.tasks.iter().map(TaskSleeps::takes).max().unwrap_or_default()
    }
}

impl TaskSleeps {
    fn takes(&self) -> Duration {
        match self.order {
            SleepOrder::InTurn => self.durations.iter().sum(),
            SleepOrder::AtOnce => self.longest(),
        }
    }

    pub(super) fn longest(&self) -> Duration {
        self.durations.iter().max().copied().unwrap_or_default()
    }
}

fn in_turn(count: usize) -> VirtualWork {
    let durations = millis(count, 1_000, &mut Random::new(0));
    VirtualWork::new(format!("in-turn,sleeps={count}"), vec![TaskSleeps { order: SleepOrder::InTurn, durations }])
}

fn at_once(count: usize) -> VirtualWork {
    let durations = millis(count, 10_000, &mut Random::new(1));
    VirtualWork::new(format!("at-once,sleeps={count}"), vec![TaskSleeps { order: SleepOrder::AtOnce, durations }])
}

fn tasks(tasks: usize, each: usize) -> VirtualWork {
    let random = &mut Random::new(2);
    let sleeps = |_| TaskSleeps { order: SleepOrder::InTurn, durations: millis(each, 100, random) };
    VirtualWork::new(format!("tasks={tasks},sleeps={each}"), (0..tasks).map(sleeps).collect())
}

/// Returns durations of 1 ms to `longest` ms.
fn millis(count: usize, longest: u64, random: &mut Random) -> Arc<[Duration]> {
    (0..count).map(|_| Duration::from_millis(1 + random.below(longest))).collect()
}

/// Returns an entry. `round` sets up, measures the work alone, and cleans up.
fn entry(system: &'static str, work: &VirtualWork, round: fn(&VirtualWork) -> Duration) -> BenchEntry {
    let (case, work) = (work.case.clone(), work.clone());
    let start = move || {
        Box::new(move || {
            let time = round(&work);
            assert!(time < work.takes(), "{system} has slept in real time");
            vec![(NANOS, per_operation(time, work.sleeps()))]
        }) as _
    };
    BenchEntry { system, case, start: Box::new(start) }
}

type VirtualTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs the work in a runtime after its timers have been used once.
fn in_runtime<F, S>(mut runtime: impl TaskRunner<VirtualTask>, sleep: S, work: &VirtualWork) -> Duration
where
    F: Future<Output = ()> + Send + 'static,
    S: Fn(Duration) -> F + Copy + Send + Sync + 'static,
{
    runtime.run_one(Box::pin(async move { settle(&sleep).await }));
    let tasks: Vec<VirtualTask> =
        work.tasks.iter().map(|sleeps| Box::pin(task(sleep, sleeps.clone())) as VirtualTask).collect();
    let start = Instant::now();
    runtime.run(tasks);
    start.elapsed()
}

pub(super) async fn task<F: Future<Output = ()>>(
    sleep: impl Fn(Duration) -> F,
    TaskSleeps { order, durations }: TaskSleeps,
) {
    match order {
        SleepOrder::InTurn => {
            for &duration in durations.iter() {
                sleep(duration).await;
            }
        }
        SleepOrder::AtOnce => {
            for sleep in arm(&sleep, &durations).await {
                sleep.await;
            }
        }
    }
}
