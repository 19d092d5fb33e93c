//! Sleeps that count what happens to them, for comparison with the counts of the engine.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use shuttle::thread::{self, Thread};
use tourbillon_queue::Time;

use super::world::World;
use crate::sync::under_shuttle::time;
use crate::time::Sleep;
use crate::{ArmError, Outcome};

/// A sleep whose events are counted in its world.
pub(super) struct CountedSleep {
    sleep: Pin<Box<Sleep>>,
}

/// A waker for a thread that polls a sleep.
struct ThreadWaker {
    world: World,
    thread: Thread,
}

impl CountedSleep {
    pub(super) fn new(sleep: Sleep) -> CountedSleep {
        CountedSleep { sleep: Box::pin(sleep) }
    }

    /// Returns a sleep that is armed at once, if a slot is free. Until it is polled it has no waker.
    pub(super) fn try_new(world: &World, duration: Duration) -> Result<CountedSleep, ArmError> {
        let sleep = CountedSleep::new(world.engine.try_sleep(duration)?);
        world.counts.armed.fetch_add(u64::from(sleep.is_armed()), Ordering::Relaxed);
        Ok(sleep)
    }

    /// Polls the sleep with a new waker for the calling thread.
    pub(super) fn poll(&mut self, world: &World) -> Poll<Outcome> {
        self.poll_with(world, &waker(world))
    }

    /// Waits until the sleep has ended.
    pub(super) fn wait(&mut self, world: &World) -> Outcome {
        let waker = waker(world);
        loop {
            if let Poll::Ready(outcome) = self.poll_with(world, &waker) {
                return outcome;
            }
            // A sleep that waits for a slot ends at its deadline, too.
            let _wait = world.waits_until(self.due(world));
            thread::park();
        }
    }

    pub(super) fn poll_with(&mut self, world: &World, waker: &Waker) -> Poll<Outcome> {
        let was_armed = self.is_armed();
        let poll = self.sleep.as_mut().poll(&mut Context::from_waker(waker));
        // Read before another thread runs.
        let now = time();
        let counts = &world.counts;
        if poll.is_pending() {
            counts.armed.fetch_add(u64::from(!was_armed && self.is_armed()), Ordering::Relaxed);
            return Poll::Pending;
        }
        let outcome = self.sleep.outcome().expect("a ready sleep has an outcome");
        match outcome {
            Outcome::Fired => assert!(now >= self.due(world), "fired at {now:?}, due at {:?}", self.due(world)),
            _ => assert!(world.engine.is_shutdown(), "{outcome:?} in an engine that goes on"),
        }
        if was_armed {
            let seen = if outcome == Outcome::Fired { &counts.fired } else { &counts.stopped };
            seen.fetch_add(1, Ordering::Relaxed);
        }
        Poll::Ready(outcome)
    }

    /// Returns whether the sleep is armed.
    pub(super) fn is_armed(&self) -> bool {
        self.sleep.is_armed()
    }

    /// Returns when the sleep is due.
    pub(super) fn due(&self, world: &World) -> Time {
        world.engine.clock().time_of(self.sleep.deadline().into_std())
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
fn waker(world: &World) -> Waker {
    Waker::from(Arc::new(ThreadWaker { world: world.clone(), thread: thread::current() }))
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.world.counts.woken.fetch_add(1, Ordering::Relaxed);
        self.thread.unpark();
        self.world.changed();
        let world = self.world.clone();
        drop(self);
        world.panic_sometimes();
    }
}
