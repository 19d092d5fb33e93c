//! The clocks of the Linux kernel.

use std::time::Instant as StdInstant;

use rustix::time::{ClockId, clock_gettime};
use tourbillon_queue::Time;

pub(in crate::clock) const BOOT_IS_MONOTONIC: bool = false;
pub(in crate::clock) const MONOTONIC_COUNTS_SUSPEND: bool = false;

#[cfg(not(shuttle))]
#[inline(always)]
pub(in crate::clock) fn monotonic() -> Time {
    read(ClockId::Monotonic)
}

#[inline(always)]
pub(in crate::clock) fn boot() -> Time {
    read(ClockId::Boottime)
}

#[inline(always)]
pub(in crate::clock) fn wall() -> Time {
    read(ClockId::Realtime)
}

pub(in crate::clock) fn thread_time() -> Time {
    // Miri does not know this clock.
    if cfg!(miri) { super::monotonic() } else { read(ClockId::ThreadCPUTime) }
}

pub(in crate::clock) fn std_origin() -> Option<(StdInstant, Time)> {
    None
}

#[inline(always)]
fn read(id: ClockId) -> Time {
    let time = clock_gettime(id);
    // The kernel's seconds are not negative for any of these clocks.
    Time::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
