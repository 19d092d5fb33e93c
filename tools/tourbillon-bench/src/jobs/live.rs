//! Case `live`: what it costs to schedule one more job and to remove it, beside many that are live.

use std::sync::Arc;
use std::time::Duration;

use tourbillon_tools::Random;

use super::systems::{Plan, System};
use super::tally::Tally;
use super::{CronScheduler, Options, TokioTasks, Tourbillon};
use crate::churn::arm_and_cancel;
use crate::harness::{Entry, WarmUp, arm, far_durations, measure_pending, per_operation};
use crate::report::Report;
use crate::systems::async_io::BlockOn;
use crate::systems::{Runtime, tourbillon};

/// How often two operations that are to be compared take turns in a round.
const SLICES: usize = 10;

/// Runs the case.
pub(super) fn run(options: &Options, report: &mut Report) {
    let choice = &options.choice;
    let operations = if choice.common.quick { 100_000 } else { 300_000 };
    let mut entries = Vec::new();
    entries.extend(options.live().map(|jobs| ours(jobs, operations)));
    entries.extend(options.live().map(|jobs| entry::<TokioTasks>(jobs, operations)));
    entries.extend(options.live_if_slow().map(|jobs| entry::<CronScheduler>(jobs, operations / 10)));
    measure_pending(entries, choice, choice.rounds(9, 3), WarmUp::Yes, report);
}

/// Ours, together with the bare operation of the engine: what arming and cancelling costs, of which a scheduler is made.
fn ours(jobs: usize, operations: usize) -> Entry {
    let start = move || {
        let mut live = Live::<Tourbillon>::new(jobs, operations);
        let pending = BlockOn.run_one(arm(&tourbillon::sleep, &far_durations(jobs, &mut Random::new(1))));
        Box::new(move || {
            let _until_the_last_round = &pending;
            let (scheduling, churn) = beside_churn(&mut live);
            vec![("ns_per_op", scheduling), ("churn_ns_per_op", churn), ("times_churn", scheduling / churn)]
        }) as _
    };
    Entry { system: Tourbillon::NAME, case: format!("live={jobs}"), start: Box::new(start) }
}

/// Nanoseconds to schedule and remove a job, and to create, poll and drop a sleep. They take turns.
fn beside_churn(live: &mut Live<Tourbillon>) -> (f64, f64) {
    let (mut scheduling, mut churn, mut slices) = (0.0, 0.0, 0.0);
    for periods in live.periods.chunks(live.periods.len().div_ceil(SLICES)) {
        churn += arm_and_cancel(&tourbillon::sleep, periods);
        scheduling += per_operation(live.system.schedule_and_remove(&plans(periods), live.tally), periods.len());
        slices += 1.0;
    }
    (scheduling / slices, churn / slices)
}

fn entry<S: System>(jobs: usize, operations: usize) -> Entry {
    let start = move || {
        let mut live = Live::<S>::new(jobs, operations);
        Box::new(move || vec![("ns_per_op", per_operation(live.schedule_and_remove(), operations))]) as _
    };
    Entry { system: S::NAME, case: format!("live={jobs}"), start: Box::new(start) }
}

/// A system with many jobs, none of which is meant to run.
struct Live<S> {
    system: S,
    /// Of the jobs that are scheduled and removed.
    periods: Vec<Duration>,
    tally: &'static Tally,
}

impl<S: System> Live<S> {
    fn new(jobs: usize, operations: usize) -> Live<S> {
        let (mut system, tally) = (S::new(0), Tally::of_nothing());
        system.schedule_all(&plans(&far_durations(jobs, &mut Random::new(1))), tally);
        Live { system, periods: far_durations(operations, &mut Random::new(0)), tally }
    }

    fn schedule_and_remove(&mut self) -> Duration {
        self.system.schedule_and_remove(&plans(&self.periods), self.tally)
    }
}

/// One for each period, which is also the time until its first run.
fn plans(periods: &[Duration]) -> Arc<[Plan]> {
    periods.iter().map(|&period| Plan::every(period)).collect()
}
