//! An alarm for systems without a timer of the kernel, and for processes that get none: a condition variable.
//!
//! A condition variable is not woken when a clock is set or a suspend ends. So a driver that waits on it for a clock that may jump reads
//! that clock once a second: [`Clock::wait_for`].

use super::AlarmState;
use crate::clock::Clock;
use crate::sync::{Condvar, MutexGuard};

pub(super) struct CondvarAlarm(Condvar);

impl CondvarAlarm {
    pub(super) fn new() -> CondvarAlarm {
        CondvarAlarm(Condvar::new())
    }

    /// Wakes the driver, which reads the new state of the alarm.
    pub(super) fn notify(&self) {
        self.0.notify_one();
    }

    /// Waits until the alarm goes off or is set again, or for less.
    pub(super) fn wait(&self, state: MutexGuard<'_, AlarmState>, clock: &Clock) {
        let rest = clock.wait_for(state.at);
        if !rest.is_zero() {
            drop(self.0.wait_timeout(state, rest));
        }
    }
}
