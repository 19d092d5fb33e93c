//! Handles to a runtime, and the functions that spawn on the runtime of the calling thread.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;

use super::backend::Backend;
use super::context::{self, ContextGuard};
use super::shared::RuntimeShared;
use crate::reactor::NoRuntime;
use crate::sync::{catch_panic, unblock};
use crate::task::{JoinError, JoinHandle, LostTask, Returned, catch};

/// A handle to a runtime, to spawn on. Cheap to clone; it does not keep the runtime alive.
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
    pub(super) shared: Arc<RuntimeShared>,
}

/// Keeps the thread inside the runtime until it is dropped: see [`Handle::enter`].
#[must_use = "the runtime is left again when this is dropped"]
pub struct Entered {
    _guard: ContextGuard,
    _engine: tourbillon::Entered,
}

impl Handle {
    /// Returns the runtime that this thread is inside of.
    ///
    /// # Errors
    /// The thread is not inside of a runtime.
    pub fn current() -> Result<Handle, NoRuntime> {
        context::handle()
    }

    pub(crate) fn of(shared: &Arc<RuntimeShared>) -> Handle {
        Handle { shared: Arc::clone(shared) }
    }

    pub(crate) fn shared(&self) -> &Arc<RuntimeShared> {
        &self.shared
    }

    /// Spawns a future as a task. It starts soon, on any worker, and may be resumed on others.
    ///
    /// If the task panics, its handle returns the panic, and no other task is affected. After the runtime's end, the handle says that the
    /// task was cancelled.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (task_future, control) = self.shared.tasks.register(future);
        let shared = Arc::clone(&self.shared);
        let (runnable, task) = async_task::spawn(task_future, move |runnable| shared.schedule(runnable, false));
        control.set_waker(runnable.waker());
        if self.shared.is_stopping() {
            // The task ends here: otherwise workers that end would wait for a task that spawns for ever.
            catch_panic(|| drop(runnable));
        } else {
            self.shared.schedule(runnable, true);
        }
        JoinHandle::new(task, control)
    }

    /// Runs a function that blocks, on a thread of the crate `blocking`. Once it runs it cannot be aborted.
    ///
    /// All runtimes of the process share at most 500 such threads, or as many as the environment variable `BLOCKING_MAX_THREADS` says;
    /// further functions wait for one.
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

    /// Makes this thread one that is inside the runtime, until the guard is dropped: [`spawn`] and `tourbillon::time` use that runtime.
    /// For I/O that is not enough: it has to be polled in a task, or in `block_on`.
    pub fn enter(&self) -> Entered {
        Entered { _guard: context::enter_handle(self), _engine: self.shared.engine.enter() }
    }

    /// Returns the back end of the runtime's workers: see [`Runtime::backend`](super::Runtime::backend).
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.shared.backend
    }
}

/// Spawns a future as a task on the runtime of this thread: see [`Handle::spawn`].
///
/// Outside a runtime the task is lost: its future is dropped, and the handle returns [`JoinError::NoRuntime`]. If the handle is dropped
/// without having been awaited, it reports that on standard error, with the caller's place in the source; nothing panics. [`try_spawn`]
/// returns the error at once.
#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let caller = Location::caller();
    try_spawn(future).unwrap_or_else(|_| JoinHandle::without_runtime(LostTask { function: "spawn", caller }))
}

/// Spawns a future as a task on the runtime of this thread: see [`Handle::spawn`].
///
/// ```
/// use tourbillon_rt::{NoRuntime, try_spawn};
///
/// fn log_in_background() -> Result<(), NoRuntime> {
///     try_spawn(async { println!("later") })?;
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

/// Spawns a future as a task that stays on this thread, which has to be a worker or inside of a `block_on`. The task ends with that.
///
/// Elsewhere the task is lost: its future is dropped, and the handle returns [`JoinError::NoRuntime`]. If the handle is dropped without
/// having been awaited, it reports that on standard error, with the caller's place in the source; nothing panics. [`try_spawn_local`]
/// returns the error at once.
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
    try_spawn_local(future)
        .unwrap_or_else(|_| JoinHandle::without_runtime(LostTask { function: "spawn_local", caller }))
}

/// Spawns a future as a task that stays on this thread: see [`spawn_local`].
///
/// # Errors
/// The thread is neither a worker nor inside of a `block_on`. The future has been dropped.
pub fn try_spawn_local<F>(future: F) -> Result<JoinHandle<F::Output>, NoRuntime>
where
    F: Future + 'static,
    F::Output: 'static,
{
    context::with_worker(|worker| {
        let worker = worker.ok_or(NoRuntime::NEW)?;
        let (task_future, control) = worker.worker_shared().locals.register(future);
        let worker_shared = Arc::clone(worker.worker_shared());
        let (runnable, task) = async_task::spawn_local(task_future, move |runnable| worker_shared.push_local(runnable));
        control.set_waker(runnable.waker());
        runnable.schedule();
        Ok(JoinHandle::new(task, control))
    })
}

/// Runs a function that blocks: see [`Handle::spawn_blocking`]. Works outside a runtime, too.
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

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("backend", &self.shared.backend)
            .field("workers", &self.shared.workers.len())
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

/// Runs a function that blocks, and catches its panic.
fn returned<T>(f: impl FnOnce() -> T) -> Returned<T> {
    Returned::new(catch(f).map_err(JoinError::Panicked))
}
