//! The clocks of a system that has no file of its own here: those of the standard library.

use std::sync::OnceLock;
use std::time::{Duration, Instant as StdInstant, SystemTime};

#[cfg(not(shuttle))]
use tourbillon_queue::Span;
use tourbillon_queue::Time;

use crate::clock::{earliest, since_1970};

pub(in crate::clock) const BOOT_IS_MONOTONIC: bool = true;
/// Windows documents it for `QueryPerformanceCounter`.
pub(in crate::clock) const MONOTONIC_COUNTS_SUSPEND: bool = cfg!(tourbillon_monotonic_counts_suspend);

/// An instant, and what the monotonic clock shows at it.
///
/// Where the standard library's clock begins at zero (Windows), the origin is its earliest instant. Elsewhere that is too long ago, and
/// the first reading is the origin. It has a large number, so that moments before it have one too.
fn origin() -> (StdInstant, Time) {
    static ORIGIN: OnceLock<(StdInstant, Time)> = OnceLock::new();
    const LONGEST_UPTIME: Duration = Duration::from_secs(200 * 365 * 24 * 3600);
    *ORIGIN.get_or_init(|| {
        let now = StdInstant::now();
        let earliest = earliest(now);
        if now - earliest < LONGEST_UPTIME { (earliest, Time::ZERO) } else { (now, Time::from_nanos(1 << 60)) }
    })
}

#[cfg(not(shuttle))]
pub(in crate::clock) fn monotonic() -> Time {
    let (std, time) = origin();
    time + Span::from(std.elapsed())
}

pub(in crate::clock) fn boot() -> Time {
    super::monotonic()
}

pub(in crate::clock) fn wall() -> Time {
    since_1970(SystemTime::now())
}

pub(in crate::clock) fn thread_time() -> Time {
    super::monotonic()
}

pub(in crate::clock) fn std_origin() -> Option<(StdInstant, Time)> {
    (!cfg!(shuttle)).then(origin)
}
