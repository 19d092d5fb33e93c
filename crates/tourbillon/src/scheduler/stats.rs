//! Counts of a scheduler, for all jobs and for each.

use super::history::LastRun;
use crate::instant::Instant;

/// How many runs a job has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Remaining {
    /// This many, without those that are queued or being made.
    Runs(u64),
    /// The job runs until it is removed.
    ForEver,
}

/// Counts of all that a scheduler has done so far, and of all that it has now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SchedulerStats {
    /// Jobs that the scheduler has now.
    pub jobs: usize,
    /// Runs that are queued now.
    pub waiting: usize,
    /// Runs that are being made now.
    pub running: usize,
    /// Runs that have begun.
    pub runs: u64,
    /// Runs that panicked, returned an error, or were cancelled by their [time limit](super::Plan::time_limit).
    pub failed: u64,
    /// Runs that were [retries](super::Plan::retry).
    pub retried: u64,
    /// Runs that took longer than their [time limit](super::Plan::time_limit).
    pub over_limit: u64,
    /// Runs that were not made because the job's previous run had not ended: [`Overlap`](super::Overlap).
    pub overlapped: u64,
    /// Runs that were not made because the queue was full: [`Overflow::Skip`](super::Overflow::Skip).
    pub overflowed: u64,
    /// Runs that were queued although the queue was full: [`Overflow::RunLate`](super::Overflow::RunLate).
    pub late: u64,
    /// Occurrences that were due and for which no run was made, because their time had passed:
    /// [`Builder::missed`](super::Builder::missed). The late run that is made is not one of them, and a plan that ends with that run has
    /// no occurrences after it. Of a cron line at most a thousand are counted at a time, because the clock may have been set by years.
    pub missed: u64,
    /// Runs that [`Shutdown::Abort`](super::Shutdown::Abort) ended, or removed from the queue, and futures that their executor dropped.
    pub aborted: u64,
}

/// Counts of all that one job has done so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct JobReport {
    /// Runs that have begun.
    pub runs: u64,
    /// Runs that panicked, returned an error, or were cancelled by their [time limit](super::Plan::time_limit).
    pub failed: u64,
    /// Runs that were [retries](super::Plan::retry).
    pub retried: u64,
    /// Runs that took longer than their [time limit](super::Plan::time_limit).
    pub over_limit: u64,
    /// Runs that were not made because the job's previous run had not ended.
    pub overlapped: u64,
    /// Runs that were not made because the queue was full.
    pub overflowed: u64,
    /// Occurrences for which no run was made because their time had passed: [`SchedulerStats::missed`].
    pub missed: u64,
    /// The message of the last failure.
    pub last_failure: Option<String>,
    /// The last run that has ended; `None` before the first has.
    pub last_run: Option<LastRun>,
    /// When the next [retry](super::Plan::retry) is due; `None` if none is pending.
    pub next_retry: Option<Instant>,
}
