//! The reference: a thread that sleeps two milliseconds in the kernel, again and again, and writes down when it woke up.
//!
//! Nobody can promise when a thread runs on a machine that has other things to do. So lateness is never judged by the clock alone. Nothing
//! counts as *stalled* unless it was overdue for a second, and the reference slept and woke up two hundred times meanwhile: then the
//! machine was there and the timer was not. If the machine itself was stopped or throttled, the reference was, too, and nothing is
//! concluded. (That a driver had too much to do is told apart in `overdue.rs`.)
//!
//! What the reference sees is also the floor below which no timer's lateness can be on this machine.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hdrhistogram::Histogram;

use super::tally::histogram;
use crate::clock::monotonic;
use crate::kernel_sleep::{disable_timer_slack, oversleep};

/// Sleeps as long as it lives.
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

/// Waits for something that should have happened already, as long as is fair.
pub(crate) struct WaitLimit<'a> {
    reference: &'a Reference,
    since: u64,
}

/// Overdue for less than this is late, and measured. It is no stall.
pub(crate) const STALL: u64 = 1_000_000_000;
/// So often must the reference have woken up meanwhile.
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

    /// Whether something that was to happen at `due` and happened at `wake_ups` was stalled.
    pub(crate) fn is_stall(&self, due: u64, wake_ups: u64) -> bool {
        wake_ups.saturating_sub(due) >= STALL && self.wake_ups_between(due, wake_ups) >= MIN_WAKE_UPS
    }

    /// How long it overslept.
    pub(crate) fn oversleep(&self) -> Histogram<u64> {
        self.log.lock().oversleep.clone()
    }

    pub(crate) fn wait_limit(&self) -> WaitLimit<'_> {
        WaitLimit { reference: self, since: monotonic() }
    }

    /// One that has been running already.
    #[cfg(test)]
    pub(crate) fn that_woke_at(times: impl Iterator<Item = u64>) -> Reference {
        let wake_ups = WakeUps { times: times.collect(), oversleep: histogram() };
        Reference {
            log: Arc::new(ReferenceLog { wake_ups: Mutex::new(wake_ups), is_over: AtomicBool::new(true) }),
            thread: None,
        }
    }

    /// How often it woke up between two moments.
    fn wake_ups_between(&self, from: u64, to: u64) -> usize {
        let wake_ups = self.log.lock();
        let first = wake_ups.times.partition_point(|times| *times < from);
        wake_ups.times.partition_point(|times| *times < to) - first
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

    /// Whether something comes to be while there is patience. It is looked at each millisecond.
    pub(crate) fn wait_for(self, mut it: impl FnMut() -> bool) -> bool {
        self.wait_for_all(1, || u64::from(it()))
    }

    /// Whether a count gets to `all`. Whenever it comes closer there is new patience: what takes long is not stuck.
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
        let times = monotonic();
        let mut wake_ups = log.lock();
        wake_ups.oversleep.saturating_record(late);
        if wake_ups.times.len() == KEPT {
            wake_ups.times.pop_front();
        }
        wake_ups.times.push_back(times);
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
        assert!(!stopped.is_stall(second, 9 * second), "nobody ran");
    }
}
