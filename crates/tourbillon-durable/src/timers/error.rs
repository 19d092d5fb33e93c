//! What can go wrong with a request.

use std::fmt;

use crate::id::TimerId;
use crate::spec::InvalidTimer;
use crate::store::StoreError;

/// Why a request failed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TimersError {
    /// The timer cannot be created.
    Invalid(InvalidTimer),
    /// A pending timer has the key and was asked for differently.
    Conflict(TimerId),
    /// No such timer is pending.
    NotFound,
    /// The timer is being delivered.
    InFlight,
    /// The timer has this version, not the one that was given.
    VersionIs(u64),
    /// The time is after [`StoreTime::MAX`](crate::StoreTime::MAX) or after the end of the timer, or there is no next time.
    OutOfRange,
    /// The limit of a handler is zero.
    ZeroLimit,
    /// The limit of a page is zero.
    ZeroPage,
    /// A batch has so many requests.
    BatchTooLarge(usize),
    /// The payloads of a batch have so many bytes together.
    BatchPayloadTooLarge(usize),
    /// Deliveries were still running when the time for the shutdown was over. They are delivered again.
    StillRunning(usize),
    /// No thread could be started.
    Thread(String),
    /// The store failed.
    Store(StoreError),
    /// The timers were shut down, or their store has failed for good.
    Ended,
}

impl TimersError {
    /// Returns the error of a store that answers something else than it was asked.
    pub(super) fn confused() -> TimersError {
        TimersError::Store(StoreError::Damaged("its answer does not belong to the request".to_owned()))
    }
}

impl From<InvalidTimer> for TimersError {
    fn from(error: InvalidTimer) -> TimersError {
        TimersError::Invalid(error)
    }
}

impl fmt::Display for TimersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimersError::Invalid(error) => error.fmt(f),
            TimersError::Conflict(id) => {
                write!(
                    f,
                    "timer {id} has this key and was asked for differently: say with `on_conflict` which of them stays"
                )
            }
            TimersError::NotFound => f.write_str("no such timer is pending"),
            TimersError::InFlight => f.write_str("the timer is being delivered"),
            TimersError::VersionIs(version) => write!(f, "the timer was changed and has version {version} now"),
            TimersError::OutOfRange => {
                write!(
                    f,
                    "the time is after {} or after the end of the timer, or the timer has no next time",
                    crate::StoreTime::MAX
                )
            }
            TimersError::ZeroLimit => f.write_str("a handler has at least one delivery at a time"),
            TimersError::ZeroPage => f.write_str("a page has at least one timer: give a limit of one or more"),
            TimersError::BatchTooLarge(size) => {
                write!(f, "a batch has at most {} requests, and this one has {size}", super::LARGEST_BATCH)
            }
            TimersError::BatchPayloadTooLarge(bytes) => {
                let most = super::LARGEST_BATCH_PAYLOAD;
                write!(f, "the payloads of a batch have at most {most} bytes together, and these have {bytes}")
            }
            TimersError::StillRunning(count) => {
                write!(
                    f,
                    "{count} deliveries were still running at the time limit; the next process delivers them again"
                )
            }
            TimersError::Thread(error) => write!(f, "a thread could not be started: {error}"),
            TimersError::Store(error) => error.fmt(f),
            TimersError::Ended => f.write_str("the timers were shut down, or their store has failed"),
        }
    }
}

impl std::error::Error for TimersError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TimersError::Invalid(error) => Some(error),
            TimersError::Store(error) => Some(error),
            _ => None,
        }
    }
}
