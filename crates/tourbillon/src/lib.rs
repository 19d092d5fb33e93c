//! Timers for Rust servers: sleeps, timeouts, intervals, delay queues, deadlines, timers with callbacks and repeating jobs, under any
//! executor or none.
//!
//! Most timers of a server are cancelled before they fire, so arming and cancelling are cheap: each thread does both in a shard of its own.
//! A timer that fires does so once, and never early.
//!
//! # Ten lines
//! [`time`] has the names and meanings of `tokio::time`. To migrate, change the `use` line:
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
//! Deadlines nest: a function called inside a scope can read the deadline, and ends no later.
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
//! Without `async`: each callback is called once, with the outcome.
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
//! A scheduler runs keyed jobs on its own threads, by interval or cron line:
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
//! Tests can use virtual time (feature `test-util`): an hour passes at once, and the clock shows exactly an hour more.
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
//! | wait, give up in time, or repeat, in `async` code | [`time`] |
//! | put one deadline on a whole call tree | [`time::Deadline`] |
//! | keep many items, each with its own expiry | [`DelayQueue`] |
//! | share a map whose entries expire between threads: sessions, caches, leases | [`ExpiringMap`] |
//! | share a timer between threads, with callbacks | [`Timer`] |
//! | start timers under a name, restart them (debounce, idle timeouts), cancel them together | [`NamedTimers`] |
//! | answer slow requests of a web server, close idle connections | `adapters::http`, `adapters::grpc` (feature `http`), `adapters::server` (feature `server`) |
//! | time out, throttle or chunk a stream | `time::StreamExt` (feature `futures`) |
//! | run keyed jobs by interval, on a few threads | [`Scheduler`] |
//! | run them at times of day, in a time zone | [`Scheduler`] with `Cron` (feature `cron`) |
//! | choose clock, slack, capacity or driver; read statistics | [`Engine`] |
//!
//! # Which executor
//! Any: Tokio, smol, your own `block_on`, several of them in one process. A timer needs only the waker that it is polled with, and can be
//! made, polled, moved and dropped on different threads. By default the global [`Engine`] has all timers. Its driver is a thread, which starts
//! when the first timer is used and sleeps while nothing is due; with the feature `tokio` on Linux the driver is a task on the Tokio runtime
//! that uses timers, and the thread takes over when that runtime is blocked or ends. So timers fire even while every thread of the executor
//! is blocked. See [`Driver::default`].
//!
//! An [`Engine`] of your own has its own [`Clock`], [`Slack`], capacity and [`Driver`]: a thread, a task on a Tokio runtime, or the caller of
//! [`Engine::turn`], for instance the loop of a game or a simulator. A thread of a runtime can drive its own shard: [`Worker`].
//!
//! # Features
//! `tokio` is on by default. Features only add items and events, except `test-util` and `tokio`: these also change which clock timers follow, and
//! which thread fires them, in a current-thread Tokio runtime (see below).
//!
//! **`cron`**: `Cron` is a line of a crontab in a time zone. It computes when it is due next, through the gaps and overlaps of summer time.
//! The crate `croner` parses lines; the crate `jiff` has the zones: the system's, or where there are none a built-in copy (0.2 MB). A
//! [`Scheduler`] takes it as the plan of a job.
//!
//! **`futures`**: [`Interval`](time::Interval) and [`DelayQueue`] are `Stream`s of the crate `futures-core`; `time::StreamExt` has timeouts,
//! throttling and chunks for every stream.
//!
//! **`http`**: `adapters::http::HttpTimeoutLayer` answers slow requests of a tower service (axum, hyper) itself: 504 for a slow handler, 408
//! for a slow client. `adapters::grpc::GrpcDeadlineLayer` makes the header `grpc-timeout` of a call (tonic) its current deadline.
//!
//! **`hyper`**: `adapters::hyper::TourbillonTimer` is the timer that hyper needs for `header_read_timeout`, HTTP/2 keep-alive and its other
//! timeouts.
//!
//! **`inspect`**: `inspect::serve` shows the engines of a running process each second, to `tourbillon top` in a terminal and to a browser, on a
//! loopback address or a Unix socket.
//!
//! **`metrics`**: `adapters::metrics::Exporter` publishes the statistics of engines and schedulers to the recorder of the crate `metrics`: timers
//! armed, fired, cancelled, stopped and pending, a histogram of their lateness, and the runs, failures and durations of each job. [`Engine::stats`] has the same numbers without any feature.
//!
//! **`server`**: `adapters::server::HttpServer` serves a tower service (axum, tonic) on Tokio, with limits for the head of a request, for idle
//! connections, for clients that stop reading, and for requests that run when the server shuts down.
//!
//! **`test-util`**: `time::pause`, `time::advance` and `time::resume`. On a current-thread Tokio runtime virtual time is Tokio's own clock;
//! elsewhere it belongs to the runtime or the thread. For tests: each timer looks up the runtime that it is made in, and a current-thread
//! runtime drives its timers, to Tokio's millisecond, also while its clock runs.
//!
//! **`tokio`** (default): timers follow the clock of a current-thread Tokio runtime that was built paused (`start_paused`), so that tests of
//! crates that depend on this one need no feature. On Linux the default driver moves to the Tokio runtime that uses timers, which saves a
//! switch between threads for each wake-up. Without Tokio, save the dependency with `default-features = false`.
//!
//! **`tower`**: `adapters::tower::TimeoutLayer` puts a timeout on each request to a service, the same for all or chosen by the request, and
//! makes it the current [`Deadline`](time::Deadline).
//!
//! **`tracing`**: events with the target `tourbillon`: an engine built or shut down, its driver started or replaced, a waker or a callback that
//! panicked, a job that failed, and turns that fired timers more than ten milliseconds late, at most one a second. A subscriber may wait for
//! timers. The thread of the callbacks sends the events that a driver causes, so a subscriber that waits there delays callbacks and no timer;
//! an engine that the user turns sends them in the turn.
//!
//! # Platforms
//! The surfaces are the same everywhere; `Driver::tokio` alone needs Linux.
//!
//! | | Linux | macOS, FreeBSD | Windows | elsewhere |
//! |---|---|---|---|---|
//! | the driver sleeps on | a `timerfd` | a timer in a `kqueue` | a waitable timer of high resolution | a condition variable |
//! | locks that are biased to their thread | yes (`membarrier`) | no | no | no |
//! | [`Clock::boot`] counts a suspend | yes | macOS | yes | not known |
//! | a [`Clock::wall`] that is set is noticed | at once | in a second | in a second | in a second |
//! | the default driver moves to a Tokio runtime | yes | no | no | no |
//! | `auto_advance` outside Tokio (feature `test-util`) | yes | no | no | no |
//!
//! If the kernel refuses the timer or `membarrier`, as in some containers, the engine uses a condition variable and ordinary locks. The
//! README says how each system is tested.
//!
//! # Guides
//! In the folder `docs/guide` of the repository: moving from `tokio::time`, from asio, from `tokio-cron-scheduler` and from a Go time wheel,
//! timeouts in web services, testing with virtual time, choosing slack, jobs and cron, which queue. `ARCHITECTURE.md` says how it works.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    any(loom, miri, shuttle),
    allow(dead_code, unused_imports, reason = "a check looks at a part of the crate")
)]

#[cfg(any(feature = "http", feature = "hyper", feature = "metrics", feature = "tower"))]
pub mod adapters;
mod alarm;
mod clock;
#[doc(hidden)]
pub mod coop;
mod core;
#[cfg(feature = "cron")]
pub mod cron;
mod current;
pub mod delay_queue;
mod driver;
mod engine;
mod entry;
pub mod expiring_map;
#[cfg(feature = "inspect")]
pub mod inspect;
mod instant;
mod multi;
pub mod named;
mod outcome;
pub mod scheduler;
mod shard;
mod slack;
mod stats;
mod sync;
mod sys;
pub mod time;
pub mod timer;
#[cfg(test)]
mod verify;
#[cfg(any(feature = "test-util", feature = "tokio"))]
mod virtual_time;

pub use self::core::error::{ArmError, BuildError};
pub use clock::{Clock, ClockSource};
#[cfg(feature = "cron")]
pub use cron::{Cron, CronError};
pub use delay_queue::DelayQueue;
pub use driver::{Driver, Turn};
pub use engine::worker::{Worker, WorkerTakeover};
pub use engine::{Builder, Engine, Entered, InstallError};
#[doc(inline)]
pub use expiring_map::ExpiringMap;
#[doc(inline)]
pub use named::NamedTimers;
pub use outcome::Outcome;
pub use scheduler::Scheduler;
pub use shard::queue::QueueKind;
pub use slack::Slack;
pub use stats::{Lateness, Stats};
#[cfg(shuttle)]
#[doc(hidden)]
pub use sync::schedules;
#[cfg(loom)]
#[doc(hidden)]
pub use sync::under_loom as modelled;
#[doc(inline)]
pub use timer::Timer;
/// A point in time on an engine's clock, and a distance. For runtimes; all other signatures have `Instant` and `Duration`.
#[doc(hidden)]
pub use tourbillon_queue::{Span, Time};
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub use virtual_time::{auto_advance::AutoAdvance, simulated_thread::SimulatedThread};

/// Compiles the code in the README and the guides. (`tourbillon-rt` and `examples/web` compile those that
/// show what only they know.)
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    struct OfTheCrate;

    #[cfg(tourbillon_repository)]
    #[doc = include_str!("../../../docs/guide/moving-from-tokio.md")]
    struct MovingFromTokio;

    #[cfg(tourbillon_repository)]
    #[doc = include_str!("../../../docs/guide/choosing-slack.md")]
    struct ChoosingSlack;

    #[cfg(tourbillon_repository)]
    #[doc = include_str!("../../../docs/guide/which-queue.md")]
    struct WhichQueue;

    #[cfg(tourbillon_repository)]
    #[doc = include_str!("../../../docs/guide/jobs-and-cron.md")]
    struct JobsAndCron;

    #[cfg(tourbillon_repository)]
    #[doc = include_str!("../../../docs/guide/moving-from-tokio-cron-scheduler.md")]
    struct MovingFromTokioCronScheduler;

    #[cfg(tourbillon_repository)]
    #[doc = include_str!("../../../docs/guide/moving-from-a-go-time-wheel.md")]
    struct MovingFromAGoTimeWheel;
}
