//! The errors of building an engine and of arming a timer.

use std::fmt;
use std::io;

use tourbillon_queue::RoundsError;

/// The error of building an engine.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// The number of shards is zero.
    NoShards,
    /// The capacity is zero.
    NoCapacity,
    /// [`QueueKind::Rounds`](crate::QueueKind::Rounds) has an invalid tick or number of slots.
    Rounds(RoundsError),
    /// A driver that waits was combined with a manual clock, whose moves it does not notice: use
    /// [`Driver::external`](crate::Driver::external).
    ManualClock,
    /// `Driver::tokio` was used outside the context of a Tokio runtime, or in a runtime without I/O: build the engine in an `async` function,
    /// or under `Handle::enter`.
    NoRuntime,
    /// The system refused the driver's thread or file descriptor.
    Thread(io::Error),
}

/// The error of arming a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ArmError {
    /// The engine, or the set of [`NamedTimers`](crate::NamedTimers), holds as many timers as its capacity allows.
    Full {
        /// That capacity.
        capacity: usize,
    },
    /// The engine has been shut down, or the [`NamedTimers`](crate::NamedTimers) have been stopped.
    Stopped,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::NoShards => f.write_str("the number of shards is zero: set one or more, or leave the default"),
            BuildError::NoCapacity => f.write_str("the capacity is zero timers: set one or more, or none for no limit"),
            BuildError::Rounds(error) => write!(f, "QueueKind::Rounds: {error}"),
            BuildError::ManualClock => {
                f.write_str("a manual clock needs Driver::external(): no other driver notices when the clock is moved")
            }
            BuildError::NoRuntime => f.write_str(
                "Driver::tokio() needs the context of a Tokio runtime with I/O enabled: build the engine inside one",
            ),
            BuildError::Thread(error) => {
                write!(
                    f,
                    "the system refused the driver a thread or a file descriptor: {error}; raise the limits of the process, or use \
                     Driver::external()"
                )
            }
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
            ArmError::Full { capacity } => {
                write!(
                    f,
                    "there is no room: the capacity is {capacity} timers; try again when some have ended, or raise it"
                )
            }
            ArmError::Stopped => f.write_str(
                "the engine has been shut down, or the set of named timers has been stopped: use one that is running",
            ),
        }
    }
}

impl std::error::Error for ArmError {}
