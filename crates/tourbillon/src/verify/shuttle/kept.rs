//! Sleeps whose users keep books.

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

/// A sleep on which books are kept, in those of its world.
pub(super) struct Kept {
    sleep: Pin<Box<Sleep>>,
}

/// A task that sleeps: a thread, when it polled last.
struct Task {
    world: World,
    thread: Thread,
}

impl Kept {
    pub(super) fn new(sleep: Sleep) -> Kept {
        Kept { sleep: Box::pin(sleep) }
    }

    /// One that is armed at once, if there is room. Until it is polled it wakes nobody.
    pub(super) fn try_new(world: &World, duration: Duration) -> Result<Kept, ArmError> {
        let kept = Kept::new(world.engine.try_sleep(duration)?);
        world.books.armed.fetch_add(u64::from(kept.is_armed()), Ordering::Relaxed);
        Ok(kept)
    }

    /// Polls it, as a new task of the calling thread.
    pub(super) fn poll(&mut self, world: &World) -> Poll<Outcome> {
        self.poll_as(world, &task(world))
    }

    /// Waits until it has ended.
    pub(super) fn wait(&mut self, world: &World) -> Outcome {
        let task = task(world);
        loop {
            if let Poll::Ready(outcome) = self.poll_as(world, &task) {
                return outcome;
            }
            // One that waits for a place ends at its deadline, too.
            let _waits = world.waits_until(self.due(world));
            thread::park();
        }
    }

    pub(super) fn poll_as(&mut self, world: &World, task: &Waker) -> Poll<Outcome> {
        let was_armed = self.is_armed();
        let poll = self.sleep.as_mut().poll(&mut Context::from_waker(task));
        // Before anybody else runs.
        let now = time();
        let books = &world.books;
        if poll.is_pending() {
            books.armed.fetch_add(u64::from(!was_armed && self.is_armed()), Ordering::Relaxed);
            return Poll::Pending;
        }
        let outcome = self.sleep.outcome().expect("it is ready");
        match outcome {
            Outcome::Fired => assert!(now >= self.due(world), "fired at {now:?}, due at {:?}", self.due(world)),
            _ => assert!(world.engine.is_shutdown(), "{outcome:?} in an engine that goes on"),
        }
        if was_armed {
            let seen = if outcome == Outcome::Fired { &books.fired } else { &books.stopped };
            seen.fetch_add(1, Ordering::Relaxed);
        }
        Poll::Ready(outcome)
    }

    /// Whether the engine holds it.
    pub(super) fn is_armed(&self) -> bool {
        self.sleep.is_armed()
    }

    /// When it is due.
    pub(super) fn due(&self, world: &World) -> Time {
        world.engine.clock().time_of(self.sleep.deadline().into_std())
    }

    /// Sets it to end so long after its deadline.
    pub(super) fn later(&mut self, by: Duration) {
        let deadline = self.sleep.deadline() + by;
        self.sleep.as_mut().reset(deadline);
    }

    /// Sets it to end so long before its deadline.
    pub(super) fn earlier(&mut self, by: Duration) {
        let deadline = self.sleep.deadline() - by;
        self.sleep.as_mut().reset(deadline);
    }

    /// Holds it, and lets go of it.
    pub(super) fn hold(&mut self) {
        self.sleep.as_mut().disarm();
        self.sleep.as_mut().arm();
    }
}

/// A task of the calling thread.
fn task(world: &World) -> Waker {
    Waker::from(Arc::new(Task { world: world.clone(), thread: thread::current() }))
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.world.books.woken.fetch_add(1, Ordering::Relaxed);
        self.thread.unpark();
        self.world.changed();
        let world = self.world.clone();
        drop(self);
        world.throw_at_times();
    }
}
