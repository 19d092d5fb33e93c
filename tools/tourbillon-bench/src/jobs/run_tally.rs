//! What every job does when it runs: it reads the clock, and notes by how much it is late.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hdrhistogram::Histogram;

/// Counts the runs of a certain time, and how late they were.
///
/// Every thread has counts of its own, whose lock nobody else wants before the end.
pub(super) struct RunTally {
    time: Range<Instant>,
    threads: [ThreadTally; SHARDS],
}

/// Nobody shares its cache lines.
#[repr(align(128))]
struct ThreadTally(Mutex<ThreadCounts>);

struct ThreadCounts {
    /// Of the runs that were due in the time, in nanoseconds.
    lateness: Histogram<u64>,
    /// Runs that happened in the time, whenever they were due.
    happened: u64,
}

/// Threads that have counts to themselves. With more, some share them.
const SHARDS: usize = 8;

/// Of every figure. The histograms stay small, so that the jobs' own work is.
const DIGITS: u8 = 2;

/// The most that can be noted: what is later counts as this late.
const LATEST: u64 = 100_000_000_000;

impl RunTally {
    /// A tally of the runs of a certain time. It is never freed: jobs, which may outlive the case, have it by reference.
    pub(super) fn of(time: Range<Instant>) -> &'static RunTally {
        Box::leak(Box::new(RunTally {
            time,
            threads: std::array::from_fn(|_| ThreadTally(Mutex::new(ThreadCounts::new()))),
        }))
    }

    /// Of jobs that are not meant to run.
    pub(super) fn for_idle_jobs() -> &'static RunTally {
        let now = Instant::now();
        RunTally::of(now..now)
    }

    /// A job runs that was due at an instant.
    pub(super) fn ran(&self, due: Instant) {
        self.ran_at(due, Instant::now());
    }

    /// Notes a run that was due at one instant and happens at another.
    fn ran_at(&self, due: Instant, now: Instant) {
        let mut counts = self.threads[this_thread() % SHARDS].lock();
        if self.time.contains(&due) {
            counts.lateness.saturating_record(now.saturating_duration_since(due).as_nanos() as u64);
        }
        if self.time.contains(&now) {
            counts.happened += 1;
        }
    }

    /// How many have run so far that were due in the time.
    pub(super) fn runs(&self) -> u64 {
        self.threads.iter().map(|thread| thread.lock().lateness.len()).sum()
    }

    /// How many have run in the time, whenever they were due.
    pub(super) fn happened(&self) -> u64 {
        self.threads.iter().map(|thread| thread.lock().happened).sum()
    }

    /// How late those were that were due in the time, in nanoseconds.
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

/// A number for each thread, from 0 on.
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
        // A second ahead: the instant just before `begin` exists even on a machine that has just been started.
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
        assert_eq!(tally.happened(), 0, "all have run after the time");
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
