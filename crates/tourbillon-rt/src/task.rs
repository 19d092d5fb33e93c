//! A task from outside: awaiting what comes of it, and ending it.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};

use async_task::FallibleTask;

use crate::sync::{AtomicBool, Fragile, Mutex, Ordering, catch_panic, lock};

/// A task that was [spawned](crate::spawn). Awaiting it gives what it returned, or says why it did not.
///
/// Dropping the handle lets the task run on. The handle of a task that was lost, because there was no runtime to spawn it on, says so on
/// standard error if it is dropped without having been awaited.
///
/// ```
/// let runtime = tourbillon_rt::Runtime::new()?;
/// let task = runtime.spawn(async { 6 * 7 });
/// assert_eq!(runtime.block_on(task)?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Cancel safety
/// Awaiting it is cancel safe: by reference (`(&mut task).await`) it can be given up and taken up again, and nothing that the task
/// returned is lost.
pub struct JoinHandle<T> {
    /// There is none if there was no runtime to spawn on.
    task: Option<FallibleTask<Returned<T>>>,
    control: Arc<Control>,
    /// Where a task was lost that the handle's owner has not heard of yet.
    lost: Option<LostTask>,
}

/// What a handle and its task share.
#[derive(Default)]
pub(crate) struct Control {
    aborted: AtomicBool,
    /// The task. It is let go of when the task ends: the task holds us.
    waker: Mutex<Option<Waker>>,
    /// Who awaits the handle. Not left with the task itself: there a waker that panics ends the process.
    awaiter: Mutex<Option<Waker>>,
}

/// A task that was spawned where there is no runtime.
#[derive(Clone, Copy)]
pub(crate) struct LostTask {
    /// The function that could not spawn it.
    pub(crate) function: &'static str,
    pub(crate) caller: &'static Location<'static>,
}

/// What has come of a task.
pub(crate) type Returned<T> = Fragile<Result<T, JoinError>>;

/// Why a task has returned nothing.
#[derive(Debug)]
#[non_exhaustive]
pub enum JoinError {
    /// It was aborted, or its runtime has ended.
    Cancelled,
    /// It has panicked, with this.
    Panicked(Panic),
    /// There is no runtime on this thread to spawn on.
    NoRuntime,
}

/// What a task has panicked with.
pub struct Panic(Mutex<Box<dyn Any + Send>>);

impl<T> JoinHandle<T> {
    pub(crate) fn new(task: async_task::Task<Returned<T>>, control: Arc<Control>) -> JoinHandle<T> {
        JoinHandle { task: Some(task.fallible()), control, lost: None }
    }

    /// Of a task that never was.
    pub(crate) fn without_runtime(lost: LostTask) -> JoinHandle<T> {
        JoinHandle { task: None, control: Arc::default(), lost: Some(lost) }
    }

    /// Ends the task at its next await, at once if it waits: its handle then says [`JoinError::Cancelled`]. What it holds is dropped by a worker. Nothing happens to one that
    /// has finished (what it returned can still be had), nor to one that was given to
    /// [`spawn_blocking`](crate::spawn_blocking).
    pub fn abort(&self) {
        self.control.abort();
    }

    /// Whether it has returned, panicked, or been dropped.
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

impl Control {
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

    /// Tells it its task.
    pub(crate) fn set_waker(&self, waker: Waker) {
        *lock(&self.waker) = Some(waker);
    }

    /// Who is to be woken when the task has ended. To be told before the task is asked whether it has.
    pub(crate) fn set_awaiter(&self, waker: &Waker) {
        if lock(&self.awaiter).as_ref().is_some_and(|awaiter| awaiter.will_wake(waker)) {
            return;
        }
        // Wakers are the user's: they are cloned and dropped outside the lock.
        let waker = Some(waker.clone());
        let before = std::mem::replace(&mut *lock(&self.awaiter), waker);
        drop(before);
    }

    /// Nobody awaits the handle any more.
    pub(crate) fn forget_awaiter(&self) {
        let awaiter = lock(&self.awaiter).take();
        catch_panic(|| drop(awaiter));
    }
}

/// The task has ended.
impl Wake for Control {
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
    /// Says so on standard error: nothing else would tell the user that the task never ran (D62).
    fn report(self) {
        let LostTask { function, caller } = self;
        // A standard error that cannot be written to is no reason to panic.
        let _ = writeln!(
            io::stderr(),
            "tourbillon-rt: a task was lost: `{function}` was called at {caller}, on a thread without a runtime, and its \
             JoinHandle was dropped without being awaited"
        );
    }
}

impl JoinError {
    /// Whether it was aborted, or its runtime has ended.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(self, JoinError::Cancelled)
    }

    /// Whether it has panicked.
    #[must_use]
    pub fn is_panic(&self) -> bool {
        matches!(self, JoinError::Panicked(_))
    }
}

impl Panic {
    pub(crate) fn new(payload: Box<dyn Any + Send>) -> Panic {
        Panic(Mutex::new(payload))
    }

    /// The payload, for `std::panic::resume_unwind`.
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

    /// What it said, if that is text.
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

/// Runs something of the user's; what it throws is given.
pub(crate) fn catch<R>(users: impl FnOnce() -> R) -> Result<R, Panic> {
    catch_unwind(AssertUnwindSafe(users)).map_err(Panic::new)
}
