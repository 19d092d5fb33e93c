//! How the last run of a job ended.

use std::time::Duration;

use tourbillon_queue::{Span, Time};

use crate::instant::Instant;

/// The last run of a job that has ended: see [`JobReport::last_run`](super::JobReport::last_run).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LastRun {
    /// How the run ended.
    pub status: RunStatus,
    /// When the run began.
    pub began: Instant,
    /// How long the run took. It ended this long after it `began`.
    pub duration: Duration,
    /// Which attempt it was: 1, or more for a [retry](super::Plan::retry).
    pub attempt: u32,
    /// The message of its failure, if it failed.
    pub error: Option<String>,
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RunStatus {
    /// It returned, without an error.
    Succeeded,
    /// It returned an error.
    Failed,
    /// It panicked.
    Panicked,
    /// It was an async run that took longer than its [time limit](super::Plan::time_limit), and was cancelled.
    TimedOut,
    /// Its future was dropped before it was ready, by a shutdown or by its executor.
    Aborted,
}

/// How the last run ended, when it began and how long it took, in two words, because every job has one.
#[derive(Clone, Copy, Default)]
pub(super) struct PackedRun {
    /// On the engine's clock.
    began: Time,
    /// The duration, and the status plus one in the lowest bits; zero if no run has ended.
    ended: u64,
}

const STATUS_BITS: u32 = 3;

impl RunStatus {
    const ALL: [RunStatus; 5] =
        [RunStatus::Succeeded, RunStatus::Failed, RunStatus::Panicked, RunStatus::TimedOut, RunStatus::Aborted];

    /// Returns whether the run counts as failed.
    #[must_use]
    pub fn is_failure(self) -> bool {
        matches!(self, RunStatus::Failed | RunStatus::Panicked | RunStatus::TimedOut)
    }
}

impl PackedRun {
    pub(super) fn new(status: RunStatus, began: Time, duration: Span) -> PackedRun {
        // The longest duration that fits is 73 years.
        let nanos = duration.as_nanos().min(u64::MAX >> STATUS_BITS);
        PackedRun { began, ended: nanos << STATUS_BITS | (status as u64 + 1) }
    }

    /// Returns the status, when the run began, and the duration; `None` if no run has ended.
    pub(super) fn get(self) -> Option<(RunStatus, Time, Duration)> {
        let index = (self.ended & ((1 << STATUS_BITS) - 1)).checked_sub(1)?;
        Some((RunStatus::ALL[index as usize], self.began, Duration::from_nanos(self.ended >> STATUS_BITS)))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn e5_a_packed_run_has_the_status_and_the_duration_that_were_put_in() {
        assert_eq!(PackedRun::default().get(), None);
        let began = Time::from_nanos(u64::MAX - 1);
        for (index, status) in RunStatus::ALL.into_iter().enumerate() {
            assert_eq!(status as usize, index);
            for nanos in [0, 1, 999, u64::MAX >> STATUS_BITS] {
                let packed = PackedRun::new(status, began, Span::from_nanos(nanos));
                assert_eq!(packed.get(), Some((status, began, Duration::from_nanos(nanos))));
            }
        }
        let longest = PackedRun::new(RunStatus::Failed, began, Span::from_nanos(u64::MAX));
        assert_eq!(longest.get(), Some((RunStatus::Failed, began, Duration::from_nanos(u64::MAX >> STATUS_BITS))));
    }
}
