//! Which back end a runtime uses, and its error if the system refuses it.

use std::fmt;
use std::io;
use std::str::FromStr;

use crate::reactor::Reactor;
#[cfg(not(shuttle))]
use crate::reactor::sys::Epoll;
#[cfg(shuttle)]
use crate::reactor::sys::Parking;
use crate::reactor::sys::Uring;

/// The back end that a runtime's workers wait on.
///
/// Threads that are not workers use epoll: those inside `block_on` or an event loop, and substitutes. So does a runtime without workers.
///
/// ```
/// use tourbillon_rt::{Backend, Runtime};
///
/// let runtime = Runtime::builder().backend(Backend::Epoll).workers(1).build()?;
/// assert_eq!(runtime.backend(), Backend::Epoll);
/// # Ok::<(), tourbillon_rt::BuildError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Backend {
    /// io_uring if the kernel and the sandbox allow it, otherwise epoll. The default.
    #[default]
    Auto,
    /// io_uring: Linux 5.13 or later, where it is not forbidden, as it is in many containers.
    Uring,
    /// epoll: any Linux.
    Epoll,
}

/// Why a runtime could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// The system refuses the back end: `EPERM` and `ENOSYS` mean that io_uring is forbidden here, `EMFILE` that there are no more file
    /// descriptors.
    Refused {
        /// The back end that was asked for.
        backend: Backend,
        /// The error of the system.
        why: io::Error,
    },
    /// The environment variable `TOURBILLON_BACKEND` is none of `auto`, `uring`, `epoll`.
    Variable(String),
    /// The system refused a worker's thread.
    Thread(io::Error),
    /// The engine of the runtime's timers could not be built.
    Engine(tourbillon::BuildError),
}

/// The environment variable that overrides the builder.
pub(crate) const VARIABLE: &str = "TOURBILLON_BACKEND";

impl Backend {
    /// Returns the back end that the environment variable names, if it is set.
    pub(crate) fn from_environment() -> Result<Option<Backend>, BuildError> {
        match std::env::var(VARIABLE) {
            Ok(name) => name.parse().map(Some).map_err(|UnknownBackend(name)| BuildError::Variable(name)),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(name)) => Err(BuildError::Variable(name.to_string_lossy().into_owned())),
        }
    }

    /// Returns the back end of a runtime with `workers` workers: never [`Backend::Auto`].
    pub(crate) fn choose(self, workers: usize) -> Backend {
        match self {
            // A schedule has no kernel, and every thread of it waits on the same back end.
            _ if cfg!(shuttle) => Backend::Epoll,
            _ if workers == 0 => Backend::Epoll,
            Backend::Auto if Uring::new().is_ok() => Backend::Uring,
            Backend::Auto => Backend::Epoll,
            forced => forced,
        }
    }

    /// Returns a reactor for a worker.
    pub(crate) fn worker_reactor(self) -> Result<Reactor, BuildError> {
        match self {
            Backend::Uring => {
                let uring = Uring::new().map_err(|why| BuildError::Refused { backend: self, why })?;
                Ok(Reactor::new(Box::new(uring)))
            }
            Backend::Epoll | Backend::Auto => external_reactor(),
        }
    }
}

/// Returns a reactor for a thread that is not a worker, which may come and go.
pub(crate) fn external_reactor() -> Result<Reactor, BuildError> {
    #[cfg(not(shuttle))]
    let selector = Epoll::new().map_err(|why| BuildError::Refused { backend: Backend::Epoll, why })?;
    #[cfg(shuttle)]
    let selector = Parking::new();
    Ok(Reactor::new(Box::new(selector)))
}

/// A name that is none of `auto`, `uring`, `epoll`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownBackend(pub String);

impl FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(name: &str) -> Result<Backend, UnknownBackend> {
        match name.to_ascii_lowercase().as_str() {
            "auto" => Ok(Backend::Auto),
            "uring" | "io_uring" => Ok(Backend::Uring),
            "epoll" => Ok(Backend::Epoll),
            _ => Err(UnknownBackend(name.to_owned())),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Auto => "auto",
            Backend::Uring => "io_uring",
            Backend::Epoll => "epoll",
        })
    }
}

impl fmt::Display for UnknownBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no such back end: {:?} is none of auto, uring, epoll", self.0)
    }
}

impl std::error::Error for UnknownBackend {}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Refused { backend: Backend::Uring, why } => {
                write!(f, "the back end io_uring is not available: {why}; use Backend::Auto, which falls back to epoll")
            }
            BuildError::Refused { backend, why } => {
                write!(f, "the back end {backend} is not available: {why}; raise the limit of file descriptors")
            }
            BuildError::Variable(name) => write!(f, "{VARIABLE}: {}", UnknownBackend(name.clone())),
            BuildError::Thread(error) => {
                write!(f, "the system refused a thread: {error}; raise the limit of threads, or use fewer workers")
            }
            BuildError::Engine(error) => write!(f, "the engine of the timers: {error}"),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BuildError::Refused { why, .. } => Some(why),
            BuildError::Thread(error) => Some(error),
            BuildError::Engine(error) => Some(error),
            BuildError::Variable(_) => None,
        }
    }
}

impl From<BuildError> for io::Error {
    fn from(error: BuildError) -> io::Error {
        match error {
            BuildError::Refused { why, .. } => why,
            other => io::Error::other(other),
        }
    }
}
