//! `clock_nanosleep` on a thread with a timer slack of 1 ns: what the operating system achieves for one sleep at a time.

use std::num::NonZeroU64;

use rustix::thread::{ClockId, clock_nanosleep_absolute, set_current_timer_slack};
use rustix::time::{Timespec, clock_gettime};

pub(crate) const NAME: &str = "clock_nanosleep";

const NANOS: u64 = 1_000_000_000;

/// Sets the timer slack of the calling thread to the minimum.
pub(crate) fn without_slack() {
    set_current_timer_slack(NonZeroU64::new(1)).expect("a thread may set its own timer slack");
}

/// Returns a reading of the monotonic clock in nanoseconds.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * NANOS + time.tv_nsec as u64
}

/// Blocks the thread until a time on the monotonic clock.
pub(crate) fn sleep_until(nanos: u64) {
    let deadline = Timespec { tv_sec: (nanos / NANOS) as i64, tv_nsec: (nanos % NANOS) as _ };
    // A signal may end the sleep early.
    while clock_nanosleep_absolute(ClockId::Monotonic, &deadline).is_err() {}
}
