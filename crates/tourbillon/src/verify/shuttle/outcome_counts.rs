//! Counts the outcomes that callbacks and futures get, for comparison with the counts of the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tourbillon_queue::Time;

use super::checked_engine::CheckedEngine;
use crate::Outcome;
use crate::sync::under_shuttle::time;

/// The outcomes that callbacks and futures got. (The counters are ones that shuttle does not check.)
#[derive(Default)]
pub(super) struct OutcomeCounts {
    /// Callbacks and futures that have to get one outcome each.
    begun: AtomicU64,
    fired: AtomicU64,
    cancelled: AtomicU64,
    stopped: AtomicU64,
    /// The counts that calls of `cancel` have returned.
    by_cancels: AtomicU64,
    /// Futures that were dropped before they got an outcome: they may have been cancelled.
    withdrawn: AtomicU64,
}

impl OutcomeCounts {
    /// Returns a callback that has to run once, and with `Fired` not before `due`.
    pub(super) fn callback(
        self: &Arc<Self>,
        checked: &CheckedEngine,
        due: Time,
    ) -> impl FnOnce(Outcome) + Send + use<> {
        self.begin();
        let (counts, checked) = (Arc::clone(self), checked.clone());
        move |outcome| {
            // A panic is counted by the engine: see `CheckedEngine::check_outcomes`.
            assert!(outcome != Outcome::Fired || time() >= due, "fired at {:?}, due at {due:?}", time());
            counts.record(outcome);
            drop(counts);
            checked.changed();
            checked.panic_sometimes();
        }
    }

    /// Counts a callback or future that has to get an outcome.
    pub(super) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Undoes a [`begin`](OutcomeCounts::begin), because the callback or future was refused.
    pub(super) fn uncount(&self) {
        self.begun.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a future that was dropped.
    pub(super) fn withdraw(&self) {
        self.uncount();
        self.withdrawn.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an outcome.
    pub(super) fn record(&self, outcome: Outcome) {
        let count = match outcome {
            Outcome::Fired => &self.fired,
            Outcome::Cancelled => &self.cancelled,
            Outcome::Stopped => &self.stopped,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the result of a call of `cancel`.
    pub(super) fn cancel(&self, count: usize) {
        self.by_cancels.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Asserts, after all timers have ended, that each callback and future got one outcome, and that as many were cancelled as the calls of
    /// `cancel` have returned.
    #[track_caller]
    pub(super) fn check(&self, checked: &CheckedEngine) {
        let OutcomeCounts { begun, fired, cancelled, stopped, by_cancels, withdrawn } = self;
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let ended = || get(fired) + get(cancelled) + get(stopped);
        checked.wait_now(|| ended() >= get(begun));
        assert_eq!(ended(), get(begun), "outcomes, and callbacks and futures");
        let cancels = get(cancelled)..=get(cancelled) + get(withdrawn);
        assert!(
            cancels.contains(&get(by_cancels)),
            "the cancels returned {}, and {cancels:?} got `Cancelled`",
            get(by_cancels)
        );
        assert!(get(stopped) == 0 || checked.engine.is_shutdown(), "stopped in an engine that goes on");
    }
}
