//! The parts of a job that most jobs do not need: its options, its backlog, its pending retries, its counts of problems.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tourbillon_queue::Time;

use super::options::PlanOptions;
use super::timings::RunTimings;

/// Boxed, because most jobs have none.
#[derive(Default)]
pub(super) struct JobExtras {
    pub(super) problems: JobProblems,
    pub(super) options: Option<Box<PlanOptions>>,
    pub(super) backlog: Backlog,
    pub(super) retries: PendingRetries,
    /// When a run was asked for, that is made when the active run has ended.
    pub(super) requested: Option<Time>,
    /// Which attempt the last run was that has ended.
    pub(super) last_attempt: u32,
    pub(super) timings: Option<Box<RunTimings>>,
}

/// Runs that were due while a run of the same job was active. They are made one after the other when it has ended.
#[derive(Clone, Copy, Default)]
pub(super) struct Backlog {
    pub(super) count: u64,
    /// When the first of them was due.
    pub(super) due: Time,
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

/// The retries of a job that are not due yet. There are several only if runs overlap, and then there may be many.
#[derive(Default)]
pub(super) struct PendingRetries {
    by_due: BinaryHeap<Reverse<(Time, u64, PendingRetry)>>,
    /// How many retries were ever added. Those that are due together are taken in the order in which they were added.
    added: u64,
}

/// A retry that is not due yet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct PendingRetry {
    /// On the engine's clock, for all jobs.
    pub(super) due: Time,
    pub(super) attempt: u32,
    /// When the occurrence was due that is repeated, if the job follows the wall clock; else `NEVER`.
    pub(super) wall: Time,
}

impl JobExtras {
    /// Returns extras with these options.
    #[cold]
    pub(super) fn of(options: Box<PlanOptions>) -> Box<JobExtras> {
        Box::new(JobExtras { options: Some(options), ..JobExtras::default() })
    }

    /// Forgets all runs that were still to be made beside the regular ones.
    pub(super) fn forget_extra_runs(&mut self) {
        self.retries.clear();
        self.requested = None;
    }
}

impl PendingRetries {
    pub(super) fn is_empty(&self) -> bool {
        self.by_due.is_empty()
    }

    /// Returns when the first retry is due; `NEVER` if there is none.
    pub(super) fn next_due(&self) -> Time {
        self.by_due.peek().map_or(Time::NEVER, |Reverse((due, ..))| *due)
    }

    pub(super) fn push(&mut self, retry: PendingRetry) {
        self.added += 1;
        self.by_due.push(Reverse((retry.due, self.added, retry)));
    }

    /// Takes the first retry, if it is due by `now`.
    pub(super) fn take_due(&mut self, now: Time) -> Option<PendingRetry> {
        if self.next_due() > now {
            return None;
        }
        self.by_due.pop().map(|Reverse((_, _, retry))| retry)
    }

    pub(super) fn clear(&mut self) {
        self.by_due.clear();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn e5_retries_are_taken_in_the_order_of_their_due_times_and_then_of_their_failures() {
        let at = Time::from_nanos;
        let mut retries = PendingRetries::default();
        assert_eq!((retries.next_due(), retries.take_due(at(u64::MAX - 1))), (Time::NEVER, None));
        // Later attempts first, so that the order is that of the calls.
        let added: Vec<_> = (0..1000_u32)
            .map(|n| PendingRetry { due: at(u64::from(n % 7)), attempt: 2000 - n, wall: Time::NEVER })
            .collect();
        added.iter().for_each(|retry| retries.push(*retry));
        let mut expected = added.clone();
        expected.sort_by_key(|retry| retry.due);
        assert_eq!(retries.next_due(), at(0));
        let early: Vec<_> = std::iter::from_fn(|| retries.take_due(at(3))).collect();
        assert_eq!(early, expected[..early.len()]);
        assert_eq!(retries.next_due(), at(4));
        let late: Vec<_> = std::iter::from_fn(|| retries.take_due(at(6))).collect();
        assert_eq!(late, expected[early.len()..]);
        assert!(retries.is_empty());
    }
}
