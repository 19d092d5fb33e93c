//! Case `live`: the cost to schedule and remove a job beside many live ones.

use std::sync::Arc;
use std::time::Duration;

use tourbillon_tools::Random;

use super::run_tally::RunTally;
use super::systems::{JobPlan, JobSystem};
use super::{CronScheduler, JobsOptions, TokioTasks, Tourbillon};
use crate::churn::arm_and_cancel;
use crate::harness::{BenchEntry, RoundLength, WarmUp, arm, far_durations, measure_pending, per_operation};
use crate::report::BenchReport;
use crate::systems::async_io::BlockOn;
use crate::systems::{TaskRunner, tourbillon};

/// How often the two compared operations take turns in a round.
const SLICES: usize = 10;

/// Runs the case.
pub(super) fn run(options: &JobsOptions, report: &mut BenchReport) {
    let choice = &options.choice;
    let operations = if choice.common.quick { 100_000 } else { 300_000 };
    let mut entries = Vec::new();
    entries.extend(options.live().map(|jobs| ours(jobs, operations)));
    entries.extend(options.live().map(|jobs| entry::<TokioTasks>(jobs, operations)));
    entries.extend(options.live_if_slow().map(|jobs| entry::<CronScheduler>(jobs, operations / 10)));
    measure_pending(entries, choice, choice.rounds(9, 3, RoundLength::Short), WarmUp::Yes, report);
}

/// Returns Tourbillon's entry, which also measures arming and cancelling a sleep, the operation that scheduling is built on.
fn ours(jobs: usize, operations: usize) -> BenchEntry {
    let start = move || {
        let mut live = LiveJobs::<Tourbillon>::new(jobs, operations);
        let pending = BlockOn.run_one(arm(&tourbillon::sleep, &far_durations(jobs, &mut Random::new(1))));
        Box::new(move || {
            let _until_the_last_round = &pending;
            let (scheduling, churn) = beside_churn(&mut live);
            vec![("ns_per_op", scheduling), ("churn_ns_per_op", churn), ("times_churn", scheduling / churn)]
        }) as _
    };
    BenchEntry { system: Tourbillon::NAME, case: format!("live={jobs}"), start: Box::new(start) }
}

/// Returns the nanoseconds to schedule and remove a job, and to create, poll and drop a sleep. The two take turns.
fn beside_churn(live: &mut LiveJobs<Tourbillon>) -> (f64, f64) {
    let (mut scheduling, mut churn, mut slices) = (0.0, 0.0, 0.0);
    for periods in live.periods.chunks(live.periods.len().div_ceil(SLICES)) {
        churn += arm_and_cancel(&tourbillon::sleep, periods);
        scheduling += per_operation(live.system.schedule_and_remove(&plans(periods), live.tally), periods.len());
        slices += 1.0;
    }
    (scheduling / slices, churn / slices)
}

fn entry<S: JobSystem>(jobs: usize, operations: usize) -> BenchEntry {
    let start = move || {
        let mut live = LiveJobs::<S>::new(jobs, operations);
        Box::new(move || vec![("ns_per_op", per_operation(live.schedule_and_remove(), operations))]) as _
    };
    BenchEntry { system: S::NAME, case: format!("live={jobs}"), start: Box::new(start) }
}

/// A system with many jobs, none of which should run.
struct LiveJobs<S> {
    system: S,
    /// Periods of the jobs that are scheduled and removed.
    periods: Vec<Duration>,
    tally: &'static RunTally,
}

impl<S: JobSystem> LiveJobs<S> {
    fn new(jobs: usize, operations: usize) -> LiveJobs<S> {
        let (mut system, tally) = (S::new(0), RunTally::for_idle_jobs());
        system.schedule_all(&plans(&far_durations(jobs, &mut Random::new(1))), tally);
        LiveJobs { system, periods: far_durations(operations, &mut Random::new(0)), tally }
    }

    fn schedule_and_remove(&mut self) -> Duration {
        self.system.schedule_and_remove(&plans(&self.periods), self.tally)
    }
}

/// Returns a plan for each period, which is also the time until its first run.
fn plans(periods: &[Duration]) -> Arc<[JobPlan]> {
    periods.iter().map(|&period| JobPlan::every(period)).collect()
}
