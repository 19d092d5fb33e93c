//! The reference: a thread that sleeps two milliseconds in the kernel, again and again, and records when it wakes up.
//!
//! On a machine with other work, no program can promise when a thread runs. So lateness is never judged by the clock alone. A
//! timer counts as *stalled* only if it was overdue for a second, and the reference woke up two hundred times meanwhile: then the
//! machine ran and the timer did not fire. If the machine itself was stopped or throttled, so was the reference, and nothing is
//! concluded. (`stall_detector.rs` excludes drivers that were overloaded.)
//!
//! The reference also measures the least lateness that a timer can have on this machine.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hdrhistogram::Histogram;

use super::tally::histogram;
use crate::clock::monotonic;
use crate::kernel_sleep::{disable_timer_slack, oversleep};

/// The reference thread, which runs until this is dropped.
pub(crate) struct Reference {
    log: Arc<ReferenceLog>,
    thread: Option<JoinHandle<()>>,
}

struct ReferenceLog {
    wake_ups: Mutex<WakeUps>,
    is_over: AtomicBool,
}

struct WakeUps {
    /// When it woke up, the last hundred thousand times.
    times: VecDeque<u64>,
    oversleep: Histogram<u64>,
}

/// Waits for an overdue event, until its absence counts as a stall.
pub(crate) struct WaitLimit<'a> {
    reference: &'a Reference,
    since: u64,
}

/// An event that is overdue for less than this is late, but not stalled.
pub(crate) const STALL: u64 = 1_000_000_000;
/// How often the reference must have woken up meanwhile.
const MIN_WAKE_UPS: usize = 200;
const PERIOD: u64 = 2_000_000;
const KEPT: usize = 100_000;

impl Reference {
    pub(crate) fn start() -> Reference {
        let wake_ups = WakeUps { times: VecDeque::with_capacity(KEPT), oversleep: histogram() };
        let log = Arc::new(ReferenceLog { wake_ups: Mutex::new(wake_ups), is_over: AtomicBool::new(false) });
        let thread = thread::Builder::new().name("reference".into()).spawn({
            let log = Arc::clone(&log);
            move || sleep_and_wake(&log)
        });
        Reference { log, thread: thread.ok() }
    }

    /// Returns whether an event that was due at `due` and happened at `happened` was stalled.
    pub(crate) fn is_stall(&self, due: u64, happened: u64) -> bool {
        happened.saturating_sub(due) >= STALL && self.wake_ups_between(due, happened) >= MIN_WAKE_UPS
    }

    /// Returns by how much the reference overslept.
    pub(crate) fn oversleep(&self) -> Histogram<u64> {
        self.log.lock().oversleep.clone()
    }

    pub(crate) fn wait_limit(&self) -> WaitLimit<'_> {
        WaitLimit { reference: self, since: monotonic() }
    }

    /// Returns a reference that woke up at these times.
    #[cfg(test)]
    pub(crate) fn that_woke_at(times: impl Iterator<Item = u64>) -> Reference {
        let wake_ups = WakeUps { times: times.collect(), oversleep: histogram() };
        Reference {
            log: Arc::new(ReferenceLog { wake_ups: Mutex::new(wake_ups), is_over: AtomicBool::new(true) }),
            thread: None,
        }
    }

    /// Returns how often the reference woke up between two readings.
    fn wake_ups_between(&self, from: u64, to: u64) -> usize {
        let wake_ups = self.log.lock();
        let first = wake_ups.times.partition_point(|time| *time < from);
        wake_ups.times.partition_point(|time| *time < to) - first
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        self.log.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl WaitLimit<'_> {
    pub(crate) fn is_over(&self) -> bool {
        self.reference.is_stall(self.since, monotonic())
    }

    /// Waits until a condition holds, and returns whether it did within the limit. It is checked each millisecond.
    pub(crate) fn wait_for(self, mut it: impl FnMut() -> bool) -> bool {
        self.wait_for_all(1, || u64::from(it()))
    }

    /// Waits until a count reaches `all`, and returns whether it did. Any change of the count renews the limit: slow progress is
    /// not a stall.
    pub(crate) fn wait_for_all(mut self, all: u64, mut count: impl FnMut() -> u64) -> bool {
        let mut last = count();
        loop {
            let now = count();
            if now == all {
                return true;
            }
            if now != last {
                (last, self.since) = (now, monotonic());
            } else if self.is_over() {
                return count() == all;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl ReferenceLog {
    fn lock(&self) -> MutexGuard<'_, WakeUps> {
        self.wake_ups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn sleep_and_wake(log: &ReferenceLog) {
    disable_timer_slack();
    while !log.is_over.load(Ordering::Relaxed) {
        let late = oversleep(PERIOD);
        let woke_at = monotonic();
        let mut wake_ups = log.lock();
        wake_ups.oversleep.saturating_record(late);
        if wake_ups.times.len() == KEPT {
            wake_ups.times.pop_front();
        }
        wake_ups.times.push_back(woke_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p4_what_is_late_while_the_machine_stands_still_is_no_stall() {
        let second = 1_000_000_000;
        let steady = Reference::that_woke_at((0..5_000).map(|n| n * PERIOD));
        assert!(steady.is_stall(second, 2 * second));
        assert!(!steady.is_stall(second, 2 * second - 1), "less than a second");
        let stopped = Reference::that_woke_at((0..500).map(|n| n * PERIOD).chain([9 * second]));
        assert!(!stopped.is_stall(second, 9 * second), "no thread ran");
    }
}
