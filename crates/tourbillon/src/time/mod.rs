//! Sleeps, timeouts and intervals, under any executor.
//!
//! The names and meanings are those of `tokio::time`: to migrate, change the `use` line. Nothing here needs a runtime, a
//! context, or a task. Items that Tokio does not have are marked with a plus.
//!
//! | to | use |
//! |---|---|
//! | wait | [`sleep`], [`sleep_until`], [`Sleep`]; + [`try_sleep`], [`try_sleep_until`], [`Sleep::slack`], [`disarm`](Sleep::disarm), [`arm`](Sleep::arm) |
//! | give up in time | [`timeout()`], [`timeout_at`], [`FutureExt`]; + [`try_timeout`], [`try_timeout_at`], [`Timeout::reset`], [`extend`](Timeout::extend), [`slack`](Timeout::slack), [`disarm`](Timeout::disarm), [`arm`](Timeout::arm) |
//! | give up in time, through many calls | + [`Deadline`] |
//! | do something at an interval | [`interval()`], [`interval_at`], [`MissedTickBehavior`]; + [`try_interval`], [`Interval::slack`], [`disarm`](Interval::disarm), [`arm`](Interval::arm) |
//! | give up in time, slow down, or collect chunks, in a stream | `StreamExt` (feature `futures`) |
//! | let other tasks run | [`yield_now`] |
//! | wait for many things, each with its own time | [`DelayQueue`] |
//! | read the clock | [`Instant`] |
//! | test in virtual time | `pause`, `resume`, `advance`; + `blocking_advance`, `run`, `auto_advance` (feature `test-util`) |
//!
//! These functions use the current engine: the one that the thread has [entered](crate::Engine::enter), else the global one. Each is also a
//! method of [`Engine`](crate::Engine), as in `engine.sleep(..)`; types have a constructor for that, as in `DelayQueue::on(&engine)`.
//!
//! ```
//! use std::time::Duration;
//! use tourbillon::time::{sleep, timeout};
//!
//! # futures_lite::future::block_on(async {
//! let slow = async {
//!     sleep(Duration::from_secs(60)).await;
//!     "answer"
//! };
//! assert!(timeout(Duration::from_millis(5), slow).await.is_err());
//! # });
//! ```
//!
//! # Differences from `tokio::time`
//!
//! - Nothing needs a runtime: outside one, Tokio's timers panic and these work.
//! - Deadlines are exact to the nanosecond, not to the millisecond. A sleep of zero, or until a time that has passed, is ready
//!   at the first poll: to let other tasks run, [`yield_now`].
//! - Outside Tokio's runtimes, a task yields after 128 results that were ready at once; inside, Tokio's own budget counts.
//! - Virtual time works outside a current-thread runtime as well. Inside one, `pause`, `advance` and `resume` of both crates control
//!   the same clock, which is Tokio's.
//! - The operators of [`Instant`] saturate where those of Tokio's panic.
//! - After a shutdown of its engine a timer completes, and its outcome says so; Tokio's panics.
//! - A [`DelayQueue`] returns items with equal deadlines in the order of their insertion, and never reuses the key of an item.

mod deadline;
pub mod error;
mod ext;
pub(crate) mod interval;
mod on_engine;
mod sleep;
#[cfg(feature = "futures")]
mod stream;
mod timeout;
mod yield_now;

pub use crate::delay_queue::{self, DelayQueue};
pub use crate::instant::Instant;
#[cfg(feature = "test-util")]
pub use crate::virtual_time::{advance, auto_advance, blocking_advance, can_auto_advance, pause, resume, run};
pub use deadline::{Deadline, Scope};
pub use ext::FutureExt;
pub use interval::{Interval, MissedTickBehavior, interval, interval_at, try_interval, try_interval_at};
pub use sleep::{Sleep, sleep, sleep_until, try_sleep, try_sleep_until};
/// The type of the standard library, so that everything can be imported from here.
pub use std::time::Duration;
#[cfg(feature = "futures")]
pub use stream::{ChunksTimeout, StreamExt, StreamTimeout, StreamTimeoutRepeating, Throttle};
#[cfg(feature = "http")]
pub(crate) use timeout::poll_delay;
pub use timeout::{Timeout, timeout, timeout_at, try_timeout, try_timeout_at};
pub use yield_now::{YieldNow, yield_now};
