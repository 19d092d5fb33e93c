//! The clock that workers wait by: the one that the engine's timers are on.

use rustix::time::{ClockId, clock_gettime};
use tourbillon::Time;

/// What the monotonic clock shows.
pub(crate) fn now() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    Time::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
