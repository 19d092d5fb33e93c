//! The clock that workers wait by: that of the engine's timers.

#[cfg(shuttle)]
pub(crate) use crate::sync::under_shuttle::time::{engine, now};
#[cfg(not(shuttle))]
use tourbillon::{Builder, Clock, Engine, Time};

/// Returns the time of the monotonic clock.
#[cfg(not(shuttle))]
pub(crate) fn now() -> Time {
    Clock::monotonic().now()
}

/// Returns a builder of an engine on that clock.
#[cfg(not(shuttle))]
pub(crate) fn engine() -> Builder {
    Engine::builder()
}
