//! An alarm of Windows: a waitable timer of high resolution.
//!
//! An ordinary wait on Windows ends with the tick of the system's clock, which comes 64 times a second. A waitable timer that is made with
//! `CREATE_WAITABLE_TIMER_HIGH_RESOLUTION` (Windows 10, version 1803) does not depend on that tick, and does not make the tick faster for
//! the whole machine as `timeBeginPeriod` would. An older Windows refuses it, and the timer is then an ordinary one.
//!
//! The timer counts the time that is left. It may not count the time during which the machine is suspended, but the monotonic clock does.
//! So a second timer, the *guard*, is set for long waits, on the time of day: it goes off soon after a suspend during which the
//! alarm's time has passed. It may also go off too early, if the time of day is set, and the driver then sets both again.

use std::io;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use tourbillon_queue::Time;
use windows_sys::Win32::System::Threading::{
    CREATE_WAITABLE_TIMER_HIGH_RESOLUTION, CancelWaitableTimer, CreateWaitableTimerExW, INFINITE, SetWaitableTimer,
    TIMER_ALL_ACCESS, WaitForMultipleObjects,
};

use crate::alarm::AlarmSet;
use crate::clock::Clock;

/// Two timers of the kernel.
pub(in crate::alarm) struct KernelTimer {
    timer: OwnedHandle,
    guard: OwnedHandle,
    /// Whether the guard is set.
    is_guarded: AtomicBool,
    clock: Clock,
}

/// The unit of a due time, in nanoseconds.
const UNIT: u128 = 100;
/// The units from the origin of the system's time, the year 1601, to 1970.
const TO_1970: u128 = 116_444_736_000_000_000;
/// The longest time that a timer is set to: it then goes off in vain.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);
/// Waits that are longer than this have a guard, which goes off so much later.
const GUARDED: Duration = Duration::from_secs(1);

impl KernelTimer {
    pub(in crate::alarm) fn new(clock: &Clock) -> io::Result<KernelTimer> {
        clock.kernel_clock().ok_or(io::ErrorKind::Unsupported)?;
        let timer = create(CREATE_WAITABLE_TIMER_HIGH_RESOLUTION).or_else(|_| create(0))?;
        Ok(KernelTimer { timer, guard: create(0)?, is_guarded: AtomicBool::new(false), clock: clock.clone() })
    }

    pub(in crate::alarm) fn set(&self, at: Time) -> AlarmSet {
        let wait = self.clock.wait_for(at);
        // Windows keeps the signal of a timer that is cancelled, so this one is never off, but set to a time far ahead.
        set(&self.timer, relative(wait));
        if wait > GUARDED && !at.is_never() {
            set(&self.guard, time_of_day(wait + GUARDED));
            self.is_guarded.store(true, Ordering::Relaxed);
        } else if self.is_guarded.swap(false, Ordering::Relaxed) {
            // If it has gone off already, the next wait ends at once, which takes its signal.
            cancel(&self.guard);
        }
        AlarmSet::Done
    }

    pub(in crate::alarm) fn wait(&self) {
        let handles = [self.timer.as_raw_handle(), self.guard.as_raw_handle()];
        // SAFETY: the call reads two handles from the address, which are open.
        let _signalled = unsafe { WaitForMultipleObjects(handles.len() as u32, handles.as_ptr(), 0, INFINITE) };
    }
}

/// Makes a timer whose signal the wait that sees it takes.
fn create(flags: u32) -> io::Result<OwnedHandle> {
    // SAFETY: the two addresses may be null: no security attributes, no name.
    let handle = unsafe { CreateWaitableTimerExW(ptr::null(), ptr::null(), flags, TIMER_ALL_ACCESS) };
    if handle.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just made the handle, and nothing else owns it.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

/// Returns the due time that lies `wait` after now, rounded up. A negative one counts from now, and zero would be the year 1601.
fn relative(wait: Duration) -> i64 {
    -(wait.min(LONGEST).as_nanos().div_ceil(UNIT).max(1) as i64)
}

/// Returns the due time that lies `wait` after what the system's time of day is now.
fn time_of_day(wait: Duration) -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let units = (now + wait.min(LONGEST)).as_nanos().div_ceil(UNIT) + TO_1970;
    i64::try_from(units).unwrap_or(i64::MAX)
}

fn set(timer: &OwnedHandle, due: i64) {
    // SAFETY: the call reads one number from the address. The handle is open, and there is no function to call. With these arguments it
    // does not fail.
    let _done = unsafe { SetWaitableTimer(timer.as_raw_handle(), &raw const due, 0, None, ptr::null(), 0) };
}

fn cancel(timer: &OwnedHandle) {
    // SAFETY: the handle is open.
    let _done = unsafe { CancelWaitableTimer(timer.as_raw_handle()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every Windows since version 1803 has it, and Wine.
    #[test]
    fn p4_this_system_has_a_timer_that_does_not_depend_on_its_tick() {
        assert!(create(CREATE_WAITABLE_TIMER_HIGH_RESOLUTION).is_ok());
    }

    #[test]
    fn p1_the_time_that_is_left_is_rounded_up() {
        for (nanos, due) in [(0, -1), (1, -1), (100, -1), (101, -2), (1_000_000, -10_000)] {
            assert_eq!(relative(Duration::from_nanos(nanos)), due, "{nanos} ns");
        }
        assert_eq!(relative(Duration::MAX), relative(LONGEST));
    }
}
