//! The systems of the scenario `jobs`, one file each: how it schedules jobs that repeat.

pub(super) mod cron_scheduler;
pub(super) mod tokio_tasks;
pub(super) mod tourbillon;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::run_tally::RunTally;

/// Threads that the jobs of every system run on.
pub(super) const THREADS: usize = 2;

/// Something that runs jobs again and again. Every job does the same: it tells the tally that it ran, and when it was due.
///
/// When it is dropped, no job runs any more.
pub(super) trait JobSystem: Sized + 'static {
    const NAME: &'static str;

    /// About how long it takes to schedule 100,000 jobs. If it takes longer, they are scheduled again.
    const LEAD: Duration;

    /// A system without jobs, that has room for so many runs at a time.
    fn new(runs: usize) -> Self;

    /// Schedules a job for each of the plans, under the keys from 0 on. Returns how many bytes of each are the user's: its
    /// key and what its closure has captured.
    fn schedule_all(&mut self, plans: &Arc<[JobPlan]>, tally: &'static RunTally) -> usize;

    /// Lets what was scheduled begin, where that takes a call of its own.
    fn start(&mut self) {}

    /// Schedules one more job for each of the plans, under a key that no other has, and removes it before the next. Returns
    /// how long all that took.
    fn schedule_and_remove(&mut self, plans: &Arc<[JobPlan]>, tally: &'static RunTally) -> Duration;
}

/// When a job is to run: every period, from an instant on or else after one period.
#[derive(Clone, Copy)]
pub(super) struct JobPlan {
    pub(super) period: Duration,
    pub(super) first: Option<Instant>,
}

impl JobPlan {
    pub(super) fn every(period: Duration) -> JobPlan {
        JobPlan { period, first: None }
    }

    /// When the first run is due, if the job is scheduled now.
    fn first(&self) -> Instant {
        self.first.unwrap_or_else(|| Instant::now() + self.period)
    }
}
