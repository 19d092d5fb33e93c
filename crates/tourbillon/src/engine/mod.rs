//! The public handle of an engine, its builder, and the workers of runtimes.

pub(crate) mod builder;
mod per_process;
pub(crate) mod worker;

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tourbillon_queue::Span;

pub use self::builder::Builder;
use crate::clock::Clock;
use crate::core::CoreRef;
use crate::core::owner::EngineOwner;
use crate::core::thread_shard;
use crate::driver::Turn;
use crate::engine::per_process::PerProcess;
use crate::engine::worker::Worker;
use crate::instant::Instant;
use crate::stats::Stats;

/// A timer engine: a clock, shards that hold the timers, and a driver that fires timers when they are due.
///
/// Most programs need none of their own: the functions of [`tourbillon::time`](crate::time) use the global engine, which starts when it is
/// first used. A separate engine has its own clock, slack, capacity and driver:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Clock, Driver, Engine};
///
/// let engine = Engine::builder().clock(Clock::manual()).driver(Driver::external()).build()?;
/// let mut sleep = std::pin::pin!(engine.sleep(Duration::from_secs(3600)));
/// let mut context = std::task::Context::from_waker(std::task::Waker::noop());
/// assert!(sleep.as_mut().poll(&mut context).is_pending());
///
/// assert_eq!(engine.advance(Duration::from_secs(3600)), 1);
/// assert!(sleep.as_mut().poll(&mut context).is_ready());
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
///
/// Handles are cheap to clone. When the last handle is dropped, the engine is [shut down](Engine::shutdown), and sleeps that still exist end
/// as stopped.
///
/// # Forks
/// `fork` does not copy threads, so in the child process an engine of the parent has no driver. The child sees it as shut down: sleeps end as
/// [stopped](crate::Outcome::Stopped), and dropping or resetting an inherited sleep does not affect the parent. The child gets a new
/// [global engine](Engine::global), and can build engines of its own. It should not use an inherited [`Timer`](crate::Timer),
/// [`NamedTimers`](crate::NamedTimers) or [`Scheduler`](crate::Scheduler), because a thread of the parent may have held one of their locks
/// during the fork. A child that was made by the bare `clone` system call must not use inherited timers at all, because the C library does
/// not report that call.
#[derive(Clone)]
pub struct Engine {
    owner: Arc<EngineOwner>,
}

/// A guard that makes [`tourbillon::time`](crate::time) on this thread use the engine that was [entered](Engine::enter).
///
/// Guards may be dropped in any order. The thread uses the engine of the newest guard that is left, and the global engine when none is
/// left.
#[derive(Debug)]
#[must_use = "the engine is left again when this is dropped"]
pub struct Entered {
    engine: Engine,
    guard: thread_shard::GuardId,
    /// Not `Send`: the guard belongs to its thread.
    thread: PhantomData<*const ()>,
}

/// The error of [`Engine::install`]: there is a global engine already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InstallError(());

static GLOBAL: PerProcess = PerProcess::new();
static WALL: PerProcess = PerProcess::new();

impl Engine {
    /// Returns the global engine, which has the monotonic clock, adaptive slack and the [default driver](crate::Driver::default).
    ///
    /// The first use starts the engine and its driver. It runs until the process ends or [`shutdown`](Engine::shutdown) is called. If the
    /// system refuses a thread for the driver, the engine is shut down from the start, and its timers end as
    /// [stopped](crate::Outcome::Stopped).
    #[must_use]
    pub fn global() -> Engine {
        global().clone()
    }

    /// Returns a builder with the defaults.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Makes this engine the global one.
    ///
    /// # Errors
    /// An [`InstallError`] if there is a global engine already: one was installed before, or a timer was used before.
    ///
    /// ```
    /// use tourbillon::{Engine, Slack};
    ///
    /// // The first thing in `main`.
    /// let engine = Engine::builder().slack(Slack::exact()).build()?;
    /// engine.install()?;
    /// assert!(engine.install().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn install(&self) -> Result<(), InstallError> {
        GLOBAL.install(self.clone()).map(drop).map_err(|_| InstallError(()))
    }

    /// Makes [`tourbillon::time`](crate::time) on this thread use this engine until the guard is dropped.
    ///
    /// A timer belongs to the engine that was current when the timer was made, and stays with it. Do not hold the guard across an `await`:
    /// the task may continue on another thread.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Clock, Engine, time};
    ///
    /// let engine = Engine::builder().clock(Clock::manual()).build()?;
    /// let entered = engine.enter();
    /// let sleep = time::try_sleep(Duration::from_secs(1))?; // of that engine
    /// drop(entered);
    /// engine.advance(Duration::from_secs(1));
    /// assert!(sleep.is_elapsed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn enter(&self) -> Entered {
        let guard = thread_shard::enter(&self.owner.core);
        Entered { engine: self.clone(), guard, thread: PhantomData }
    }

    /// Makes the calling thread drive its own shard, for a runtime whose threads fire their own timers.
    ///
    /// `notify` is called when another thread arms a timer in the shard, on that thread: the worker should [turn](Worker::turn) again.
    ///
    /// Returns `None` if this thread has a worker already, or if no shard is left for this thread alone: build the engine with as many
    /// [shards](Builder::shards) as there are workers and other threads.
    pub fn worker(&self, notify: impl Fn() + Send + Sync + 'static) -> Option<Worker> {
        Worker::new(self, Arc::new(notify))
    }

    /// Returns the counts of this engine. They are exact: this visits each shard. All are zero in a child process that has inherited the
    /// engine.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.owner.core.stats()
    }

    /// Shuts the engine down: every pending timer, and every timer that is armed later, ends as [stopped](crate::Outcome::Stopped).
    ///
    /// Can be called more than once, from any thread, and inside a waker or a callback.
    ///
    /// With [`Driver::external`](crate::Driver::external) this runs the callbacks that are still queued before it returns. If a turn is
    /// running callbacks at that time, on this or another thread, that turn runs the rest.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Engine, Outcome};
    ///
    /// let engine = Engine::builder().build()?;
    /// let mut sleep = Box::pin(engine.sleep(Duration::from_secs(3600)));
    /// engine.shutdown();
    /// futures_lite::future::block_on(sleep.as_mut());
    /// assert_eq!(sleep.outcome(), Some(Outcome::Stopped));
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    pub fn shutdown(&self) {
        self.owner.core.shut_down();
    }

    /// Returns whether the engine has been shut down.
    #[must_use]
    pub fn is_shutdown(&self) -> bool {
        self.owner.core.is_closed()
    }

    /// Fires the timers that are due now, up to some hundred for each shard, on the calling thread. Meant for
    /// [`Driver::external`](crate::Driver::external); with another driver it does no harm.
    ///
    /// With [`Driver::external`](crate::Driver::external) it then runs the queued callbacks in order. Callbacks that are queued meanwhile are
    /// left for the next turn. Only one thread at a time runs callbacks: if another turn is running them, or if this turn is made inside a
    /// callback, that other turn runs the rest.
    ///
    /// [`Driver`](crate::Driver) shows the loop of a program that turns its engine itself.
    pub fn turn(&self) -> Turn {
        self.owner.core.turn(self.clock().now())
    }

    /// Moves a [manual clock](Clock::manual) forward, fires each timer that comes due at its own time, and returns how many timers fired.
    ///
    /// Before time moves on, this runs all callbacks, including those that are queued by callbacks. With another clock it only fires the
    /// timers that are due.
    pub fn advance(&self, by: Duration) -> usize {
        self.owner.core.advance(self.clock().now() + Span::from(by))
    }

    /// Returns the time of this engine's clock, as an instant that its deadlines can be compared with.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Clock, Engine};
    ///
    /// let engine = Engine::builder().clock(Clock::manual()).build()?;
    /// let start = engine.now();
    /// engine.advance(Duration::from_secs(60));
    /// assert_eq!(engine.now() - start, Duration::from_secs(60));
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::from_std(self.clock().now_std())
    }

    /// Returns the clock of this engine.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.owner.core.clock
    }

    pub(crate) fn core(&self) -> &CoreRef {
        &self.owner.core
    }

    /// Returns the engine that has this core, unless its last handle has been dropped.
    pub(crate) fn of(core: &CoreRef) -> Option<Engine> {
        core.owner.get().and_then(Weak::upgrade).map(|owner| Engine { owner })
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn downgrade(&self) -> Weak<EngineOwner> {
        Arc::downgrade(&self.owner)
    }

    /// Returns the engine on the system's wall clock that all schedulers share. It starts on the first use.
    pub(crate) fn wall() -> Engine {
        WALL.get_or_build(|| Engine::builder().clock(Clock::wall()).build_or_shut_down()).clone()
    }

    /// Returns the engines that the whole process shares, if they have been started: the global one, and the one of cron plans.
    #[cfg(feature = "inspect")]
    pub(crate) fn shared() -> impl Iterator<Item = (&'static str, &'static Engine)> {
        let shared = [("global", GLOBAL.get()), ("cron", WALL.get())];
        shared.into_iter().filter_map(|(name, engine)| engine.map(|engine| (name, engine)))
    }

    /// Returns an engine for a model, which has a core and no driver.
    #[cfg(all(loom, test))]
    pub(crate) fn of_core(core: CoreRef) -> Engine {
        Engine { owner: Arc::new(EngineOwner { core }) }
    }
}

impl Entered {
    /// Returns the engine that was entered.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        thread_shard::leave(self.guard);
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("clock", self.clock()).field("is_shutdown", &self.is_shutdown()).finish()
    }
}

impl fmt::Display for InstallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is a global engine already: install one before the first timer is used")
    }
}

impl std::error::Error for InstallError {}

fn global() -> &'static Engine {
    GLOBAL.get_or_build(|| Engine::builder().build_or_shut_down())
}

/// Returns the core of the global engine.
pub(crate) fn global_core() -> &'static CoreRef {
    global().core()
}
