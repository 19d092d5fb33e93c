//! Threads of the user that work for a runtime while they are inside one of its calls.
//!
//! | file | idea |
//! |---|---|
//! | `block_on.rs` | a thread works for the runtime until its future is ready |
//! | `event_loop.rs` | threads run handlers as long as there is work |
//! | `work.rs` | counts that work |
//!
//! The list of these threads, and what becomes of their sockets, is in `executor/external_threads.rs`.

pub(crate) mod block_on;
mod event_loop;
pub(crate) mod work;

pub use self::event_loop::{EventLoop, WorkGuard};
