//! Timers for Rust servers: deadlines on millions of things at once.
//!
//! Sleeps, timeouts, intervals, delay queues, deadlines, timers with callbacks and repeating jobs, under any executor or none.
//! Nearly all timers are cancelled before they fire, so arming and cancelling are what is cheap here: each thread does both in a
//! shard of its own. What does fire fires once, and never early.
//!
//! # Ten lines
//! [`time`] has the names and meanings of `tokio::time`. To move, change the `use` line:
//!
//! ```
//! use std::time::Duration;
//! use tourbillon::time::{sleep, timeout}; // was: use tokio::time::{sleep, timeout};
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() {
//!     let slow = async {
//!         sleep(Duration::from_secs(60)).await;
//!         "answer"
//!     };
//!     assert!(timeout(Duration::from_millis(10), slow).await.is_err());
//! }
//! ```
//!
//! Deadlines nest: what is called under one knows of it, and takes no longer.
//!
//! ```
//! use std::time::Duration;
//! use tourbillon::time::{Deadline, sleep};
//!
//! async fn query() {
//!     assert!(Deadline::current().unwrap().remaining() <= Duration::from_millis(10));
//!     sleep(Duration::from_secs(60)).await;
//! }
//!
//! # futures_lite::future::block_on(async {
//! assert!(Deadline::after(Duration::from_millis(10)).scope(query()).await.is_err());
//! # });
//! ```
//!
//! Without `async`: callbacks, each called once, with how it ended.
//!
//! ```
//! use std::sync::mpsc::channel;
//! use std::time::Duration;
//! use tourbillon::{Outcome, Timer};
//!
//! let timer = Timer::after(Duration::from_millis(5));
//! let (sender, receiver) = channel();
//! timer.on_expiry(move |outcome| sender.send(outcome).unwrap());
//! assert_eq!(receiver.recv(), Ok(Outcome::Fired));
//! ```
//!
//! Jobs under keys run on threads of their own, every so often:
//!
//! ```
//! use std::sync::mpsc::channel;
//! use std::time::Duration;
//! use tourbillon::scheduler::{Plan, Scheduler};
//!
//! let scheduler = Scheduler::builder().threads(1).build()?;
//! let (sender, receiver) = channel();
//! let plan = Plan::every(Duration::from_millis(2)).times(2);
//! scheduler.schedule("sweep", plan, move |run| sender.send(run.number()).unwrap())?;
//! assert_eq!(receiver.iter().collect::<Vec<_>>(), [1, 2]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Time can be virtual, for tests (feature `test-util`): an hour takes no time, and to the nanosecond an hour.
//!
//! ```
//! # #[cfg(feature = "test-util")] {
//! use std::time::Duration;
//! use tourbillon::time::{self, Instant, sleep};
//!
//! time::run(async {
//!     let start = Instant::now();
//!     sleep(Duration::from_secs(3600)).await;
//!     assert_eq!(start.elapsed(), Duration::from_secs(3600));
//! });
//! # }
//! ```
//!
//! # Which surface
//! | to | use |
//! |---|---|
//! | wait, give up in time, do something every so often, in `async` code | [`time`] |
//! | give up in time, through many calls | [`time::Deadline`] |
//! | wait for many things, each with its own time | [`DelayQueue`] |
//! | share a timer between threads; be called when it expires | [`Timer`] |
//! | start timers under a name, cancel them together and know how many that were | [`NamedTimers`] |
//! | run jobs under keys, every so often, on a few threads | [`Scheduler`] |
//! | run them by the clock on the wall, in some time zone | [`Scheduler`] with `Cron` (feature `cron`) |
//! | choose clock, slack, capacity, driver; read what was counted | [`Engine`] |
//!
//! # Which executor
//! Any: Tokio, smol, a `block_on` of your own, several of them in one process. A timer needs nothing of an executor but the
//! waker that it is polled with, no context, no runtime that was started before, and it can be made, polled, moved and dropped
//! on different threads. By default the global [`Engine`] watches all timers on one thread of its own, which starts when the
//! first timer is used and sleeps while nothing is due. It goes on while every thread of the executor is blocked.
//!
//! An [`Engine`] of one's own has its own [`Clock`], [`Slack`], capacity and [`Driver`]: a thread, a task on a Tokio
//! runtime, or whoever calls [`Engine::turn`], for instance the loop of a game or a simulator. A runtime's thread can turn its
//! own shard: [`Worker`].
//!
//! # Features
//! `tokio` is on by default. None changes what another does.
//!
//! **`cron`**: `Cron` is a line of a crontab in a time zone, and knows when it is due next, through the gaps and overlaps of
//! summer time. Lines are read by the crate `croner`; zones are those of the crate `jiff`: the system's, or where it has
//! none a copy that is built in (0.2 MB). A [`Scheduler`] takes it as the plan of a job, on Linux,
//! where the wall clock can be waited for.
//!
//! **`futures`**: [`Interval`](time::Interval) and [`DelayQueue`] are `Stream`s of the crate `futures-core`.
//!
//! **`hyper`**: `adapters::hyper::TourbillonTimer` is the timer that hyper asks for: for `header_read_timeout`, HTTP/2
//! keep-alive and its other timeouts.
//!
//! **`metrics`**: `adapters::metrics::Exporter` publishes what an engine counts, timers armed, fired, cancelled, stopped and
//! pending, and a histogram of how late they fired, to the recorder of the crate `metrics`, at your pace. The same numbers
//! are in [`Engine::stats`] without any feature.
//!
//! **`test-util`**: `time::pause`, `time::advance` and `time::resume`. In a current-thread Tokio runtime virtual time is Tokio's own
//! clock; elsewhere it belongs to the runtime or the thread. For tests: a timer looks which runtime it is made in, and timers of a
//! current-thread runtime are driven by that runtime, to Tokio's millisecond, also while its clock runs.
//!
//! **`tokio`** (default): timers follow the clock of a current-thread Tokio runtime that was built paused (`start_paused`), so that tests
//! of what depends on this crate work without a word; and `Driver::tokio` (Linux only) makes the driver a task on a Tokio runtime, which
//! saves a hop between threads for a program that lives on one runtime. A program without Tokio saves the dependency with
//! `default-features = false`.
//!
//! **`tower`**: `adapters::tower::TimeoutLayer` puts a timeout on each request to a service, the same for all or by the
//! request, with the deadline in force as a [`Deadline`](time::Deadline) scope.
//!
//! **`tracing`**: events with the target `tourbillon`: an engine built or shut down, its driver started or replaced, a waker
//! or a callback that panicked, a job that failed, and turns that fired timers more than ten milliseconds late, at most one a
//! second.
//!
//! # Platforms
//! Linux first. There the driver sleeps on a timer of the kernel (`timerfd`), threads arm and cancel under locks that are
//! biased to them (`membarrier`), and there are clocks for boot time and wall time. If the kernel refuses one of these, as
//! some containers do, ordinary locks and a condition variable take its place. On other systems those are all there is,
//! `auto_advance` does nothing, and though it compiles for macOS and Windows nobody has run it there.
//!
//! # Guides
//! In the repository: `docs/guide/moving-from-tokio.md`, `docs/guide/testing-with-virtual-time.md`, `docs/guide/choosing-slack.md`, `docs/guide/which-queue.md`; and `ARCHITECTURE.md` for how it
//! works.

#![cfg_attr(
    any(loom, miri, shuttle),
    allow(dead_code, unused_imports, reason = "a check looks at a part of the crate")
)]

#[cfg(any(feature = "hyper", feature = "metrics", feature = "tower"))]
pub mod adapters;
mod alarm;
mod clock;
#[doc(hidden)]
pub mod coop;
mod core;
#[cfg(feature = "cron")]
pub mod cron;
pub mod delay_queue;
mod driver;
mod engine;
mod entry;
mod instant;
mod multi;
pub mod named;
mod outcome;
pub mod scheduler;
mod shard;
mod slack;
mod sync;
mod thread_shard;
pub mod time;
pub mod timer;
#[cfg(test)]
mod verify;
#[cfg(any(feature = "test-util", feature = "tokio"))]
mod virtual_time;

pub use self::core::stats::{Lateness, Stats};
pub use clock::Clock;
#[cfg(feature = "cron")]
pub use cron::{Cron, CronError};
pub use delay_queue::DelayQueue;
pub use driver::{Driver, Turn};
pub use engine::worker::{Worker, WorkerTakeover};
pub use engine::{ArmError, BuildError, Builder, Engine, Entered, InstallError};
#[doc(inline)]
pub use named::NamedTimers;
pub use outcome::Outcome;
pub use scheduler::Scheduler;
pub use shard::queue::QueueKind;
pub use slack::Slack;
#[cfg(loom)]
#[doc(hidden)]
pub use sync::under_loom as modelled;
#[doc(inline)]
pub use timer::Timer;
/// A point in time on an engine's clock, and a distance.
pub use tourbillon_queue::{Span, Time};
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub use virtual_time::{auto_advance::AutoAdvance, simulated_thread::SimulatedThread};

/// Compiles the code in the README and the guides. (Those of the project's README and of "Testing with virtual time" are compiled by
/// `tourbillon-rt`, which knows all that they show.)
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    struct OfTheCrate;

    #[doc = include_str!("../../../docs/guide/moving-from-tokio.md")]
    struct MovingFromTokio;

    #[doc = include_str!("../../../docs/guide/choosing-slack.md")]
    struct ChoosingSlack;

    #[doc = include_str!("../../../docs/guide/which-queue.md")]
    struct WhichQueue;

    #[doc = include_str!("../../../docs/guide/jobs-and-cron.md")]
    struct JobsAndCron;
}
