//! Builds runtimes.

use std::sync::{Arc, OnceLock, Weak};

use tourbillon::Engine;
#[cfg(feature = "test-util")]
use tourbillon::{Clock, Driver, QueueKind};

use super::backend::{Backend, BuildError, external_reactor};
#[cfg(feature = "test-util")]
use super::context;
use super::handle::Handle;
use super::monitor::Monitor;
use super::runtime::Runtime;
use super::shared::{MonitorSetup, RuntimeShared};
use super::substitutes::Substitutes;
use super::virtual_time::VirtualTime;
use super::worker::IdleSlot;
use crate::clock;
use crate::sync::thread;

/// Builds a [`Runtime`].
///
/// ```
/// use tourbillon_rt::Runtime;
///
/// let runtime = Runtime::builder().workers(2).thread_name("server").build()?;
/// println!("on {}", runtime.backend());
/// # Ok::<(), tourbillon_rt::BuildError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Builder {
    workers: Option<usize>,
    backend: Backend,
    name: Option<String>,
    /// Whether there is a monitor although there are no workers.
    serves_external_threads: bool,
    #[cfg(feature = "test-util")]
    clock: ClockChoice,
}

/// The clock of a runtime's timers.
#[cfg(feature = "test-util")]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum ClockChoice {
    #[default]
    Monotonic,
    /// The monotonic clock, until it is paused.
    Pausable,
    /// A clock that is paused when the runtime is built.
    Paused,
}

impl Builder {
    /// Sets the number of threads that run tasks. One for each core by default.
    ///
    /// With zero, [`Runtime::block_on`] runs tasks on the calling thread until it returns. While that thread waits in a nested
    /// `block_on`, a substitute thread runs them.
    pub fn workers(mut self, workers: usize) -> Builder {
        self.workers = Some(workers);
        self
    }

    /// Sets the back end of the workers. [`Backend::Auto`] by default. The environment variable `TOURBILLON_BACKEND` (`auto`, `uring`,
    /// `epoll`) overrides it. Threads that are not workers use epoll.
    pub fn backend(mut self, backend: Backend) -> Builder {
        self.backend = backend;
        self
    }

    /// Sets the prefix of the threads' names. `tourbillon-rt` by default.
    pub fn thread_name(mut self, name: impl Into<String>) -> Builder {
        self.name = Some(name.into());
        self
    }

    /// Makes the runtime's time virtual, and stops it before any task runs. For tests, with any number of workers. (Feature
    /// `test-util`.)
    ///
    /// Time then moves to the next deadline by itself when the runtime is idle: a thread is inside [`Runtime::block_on`], it and every
    /// worker is parked, no task is queued, no [`spawn_blocking`] is queued or running, and no socket is ready for an operation that waits
    /// for it. The runtime knows this exactly: after the call that wakes a task has returned, time does not move until the task has run.
    /// Timers fire in the order of their deadlines, and equal ones in the order in which they were armed. `time::pause`,
    /// `time::resume` and `time::advance` within the runtime act on its time, which all its threads share and no other runtime does.
    ///
    /// | holds time still | does not |
    /// |---|---|
    /// | a task that is queued, runs, or blocks its thread | a task that awaits a timer, a channel, another task |
    /// | a socket that is ready, until the task that waits for it has been polled | an operation that waits for its peer: `accept`, `read`, `connect` |
    /// | [`spawn_blocking`], from the call until the task that awaits it has been woken | threads of the user's own, whatever they do |
    /// | a waker, or a callback of a `Timer`, that blocks | a nested `block_on` of the same runtime that waits |
    /// | a task that waits in the `block_on` of another runtime | what happens in other runtimes |
    /// | no thread is inside `block_on`, also while [`Runtime::shutdown_timeout`] waits | |
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_rt::time::{Instant, sleep};
    /// use tourbillon_rt::{Runtime, spawn};
    ///
    /// let runtime = Runtime::builder().workers(4).start_paused(true).build()?;
    /// runtime.block_on(async {
    ///     let start = Instant::now();
    ///     let tasks: Vec<_> = (1..=24).map(|hour| spawn(sleep(Duration::from_secs(3600 * hour)))).collect();
    ///     for task in tasks {
    ///         task.await.unwrap();
    ///     }
    ///     assert_eq!(start.elapsed(), Duration::from_secs(24 * 3600)); // and no time has passed
    /// });
    /// # Ok::<(), tourbillon_rt::BuildError>(())
    /// ```
    ///
    /// A timer belongs to the runtime inside of which it is made: `runtime.block_on(sleep(d))` makes its argument outside. Write
    /// `runtime.block_on(async { sleep(d).await })`.
    ///
    /// Linux delivers what is sent over the loopback device, or through a Unix socket, before the send returns. So no time limit passes
    /// while such data is on its way. A kernel that leaves the delivery to a thread of its own, as real-time kernels do, is an exception.
    ///
    /// While time runs (after `time::resume`) all workers turn the same timers, and callbacks of a `Timer` are called on the runtime's
    /// threads: do not measure the runtime like this.
    ///
    /// [`spawn_blocking`]: crate::spawn_blocking
    #[cfg(feature = "test-util")]
    pub fn start_paused(mut self, is_paused: bool) -> Builder {
        self.clock = if is_paused { ClockChoice::Paused } else { ClockChoice::Monotonic };
        self
    }

    /// Makes the runtime's time one that `time::pause` can stop later: until then it runs. Otherwise as
    /// [`start_paused`](Builder::start_paused). (Feature `test-util`.)
    ///
    /// Timers that were made before `pause` follow it.
    #[cfg(feature = "test-util")]
    pub fn pausable(mut self, is_pausable: bool) -> Builder {
        self.clock = if is_pausable { ClockChoice::Pausable } else { ClockChoice::Monotonic };
        self
    }

    /// Starts a monitor even without workers: several external threads will run the tasks.
    pub(crate) fn serves_external_threads(mut self) -> Builder {
        self.serves_external_threads = true;
        self
    }

    /// Builds the runtime and starts its workers.
    ///
    /// # Errors
    /// [`BuildError::Refused`] if the system refuses the back end that was asked for by name; or the system refuses threads.
    pub fn build(self) -> Result<Runtime, BuildError> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let workers = self.workers.unwrap_or(cores);
        let backend = Backend::from_environment()?.unwrap_or(self.backend).choose(workers);
        let EngineParts { engine, virtual_time, shared: shared_of_engine } = self.engine(workers + 5 * cores + 4)?;
        let slot = |reactor| IdleSlot::new(reactor, &virtual_time);
        let slots = (0..workers).map(|_| backend.worker_reactor().map(slot)).collect::<Result<Vec<_>, _>>()?;
        let worker_list = slots.iter().map(|slot| Arc::clone(&slot.worker)).collect();
        // Without workers the reactor of the first external thread is built now, so that a refusal is an error here.
        let first = if workers == 0 { Some(external_reactor().map(slot)?) } else { None };
        let monitor = Monitor::new().map_err(|why| BuildError::Refused { backend, why })?;
        let watched = MonitorSetup { monitor, has_monitor: workers > 0 || self.serves_external_threads };
        let name = self.name.unwrap_or_else(|| "tourbillon-rt".into());
        let substitutes = Substitutes::new(&name, workers);
        let shared = Arc::new(RuntimeShared::new(backend, engine, virtual_time, worker_list, watched, substitutes));
        shared_of_engine.get_or_init(|| Arc::downgrade(&shared));
        shared.external_threads.add_idle(first);
        let mut runtime = Runtime { handle: Handle { shared }, threads: Vec::new(), monitor: None };
        runtime.start(slots, &name)?;
        Ok(runtime)
    }

    /// Builds the engine, with `shards` shards: one for each worker, some for `block_on`, and as many for all other threads as an engine
    /// has by default.
    fn engine(&self, shards: usize) -> Result<EngineParts, BuildError> {
        #[cfg(feature = "test-util")]
        if self.clock != ClockChoice::Monotonic {
            return EngineParts::pausable(self.clock);
        }
        let engine = clock::engine().shards(shards).build().map_err(BuildError::Engine)?;
        Ok(EngineParts { engine, virtual_time: VirtualTime::default(), shared: Arc::default() })
    }
}

/// An engine, and its link to the runtime.
struct EngineParts {
    engine: Engine,
    virtual_time: VirtualTime,
    /// The runtime that turns the engine, once it is built.
    shared: Arc<OnceLock<Weak<RuntimeShared>>>,
}

#[cfg(feature = "test-util")]
impl EngineParts {
    /// Builds an engine with one shard, so that timers fire in order, which the runtime's threads turn. They look at its timers before
    /// they park; any other thread that arms a timer before all others unparks them.
    fn pausable(clock: ClockChoice) -> Result<EngineParts, BuildError> {
        let shared: Arc<OnceLock<Weak<RuntimeShared>>> = Arc::default();
        let its = Arc::clone(&shared);
        let driver = Driver::external_with(move || {
            let shared = its.get().and_then(Weak::upgrade);
            let is_turned_here = |shared: &RuntimeShared| {
                context::with_worker(|worker| worker.is_some_and(|worker| worker.runtime().is_same(shared)))
            };
            if let Some(shared) = shared.filter(|shared| !is_turned_here(shared)) {
                shared.unpark_all();
            }
        });
        // A heap knows the next deadline without the upkeep that a wheel would need at each move.
        let engine =
            Engine::builder().clock(Clock::pausable()).shards(1).queue(QueueKind::Heap).driver(driver).exact().build();
        let engine = engine.map_err(BuildError::Engine)?;
        if clock == ClockChoice::Paused {
            engine.clock().pause();
        }
        Ok(EngineParts { engine, virtual_time: VirtualTime::pausable(), shared })
    }
}
