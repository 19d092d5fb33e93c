//! What a loom model has in place of a Tokio runtime and a timer of the kernel.

use tourbillon_queue::Time;

use crate::alarm::AlarmSet;
use crate::sync::unmodelled::{Mutex, lock};

pub(crate) type RuntimeId = u64;

/// A timer that only records what it is set to.
pub(crate) struct TaskTimer(Mutex<Time>);

impl TaskTimer {
    pub(crate) fn new() -> TaskTimer {
        TaskTimer(Mutex::new(Time::NEVER))
    }

    pub(crate) fn set(&self, at: Time) -> AlarmSet {
        *lock(&self.0) = at;
        AlarmSet::Done
    }

    /// Off from now on: in the worst case the timer has gone off before.
    pub(crate) fn turn_off_lazily(&self) -> AlarmSet {
        self.set(Time::NEVER)
    }

    pub(crate) fn is_set_to(&self) -> Time {
        *lock(&self.0)
    }
}
