//! A live view of the engines of this process, in a terminal and in a browser (feature `inspect`).
//!
//! One line makes the process ready to be looked at:
//!
//! ```no_run
//! let _inspector = tourbillon::inspect::serve("127.0.0.1:7669")?; // or a Unix socket: "/run/user/1000/shop.sock"
//! # Ok::<(), tourbillon::inspect::InspectError>(())
//! ```
//!
//! Then `tourbillon top 127.0.0.1:7669` (crate `tourbillon-cli`) shows each second how many timers were armed, fired and cancelled, how many
//! are pending, how late they fired, and the CPU time of the process. `http://127.0.0.1:7669/` shows the same in a browser.
//!
//! | ask for | answer |
//! |---|---|
//! | `GET /` | the page |
//! | `GET /stats` | one JSON object: the counts of each engine since it was built, as in [`Stats`](crate::Stats) |
//!
//! # Cost
//! While no client looks, one thread sleeps in `accept`, and timers cost what they always cost: the counts are those that an engine keeps anyway.
//! A look visits each shard once, as [`Engine::stats`] does.
//!
//! # Security
//! The view is read only: nothing that is sent to it changes the process. It shows counts, the names that you give to engines, the name of
//! the program and its process id. An address that other machines can reach is an error. A Unix socket can be opened only by the user that the
//! process runs as; a loopback address, by every user of the machine. A web page of a stranger cannot read the counts through the user's
//! browser: answers carry no permission for other origins, and a request must name a loopback address or `localhost` as its host, so a name
//! that is rebound to 127.0.0.1 is refused.

mod address;
mod counts;
mod error;
mod http;
mod listener;
#[cfg(tourbillon_unix_sockets)]
mod unix_path;

use std::fmt;
use std::time::{Instant, SystemTime};

pub use self::address::Address;
pub use self::error::InspectError;
use self::listener::Listener;
use crate::core::CoreRef;
use crate::engine::Engine;

/// The version of what `GET /stats` answers. It is raised when a field changes its meaning or goes away.
pub const PROTOCOL: u32 = 1;

/// Serves the live view of the process until this is dropped: [`serve`].
#[derive(Debug)]
#[must_use = "the view ends when this is dropped"]
pub struct Inspector {
    listener: Listener,
}

/// A builder of an [`Inspector`] that shows engines of your own: [`Inspector::builder`].
#[must_use]
#[derive(Default)]
pub struct Builder {
    engines: Vec<(String, CoreRef)>,
}

/// What the view shows.
pub(crate) struct Inspected {
    /// The engines that the user has named. They are shut down when their last handle is dropped, in spite of these references.
    engines: Vec<(String, CoreRef)>,
    started: Instant,
    /// Milliseconds since 1970: tells a viewer whether it still sees the same process.
    started_ms: u128,
}

/// Serves a live view of the process at a loopback address, such as `127.0.0.1:7669`, or at a Unix socket, which is anything with a `/`.
///
/// It shows the [global engine](Engine::global) and the engine of cron plans, if they have been started. [`Inspector::builder`] adds engines
/// of your own. With port 0 the system chooses a port: [`Inspector::address`].
///
/// A Unix socket that a process has left behind is replaced. The socket is removed when the inspector is dropped.
///
/// # Errors
/// An [`InspectError`] says why the address cannot be served.
///
/// ```
/// use tourbillon::inspect::{InspectError, serve};
///
/// let inspector = serve("127.0.0.1:0")?;
/// println!("watch it: tourbillon top {}", inspector.address());
///
/// // Other machines must not see it.
/// assert!(matches!(serve("0.0.0.0:7669"), Err(InspectError::NotLoopback(_))));
/// # Ok::<(), InspectError>(())
/// ```
pub fn serve(address: &str) -> Result<Inspector, InspectError> {
    Inspector::builder().serve(address)
}

impl Inspector {
    /// Returns a builder that knows only the engines that the whole process shares.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns the address, with the port that the system chose if port 0 was asked for.
    #[must_use]
    pub fn address(&self) -> &Address {
        self.listener.address()
    }
}

impl Builder {
    /// Adds an engine under a name. The view does not keep the engine running.
    ///
    /// ```
    /// use tourbillon::Engine;
    /// use tourbillon::inspect::Inspector;
    ///
    /// let engine = Engine::builder().capacity(1_000).build()?;
    /// let _inspector = Inspector::builder().engine("uploads", &engine).serve("127.0.0.1:0")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A runtime of `tourbillon-rt` has an engine of its own: `.engine("runtime", runtime.engine())`.
    pub fn engine(mut self, name: impl Into<String>, engine: &Engine) -> Builder {
        self.engines.push((name.into(), engine.core().clone()));
        self
    }

    /// Serves the view: see [`serve`].
    ///
    /// # Errors
    /// An [`InspectError`] says why the address cannot be served.
    pub fn serve(self, address: &str) -> Result<Inspector, InspectError> {
        let address: Address = address.parse()?;
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let inspected =
            Inspected { engines: self.engines, started: Instant::now(), started_ms: since_1970.as_millis() };
        Ok(Inspector { listener: Listener::start(address, inspected)? })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.engines.iter().map(|(name, _)| name).collect();
        f.debug_struct("Builder").field("engines", &names).finish()
    }
}
