//! A runtime for Linux servers: io_uring or epoll workers that turn their own timers, and I/O that times out.
//!
//! ```
//! use std::time::Duration;
//! use tourbillon_rt::net::{TcpListener, TcpStream};
//! use tourbillon_rt::{Runtime, spawn};
//!
//! async fn echo(stream: TcpStream) -> std::io::Result<()> {
//!     let mut buffer = [0; 4096];
//!     loop {
//!         // A client that is silent for half a minute is disconnected.
//!         let length = stream.read(&mut buffer).timeout(Duration::from_secs(30)).await?;
//!         if length == 0 {
//!             return Ok(());
//!         }
//!         stream.write_all(&buffer[..length]).timeout(Duration::from_secs(5)).await?;
//!     }
//! }
//!
//! let runtime = Runtime::new()?;
//! runtime.block_on(async {
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let client = TcpStream::connect(listener.local_addr()?).timeout(Duration::from_secs(1)).await?;
//!     let (stream, _) = listener.accept().await?;
//!     spawn(echo(stream));
//!     client.write_all(b"hello").await?;
//!     client.read_exact(&mut [0; 5]).timeout(Duration::from_secs(1)).await
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Contents
//! - [`Runtime`]: workers, each with a reactor and a shard of timers that it turns itself; they steal each other's tasks. [`spawn`],
//!   [`spawn_local`], [`spawn_blocking`], [`JoinHandle`]. Without a runtime [`spawn`] loses its task, and [`try_spawn`] returns an error.
//! - [`net`]: TCP and UDP. Every operation is an [`Io`] with [`timeout`](Io::timeout) and [`deadline`](Io::deadline).
//! - [`time`]: the timers of the crate `tourbillon`. Within the runtime they are the worker's own: a worker arms them without telling
//!   another thread, and its nearest deadline bounds the wait of its reactor. (A `Sleep` belongs to the runtime inside of which it was
//!   made: one that is made outside uses the global engine, and works as well.)
//! - [`EventLoop`]: threads of your own run handlers as long as there is work.
//!
//! # Back ends
//! Workers use io_uring where the kernel (5.13) and the sandbox allow it, otherwise epoll; [`Runtime::backend`] says which. Each can be
//! forced by [`Builder::backend`], or by the environment variable `TOURBILLON_BACKEND=uring|epoll|auto`, which wins. If the system
//! refuses the back end that was forced for workers, the builder returns an [error](BuildError::Refused) that says why. All other threads use epoll. A program
//! behaves the same on both.
//!
//! # What happens if
//! | event | effect |
//! |---|---|
//! | a task panics | its [`JoinHandle`] returns the panic; no other task is affected |
//! | a task blocks its worker | other threads steal its tasks and serve its timers and sockets, at most some 20 ms late |
//! | an operation is dropped or times out | it has moved no byte and moves none afterwards; the socket stays usable |
//! | an operation completes when its time is over | the completion counts |
//! | there is no runtime on the thread | an operation that has to wait returns [`NoRuntime`]; a task that is lost is reported; nothing panics |
//! | a task, or another `block_on`, calls [`Runtime::block_on`] | it blocks; other threads run the other tasks meanwhile, if need be one that is started for that |
//! | there are no file descriptors left | the operation that needed one returns the error; a waiting connection can be accepted later |
//! | the runtime is dropped | every task ends at its next await, and its future is dropped |
//! | nothing is due | no thread wakes up |
//!
//! # Limits
//! - Without workers (`workers(0)`) no thread serves one that is blocked within [`Runtime::block_on`], unless it is blocked in another
//!   [`Runtime::block_on`]: tasks that it has woken, and those that wait for its sockets and timers, wait for it. Tasks that another
//!   thread in `block_on` runs go on.
//! - [`EventLoop::poll`] runs handlers that have been queued. The driver queues a timer's handler when the timer fires: a moment after
//!   its expiry. (The call that cancels a wait queues that wait's handler.)
//! - A copy of the process (`fork`) has no threads that would run its tasks: the child must not use the runtime, nor drop it. The
//!   parent's goes on.
//!
//! # Features
//! None is on by default.
//!
//! **`futures-io`**: [`TcpStream`](net::TcpStream) is `AsyncRead` and `AsyncWrite` of the crate `futures-io`.
//!
//! **`hyper`**: [`TcpStream`](net::TcpStream) is a `hyper::rt::Read` and `Write`, and `adapters::hyper::RuntimeExecutor` runs hyper's
//! tasks. The timer for hyper is in the crate `tourbillon`.
//!
//! **`test-util`**: tests in virtual time, on any number of workers: `Builder::start_paused`, `Builder::pausable`, and `time::pause`,
//! `time::resume` and `time::advance` within such a runtime. Time moves to the next deadline when the runtime is idle, which it knows
//! exactly; see `Builder::start_paused` for what holds time still. Other runtimes are the same with and without the feature.
//!
//! # Platforms
//! Linux alone, on any processor: tested on x86-64, with io_uring and with epoll, and on aarch64 under qemu, with epoll. A compile error says so
//! elsewhere. Where a container refuses io_uring or timerfd, it waits on epoll and with timeouts, up to a millisecond late.
//!
//! # Folders
//! From top to bottom; a folder, or a file beside them, imports only from those below it:
//!
//! `verify` (models and schedules), `adapters`, `net`, `io`, `external`, `executor`, `task`, `reactor`, `reactor/sys`, `clock`, `sync`.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "tourbillon-rt is made of io_uring, epoll, timerfd and eventfd: it is for Linux only. The crate tourbillon, its timers, works everywhere."
);

#[cfg(any(feature = "futures-io", feature = "hyper"))]
pub mod adapters;
mod clock;
mod executor;
mod external;
mod io;
pub mod net;
mod reactor;
mod sync;
mod task;
#[cfg(all(test, any(loom, shuttle)))]
mod verify;

pub use executor::{
    Backend, BuildError, Builder, Entered, Handle, Runtime, ShutdownReport, UnknownBackend, spawn, spawn_blocking,
    spawn_local, try_spawn, try_spawn_local,
};
pub use external::{EventLoop, WorkGuard};
pub use io::{Incomplete, Io, Operation};
pub use reactor::NoRuntime;
pub use task::{JoinError, JoinHandle, Panic};
/// Timers, which on a worker are the worker's own: `sleep`, `timeout`, `interval`, and so on.
pub use tourbillon::time;

/// Compiles the code in READMEs and guides.
#[cfg(doctest)]
mod readmes {
    #[cfg(tourbillon_repository)]
    #[doc = include_str!("../../../README.md")]
    struct ProjectReadme;

    #[cfg(tourbillon_repository)]
    #[doc = include_str!("../../../docs/guide/testing-with-virtual-time.md")]
    struct TestingWithVirtualTime;

    #[cfg(tourbillon_repository)]
    #[doc = include_str!("../../../docs/guide/moving-from-asio.md")]
    struct MovingFromAsio;

    #[doc = include_str!("../README.md")]
    struct RuntimeReadme;
}
