//! What can go wrong with time.

use std::error::Error;
use std::fmt;
use std::io;

/// A [`timeout`](crate::time::timeout) or a [`Deadline`](crate::time::Deadline) was reached before the future was ready.
///
/// It converts into an [`io::Error`] of kind [`TimedOut`](io::ErrorKind::TimedOut), so that `?` works where I/O is done.
///
/// ```
/// use std::io;
/// use std::time::Duration;
/// use tourbillon::time::timeout;
///
/// async fn answer() -> io::Result<u32> {
///     Ok(timeout(Duration::from_millis(1), std::future::pending()).await?)
/// }
///
/// let error = futures_lite::future::block_on(answer()).unwrap_err();
/// assert_eq!(error.kind(), io::ErrorKind::TimedOut);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elapsed(Reason);

/// Why nothing more is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reason {
    DeadlineReached,
    EngineStopped,
}

/// An interval of period zero was asked for.
///
/// See [`try_interval`](crate::time::try_interval).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ZeroPeriod;

impl Elapsed {
    pub(crate) fn deadline_reached() -> Elapsed {
        Elapsed(Reason::DeadlineReached)
    }

    pub(crate) fn engine_stopped() -> Elapsed {
        Elapsed(Reason::EngineStopped)
    }

    /// Whether the deadline was not reached at all: the engine that should have watched it was shut down.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0 == Reason::EngineStopped
    }
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Reason::DeadlineReached => "deadline has elapsed",
            Reason::EngineStopped => "timer engine was shut down before the deadline",
        })
    }
}

impl Error for Elapsed {}

impl From<Elapsed> for io::Error {
    fn from(_: Elapsed) -> io::Error {
        io::ErrorKind::TimedOut.into()
    }
}

impl fmt::Display for ZeroPeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Users' tests look for these very words in the panic of `interval`.
        f.write_str("`period` must be non-zero.")
    }
}

impl Error for ZeroPeriod {}
