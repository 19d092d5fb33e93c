//! Why an engine cannot be built, and why a timer cannot be armed.

use std::fmt;
use std::io;

use tourbillon_queue::RoundsError;

/// Why an engine could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// There must be a shard.
    NoShards,
    /// There must be room for a timer.
    NoCapacity,
    /// [`QueueKind::Rounds`] with a tick or a number of slots that it cannot have.
    Rounds(RoundsError),
    /// A thread does not know when a manual clock is moved: take [`Driver::external`].
    ManualClock,
    /// `Driver::tokio` outside a Tokio runtime's context, or one without its I/O driver: build the engine in
    /// an `async` function, or under `Handle::enter`.
    NoRuntime,
    /// The system refused the driver's thread or its file descriptor.
    Thread(io::Error),
}

/// Why a timer could not be armed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ArmError {
    /// The engine holds as many timers as it may.
    Full {
        /// So many.
        capacity: usize,
    },
    /// The engine has been shut down; or the [`NamedTimers`](crate::NamedTimers) have been stopped.
    Stopped,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::NoShards => f.write_str("an engine needs at least one shard"),
            BuildError::NoCapacity => f.write_str("an engine needs a capacity of at least one timer"),
            BuildError::Rounds(error) => write!(f, "QueueKind::Rounds: {error}"),
            BuildError::ManualClock => {
                f.write_str("a manual clock is turned by whoever moves it: take Driver::external() with it")
            }
            BuildError::NoRuntime => f.write_str(
                "Driver::tokio() needs the context of a Tokio runtime with I/O enabled: build the engine inside one",
            ),
            BuildError::Thread(error) => write!(f, "the system refused the driver what it needs: {error}"),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BuildError::Rounds(error) => Some(error),
            BuildError::Thread(error) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for ArmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArmError::Full { capacity } => write!(f, "the engine holds as many timers as it may, {capacity}"),
            ArmError::Stopped => f.write_str("the engine has been shut down, or the timer's set has been stopped"),
        }
    }
}

impl std::error::Error for ArmError {}
