//! Callbacks, and futures like them, whose users keep books.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tourbillon_queue::Time;

use super::world::World;
use crate::Outcome;
use crate::sync::under_shuttle::time;

/// Who was told what. (Counted by what shuttle does not see.)
#[derive(Default)]
pub(super) struct Told {
    /// To be told, each once.
    begun: AtomicU64,
    fired: AtomicU64,
    cancelled: AtomicU64,
    stopped: AtomicU64,
    /// As those who cancelled were told.
    by_cancels: AtomicU64,
    /// Of those who were to be told, the ones that went away before: nobody knows what they would have been told.
    withdrawn: AtomicU64,
}

impl Told {
    /// A callback that is to be called once, and as fired not before `due`.
    pub(super) fn callback(self: &Arc<Self>, world: &World, due: Time) -> impl FnOnce(Outcome) + Send + use<> {
        self.begin();
        let (told, world) = (Arc::clone(self), world.clone());
        move |outcome| {
            // A panic is counted by the engine: see `World::check_outcomes`.
            assert!(outcome != Outcome::Fired || time() >= due, "fired at {:?}, due at {due:?}", time());
            told.tell(outcome);
            drop(told);
            world.changed();
            world.throw_at_times();
        }
    }

    /// Somebody is to be told.
    pub(super) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Somebody who was to be told is not: it was refused.
    pub(super) fn take_back(&self) {
        self.begun.fetch_sub(1, Ordering::Relaxed);
    }

    /// Somebody who was to be told has gone.
    pub(super) fn withdraw(&self) {
        self.take_back();
        self.withdrawn.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn tell(&self, outcome: Outcome) {
        let count = match outcome {
            Outcome::Fired => &self.fired,
            Outcome::Cancelled => &self.cancelled,
            Outcome::Stopped => &self.stopped,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Somebody has cancelled so many.
    pub(super) fn cancel(&self, count: usize) {
        self.by_cancels.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// When everything has ended: each is told, once, and as many were cancelled as those who did it were told.
    #[track_caller]
    pub(super) fn check(&self, world: &World) {
        let Told { begun, fired, cancelled, stopped, by_cancels, withdrawn } = self;
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let told = || get(fired) + get(cancelled) + get(stopped);
        world.wait_now(|| told() >= get(begun));
        assert_eq!(told(), get(begun), "told, and to be told");
        let cancels = get(cancelled)..=get(cancelled) + get(withdrawn);
        assert!(cancels.contains(&get(by_cancels)), "{} were cancelled, {cancels:?} were told so", get(by_cancels));
        assert!(get(stopped) == 0 || world.engine.is_shutdown(), "stopped in an engine that goes on");
    }
}
