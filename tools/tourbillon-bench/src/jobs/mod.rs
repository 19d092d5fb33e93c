//! Scenario `jobs`: keyed jobs that repeat, many of them; and timers by name.
//!
//! Every system is behind [`JobSystem`], and every case is written once, generic over it.

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

/// What is measured. The README defines each of them.
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

/// Jobs that are live and do not run.
const LIVE: &[usize] = &[1_000_000];

/// The same in a quick run, for a system that takes seconds to get so far.
const LIVE_QUICK: &[usize] = &[100_000];

impl JobsOptions {
    /// How many jobs that are live and do not run.
    fn live(&self) -> impl Iterator<Item = usize> {
        self.jobs(LIVE)
    }

    /// The same for a system that is slow to schedule them.
    fn live_if_slow(&self) -> impl Iterator<Item = usize> {
        self.jobs(if self.choice.common.quick { LIVE_QUICK } else { LIVE })
    }

    /// How many jobs: as asked for, or by default.
    fn jobs<'a>(&'a self, default: &'a [usize]) -> impl Iterator<Item = usize> + 'a {
        let jobs = if self.jobs.is_empty() { default } else { &self.jobs };
        jobs.iter().copied().filter(|&jobs| jobs > 0)
    }
}
