//! Sleeps that count what happens to them, for comparison with the counts of the engine.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use shuttle::thread::{self, Thread};
use tourbillon_queue::Time;

use super::checked_engine::CheckedEngine;
use crate::sync::under_shuttle::time;
use crate::time::Sleep;
use crate::{ArmError, Outcome};

/// A sleep whose events are counted by its [`CheckedEngine`].
pub(super) struct CountedSleep {
    sleep: Pin<Box<Sleep>>,
}

/// A waker for a thread that polls a sleep.
struct ThreadWaker {
    checked: CheckedEngine,
    thread: Thread,
}

impl CountedSleep {
    pub(super) fn new(sleep: Sleep) -> CountedSleep {
        CountedSleep { sleep: Box::pin(sleep) }
    }

    /// Returns a sleep that is armed at once, if a slot is free. Until it is polled it has no waker.
    pub(super) fn try_new(checked: &CheckedEngine, duration: Duration) -> Result<CountedSleep, ArmError> {
        let sleep = CountedSleep::new(checked.engine.try_sleep(duration)?);
        checked.counts.armed.fetch_add(u64::from(sleep.is_armed()), Ordering::Relaxed);
        Ok(sleep)
    }

    /// Polls the sleep with a new waker for the calling thread.
    pub(super) fn poll(&mut self, checked: &CheckedEngine) -> Poll<Outcome> {
        self.poll_with(checked, &waker(checked))
    }

    /// Waits until the sleep has ended.
    pub(super) fn wait(&mut self, checked: &CheckedEngine) -> Outcome {
        let waker = waker(checked);
        loop {
            if let Poll::Ready(outcome) = self.poll_with(checked, &waker) {
                return outcome;
            }
            // A sleep that waits for a slot ends at its deadline, too.
            let _wait = checked.waits_until(self.due(checked));
            thread::park();
        }
    }

    pub(super) fn poll_with(&mut self, checked: &CheckedEngine, waker: &Waker) -> Poll<Outcome> {
        let was_armed = self.is_armed();
        let poll = self.sleep.as_mut().poll(&mut Context::from_waker(waker));
        // Read before another thread runs.
        let now = time();
        let counts = &checked.counts;
        if poll.is_pending() {
            counts.armed.fetch_add(u64::from(!was_armed && self.is_armed()), Ordering::Relaxed);
            return Poll::Pending;
        }
        let outcome = self.sleep.outcome().expect("a ready sleep has an outcome");
        match outcome {
            Outcome::Fired => assert!(now >= self.due(checked), "fired at {now:?}, due at {:?}", self.due(checked)),
            _ => assert!(checked.engine.is_shutdown(), "{outcome:?} in an engine that goes on"),
        }
        if was_armed {
            let seen = if outcome == Outcome::Fired { &counts.fired } else { &counts.stopped };
            seen.fetch_add(1, Ordering::Relaxed);
        }
        Poll::Ready(outcome)
    }

    /// Returns whether the sleep is armed.
    pub(super) fn is_armed(&self) -> bool {
        self.sleep.is_in_engine()
    }

    /// Returns when the sleep is due.
    pub(super) fn due(&self, checked: &CheckedEngine) -> Time {
        checked.engine.clock().time_of(self.sleep.deadline().into_std())
    }

    /// Moves the deadline later.
    pub(super) fn later(&mut self, by: Duration) {
        let deadline = self.sleep.deadline() + by;
        self.sleep.as_mut().reset(deadline);
    }

    /// Moves the deadline earlier.
    pub(super) fn earlier(&mut self, by: Duration) {
        let deadline = self.sleep.deadline() - by;
        self.sleep.as_mut().reset(deadline);
    }

    /// Disarms the sleep and arms it again.
    pub(super) fn hold(&mut self) {
        self.sleep.as_mut().disarm();
        self.sleep.as_mut().arm();
    }
}

/// Returns a waker for the calling thread.
fn waker(checked: &CheckedEngine) -> Waker {
    Waker::from(Arc::new(ThreadWaker { checked: checked.clone(), thread: thread::current() }))
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.checked.counts.woken.fetch_add(1, Ordering::Relaxed);
        self.thread.unpark();
        self.checked.changed();
        let checked = self.checked.clone();
        drop(self);
        checked.panic_sometimes();
    }
}
