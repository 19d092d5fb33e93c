//! Case `memory`: the resident bytes of a job that waits for its next run, in a process of its own for each system.

use std::sync::Arc;
use std::time::Duration;

use tourbillon_tools::Random;

use super::run_tally::RunTally;
use super::systems::{JobPlan, JobSystem};
use super::{CronScheduler, JobsOptions, TokioTasks, Tourbillon};
use crate::harness::{BenchEntry, RoundLength, WarmUp, far_durations, measure};
use crate::memory::run_in_own_process;
use crate::process_usage::own_resident;
use crate::report::BenchReport;

/// The arguments of the measured process.
#[derive(clap::Args)]
pub(crate) struct JobsMemoryArgs {
    system: String,
    jobs: usize,
}

/// Time for background threads to take over what was scheduled.
const SETTLE: Duration = Duration::from_millis(500);

/// Runs the case.
pub(super) fn run(options: &JobsOptions, report: &mut BenchReport) {
    let choice = &options.choice;
    let mut entries = Vec::new();
    entries.extend(options.live().map(entry::<Tourbillon>));
    entries.extend(options.live().map(entry::<TokioTasks>));
    entries.extend(options.live_if_slow().map(entry::<CronScheduler>));
    measure(entries, choice, choice.rounds(3, 1, RoundLength::Long), WarmUp::No, report);
}

fn entry<S: JobSystem>(jobs: usize) -> BenchEntry {
    let round = move || {
        let [resident, user_bytes] = run_in_own_process(&["jobs-memory-of", S::NAME, &jobs.to_string()]);
        vec![("resident_bytes", resident), ("bytes_beyond_key_and_closure", resident - user_bytes)]
    };
    BenchEntry { system: S::NAME, case: format!("memory={jobs}"), start: Box::new(move || Box::new(round)) }
}

/// Measures one system in this process, and prints the two numbers.
pub(crate) fn run_one(of: &JobsMemoryArgs) {
    let (resident, user_bytes) = match of.system.as_str() {
        Tourbillon::NAME => grow::<Tourbillon>(of.jobs),
        TokioTasks::NAME => grow::<TokioTasks>(of.jobs),
        CronScheduler::NAME => grow::<CronScheduler>(of.jobs),
        _ => return,
    };
    println!("{resident} {user_bytes}");
}

/// Returns the resident bytes per job, and those of them that hold the user's key and closure.
fn grow<S: JobSystem>(jobs: usize) -> (f64, usize) {
    let (mut system, tally) = (S::new(0), RunTally::for_idle_jobs());
    let plans: Arc<[JobPlan]> = far_durations(jobs, &mut Random::new(1)).into_iter().map(JobPlan::every).collect();
    // Everything that the first job starts is running before the measurement.
    system.schedule_and_remove(&plans[..1].into(), tally);
    std::thread::sleep(SETTLE);
    let before = own_resident();
    let user_bytes = system.schedule_all(&plans, tally);
    std::thread::sleep(SETTLE);
    let grown = own_resident().saturating_sub(before);
    // The plans were allocated before the measurement began, and must live until it ends.
    drop(plans);
    (grown as f64 / jobs as f64, user_bytes)
}
