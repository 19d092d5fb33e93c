//! The monitor's alarm where the system refuses a timerfd: a condition variable.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::clock::system_now;
use crate::sync::{Condvar, Mutex, lock};

/// Holds the time at which the alarm goes off; `None` while it is off.
pub(crate) struct CondvarAlarm {
    at: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl CondvarAlarm {
    /// Returns an alarm that is off.
    pub(crate) fn new() -> CondvarAlarm {
        CondvarAlarm { at: Mutex::new(None), changed: Condvar::new() }
    }

    /// Makes the alarm go off after that time. Zero switches it off.
    pub(crate) fn set(&self, after: Duration) {
        *lock(&self.at) = (!after.is_zero()).then(|| system_now() + after);
        self.changed.notify_one();
    }

    /// Waits until the alarm goes off, and switches it off.
    pub(crate) fn wait(&self) {
        let mut at = lock(&self.at);
        loop {
            let rest = at.map(|at| at.saturating_duration_since(system_now()));
            at = match rest {
                None => self.changed.wait(at).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => {
                    *at = None;
                    return;
                }
                Some(rest) => self.changed.wait_timeout(at, rest).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }
}
