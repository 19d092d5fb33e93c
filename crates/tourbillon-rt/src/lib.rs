//! A runtime for Linux servers: io_uring or epoll workers that turn their own timers, and I/O that times out.

#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "tourbillon-rt is made of io_uring, epoll, timerfd and eventfd: it is for Linux only. The crate tourbillon, its timers, works everywhere."
);

#[cfg(any(feature = "futures-io", feature = "hyper"))]
pub mod adapters;
mod backend;
mod clock;
mod io;
pub mod net;
mod reactor;
mod runtime;
mod sync;
mod task;

pub use backend::{Backend, BuildError, UnknownBackend};
pub use io::{Incomplete, Io, Operation};
pub use runtime::{
    Builder, Entered, EventLoop, Handle, NoRuntime, Runtime, Shutdown, WorkGuard, spawn, spawn_blocking, spawn_local,
};
pub use task::{JoinError, JoinHandle, Panic};
/// Timers, which on a worker are the worker's own: `sleep`, `timeout`, `interval`, and so on.
pub use tourbillon::time;
