//! The engine as its users see it.

mod per_process;
pub(crate) mod worker;

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tourbillon_queue::Span;

use crate::clock::Clock;
use crate::core::error::BuildError;
use crate::core::owner::EngineOwner;
use crate::core::thread_shard;
use crate::core::trace;
use crate::core::{CoreConfig, CoreRef};
use crate::driver::{Driver, Turn};
use crate::engine::per_process::PerProcess;
use crate::engine::worker::Worker;
use crate::shard::queue::{Queue, QueueKind};
use crate::slack::Slack;
use crate::stats::Stats;

/// A timer engine: a clock, shards with queues, and a driver that fires what is due.
///
/// Most programs need not know of it: the functions of [`tourbillon::time`](crate::time) use the global one, which starts
/// when it is first used. An engine of one's own has its own clock, slack, capacity, driver:
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
/// Handles are cheap to clone. When the last one is dropped, the engine is [shut down](Engine::shutdown); sleeps that
/// exist then end as stopped.
///
/// # Forks
/// Threads are not copied by `fork`, so in the child an engine of the parent has no driver. There it counts as shut down: sleeps end as
/// [stopped](crate::Outcome::Stopped), and dropping or resetting an inherited one touches nothing of the parent's. The child's
/// [global engine](Engine::global) is a new one, which works, and so does any engine that the child builds. A
/// [`Timer`](crate::Timer), [`NamedTimers`](crate::NamedTimers) or [`Scheduler`](crate::Scheduler) that threads of the parent share has
/// locks of its own: the child should leave those alone. A child made by the bare `clone` system call, which the C library does
/// not hear of, must not use inherited timers at all.
#[derive(Clone)]
pub struct Engine {
    owner: Arc<EngineOwner>,
}

/// How to build an [`Engine`].
///
/// ```
/// use tourbillon::{Clock, Engine, Slack};
///
/// let engine = Engine::builder().clock(Clock::monotonic()).slack(Slack::exact()).capacity(1_000_000).build()?;
/// assert!(!engine.is_shutdown());
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
#[derive(Debug, Default)]
#[must_use]
pub struct Builder {
    clock: Option<Clock>,
    shards: Option<usize>,
    slack: Slack,
    capacity: Option<usize>,
    queue: QueueKind,
    driver: Option<Driver>,
    is_virtual: bool,
}

/// As long as it lives, [`tourbillon::time`](crate::time) on this thread uses the engine that was entered.
///
/// Guards may be dropped in any order: the thread uses the engine of the guard that was made last among those that are left, and the
/// global engine when none is.
#[derive(Debug)]
#[must_use = "the engine is left again when this is dropped"]
pub struct Entered {
    engine: Engine,
    guard: thread_shard::GuardId,
    /// Not `Send`: it belongs to the thread.
    thread: PhantomData<*const ()>,
}

/// Why an engine could not become the global one: there is one already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InstallError(());

/// An engine of which no `tracing` subscriber has heard yet.
pub(crate) struct Unannounced {
    engine: Engine,
    /// What its driver runs on, if it has one.
    driver: Option<&'static str>,
    shards: usize,
}

static GLOBAL: PerProcess = PerProcess::new();

impl Engine {
    /// The global engine: monotonic clock, adaptive slack, a driver thread. It starts on the first use, its driver with
    /// it, and is never shut down, unless somebody asks for it.
    ///
    /// If the system has no thread for the driver, the engine is there all the same, closed: timers end as
    /// [stopped](crate::Outcome::Stopped).
    #[must_use]
    pub fn global() -> Engine {
        global().clone()
    }

    /// How to build one.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Makes this engine the global one.
    ///
    /// # Errors
    /// There is a global engine already: one was installed, or a timer has been used.
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

    /// Makes [`tourbillon::time`](crate::time) on this thread use this engine, until the guard is dropped.
    ///
    /// Timers belong to the engine that was current where they were made, and stay with it. Do not hold the guard across an
    /// `await`: the task may go on elsewhere.
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

    /// Puts this thread's shard into the hands of this thread, for a runtime whose threads turn their own timers. `notify` is
    /// called, on other threads, if one of them has armed a timer in the shard: the worker should turn again.
    ///
    /// `None` if this thread has a worker already, or there is no shard left for it alone: build the engine with as many [shards](Builder::shards)
    /// as there are workers and other threads.
    pub fn worker(&self, notify: impl Fn() + Send + Sync + 'static) -> Option<Worker> {
        Worker::new(self, Arc::new(notify))
    }

    /// What it has done so far. Exact: it looks into each shard. All zero in a child process that has inherited the engine.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.owner.core.stats()
    }

    /// Ends every pending timer as [stopped](crate::Outcome::Stopped), and all that are armed later too. Can be called
    /// again, from any thread, also from within a waker or a callback.
    ///
    /// An engine that is turned from outside calls the callbacks that are left before this returns; unless a turn is calling some
    /// right now, on this or another thread, which then goes on with them.
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

    /// Whether it has been shut down.
    #[must_use]
    pub fn is_shutdown(&self) -> bool {
        self.owner.core.is_closed()
    }

    /// Fires what is due now, up to some hundred timers a shard, on the calling thread. For [`Driver::external`]; beside
    /// another driver it does no harm.
    ///
    /// With [`Driver::external`] it then calls the callbacks that wait for it, in order. Those that come in meanwhile are left for the
    /// next turn. One thread at a time calls: a turn that finds another at it, or is made in a callback, leaves them to
    /// that one.
    ///
    /// [`Driver`] has the loop of a program that turns its engine itself.
    pub fn turn(&self) -> Turn {
        self.owner.core.turn(self.clock().now())
    }

    /// Moves a [manual clock](Clock::manual) forward and fires what comes due, each timer at its own time. Callbacks are called
    /// before time moves on, and so are those that come of them at the same time. RemoteFreeList how many timers fired. With
    /// another clock it only fires what is due.
    pub fn advance(&self, by: Duration) -> usize {
        self.owner.core.advance(self.clock().now() + Span::from(by))
    }

    /// Its clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.owner.core.clock
    }

    pub(crate) fn core(&self) -> &CoreRef {
        &self.owner.core
    }

    /// The engine that has this core, unless its last handle is gone.
    pub(crate) fn of(core: &CoreRef) -> Option<Engine> {
        core.owner.get().and_then(Weak::upgrade).map(|owner| Engine { owner })
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn downgrade(&self) -> Weak<EngineOwner> {
        Arc::downgrade(&self.owner)
    }

    /// The one that all who follow the system's wall clock share. It starts on the first use. (On systems whose wall clock cannot
    /// be followed nobody asks for it.)
    pub(crate) fn wall() -> Engine {
        static WALL: PerProcess = PerProcess::new();
        #[cfg(target_os = "linux")]
        let clock = Clock::wall();
        #[cfg(not(target_os = "linux"))]
        let clock = Clock::monotonic();
        WALL.get_or_build(|| Engine::builder().clock(clock).build_or_closed()).clone()
    }

    /// For a model, which has a core and no driver.
    #[cfg(all(loom, test))]
    pub(crate) fn of_core(core: CoreRef) -> Engine {
        Engine { owner: Arc::new(EngineOwner { core }) }
    }
}

impl Builder {
    /// If the system has no thread for the driver, the engine is there all the same, closed.
    fn build_or_closed(self) -> Unannounced {
        self.build_unannounced().unwrap_or_else(|_| {
            let built = Engine::builder().driver(Driver::external()).build_unannounced();
            let built = built.expect("an engine that has no driver needs nothing that could fail");
            built.engine.shutdown();
            built
        })
    }
}

impl Unannounced {
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Tells the `tracing` subscriber of it.
    pub(crate) fn announce(self) -> Engine {
        trace::engine_built(self.engine.core(), self.shards);
        if let Some(on) = self.driver {
            trace::driver_started(self.engine.core(), on);
        }
        self.engine
    }
}

impl Builder {
    /// What it reads its time from. [`Clock::monotonic`] by default.
    pub fn clock(mut self, clock: Clock) -> Builder {
        self.clock = Some(clock);
        self
    }

    /// How many threads can have a shard of their own; those beyond share. By default four for each core, and one with a
    /// [manual clock](Clock::manual): timers fire in order within one shard.
    pub fn shards(mut self, shards: usize) -> Builder {
        self.shards = Some(shards);
        self
    }

    /// How late timers may be that do not say so themselves. [`Slack::adaptive`] by default.
    pub fn slack(mut self, slack: Slack) -> Builder {
        self.slack = slack;
        self
    }

    /// How many timers it holds at most. No limit by default.
    ///
    /// A timer takes a place from its first poll, which arms it, until it fires, is cancelled or is stopped. At the limit
    /// [`Engine::try_sleep`] and the other `try_` functions return [`ArmError::Full`]. A plain sleep waits for a place; if none becomes free
    /// it still ends at its own deadline. Places are given in the order in which sleeps began to wait, and each wakes one of them. A
    /// [`DelayQueue`](crate::DelayQueue), [`Timer`](crate::Timer), [`NamedTimers`](crate::NamedTimers) or
    /// [`Scheduler`](crate::Scheduler) takes one place for its nearest deadline, and at the limit is as exact as a sleep that waits.
    pub fn capacity(mut self, capacity: usize) -> Builder {
        self.capacity = Some(capacity);
        self
    }

    /// How it keeps them in order. [`QueueKind::Wheel`] by default.
    pub fn queue(mut self, queue: QueueKind) -> Builder {
        self.queue = queue;
        self
    }

    /// For an engine whose time may move by itself to the next deadline: cancelling a timer costs more, and leaves no trace of the timer.
    #[doc(hidden)]
    pub fn exact(mut self) -> Builder {
        self.is_virtual = true;
        self
    }

    /// Who turns it. [`Driver::thread`] by default, and [`Driver::external`] with a manual clock.
    pub fn driver(mut self, driver: Driver) -> Builder {
        self.driver = Some(driver);
        self
    }

    /// Builds it and starts its driver.
    ///
    /// # Errors
    /// A [`BuildError`] says what was asked for that cannot be.
    pub fn build(self) -> Result<Engine, BuildError> {
        self.build_unannounced().map(Unannounced::announce)
    }

    pub(crate) fn build_unannounced(self) -> Result<Unannounced, BuildError> {
        let clock = self.clock.unwrap_or_else(Clock::monotonic);
        let shards = self.shards.unwrap_or_else(|| if clock.is_manual() { 1 } else { default_shards() });
        if shards == 0 {
            return Err(BuildError::NoShards);
        }
        if self.capacity == Some(0) {
            return Err(BuildError::NoCapacity);
        }
        drop(Queue::new(self.queue).map_err(BuildError::Rounds)?);
        let default = || if clock.is_manual() { Driver::external() } else { Driver::thread() };
        let (driver, start) = self.driver.unwrap_or_else(default).prepare(&clock)?;
        let (slack, capacity, kind) = (self.slack.slack(), self.capacity, self.queue);
        let core =
            CoreRef::new(CoreConfig { clock, slack, capacity, kind, shards, driver, is_virtual: self.is_virtual });
        let engine = Engine { owner: Arc::new(EngineOwner { core }) };
        engine.core().owner.get_or_init(|| Arc::downgrade(&engine.owner));
        let driver = start.run(engine.core())?;
        Ok(Unannounced { engine, driver, shards })
    }
}

impl Entered {
    /// The engine that was entered.
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
    GLOBAL.get_or_build(|| Engine::builder().build_or_closed())
}

/// The core of the global engine.
pub(crate) fn global_core() -> &'static CoreRef {
    global().core()
}

fn default_shards() -> usize {
    4 * std::thread::available_parallelism().map_or(1, usize::from).max(2)
}
