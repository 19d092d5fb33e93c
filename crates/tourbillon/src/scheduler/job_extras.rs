//! The parts of a job that most jobs do not need: its options, its pending retries, its counts of problems.

use tourbillon_queue::Time;

use super::options::PlanOptions;
use super::timings::RunTimings;

/// Boxed, because most jobs have none.
#[derive(Default)]
pub(super) struct JobExtras {
    pub(super) problems: JobProblems,
    pub(super) options: Option<Box<PlanOptions>>,
    /// Retries that are not due yet. There are several only if runs overlap.
    pub(super) retries: Vec<PendingRetry>,
    /// When a run was asked for, that is made when the active run has ended.
    pub(super) requested: Option<Time>,
    /// Which attempt the last run was that has ended.
    pub(super) last_attempt: u32,
    pub(super) timings: Option<Box<RunTimings>>,
}

/// Counts of failed runs, and of occurrences without a run.
#[derive(Clone, Default)]
pub(super) struct JobProblems {
    pub(super) failed: u64,
    pub(super) retried: u64,
    pub(super) over_limit: u64,
    pub(super) overlapped: u64,
    pub(super) overflowed: u64,
    pub(super) missed: u64,
    pub(super) last_failure: Option<String>,
}

/// A retry that is not due yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PendingRetry {
    /// On the engine's clock, for all jobs.
    pub(super) due: Time,
    pub(super) attempt: u32,
    /// When the occurrence was due that is repeated, if the job follows the wall clock; else `NEVER`.
    pub(super) wall: Time,
}

impl JobExtras {
    /// Returns extras with these options.
    pub(super) fn of(options: Box<PlanOptions>) -> JobExtras {
        JobExtras { options: Some(options), ..JobExtras::default() }
    }

    /// Returns when the first retry is due.
    pub(super) fn next_retry(&self) -> Time {
        self.retries.iter().map(|retry| retry.due).min().unwrap_or(Time::NEVER)
    }

    /// Takes the first retry, if it is due by `now`.
    pub(super) fn take_retry(&mut self, now: Time) -> Option<PendingRetry> {
        let first = (0..self.retries.len()).min_by_key(|index| self.retries[*index].due)?;
        (self.retries[first].due <= now).then(|| self.retries.remove(first))
    }

    /// Forgets all runs that were still to be made beside the regular ones.
    pub(super) fn forget_extra_runs(&mut self) {
        self.retries.clear();
        self.requested = None;
    }
}
