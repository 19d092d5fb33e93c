//! The monitor's alarm on a real system: a timerfd, or a condition variable where the system refuses that.

use std::io;
use std::time::Duration;

use super::condvar::CondvarAlarm;
use super::timerfd::TimerfdAlarm;
use crate::reactor::sys::is_refusal;

pub(crate) enum MonitorAlarm {
    Timerfd(TimerfdAlarm),
    Condvar(CondvarAlarm),
}

impl MonitorAlarm {
    /// Returns an alarm that is off.
    pub(crate) fn new() -> io::Result<MonitorAlarm> {
        match TimerfdAlarm::new() {
            Ok(alarm) => Ok(MonitorAlarm::Timerfd(alarm)),
            Err(error) if is_refusal(error) => Ok(MonitorAlarm::Condvar(CondvarAlarm::new())),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the alarm go off after that time. Zero switches it off.
    pub(crate) fn set(&self, after: Duration) {
        match self {
            MonitorAlarm::Timerfd(alarm) => alarm.set(after),
            MonitorAlarm::Condvar(alarm) => alarm.set(after),
        }
    }

    /// Waits until the alarm goes off, and switches it off.
    pub(crate) fn wait(&self) {
        match self {
            MonitorAlarm::Timerfd(alarm) => alarm.wait(),
            MonitorAlarm::Condvar(alarm) => alarm.wait(),
        }
    }
}
