//! The clock that workers wait by: the one that the engine's timers are on.

use tourbillon::{Clock, Time};

/// What the monotonic clock shows.
pub(crate) fn now() -> Time {
    Clock::monotonic().now()
}
