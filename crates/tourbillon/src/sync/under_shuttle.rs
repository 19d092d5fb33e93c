//! Replacements for two things that shuttle lacks: a cell that checks for conflicting accesses, and time.
//!
//! Shuttle runs all threads of a schedule on one thread of the system, and switches between them only inside its own calls. So an ordinary
//! cell is enough for both.

use std::cell::Cell;

use tourbillon_queue::Time;

thread_local! {
    /// The time of the monotonic clock in this schedule.
    static TIME: Cell<Time> = const { Cell::new(Time::ZERO) };
}

/// Reads the monotonic clock.
pub(crate) fn time() -> Time {
    TIME.get()
}

/// Sets the monotonic clock. Drivers do not notice: the schedule has to call
/// [`Alarm::time_has_moved`](crate::alarm::Alarm::time_has_moved).
#[cfg_attr(not(test), expect(dead_code, reason = "time is moved by schedules alone"))]
pub(crate) fn set_time(to: Time) {
    TIME.set(to);
}

/// A point at which shuttle may switch to another thread.
pub(crate) fn point() {
    // Under shuttle, a sleep is nothing but such a point.
    shuttle::thread::sleep(std::time::Duration::ZERO);
}

/// A cell that panics if a thread accesses it while another writes to it, or writes to it while another reads it.
pub(crate) struct CheckedCell<T> {
    value: std::cell::UnsafeCell<T>,
    /// How many threads read, or [`WRITING`].
    inside: Cell<usize>,
}

const WRITING: usize = usize::MAX;

/// An access that is under way.
struct CellAccess<'a>(&'a Cell<usize>);

impl<T> CheckedCell<T> {
    pub(crate) const fn new(value: T) -> CheckedCell<T> {
        CheckedCell { value: std::cell::UnsafeCell::new(value), inside: Cell::new(0) }
    }

    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        let readers = self.inside.get();
        assert!(readers != WRITING, "the cell is read during a write");
        self.inside.set(readers + 1);
        let _inside = CellAccess(&self.inside);
        f(self.value.get())
    }

    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        assert!(self.inside.replace(WRITING) == 0, "the cell is written during another access");
        let _inside = CellAccess(&self.inside);
        f(self.value.get())
    }
}

impl Drop for CellAccess<'_> {
    fn drop(&mut self) {
        let inside = self.0.get();
        self.0.set(if inside == WRITING { 0 } else { inside - 1 });
    }
}
