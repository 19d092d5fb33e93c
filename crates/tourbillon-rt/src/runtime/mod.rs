//! The runtime as its users see it.
//!
//! | file | idea |
//! |---|---|
//! | `worker.rs` | the loop of a thread that runs tasks: the order of one turn is there |
//! | `seat.rs` | what other threads know of such a thread |
//! | `shared.rs` | the global queue, and who has ended |
//! | `sleepers.rs` | who sleeps, and who is called for a task |
//! | `monitor.rs` | what becomes of a worker that is blocked by its task |
//! | `registry.rs` | all tasks, so that they can be ended |
//! | `block_on.rs` | a thread of the user's that works for the runtime until its future is ready |
//! | `nesting.rs` | what a thread that waits in a nested `block_on` leaves to others |
//! | `substitutes.rs` | the threads that run tasks meanwhile |
//! | `event_loop.rs` | threads of the user's that run handlers as long as there is work |
//! | `work.rs` | how much of it there is |
//! | `guests.rs` | threads of the user's that come and go, and what becomes of their sockets |
//! | `context.rs` | which runtime a thread is inside of |
//! | `virtual_time.rs` | when the clock of a paused runtime moves by itself |

mod block_on;
pub(crate) mod context;
mod event_loop;
mod guests;
#[cfg(all(test, loom))]
mod models;
mod monitor;
mod nesting;
mod registry;
mod seat;
mod shared;
mod sleepers;
mod substitutes;
#[cfg(any(feature = "test-util", loom))]
mod virtual_time;
#[cfg(not(any(feature = "test-util", loom)))]
#[path = "virtual_time/off.rs"]
mod virtual_time;
mod work;
mod worker;

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use tourbillon::Engine;
/// How much a task may do in one poll before others get a turn; I/O and timers count alike.
pub(crate) use tourbillon::coop as budget;
#[cfg(feature = "test-util")]
use tourbillon::{Clock, Driver, QueueKind};

pub use self::context::NoRuntime;
pub use self::event_loop::{EventLoop, WorkGuard};
pub(crate) use self::registry::Control;

use self::context::Guard;
use self::monitor::Monitor;
use self::nesting::Interrupted;
use self::registry::catch;
use self::seat::Seat;
use self::shared::{Shared, Watched};
use self::substitutes::Substitutes;
use self::virtual_time::VirtualTime;
use self::worker::Spare;
use crate::backend::{Backend, BuildError};
use crate::clock;
use crate::sync::{contain, thread, unblock};
use crate::task::{JoinError, JoinHandle, Lost, Returned};

/// Threads that run tasks, each with its own reactor and its own timers.
///
/// ```
/// use std::time::Duration;
/// use tourbillon_rt::{Runtime, time};
///
/// let runtime = Runtime::new()?;
/// let answer = runtime.block_on(async {
///     let task = tourbillon_rt::spawn(async {
///         time::sleep(Duration::from_millis(1)).await;
///         42
///     });
///     task.await
/// })?;
/// assert_eq!(answer, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Its end
/// Dropping it ends every task at its next await, and waits for the workers: a task that blocks its worker is waited for. To bound
/// that, or to let tasks finish, see [`shutdown_timeout`](Runtime::shutdown_timeout). From within one of its own tasks nobody is
/// waited for.
pub struct Runtime {
    handle: Handle,
    threads: Vec<thread::JoinHandle<()>>,
    monitor: Option<thread::JoinHandle<()>>,
}

/// A runtime, to spawn on. Cheap to clone; does not keep the runtime alive.
///
/// ```
/// use tourbillon_rt::Runtime;
///
/// let runtime = Runtime::builder().workers(1).build()?;
/// let handle = runtime.handle().clone();
/// let elsewhere = std::thread::spawn(move || handle.spawn(async { 42 }));
/// assert_eq!(runtime.block_on(elsewhere.join().unwrap())?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

/// How to build a [`Runtime`].
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
    /// Whether blocked threads are looked after though there are no workers.
    has_guests: bool,
    #[cfg(feature = "test-util")]
    clock: ClockChoice,
}

/// What the time of a runtime follows.
#[cfg(feature = "test-util")]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum ClockChoice {
    #[default]
    Monotonic,
    /// The monotonic clock, until it is paused.
    Pausable,
    /// It is paused when the runtime is built.
    Paused,
}

/// As long as it lives, the thread is inside the runtime: [`Handle::enter`].
#[must_use = "the runtime is left again when this is dropped"]
pub struct Entered {
    _guard: Guard,
    _engine: tourbillon::Entered,
}

/// How a [`shutdown_timeout`](Runtime::shutdown_timeout) ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Shutdown {
    /// So many tasks had not finished by themselves, and were dropped.
    pub aborted: usize,
    /// So many workers were still blocked by their tasks, and were left behind.
    pub blocked: usize,
}

impl Runtime {
    /// One with a worker for each core, and the back end that can be had.
    ///
    /// # Errors
    /// The system refuses threads or file descriptors.
    pub fn new() -> Result<Runtime, BuildError> {
        Runtime::builder().build()
    }

    /// How to build one.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The back end that was taken: never [`Backend::Auto`].
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.handle.shared.backend
    }

    /// The engine of its timers: `tourbillon::time` uses it within tasks and `block_on`.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.handle.shared.engine
    }

    /// To spawn from elsewhere.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// See [`Handle::spawn`].
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn(future)
    }

    /// Runs a future to its end, on this thread: it has a reactor and turns timers here meanwhile. The future need not be `Send`, and
    /// can use [`spawn_local`]; local tasks that have not ended with it are dropped.
    ///
    /// Without workers ([`Builder::workers`] of zero) it runs all tasks of the runtime, too.
    ///
    /// # Within another `block_on`, or a task
    /// A nested call blocks the task that makes it, of this runtime or another, and the thread's timers and sockets are served
    /// meanwhile. The call runs no other tasks on its stack, but for [local](spawn_local) ones, which have no other thread. All others
    /// are left to the other workers. If every thread that would run tasks waits in a nested call, a substitute thread runs them
    /// until one of those calls returns: so a nested call can wait for any task, also with one worker and with none. A call that need
    /// not wait starts no thread.
    ///
    /// Both the stack and the threads are bounded. A runtime has at most 64 substitutes. When there are as many, or the system refuses
    /// a thread, the nested calls run the waiting tasks themselves; that, and to run local tasks, at most 16 nested calls of a
    /// thread do. Deeper ones run only their own future. So what cannot be served is a nested call that waits for a local task from
    /// more than 16 calls deep, or for a task that more than a thousand nested calls keep from running: it waits for ever.
    ///
    /// The handlers of an [`EventLoop`] are run by the threads that run the loop and no others: in a handler, a `block_on` that waits for
    /// a task of the same loop waits until another thread runs the loop.
    ///
    /// Within a waker that a thread of the runtime calls, a nested call has timers and tasks; I/O that has to wait gives
    /// [`NoRuntime`].
    ///
    /// # Panics
    /// With what the future panics.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        block_on::block_on(&self.handle, future)
    }

    /// Lets its tasks finish for so long, and ends those that have not by then: from that time on no new tasks are taken. Workers
    /// that are blocked by their tasks are waited for until then, too, and for some milliseconds more, in which others end.
    ///
    /// A task that blocks its worker beyond that ends at its next await. Until the last of those workers has ended the runtime's timers
    /// go on: otherwise a loop over `sleep` would never wait, and so never end.
    ///
    /// From within one of its own tasks nobody is waited for.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_rt::Runtime;
    ///
    /// let runtime = Runtime::builder().workers(1).build()?;
    /// drop(runtime.spawn(std::future::pending::<()>()));
    /// assert_eq!(runtime.shutdown_timeout(Duration::from_millis(20)).aborted, 1);
    /// # Ok::<(), tourbillon_rt::BuildError>(())
    /// ```
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Shutdown {
        let until = Instant::now().checked_add(timeout);
        let interrupted = Interrupted::new();
        let shared = &self.handle.shared;
        // Without workers nobody would run them; and who is one of them would wait for itself.
        let waits = shared.has_workers() && !shared.is_at_work_here();
        if waits {
            interrupted.suspend(None);
        }
        let all_finished = waits && shared.wait_for_tasks(until);
        let aborted = if all_finished { 0 } else { shared.tasks_left() };
        drop(interrupted);
        let blocked = self.end(until);
        Shutdown { aborted, blocked }
    }

    /// Ends it. How many workers are blocked then, or for ever if no time is given.
    fn end(&mut self, until: Option<Instant>) -> usize {
        let shared = Arc::clone(&self.handle.shared);
        shared.stop();
        let threads = std::mem::take(&mut self.threads);
        if shared.has_workers() && shared.is_at_work_here() {
            // They end by themselves, and the last of them ends the timers: until then tasks may still use them.
            shared.finish();
            return 0;
        }
        // This thread may work for another runtime, on whose tasks ours wait.
        let interrupted = Interrupted::new();
        interrupted.suspend(None);
        let mut blocked = Vec::new();
        for (thread, seat) in threads.into_iter().zip(&shared.seats) {
            match until {
                Some(until) if is_blocked(&thread, seat, until) => blocked.push(seat),
                // A worker does not panic.
                _ => _ = thread.join(),
            }
        }
        shared.finish();
        // (It may be one of them that drops us.)
        let is_joined = !shared.is_at_work_here();
        let grace = |until: Instant| until.max(Instant::now()) + GRACE;
        let others = if is_joined { shared.substitutes.join(until.map(grace)) } else { 0 };
        if !blocked.is_empty() || others > 0 {
            // The last of them ends the timers. Meanwhile nobody looks after them any more: others are not to rely on them.
            for seat in &blocked {
                seat.leave_timers();
                seat.reactor.evict();
            }
            return blocked.len() + others;
        }
        shared.end_timers();
        let monitor = self.monitor.take();
        // It holds the descriptors of all. (It may be the one that drops us, in somebody's waker.)
        if let Some(monitor) = monitor.filter(|monitor| monitor.thread().id() != thread::current().id()) {
            let _ = monitor.join();
        }
        0
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if !self.threads.is_empty() || !self.handle.shared.is_stopped() {
            self.end(None);
        }
    }
}

impl Builder {
    /// How many threads run tasks. One for each core by default.
    ///
    /// Zero: tasks are run by [`Runtime::block_on`], on the thread that calls it, while it does. While that thread waits in a nested
    /// `block_on`, a substitute thread runs them.
    pub fn workers(mut self, workers: usize) -> Builder {
        self.workers = Some(workers);
        self
    }

    /// What they wait on. [`Backend::Auto`] by default. The environment variable `TOURBILLON_BACKEND` (`auto`, `uring`, `epoll`)
    /// overrides it.
    pub fn backend(mut self, backend: Backend) -> Builder {
        self.backend = backend;
        self
    }

    /// What its threads are called. `tourbillon-rt` by default.
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
    #[cfg(feature = "test-util")]
    pub fn start_paused(mut self, is_paused: bool) -> Builder {
        self.clock = if is_paused { ClockChoice::Paused } else { ClockChoice::Monotonic };
        self
    }

    /// Makes the runtime's time one that `time::pause` can stop later: until then it runs. As
    /// [`start_paused`](Builder::start_paused) otherwise. (Feature `test-util`.)
    ///
    /// Timers that were made before `pause` follow it.
    #[cfg(feature = "test-util")]
    pub fn pausable(mut self, is_pausable: bool) -> Builder {
        self.clock = if is_pausable { ClockChoice::Pausable } else { ClockChoice::Monotonic };
        self
    }

    /// Several threads will run its tasks, though it has no workers.
    fn has_guests(mut self) -> Builder {
        self.has_guests = true;
        self
    }

    /// Builds it and starts its workers.
    ///
    /// # Errors
    /// [`BuildError::Refused`] if a back end was asked for by name and cannot be had; or the system refuses threads.
    pub fn build(self) -> Result<Runtime, BuildError> {
        let backend = Backend::from_environment()?.unwrap_or(self.backend).choose();
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let workers = self.workers.unwrap_or(cores);
        let EngineParts { engine, virtual_time, shared: shared_of_engine } = self.engine(workers + 5 * cores + 4)?;
        let spare = |reactor| Spare::new(reactor, &virtual_time);
        let spares = (0..workers).map(|_| backend.workers_reactor().map(spare)).collect::<Result<Vec<_>, _>>()?;
        let seats = spares.iter().map(|spare| Arc::clone(&spare.seat)).collect();
        // Without workers the first guest's is made now, so that a back end that cannot be had is refused here.
        let first = if workers == 0 { Some(backend.reactor().map(spare)?) } else { None };
        let monitor = Monitor::new().map_err(|why| BuildError::Refused { backend, why })?;
        let watched = Watched { monitor, is_watched: workers > 0 || self.has_guests };
        let name = self.name.unwrap_or_else(|| "tourbillon-rt".into());
        let substitutes = Substitutes::new(&name, workers);
        let shared = Arc::new(Shared::new(backend, engine, virtual_time, seats, watched, substitutes));
        shared_of_engine.get_or_init(|| Arc::downgrade(&shared));
        shared.guests.expect(first);
        let mut runtime = Runtime { handle: Handle { shared }, threads: Vec::new(), monitor: None };
        runtime.start(spares, &name)?;
        Ok(runtime)
    }

    /// Builds the engine. `shards`: one for each worker, some for `block_on`, and as many for all other threads as an engine has by
    /// itself.
    fn engine(&self, shards: usize) -> Result<EngineParts, BuildError> {
        #[cfg(feature = "test-util")]
        if self.clock != ClockChoice::Monotonic {
            return EngineParts::pausable(self.clock);
        }
        let engine = clock::engine().shards(shards).build().map_err(BuildError::Engine)?;
        Ok(EngineParts { engine, virtual_time: VirtualTime::default(), shared: Arc::default() })
    }
}

/// An engine, and what ties it to its runtime.
struct EngineParts {
    engine: Engine,
    virtual_time: VirtualTime,
    /// The runtime that turns the engine, once it is there.
    shared: Arc<OnceLock<Weak<Shared>>>,
}

#[cfg(feature = "test-util")]
impl EngineParts {
    /// An engine with one shard, so that timers fire in order, that the runtime's threads turn. They look at its timers before they
    /// park; other threads that arm a timer before all others call them.
    fn pausable(clock: ClockChoice) -> Result<EngineParts, BuildError> {
        let shared: Arc<OnceLock<Weak<Shared>>> = Arc::default();
        let its = Arc::clone(&shared);
        let driver = Driver::external_with(move || {
            let shared = its.get().and_then(Weak::upgrade);
            let is_turned_here =
                |shared: &Shared| context::with_seat(|seat| seat.is_some_and(|worker| worker.shared().is_same(shared)));
            if let Some(shared) = shared.filter(|shared| !is_turned_here(shared)) {
                shared.call_all();
            }
        });
        // A heap knows the next deadline without upkeep, which a wheel would do at each move.
        let engine =
            Engine::builder().clock(Clock::pausable()).shards(1).queue(QueueKind::Heap).driver(driver).exact().build();
        let engine = engine.map_err(BuildError::Engine)?;
        if clock == ClockChoice::Paused {
            engine.clock().pause();
        }
        Ok(EngineParts { engine, virtual_time: VirtualTime::pausable(), shared })
    }
}

impl Runtime {
    fn start(&mut self, spares: Vec<Spare>, name: &str) -> Result<(), BuildError> {
        let named = |name: String| thread::Builder::new().name(name);
        if self.handle.shared.is_watched {
            let shared = Arc::clone(&self.handle.shared);
            let monitor = named(format!("{name}-watch")).spawn(move || monitor::run(&shared));
            self.monitor = Some(monitor.map_err(BuildError::Thread)?);
        }
        for (index, spare) in spares.into_iter().enumerate() {
            let shared = Arc::clone(&self.handle.shared);
            let thread = named(format!("{name}-{index}")).spawn(move || {
                worker::work(&shared, spare);
                shared.worker_has_ended();
            });
            self.threads.push(thread.map_err(BuildError::Thread)?);
        }
        Ok(())
    }
}

impl Handle {
    /// The runtime that this thread is inside of.
    ///
    /// # Errors
    /// It is inside of none.
    pub fn current() -> Result<Handle, NoRuntime> {
        context::handle()
    }

    fn of(shared: &Arc<Shared>) -> Handle {
        Handle { shared: Arc::clone(shared) }
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Makes a task of a future. It starts soon, on any worker, and may be resumed on others.
    ///
    /// What it panics with comes out of the handle and harms nobody else. After the runtime's end, the handle says that the task
    /// was cancelled.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (contained, control) = self.shared.tasks.contain(future);
        let shared = Arc::clone(&self.shared);
        let (runnable, task) = async_task::spawn(contained, move |runnable| shared.schedule(runnable, false));
        control.set_waker(runnable.waker());
        if self.shared.is_stopping() {
            // It ends here: workers that end do not wait for who goes on spawning.
            contain(|| drop(runnable));
        } else {
            self.shared.schedule(runnable, true);
        }
        JoinHandle::new(task, control)
    }

    /// Runs something that blocks, on a thread that is there for that (of the crate `blocking`). Once it runs it cannot be aborted.
    pub fn spawn_blocking<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let handle = self.clone();
        if let Some(held) = self.shared.hold_time() {
            // The function runs as a task of its own, inside a closure of the pool. So when `run` returns, the task that awaits the
            // result has been woken, and only then may time move.
            let call = async move {
                let _entered = handle.enter();
                returned(f)
            };
            let (runnable, task) = async_task::spawn(call, |_| ());
            unblock(move || {
                let _ = runnable.run();
                drop(held);
            })
            .detach();
            return JoinHandle::new(task, Arc::default());
        }
        let task = unblock(move || {
            let _entered = handle.enter();
            returned(f)
        });
        JoinHandle::new(task, Arc::default())
    }

    /// Makes this thread one that is inside the runtime, until the guard is dropped: [`spawn`] and `tourbillon::time` use it. For
    /// I/O that is not enough: it has to be polled in a task, or in `block_on`.
    pub fn enter(&self) -> Entered {
        Entered { _guard: context::enter_handle(self), _engine: self.shared.engine.enter() }
    }

    /// The back end of its workers.
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.shared.backend
    }
}

/// Makes a task of a future, on the runtime of this thread: [`Handle::spawn`].
///
/// Outside a runtime the task is lost: its future is dropped, and the handle says [`JoinError::NoRuntime`]. A handle that is dropped
/// without having been awaited reports it on standard error, with the caller's place in the source; nothing panics. To be told
/// at once, use [`try_spawn`].
#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let caller = Location::caller();
    try_spawn(future).unwrap_or_else(|_| JoinHandle::without_runtime(Lost { function: "spawn", caller }))
}

/// Makes a task of a future, on the runtime of this thread: [`Handle::spawn`].
///
/// ```
/// use tourbillon_rt::{NoRuntime, try_spawn};
///
/// fn log_in_background() -> Result<(), NoRuntime> {
///     drop(try_spawn(async { println!("later") })?);
///     Ok(())
/// }
/// assert!(log_in_background().is_err()); // on a thread without a runtime
/// ```
///
/// # Errors
/// There is no runtime on this thread. The future has been dropped.
pub fn try_spawn<F>(future: F) -> Result<JoinHandle<F::Output>, NoRuntime>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    Handle::current().map(|handle| handle.spawn(future))
}

/// Makes a task of a future that stays on this thread, which has to be a worker, or inside of a `block_on`. It ends with that.
///
/// Elsewhere the task is lost: its future is dropped, and the handle says [`JoinError::NoRuntime`]. A handle that is dropped without
/// having been awaited reports it on standard error, with the caller's place in the source; nothing panics. To be told at once, use
/// [`try_spawn_local`].
///
/// ```
/// use std::rc::Rc;
///
/// let runtime = tourbillon_rt::Runtime::new()?;
/// let shared = Rc::new(5);
/// let its = Rc::clone(&shared);
/// let sum = runtime.block_on(async move {
///     let task = tourbillon_rt::spawn_local(async move { *its + 1 });
///     task.await
/// })?;
/// assert_eq!(sum, 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[track_caller]
pub fn spawn_local<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let caller = Location::caller();
    try_spawn_local(future).unwrap_or_else(|_| JoinHandle::without_runtime(Lost { function: "spawn_local", caller }))
}

/// Makes a task of a future that stays on this thread: [`spawn_local`].
///
/// # Errors
/// The thread is neither a worker nor inside of a `block_on`. The future has been dropped.
pub fn try_spawn_local<F>(future: F) -> Result<JoinHandle<F::Output>, NoRuntime>
where
    F: Future + 'static,
    F::Output: 'static,
{
    context::with_seat(|worker| {
        let worker = worker.ok_or(NoRuntime::NEW)?;
        let (contained, control) = worker.seat().locals.contain(future);
        let seat = Arc::clone(worker.seat());
        let (runnable, task) = async_task::spawn_local(contained, move |runnable| seat.send(runnable));
        control.set_waker(runnable.waker());
        runnable.schedule();
        Ok(JoinHandle::new(task, control))
    })
}

/// Runs something that blocks: [`Handle::spawn_blocking`]. Works outside a runtime, too.
///
/// ```
/// let runtime = tourbillon_rt::Runtime::builder().workers(1).build()?;
/// let sum = runtime.block_on(async { tourbillon_rt::spawn_blocking(|| (1..=1000).sum::<u32>()).await })?;
/// assert_eq!(sum, 500_500);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn spawn_blocking<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    match Handle::current() {
        Ok(handle) => handle.spawn_blocking(f),
        Err(_) => JoinHandle::new(unblock(|| returned(f)), Arc::default()),
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("backend", &self.shared.backend)
            .field("workers", &self.shared.seats.len())
            .field("tasks", &self.shared.tasks.len())
            .field("queued", &self.shared.injector.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Entered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entered").finish_non_exhaustive()
    }
}

/// What comes of something that blocks.
fn returned<T>(f: impl FnOnce() -> T) -> Returned<T> {
    Returned::new(catch(f).map_err(JoinError::Panicked))
}

/// Who has not got on for so long, after the time that it was given, is blocked.
const GRACE: Duration = Duration::from_millis(100);

/// Waits for a worker, until then and for as long as it gets on. Whether it is blocked.
fn is_blocked(thread: &thread::JoinHandle<()>, seat: &Seat, until: Instant) -> bool {
    let mut pause = Duration::from_micros(50);
    let (mut steps, mut since) = (seat.steps(), Instant::now());
    while !thread.is_finished() {
        let now = Instant::now();
        if steps != seat.steps() {
            (steps, since) = (seat.steps(), now);
        }
        if until <= now && now - since >= GRACE {
            return true;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
    false
}
