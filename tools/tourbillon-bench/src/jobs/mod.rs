//! Scenario `jobs`: many keyed jobs that repeat, and timers by name.
//!
//! Every system implements [`JobSystem`], and every case is written once, generic over it.

mod cancel_named;
mod live;
mod memory;
mod run_tally;
mod spread;
mod systems;

use clap::ValueEnum;

pub(crate) use self::memory::{JobsMemoryArgs, run_one};
use self::systems::JobSystem;
use self::systems::cron_scheduler::CronScheduler;
use self::systems::tokio_tasks::TokioTasks;
use self::systems::tourbillon::Tourbillon;
use crate::harness::SystemChoice;
use crate::report::BenchReport;

#[derive(clap::Args)]
pub(crate) struct JobsOptions {
    #[command(flatten)]
    pub(crate) choice: SystemChoice,
    /// Only these cases.
    #[arg(long, value_enum, value_delimiter = ',')]
    case: Vec<JobsCase>,
    /// Only these numbers of jobs, or of timers of one name.
    #[arg(long, value_delimiter = ',')]
    jobs: Vec<usize>,
}

/// The cases, which the README defines.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum JobsCase {
    LiveJobs,
    Memory,
    Spread,
    CancelNamed,
}

const SYSTEMS: &[&str] = &[Tourbillon::NAME, TokioTasks::NAME, CronScheduler::NAME];

/// Runs the scenario.
pub(crate) fn run(options: &JobsOptions, report: &mut BenchReport) {
    options.choice.check(SYSTEMS);
    let cases = if options.case.is_empty() { JobsCase::value_variants() } else { &options.case };
    for case in cases {
        match case {
            JobsCase::LiveJobs => live::run(options, report),
            JobsCase::Memory => memory::run(options, report),
            JobsCase::Spread => spread::run(options, report),
            JobsCase::CancelNamed => cancel_named::run(options, report),
        }
    }
}

/// Numbers of live jobs that do not run.
const LIVE: &[usize] = &[1_000_000];

/// The same in a quick run, for a system that takes seconds to schedule a million.
const LIVE_QUICK: &[usize] = &[100_000];

impl JobsOptions {
    /// Returns the numbers of live jobs that do not run.
    fn live(&self) -> impl Iterator<Item = usize> {
        self.jobs(LIVE)
    }

    /// Returns the same numbers for a system that schedules slowly.
    fn live_if_slow(&self) -> impl Iterator<Item = usize> {
        self.jobs(if self.choice.common.quick { LIVE_QUICK } else { LIVE })
    }

    /// Returns the numbers of jobs: the selected ones, or the default.
    fn jobs<'a>(&'a self, default: &'a [usize]) -> impl Iterator<Item = usize> + 'a {
        let jobs = if self.jobs.is_empty() { default } else { &self.jobs };
        jobs.iter().copied().filter(|&jobs| jobs > 0)
    }
}
