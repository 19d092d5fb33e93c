//! The monitor's alarm: a timerfd.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

pub(crate) struct TimerfdAlarm(OwnedFd);

impl TimerfdAlarm {
    /// Returns an alarm that is off.
    pub(crate) fn new() -> Result<TimerfdAlarm, Errno> {
        timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).map(TimerfdAlarm)
    }

    /// Makes the alarm go off after that time. Zero switches it off.
    pub(crate) fn set(&self, after: Duration) {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let after = Timespec { tv_sec: after.as_secs() as i64, tv_nsec: after.subsec_nanos().into() };
        // It cannot fail: the descriptor and the time are valid.
        let _ =
            timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: zero, it_value: after });
    }

    /// Waits until the alarm goes off, and switches it off.
    pub(crate) fn wait(&self) {
        let _ = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], None);
        self.set(Duration::ZERO);
    }
}
