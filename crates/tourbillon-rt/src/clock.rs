//! The clock that workers wait by: the one that the engine's timers are on.

#[cfg(shuttle)]
pub(crate) use crate::sync::under_shuttle::time::{engine, now};
#[cfg(not(shuttle))]
use tourbillon::{Builder, Clock, Engine, Time};

/// What the monotonic clock shows.
#[cfg(not(shuttle))]
pub(crate) fn now() -> Time {
    Clock::monotonic().now()
}

/// Returns a builder of an engine whose timers are on it.
#[cfg(not(shuttle))]
pub(crate) fn engine() -> Builder {
    Engine::builder()
}
