//! The clocks of the runtime. No other file of the crate reads a clock.

use std::time::Instant;

#[cfg(not(shuttle))]
use tourbillon::{Builder, Clock, Engine, Time};

#[cfg(shuttle)]
pub(crate) use crate::sync::under_shuttle::time::{engine, now};

/// Returns the time of the clock that workers wait by, which is the monotonic clock of the engine's timers.
#[cfg(not(shuttle))]
pub(crate) fn now() -> Time {
    Clock::monotonic().now()
}

/// Returns a builder of an engine on that clock.
#[cfg(not(shuttle))]
pub(crate) fn engine() -> Builder {
    Engine::builder()
}

/// Returns the time of the system, which is never virtual: for the timeouts of a shutdown and of idle substitutes.
pub(crate) fn system_now() -> Instant {
    Instant::now()
}

/// Returns the time that tasks see: virtual time, if the runtime of the calling thread has it.
pub(crate) fn task_now() -> tourbillon::time::Instant {
    tourbillon::time::Instant::now()
}
