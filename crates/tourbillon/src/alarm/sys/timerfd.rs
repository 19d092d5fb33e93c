//! An alarm of the Linux kernel: a timerfd on the engine's own clock.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tourbillon_queue::{Span, Time};

use crate::alarm::AlarmSet;
use crate::clock::{Clock, KernelClock};
use crate::sync::fork;

/// A timer of the kernel.
pub(in crate::alarm) struct KernelTimer {
    fd: OwnedFd,
    flags: TimerfdTimerFlags,
    /// The clock, if it is none of the kernel's: the timer then counts the time that is left.
    time_left_on: Option<Clock>,
    /// The generation of the process that has made it: a forked child has the same timer, not a copy, and must not set it.
    generation: u32,
}

impl KernelTimer {
    pub(in crate::alarm) fn new(clock: &Clock) -> io::Result<KernelTimer> {
        let (id, more) = match clock.kernel_clock().ok_or(io::ErrorKind::Unsupported)? {
            KernelClock::Monotonic => (TimerfdClockId::Monotonic, TimerfdTimerFlags::empty()),
            KernelClock::Boot => (TimerfdClockId::Boottime, TimerfdTimerFlags::empty()),
            // The timer goes off also when the clock is set.
            KernelClock::Wall => (TimerfdClockId::Realtime, TimerfdTimerFlags::CANCEL_ON_SET),
            KernelClock::TimeLeft => (TimerfdClockId::Monotonic, TimerfdTimerFlags::empty()),
        };
        let fd = timerfd_create(id, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let (flags, time_left_on) = match clock.kernel_clock() {
            Some(KernelClock::TimeLeft) => (more, Some(clock.clone())),
            _ => (TimerfdTimerFlags::ABSTIME | more, None),
        };
        Ok(KernelTimer { fd, flags, time_left_on, generation: fork::generation() })
    }

    pub(in crate::alarm) fn set(&self, at: Time) -> AlarmSet {
        if self.generation != fork::generation() {
            return AlarmSet::Done;
        }
        let at = match &self.time_left_on {
            Some(clock) if !at.is_never() => Time::ZERO + Span::from(clock.wait_for(at)),
            _ => at,
        };
        // All zero means off. A wall clock's timer is set even to the end of time, so that the kernel reports when the clock is set.
        let nanos = match at.as_nanos() {
            0 => 1,
            u64::MAX if self.reports_clock_set() => i64::MAX as u64,
            u64::MAX => 0,
            nanos => nanos.min(i64::MAX as u64),
        };
        let at = Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as _ };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
        // The descriptor is open and the time is valid, so there is no other error.
        match timerfd_settime(&self.fd, self.flags, &once) {
            Err(rustix::io::Errno::CANCELED) => AlarmSet::ClockJumped,
            _ => AlarmSet::Done,
        }
    }

    /// Waits until the timer has gone off since it was last set. The expiry need not be read: setting the timer again clears it.
    pub(in crate::alarm) fn wait(&self) {
        // Interrupted, or the clock was set: the driver reads the clock anyway.
        let _ = poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], None);
    }

    /// Says that the timer is not needed until it is set again. It may go off meanwhile, at the time that it was set to before.
    #[cfg_attr(not(tourbillon_driver_task), expect(dead_code, reason = "a thread that waits has to turn it off"))]
    pub(in crate::alarm) fn turn_off_lazily(&self) -> AlarmSet {
        // A wall clock's timer has to be set, so that the kernel reports when the clock is set.
        if self.reports_clock_set() { self.set(Time::NEVER) } else { AlarmSet::Done }
    }

    fn reports_clock_set(&self) -> bool {
        self.flags.contains(TimerfdTimerFlags::CANCEL_ON_SET)
    }

    #[cfg_attr(not(tourbillon_driver_task), expect(dead_code, reason = "only event loops watch it"))]
    pub(in crate::alarm) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
