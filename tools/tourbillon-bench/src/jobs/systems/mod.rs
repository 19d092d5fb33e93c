//! The systems of the scenario `jobs`, one file each.

pub(super) mod cron_scheduler;
pub(super) mod tokio_tasks;
pub(super) mod tourbillon;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::run_tally::RunTally;

/// Threads that run the jobs of every system.
pub(super) const THREADS: usize = 2;

/// A system that runs repeating jobs. Every job records in the tally that it ran, and when it was due.
///
/// After the system is dropped, no job runs.
pub(super) trait JobSystem: Sized + 'static {
    const NAME: &'static str;

    /// Approximate time to schedule 100,000 jobs. If it takes longer, the round is repeated with more time.
    const LEAD: Duration;

    /// Returns a system without jobs, with room for `runs` runs at a time.
    fn new(runs: usize) -> Self;

    /// Schedules a job for each plan, under the keys from 0 on. Returns how many bytes of each job hold its key and captured
    /// values.
    fn schedule_all(&mut self, plans: &Arc<[JobPlan]>, tally: &'static RunTally) -> usize;

    /// Starts the scheduled jobs, if the system needs a call for that.
    fn start(&mut self) {}

    /// Schedules another job for each plan, under a new key, and removes it before the next. Returns the time that took.
    fn schedule_and_remove(&mut self, plans: &Arc<[JobPlan]>, tally: &'static RunTally) -> Duration;
}

/// When a job runs: every period, from an instant on or else after one period.
#[derive(Clone, Copy)]
pub(super) struct JobPlan {
    pub(super) period: Duration,
    pub(super) first: Option<Instant>,
}

impl JobPlan {
    pub(super) fn every(period: Duration) -> JobPlan {
        JobPlan { period, first: None }
    }

    /// Returns when the first run is due, if the job is scheduled now.
    fn first(&self) -> Instant {
        self.first.unwrap_or_else(|| Instant::now() + self.period)
    }
}
