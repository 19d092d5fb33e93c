//! An alarm of macOS and FreeBSD: a timer in a kqueue.
//!
//! Adding a timer that is in the kqueue starts it again with the new time and forgets an expiry that nobody has seen. So a thread that arms
//! an earlier timer sets the kernel's timer with one system call, and the driver sleeps on. The timer counts the time that is left, because
//! neither system has a timer that follows a clock when that is set.
//!
//! The timer leaves the kqueue when a wait sees its expiry, and then adding it needs memory of the kernel, which FreeBSD bounds
//! (`kern.kq_calloutmax`). If the kernel refuses, the next wait lasts a millisecond at the most, and the driver tries again. No other
//! thread meets that refusal while the driver sleeps: the timer is then in the kqueue, if need be with a time far ahead.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tourbillon_queue::Time;

use crate::alarm::AlarmSet;
use crate::clock::Clock;
use crate::sync::fork;

/// A timer in a kqueue of its own.
pub(in crate::alarm) struct KernelTimer {
    kqueue: ManuallyDrop<OwnedFd>,
    clock: Clock,
    /// Whether the kernel refused the last setting.
    is_refused: AtomicBool,
    /// The generation of the process that has made it: a forked child does not have the kqueue, and another file may have its number there.
    generation: u32,
}

/// The only timer in the kqueue.
const IDENT: usize = 1;
/// The longest time that the timer is set to: it then goes off in vain.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long the driver waits if the kernel refuses the timer, in nanoseconds.
const WITHOUT_TIMER_NANOS: libc::c_long = 1_000_000;

/// The unit of the timer, and on Apple's systems that its expiry is not to be delayed to save power.
#[cfg(tourbillon_apple_clocks)]
const FLAGS: u32 = libc::NOTE_NSECONDS | libc::NOTE_CRITICAL;
#[cfg(not(tourbillon_apple_clocks))]
const FLAGS: u32 = libc::NOTE_NSECONDS;

impl KernelTimer {
    pub(in crate::alarm) fn new(clock: &Clock) -> io::Result<KernelTimer> {
        clock.kernel_clock().ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: the call takes nothing.
        let fd = unsafe { libc::kqueue() };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made the descriptor, and nothing else owns it.
        let kqueue = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: the descriptor is open, and the command takes an integer.
        if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let timer = KernelTimer {
            kqueue: ManuallyDrop::new(kqueue),
            clock: clock.clone(),
            is_refused: AtomicBool::new(false),
            generation: fork::generation(),
        };
        timer.start(LONGEST)?;
        Ok(timer)
    }

    pub(in crate::alarm) fn set(&self, at: Time) -> AlarmSet {
        if self.generation == fork::generation() {
            let is_refused = self.start(self.clock.wait_for(at)).is_err();
            self.is_refused.store(is_refused, Ordering::Relaxed);
        }
        AlarmSet::Done
    }

    /// Starts the timer anew.
    fn start(&self, wait: Duration) -> io::Result<()> {
        let nanos = wait.clamp(Duration::from_nanos(1), LONGEST).as_nanos();
        // SAFETY: all bits zero are a valid `kevent`: it has numbers and a pointer that only the user reads.
        let mut timer: libc::kevent = unsafe { std::mem::zeroed() };
        timer.ident = IDENT;
        timer.filter = libc::EVFILT_TIMER;
        timer.flags = libc::EV_ADD | libc::EV_ONESHOT;
        timer.fflags = FLAGS;
        timer.data = nanos as _;
        // SAFETY: the kernel reads one event from the first address and writes none, as the second list is empty.
        let done =
            unsafe { libc::kevent(self.kqueue.as_raw_fd(), &raw const timer, 1, ptr::null_mut(), 0, ptr::null()) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    pub(in crate::alarm) fn wait(&self) {
        let limit = libc::timespec { tv_sec: 0, tv_nsec: WITHOUT_TIMER_NANOS };
        let limit = if self.is_refused.load(Ordering::Relaxed) { &raw const limit } else { ptr::null() };
        // SAFETY: as in `start`.
        let mut expiry: libc::kevent = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel reads no change, writes at most one event to `expiry`, and reads a time limit if there is one. Interrupted, it
        // returns early, which the driver allows for.
        let _seen = unsafe { libc::kevent(self.kqueue.as_raw_fd(), ptr::null(), 0, &raw mut expiry, 1, limit) };
    }
}

impl Drop for KernelTimer {
    fn drop(&mut self) {
        if self.generation == fork::generation() {
            // SAFETY: the field is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.kqueue) };
        }
    }
}
