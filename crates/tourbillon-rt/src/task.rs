//! Handles of tasks: to await a task's result, and to end it.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};

use async_task::FallibleTask;

use crate::sync::{AtomicBool, CatchDropPanic, Mutex, Ordering, catch_panic, lock};

/// A handle to a task that was [spawned](crate::spawn). Awaiting it returns the task's result, or why there is none.
///
/// Dropping the handle lets the task run on, so a task whose result is not needed is a statement: `spawn(future);`. If the task was lost, because there was no runtime to spawn it on, a handle that is dropped
/// without having been awaited reports that on standard error.
///
/// ```
/// let runtime = tourbillon_rt::Runtime::new()?;
/// let task = runtime.spawn(async { 6 * 7 });
/// assert_eq!(runtime.block_on(task)?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Cancel safety
/// Awaiting it is cancel safe: by reference (`(&mut task).await`) the wait can be dropped and begun again, and the task's result is not
/// lost.
pub struct JoinHandle<T> {
    /// `None` if there was no runtime to spawn on.
    task: Option<FallibleTask<Returned<T>>>,
    control: Arc<TaskControl>,
    /// The lost task, as long as the handle's owner has not been told.
    lost: Option<LostTask>,
}

/// The state that a handle and its task share.
#[derive(Default)]
pub(crate) struct TaskControl {
    aborted: AtomicBool,
    /// The task's waker. It is dropped when the task ends: the task holds a reference to this state.
    waker: Mutex<Option<Waker>>,
    /// The waker of the task that awaits the handle. It is not left with `async_task`: there a waker that panics ends the process.
    awaiter: Mutex<Option<Waker>>,
}

/// A task that was spawned where there is no runtime.
#[derive(Clone, Copy)]
pub(crate) struct LostTask {
    /// The function that could not spawn it.
    pub(crate) function: &'static str,
    pub(crate) caller: &'static Location<'static>,
}

/// The result of a task, until its handle takes it.
pub(crate) type Returned<T> = CatchDropPanic<Result<T, JoinError>>;

/// Why a task has no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum JoinError {
    /// The task was aborted, or its runtime has ended.
    Cancelled,
    /// The task has panicked.
    Panicked(Panic),
    /// There was no runtime on the thread that spawned the task.
    NoRuntime,
}

/// The payload of a task's panic.
pub struct Panic(Mutex<Box<dyn Any + Send>>);

impl<T> JoinHandle<T> {
    pub(crate) fn new(task: async_task::Task<Returned<T>>, control: Arc<TaskControl>) -> JoinHandle<T> {
        JoinHandle { task: Some(task.fallible()), control, lost: None }
    }

    /// Returns the handle of a task that was lost.
    pub(crate) fn without_runtime(lost: LostTask) -> JoinHandle<T> {
        JoinHandle { task: None, control: Arc::default(), lost: Some(lost) }
    }

    /// Ends the task at its next await, at once if it waits: its handle then returns [`JoinError::Cancelled`]. A worker drops the future.
    /// A task that has finished keeps its result, and a function that was given to [`spawn_blocking`](crate::spawn_blocking) runs on.
    pub fn abort(&self) {
        self.control.abort();
    }

    /// Returns whether the task has returned, panicked, or been dropped.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(FallibleTask::is_finished)
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let JoinHandle { task: Some(task), control, .. } = &mut *self else {
            self.lost = None;
            return Poll::Ready(Err(JoinError::NoRuntime));
        };
        control.set_awaiter(context.waker());
        let waker = Waker::from(Arc::clone(control));
        let returned = ready!(Pin::new(task).poll(&mut Context::from_waker(&waker)));
        control.forget_awaiter();
        Poll::Ready(returned.and_then(Returned::take).unwrap_or(Err(JoinError::Cancelled)))
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.detach();
        }
        if let Some(lost) = self.lost.take() {
            lost.report();
        }
        self.control.forget_awaiter();
    }
}

impl TaskControl {
    /// Ends the task when it is next polled, which is soon.
    pub(crate) fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
        let waker = lock(&self.waker).clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    /// Takes the task's waker, when the task ends.
    pub(crate) fn take_waker(&self) -> Option<Waker> {
        lock(&self.waker).take()
    }

    /// Sets the task's waker.
    pub(crate) fn set_waker(&self, waker: Waker) {
        *lock(&self.waker) = Some(waker);
    }

    /// Sets the waker to wake when the task has ended. Called before the caller checks whether it has.
    pub(crate) fn set_awaiter(&self, waker: &Waker) {
        if lock(&self.awaiter).as_ref().is_some_and(|awaiter| awaiter.will_wake(waker)) {
            return;
        }
        // A waker is the user's code: it is cloned and dropped outside the lock.
        let waker = Some(waker.clone());
        let before = std::mem::replace(&mut *lock(&self.awaiter), waker);
        drop(before);
    }

    /// Drops the awaiting task's waker.
    pub(crate) fn forget_awaiter(&self) {
        let awaiter = lock(&self.awaiter).take();
        catch_panic(|| drop(awaiter));
    }
}

/// Called by `async_task` when the task has ended.
impl Wake for TaskControl {
    fn wake(self: Arc<Self>) {
        let awaiter = lock(&self.awaiter).take();
        catch_panic(|| awaiter.into_iter().for_each(Waker::wake));
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("is_finished", &self.is_finished()).finish_non_exhaustive()
    }
}

impl LostTask {
    /// Reports the lost task on standard error: otherwise the user would not know that it never ran (D62).
    fn report(self) {
        let LostTask { function, caller } = self;
        // An error of standard error is no reason to panic.
        let _ = writeln!(
            io::stderr(),
            "tourbillon-rt: a task was lost: `{function}` was called at {caller}, on a thread without a runtime, and its \
             JoinHandle was dropped without being awaited"
        );
    }
}

impl JoinError {
    /// Returns whether the task was aborted, or its runtime has ended.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(self, JoinError::Cancelled)
    }

    /// Returns whether the task has panicked.
    #[must_use]
    pub fn is_panic(&self) -> bool {
        matches!(self, JoinError::Panicked(_))
    }
}

impl Panic {
    pub(crate) fn new(payload: Box<dyn Any + Send>) -> Panic {
        Panic(Mutex::new(payload))
    }

    /// Returns the payload, for `std::panic::resume_unwind`.
    ///
    /// ```
    /// use tourbillon_rt::{JoinError, Runtime};
    ///
    /// let runtime = Runtime::builder().workers(1).build()?;
    /// let task = runtime.spawn(async { panic!("no more") });
    /// match runtime.block_on(task) {
    ///     Err(JoinError::Panicked(panic)) => assert_eq!(panic.message().as_deref(), Some("no more")),
    ///     other => unreachable!("{other:?}"),
    /// }
    /// # Ok::<(), tourbillon_rt::BuildError>(())
    /// ```
    #[must_use]
    pub fn into_payload(self) -> Box<dyn Any + Send> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the message of the panic, if it is text.
    #[must_use]
    pub fn message(&self) -> Option<String> {
        let payload = lock(&self.0);
        let text = payload.downcast_ref::<&str>().map(ToString::to_string);
        text.or_else(|| payload.downcast_ref::<String>().cloned())
    }
}

impl fmt::Debug for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Panic").field(&self.message()).finish()
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinError::Cancelled => f.write_str("the task was cancelled"),
            JoinError::NoRuntime => f.write_str("there is no runtime on this thread"),
            JoinError::Panicked(panic) => match panic.message() {
                Some(message) => write!(f, "the task has panicked: {message}"),
                None => f.write_str("the task has panicked"),
            },
        }
    }
}

impl std::error::Error for JoinError {}

impl From<JoinError> for io::Error {
    fn from(error: JoinError) -> io::Error {
        io::Error::other(error)
    }
}

/// Runs the user's code and returns its panic as an error.
pub(crate) fn catch<R>(users: impl FnOnce() -> R) -> Result<R, Panic> {
    catch_unwind(AssertUnwindSafe(users)).map_err(Panic::new)
}
