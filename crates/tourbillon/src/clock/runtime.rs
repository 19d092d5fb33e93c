//! The clock of a Tokio runtime: Tokio's `pause` stops it, and its `advance` moves it.

use std::cell::Cell;
use std::thread;
use std::time::Instant as StdInstant;

use tokio::runtime::Handle;
use tourbillon_queue::Time;

use super::{Anchor, LAST, WallShift};

thread_local! {
    /// What this thread has converted last.
    static CONVERTED: Cell<Option<(StdInstant, Time)>> = const { Cell::new(None) };
}

/// What one Tokio runtime calls the time.
pub(crate) struct RuntimeClock {
    runtime: Handle,
    /// What it showed when this was made.
    made: StdInstant,
    wall: WallShift,
}

impl RuntimeClock {
    pub(crate) fn of(runtime: Handle) -> RuntimeClock {
        let made = {
            let _context = runtime.enter();
            tokio::time::Instant::now().into_std()
        };
        let wall = WallShift::at(Anchor::of_process().to_time(made));
        RuntimeClock { runtime, made, wall }
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub(crate) fn wall_shift(&self) -> WallShift {
        self.wall
    }

    /// What it shows, on any thread.
    pub(crate) fn time(&self) -> Time {
        let now = self.now();
        let convert = |now| Anchor::of_process().to_time(now).min(LAST);
        // A clock that stands still is read again and again: then the answer is the same.
        let converted = CONVERTED.try_with(|converted| match converted.get() {
            Some((std, time)) if std == now => time,
            _ => {
                let time = convert(now);
                converted.set(Some((now, time)));
                time
            }
        });
        converted.unwrap_or_else(|_| convert(now))
    }

    /// The same, as the standard library calls it.
    pub(crate) fn now(&self) -> StdInstant {
        // Tokio tells the time of the runtime in whose context it is asked.
        match Handle::try_current() {
            Ok(current) if current.id() == self.runtime.id() => tokio::time::Instant::now().into_std(),
            // A thread that is ending can enter no context. Another can.
            Err(none) if none.is_thread_local_destroyed() => self.now_elsewhere(),
            _ => {
                let _context = self.runtime.enter();
                tokio::time::Instant::now().into_std()
            }
        }
    }

    #[cold]
    fn now_elsewhere(&self) -> StdInstant {
        thread::scope(|scope| scope.spawn(|| self.now()).join()).unwrap_or(self.made)
    }

    /// Whether it stands still. Tokio does not say so, but it can be watched.
    pub(crate) fn is_paused(&self) -> bool {
        let (shown, real) = (self.now(), StdInstant::now());
        while StdInstant::now() == real {}
        self.now() == shown
    }
}
