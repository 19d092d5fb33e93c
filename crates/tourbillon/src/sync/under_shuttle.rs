//! What schedules need beyond what shuttle has: a cell that watches who is inside, and time.
//!
//! Shuttle runs all threads of a schedule on one thread of the system, and changes between them only inside its own calls. So what
//! is here is an ordinary cell each.

use std::cell::Cell;

use tourbillon_queue::Time;

thread_local! {
    /// What the monotonic clock shows in this schedule.
    static TIME: Cell<Time> = const { Cell::new(Time::ZERO) };
}

/// The monotonic clock.
pub(crate) fn time() -> Time {
    TIME.get()
}

/// Sets the monotonic clock. Drivers do not notice by themselves: their alarms have to be
/// [told](crate::alarm::Alarm::time_has_moved).
#[cfg_attr(not(test), expect(dead_code, reason = "time is moved by schedules alone"))]
pub(crate) fn set_time(to: Time) {
    TIME.set(to);
}

/// A point at which others may run.
pub(crate) fn point() {
    // All that it does here.
    shuttle::thread::sleep(std::time::Duration::ZERO);
}

/// A cell that panics if somebody comes in while somebody else is inside who writes, or the other way round.
pub(crate) struct UnsafeCell<T> {
    value: std::cell::UnsafeCell<T>,
    /// How many read; or [`WRITING`].
    inside: Cell<usize>,
}

const WRITING: usize = usize::MAX;

/// Somebody who is inside.
struct OwnerGuard<'a>(&'a Cell<usize>);

impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell { value: std::cell::UnsafeCell::new(value), inside: Cell::new(0) }
    }

    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        let readers = self.inside.get();
        assert!(readers != WRITING, "it is read while somebody writes");
        self.inside.set(readers + 1);
        let _inside = OwnerGuard(&self.inside);
        f(self.value.get())
    }

    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        assert!(self.inside.replace(WRITING) == 0, "it is written while somebody else is inside");
        let _inside = OwnerGuard(&self.inside);
        f(self.value.get())
    }
}

impl Drop for OwnerGuard<'_> {
    fn drop(&mut self) {
        let inside = self.0.get();
        self.0.set(if inside == WRITING { 0 } else { inside - 1 });
    }
}
