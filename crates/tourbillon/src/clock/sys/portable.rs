//! The clocks of a system that has no file of its own here: those of the standard library.

use std::sync::OnceLock;
use std::time::{Instant as StdInstant, SystemTime};

#[cfg(not(shuttle))]
use tourbillon_queue::Span;
use tourbillon_queue::Time;

use crate::clock::since_1970;

pub(in crate::clock) const BOOT_IS_MONOTONIC: bool = true;
/// Windows documents it for `QueryPerformanceCounter`.
pub(in crate::clock) const MONOTONIC_COUNTS_SUSPEND: bool = cfg!(windows);

/// What the monotonic clock shows at its first reading. Not zero, so that moments before the first reading have a number too.
const AT_ORIGIN: Time = Time::from_nanos(1 << 60);

/// Returns the instant of the first reading.
fn origin() -> StdInstant {
    static ORIGIN: OnceLock<StdInstant> = OnceLock::new();
    *ORIGIN.get_or_init(StdInstant::now)
}

#[cfg(not(shuttle))]
pub(in crate::clock) fn monotonic() -> Time {
    AT_ORIGIN + Span::from(origin().elapsed())
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
    (!cfg!(shuttle)).then(|| (origin(), AT_ORIGIN))
}
