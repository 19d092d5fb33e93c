//! The clocks of macOS, iOS and their relatives.

use std::time::Instant as StdInstant;

use tourbillon_queue::Time;

pub(in crate::clock) const BOOT_IS_MONOTONIC: bool = false;
pub(in crate::clock) const MONOTONIC_COUNTS_SUSPEND: bool = false;

/// Reads `mach_absolute_time`, as the standard library does.
#[cfg(not(shuttle))]
#[inline(always)]
pub(in crate::clock) fn monotonic() -> Time {
    read(libc::CLOCK_UPTIME_RAW)
}

/// Reads `mach_continuous_time`.
#[inline(always)]
pub(in crate::clock) fn boot() -> Time {
    read(libc::CLOCK_MONOTONIC_RAW)
}

#[inline(always)]
pub(in crate::clock) fn wall() -> Time {
    read(libc::CLOCK_REALTIME)
}

pub(in crate::clock) fn thread_time() -> Time {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

pub(in crate::clock) fn std_origin() -> Option<(StdInstant, Time)> {
    None
}

#[inline(always)]
fn read(id: libc::clockid_t) -> Time {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one `timespec` to the address, which is that of `time`. It fails only for a clock that the system does not
    // have, and each macOS that Rust supports has these four.
    let _done = unsafe { libc::clock_gettime(id, &raw mut time) };
    // The seconds are not negative for any of these clocks.
    Time::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
