//! Sleeping in the kernel, without any Tourbillon timer.

use crate::clock::monotonic;

/// Sets the timer slack of the calling thread to the minimum, as the driver's thread does.
pub(crate) fn disable_timer_slack() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

/// Sleeps for `nanos` nanoseconds, and returns by how many the thread overslept.
pub(crate) fn oversleep(nanos: u64) -> u64 {
    let due = monotonic() + nanos;
    sleep_until(due);
    monotonic().saturating_sub(due)
}

#[cfg(target_os = "linux")]
fn sleep_until(due: u64) {
    use rustix::thread::{ClockId, clock_nanosleep_absolute};
    let due = rustix::time::Timespec { tv_sec: (due / 1_000_000_000) as i64, tv_nsec: (due % 1_000_000_000) as _ };
    // A signal may end the sleep early, which does no harm.
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &due);
}

#[cfg(not(target_os = "linux"))]
fn sleep_until(due: u64) {
    std::thread::sleep(std::time::Duration::from_nanos(due.saturating_sub(monotonic())));
}
