//! The clock of a Tokio runtime: Tokio's `pause` stops it, and its `advance` moves it.

use std::cell::Cell;
use std::thread;
use std::time::Instant as StdInstant;

use tokio::runtime::Handle;
use tourbillon_queue::Time;

use super::anchor::ClockAnchor;
use super::{LAST, WallShift};

thread_local! {
    /// The last conversion on this thread.
    static CONVERTED: Cell<Option<(StdInstant, Time)>> = const { Cell::new(None) };
}

/// The clock of one Tokio runtime.
pub(crate) struct TokioClock {
    runtime: Handle,
    /// The time that it showed when this was made.
    made: StdInstant,
    wall: WallShift,
}

impl TokioClock {
    pub(crate) fn of(runtime: Handle) -> TokioClock {
        let made = {
            let _context = runtime.enter();
            tokio::time::Instant::now().into_std()
        };
        let wall = WallShift::at(ClockAnchor::of_process().to_time(made));
        TokioClock { runtime, made, wall }
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub(crate) fn wall_shift(&self) -> WallShift {
        self.wall
    }

    /// Returns the time that it shows. Can be called on any thread.
    pub(crate) fn time(&self) -> Time {
        let now = self.now();
        let convert = |now| ClockAnchor::of_process().to_time(now).min(LAST);
        // A clock that stands still is read many times with the same result.
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

    /// Returns the time that it shows, as an instant of the standard library.
    pub(crate) fn now(&self) -> StdInstant {
        // Tokio reads the clock of the runtime whose context the calling thread is in.
        match Handle::try_current() {
            Ok(current) if current.id() == self.runtime.id() => tokio::time::Instant::now().into_std(),
            // A thread that is ending can enter no context, so another thread reads the clock.
            Err(none) if none.is_thread_local_destroyed() => self.now_on_new_thread(),
            _ => {
                let _context = self.runtime.enter();
                tokio::time::Instant::now().into_std()
            }
        }
    }

    #[cold]
    fn now_on_new_thread(&self) -> StdInstant {
        thread::scope(|scope| scope.spawn(|| self.now()).join()).unwrap_or(self.made)
    }

    /// Returns whether it stands still. Tokio does not tell, so this compares two readings of different real times.
    pub(crate) fn is_paused(&self) -> bool {
        let (shown, real) = (self.now(), StdInstant::now());
        while StdInstant::now() == real {}
        self.now() == shown
    }
}
