//! The executor: the runtime and the threads that run its tasks.
//!
//! | file | idea |
//! |---|---|
//! | `runtime.rs`, `builder.rs`, `handle.rs` | the runtime as its users see it |
//! | `backend.rs` | which back end a runtime uses |
//! | `shared.rs` | the state that all threads of a runtime share: the global queue, and which threads have ended |
//! | `worker.rs` | the loop of a thread that runs tasks, with the order of one iteration |
//! | `worker_shared.rs` | the part of such a thread's state that other threads use |
//! | `idle.rs` | the parked workers, and which one is unparked for a task |
//! | `monitor/` | serves the timers and sockets of a worker that its task blocks |
//! | `registry.rs` | all tasks, so that shutdown can end them |
//! | `external_threads.rs` | threads of the user that work for the runtime for a while, and their sockets |
//! | `nesting.rs` | the tasks that a thread in a nested `block_on` leaves to other threads |
//! | `substitutes.rs` | the threads that run those tasks |
//! | `context.rs` | the runtimes that the calling thread is inside of |
//! | `virtual_time/` | when the clock of a paused runtime moves |

mod backend;
mod builder;
pub(crate) mod context;
pub(crate) mod external_threads;
mod handle;
pub(crate) mod idle;
pub(crate) mod monitor;
pub(crate) mod nesting;
pub(crate) mod registry;
mod runtime;
pub(crate) mod shared;
pub(crate) mod substitutes;
#[cfg(any(feature = "test-util", loom))]
pub(crate) mod virtual_time;
#[cfg(not(any(feature = "test-util", loom)))]
#[path = "virtual_time/off.rs"]
pub(crate) mod virtual_time;
pub(crate) mod worker;
pub(crate) mod worker_shared;

pub use self::backend::{Backend, BuildError, UnknownBackend};
pub use self::builder::Builder;
pub use self::handle::{Entered, Handle, spawn, spawn_blocking, spawn_local, try_spawn, try_spawn_local};
pub use self::runtime::{Runtime, ShutdownReport};
