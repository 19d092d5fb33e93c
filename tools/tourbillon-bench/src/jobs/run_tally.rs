//! The body of every job: it reads the clock, and records how late the run is.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hdrhistogram::Histogram;

/// Counts the runs of a period of time, and their lateness.
///
/// Every thread has its own counts, whose lock is not contended before the end.
pub(super) struct RunTally {
    time: Range<Instant>,
    threads: [ThreadTally; SHARDS],
}

/// Aligned so that threads share no cache line.
#[repr(align(128))]
struct ThreadTally(Mutex<ThreadCounts>);

struct ThreadCounts {
    /// Lateness of the runs that were due in the period, in nanoseconds.
    lateness: Histogram<u64>,
    /// Runs that happened in the period, whenever they were due.
    happened: u64,
}

/// Number of separate counts. More threads share them.
const SHARDS: usize = 8;

/// Precision of the histograms. They stay small, so that recording is cheap.
const DIGITS: u8 = 2;

/// Most lateness that is recorded; more counts as this.
const LATEST: u64 = 100_000_000_000;

impl RunTally {
    /// Returns a tally for a period. It is leaked, since jobs that refer to it may outlive the case.
    pub(super) fn of(time: Range<Instant>) -> &'static RunTally {
        Box::leak(Box::new(RunTally {
            time,
            threads: std::array::from_fn(|_| ThreadTally(Mutex::new(ThreadCounts::new()))),
        }))
    }

    /// Returns a tally for jobs that should not run.
    pub(super) fn for_idle_jobs() -> &'static RunTally {
        let now = Instant::now();
        RunTally::of(now..now)
    }

    /// Records a run that happens now.
    pub(super) fn ran(&self, due: Instant) {
        self.ran_at(due, Instant::now());
    }

    /// Records a run that was due at one instant and happens at another.
    fn ran_at(&self, due: Instant, now: Instant) {
        let mut counts = self.threads[this_thread() % SHARDS].lock();
        if self.time.contains(&due) {
            counts.lateness.saturating_record(now.saturating_duration_since(due).as_nanos() as u64);
        }
        if self.time.contains(&now) {
            counts.happened += 1;
        }
    }

    /// Returns the number of runs that were due in the period.
    pub(super) fn runs(&self) -> u64 {
        self.threads.iter().map(|thread| thread.lock().lateness.len()).sum()
    }

    /// Returns the number of runs that happened in the period.
    pub(super) fn happened(&self) -> u64 {
        self.threads.iter().map(|thread| thread.lock().happened).sum()
    }

    /// Returns the lateness of the runs that were due in the period, in nanoseconds.
    pub(super) fn lateness(&self) -> Histogram<u64> {
        let mut all = ThreadCounts::new().lateness;
        for thread in &self.threads {
            all.add(&thread.lock().lateness).expect("all have the same bounds");
        }
        all
    }
}

impl ThreadCounts {
    fn new() -> ThreadCounts {
        let lateness = Histogram::new_with_bounds(1, LATEST, DIGITS).expect("the bounds can be kept");
        ThreadCounts { lateness, happened: 0 }
    }
}

impl ThreadTally {
    fn lock(&self) -> MutexGuard<'_, ThreadCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a number for each thread, from 0 on.
fn this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static THIS: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    THIS.with(|this| *this)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_what_was_due_in_the_time_counts_whichever_thread_it_ran_on() {
        // A second ahead, since an instant before `begin` must exist even just after the machine has started.
        let begin = Instant::now() + Duration::from_secs(1);
        let tally = RunTally::of(begin..begin + Duration::from_secs(1));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let now = begin + Duration::from_secs(10);
                    tally.ran_at(begin - Duration::from_millis(1), now);
                    tally.ran_at(begin, now);
                    tally.ran_at(begin + Duration::from_millis(999), now);
                    tally.ran_at(begin + Duration::from_secs(1), now);
                });
            }
        });
        assert_eq!((tally.runs(), tally.lateness().len()), (6, 6));
        assert!(tally.lateness().min() > 8_000_000_000);
        assert_eq!(tally.happened(), 0, "all have run after the period");
    }

    #[test]
    fn a_run_that_was_due_before_the_time_still_happens_in_it() {
        let due = Instant::now();
        let begin = due + Duration::from_secs(1);
        let tally = RunTally::of(begin..begin + Duration::from_secs(3600));
        tally.ran_at(due, begin);
        assert_eq!((tally.runs(), tally.happened()), (0, 1));
    }
}
