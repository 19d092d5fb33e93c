//! An alarm for systems without timerfd, and for processes that get no file descriptor: a condition variable.
//!
//! A condition variable is not woken when a clock is set or a suspend ends. So a driver that waits on it for a clock that may jump reads
//! that clock every [`RECHECK_EVERY`].

use std::time::Duration;

use super::AlarmState;
use crate::clock::Clock;
use crate::sync::{Condvar, MutexGuard};

/// How late a timer can be at the most because its clock has jumped.
const RECHECK_EVERY: Duration = Duration::from_secs(1);

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
        let rest = Duration::from(state.at - clock.now());
        let may_jump = !clock.is_steady() && !state.at.is_never();
        let rest = if may_jump { rest.min(RECHECK_EVERY) } else { rest };
        if !rest.is_zero() {
            drop(self.0.wait_timeout(state, rest));
        }
    }
}
