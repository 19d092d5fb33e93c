//! The errors of `time`.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use crate::core::error::ArmError;

/// Why a timer cannot be used, with the names of `tokio::time::error::Error`.
///
/// As with Tokio, no function of [`time`](crate::time) returns it. It is there for code that names it in its own types: an
/// [`ArmError`], which the `try_` forms return, converts into it, so that `?` works.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Engine;
/// use tourbillon::time::error::Error;
///
/// fn armed(engine: &Engine) -> Result<(), Error> {
///     engine.try_sleep(Duration::from_secs(1))?;
///     Ok(())
/// }
///
/// let engine = Engine::builder().build()?;
/// assert!(armed(&engine).is_ok());
/// engine.shutdown();
/// assert!(armed(&engine).unwrap_err().is_shutdown());
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Error(ErrorKind);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ErrorKind {
    Shutdown,
    AtCapacity,
    Invalid,
}

/// A [`timeout`](crate::time::timeout) or a [`Deadline`](crate::time::Deadline) was reached before the future was ready.
///
/// It converts into an [`io::Error`] of kind [`TimedOut`](io::ErrorKind::TimedOut), so that `?` works in functions that do I/O.
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

/// Why a timeout ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reason {
    DeadlineReached,
    EngineStopped,
}

/// The error of an interval with a period of zero.
///
/// See [`try_interval`](crate::time::try_interval).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ZeroPeriod;

/// The error of chunks with a size of zero.
///
/// See `StreamExt::try_chunks_timeout`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ZeroChunk;

impl Error {
    /// Creates an error that says that the engine was shut down.
    #[must_use]
    pub fn shutdown() -> Error {
        Error(ErrorKind::Shutdown)
    }

    /// Returns whether the engine was shut down. No timer of that engine can be armed again.
    #[must_use]
    pub fn is_shutdown(&self) -> bool {
        self.0 == ErrorKind::Shutdown
    }

    /// Creates an error that says that the engine holds as many timers as it may.
    #[must_use]
    pub fn at_capacity() -> Error {
        Error(ErrorKind::AtCapacity)
    }

    /// Returns whether the engine holds as many timers as it may. A later attempt may succeed.
    #[must_use]
    pub fn is_at_capacity(&self) -> bool {
        self.0 == ErrorKind::AtCapacity
    }

    /// Creates an error that says that a duration is longer than a timer can wait. This crate never does: here every duration is
    /// valid.
    #[must_use]
    pub fn invalid() -> Error {
        Error(ErrorKind::Invalid)
    }

    /// Returns whether a duration is longer than a timer can wait.
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        self.0 == ErrorKind::Invalid
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            ErrorKind::Shutdown => "the engine has been shut down",
            ErrorKind::AtCapacity => "the engine is at capacity and cannot arm another timer",
            ErrorKind::Invalid => "the duration is longer than a timer can wait",
        })
    }
}

impl StdError for Error {}

impl From<ArmError> for Error {
    fn from(error: ArmError) -> Error {
        match error {
            ArmError::Full { .. } => Error::at_capacity(),
            ArmError::Stopped => Error::shutdown(),
        }
    }
}

impl Elapsed {
    pub(crate) fn deadline_reached() -> Elapsed {
        Elapsed(Reason::DeadlineReached)
    }

    pub(crate) fn engine_stopped() -> Elapsed {
        Elapsed(Reason::EngineStopped)
    }

    /// Returns whether the wait ended before the deadline, because the engine was shut down.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0 == Reason::EngineStopped
    }
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Reason::DeadlineReached => "deadline has elapsed",
            Reason::EngineStopped => "the engine was shut down before the deadline",
        })
    }
}

impl StdError for Elapsed {}

impl From<Elapsed> for io::Error {
    fn from(_: Elapsed) -> io::Error {
        io::ErrorKind::TimedOut.into()
    }
}

impl fmt::Display for ZeroPeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Users' tests look for these words in the panic of `interval`.
        f.write_str("`period` must be non-zero.")
    }
}

impl StdError for ZeroPeriod {}

impl fmt::Display for ZeroChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Users' tests look for these words in the panic of `chunks_timeout`.
        f.write_str("`max_size` must be non-zero.")
    }
}

impl StdError for ZeroChunk {}
