//! An event loop that threads of the user run as long as there is work (A9).
//!
//! It is a runtime without workers. A thread that calls `run` acts as a worker of it, with a reactor. Handlers and tasks are in the
//! global queue, so any thread that runs the loop takes the next; the engine's driver fires the timers, since a handler may block its
//! thread.
//!
//! *Work* is everything that may still lead to a handler: one that was posted or runs, a wait for a timer, a task that has not ended, a
//! [`WorkGuard`]. Each of these holds a guard; when the last one is dropped, all threads that run the loop are unparked, and return.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tourbillon::time::Instant;
use tourbillon::timer::{Wait, WaitHandle};
use tourbillon::{Engine, Outcome, Span, Time, Timer};

use super::work::{WorkCount, WorkLeft};
use crate::clock;
use crate::executor::context;
use crate::executor::external_threads::WorkerGuard;
use crate::executor::shared::RuntimeShared;
use crate::executor::worker::Role;
use crate::executor::{Backend, BuildError, Handle, Runtime};
use crate::sync::CatchDropPanic;
use crate::task::JoinHandle;

/// An event loop: the threads that call [`run`](EventLoop::run) run its handlers as long as there is work.
///
/// ```
/// use std::sync::mpsc;
/// use std::time::Duration;
/// use tourbillon_rt::EventLoop;
///
/// let events = EventLoop::new()?;
/// let (sender, receiver) = mpsc::channel();
/// let timer = events.timer();
/// timer.expires_after(Duration::from_millis(2));
/// let later = sender.clone();
/// let _wait = events.on_expiry(&timer, move |_| later.send("expired").unwrap());
/// events.post(move || sender.send("posted").unwrap());
/// assert_eq!(events.run(), 2);
/// assert_eq!(receiver.iter().collect::<Vec<_>>(), ["posted", "expired"]);
/// # Ok::<(), tourbillon_rt::BuildError>(())
/// ```
///
/// # Handlers
/// Handlers run inside `run`, never inside `post`; sequential per thread, concurrent across threads. A panic of a handler leaves `run` on
/// its thread; other threads go on, and `run` can be called again.
///
/// # I/O
/// A task of the loop ([`spawn`](EventLoop::spawn)) can use all of [`net`](crate::net) and `tourbillon::time`. The threads of a loop use
/// epoll.
///
/// # Clones
/// Clones share the loop. With the last one, handlers that were posted and have not run are dropped, and timers of the loop's engine end
/// as stopped; the handlers of pending waits then run where the engine's callbacks do.
#[derive(Clone)]
pub struct EventLoop {
    inner: Arc<LoopShared>,
}

/// Keeps an [`EventLoop`] running until it is dropped.
pub struct WorkGuard {
    work: Arc<WorkCount>,
    shared: Arc<RuntimeShared>,
}

struct LoopShared {
    runtime: Runtime,
    work: Arc<WorkCount>,
}

/// A wait for a timer, as a task of the loop: its second poll calls the handler. If there is no second poll, because the loop is gone,
/// the drop calls it (D28).
struct ExpiryTask<F: FnOnce(Outcome) + Send + 'static> {
    wait: Wait,
    handler: Option<F>,
    work: Option<WorkGuard>,
    /// The task has been polled inside `on_expiry`, where no handler may run (A11).
    is_begun: bool,
}

/// How long to run the loop.
struct RunLimit {
    handlers: usize,
    until: Option<Time>,
    /// Whether to wait for handlers that are not ready yet.
    waits: bool,
}

impl EventLoop {
    /// Builds an event loop.
    ///
    /// # Errors
    /// The system refuses file descriptors, or the thread of the timers.
    pub fn new() -> Result<EventLoop, BuildError> {
        EventLoop::with_backend(Backend::Auto)
    }

    /// Builds an event loop. Its threads are not workers, so they use epoll, whichever back end is given.
    ///
    /// # Errors
    /// The environment variable `TOURBILLON_BACKEND` names no back end; or as [`new`](EventLoop::new).
    pub fn with_backend(backend: Backend) -> Result<EventLoop, BuildError> {
        let runtime = Runtime::builder().workers(0).serves_external_threads().backend(backend).build()?;
        Ok(EventLoop { inner: Arc::new(LoopShared { runtime, work: Arc::default() }) })
    }

    /// Runs handlers until there is no work any more, or the loop is [stopped](EventLoop::stop). Returns how many; each poll of a task
    /// counts as one.
    ///
    /// Any number of threads can run one loop. Within one of its handlers, or any other runtime, it returns zero at once.
    ///
    /// # Panics
    /// If a handler panics.
    pub fn run(&self) -> usize {
        self.run_within(RunLimit { handlers: usize::MAX, until: None, waits: true })
    }

    /// Runs one handler, and waits for it if need be. Returns zero if there is no work, or the loop is stopped.
    ///
    /// # Panics
    /// If the handler panics.
    pub fn run_one(&self) -> usize {
        self.run_within(RunLimit { handlers: 1, until: None, waits: true })
    }

    /// Runs handlers for `duration`, or until no work is left.
    ///
    /// # Panics
    /// If a handler panics.
    pub fn run_for(&self, duration: Duration) -> usize {
        let until = clock::now() + Span::from(duration);
        self.run_within(RunLimit { handlers: usize::MAX, until: Some(until), waits: true })
    }

    /// Runs handlers until `deadline`, or until no work is left.
    ///
    /// # Panics
    /// If a handler panics.
    pub fn run_until(&self, deadline: Instant) -> usize {
        self.run_for(deadline.saturating_duration_since(clock::task_now()))
    }

    /// Runs the handlers that are ready, without waiting. The handler of a timer is ready when the loop's engine has seen its expiry,
    /// some microseconds later; that of a cancelled wait when the cancel returns.
    ///
    /// # Panics
    /// If a handler panics.
    pub fn poll(&self) -> usize {
        self.run_within(RunLimit { handlers: usize::MAX, until: None, waits: false })
    }

    /// Runs one handler if one is ready.
    ///
    /// # Panics
    /// If the handler panics.
    pub fn poll_one(&self) -> usize {
        self.run_within(RunLimit { handlers: 1, until: None, waits: false })
    }

    /// Makes all threads that run the loop return, after the handlers that they are in. From then on no thread runs it, until it is
    /// [restarted](EventLoop::restart).
    pub fn stop(&self) {
        self.inner.work.stop();
        self.handle().shared().unpark_all();
    }

    /// Returns whether the loop has been stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.inner.work.is_stopped()
    }

    /// Lets threads run the loop again after a stop. (A loop that has run out of work needs no restart.)
    pub fn restart(&self) {
        self.inner.work.restart();
    }

    /// Returns work that keeps the loop running until it is dropped.
    ///
    /// ```
    /// use tourbillon_rt::EventLoop;
    ///
    /// let events = EventLoop::new()?;
    /// let guard = events.work_guard();
    /// let runs = std::thread::spawn({
    ///     let events = events.clone();
    ///     move || events.run() // nothing to do yet, and it does not return
    /// });
    /// events.post(|| println!("posted"));
    /// drop(guard);
    /// assert_eq!(runs.join().unwrap(), 1);
    /// # Ok::<(), tourbillon_rt::BuildError>(())
    /// ```
    #[must_use = "the loop may end when the guard is dropped"]
    pub fn work_guard(&self) -> WorkGuard {
        self.inner.work.begin();
        WorkGuard { work: Arc::clone(&self.inner.work), shared: Arc::clone(self.handle().shared()) }
    }

    /// Queues a handler for the threads that run the loop.
    pub fn post(&self, handler: impl FnOnce() + Send + 'static) {
        let work = self.work_guard();
        let shared = Arc::clone(self.handle().shared());
        let handler = CatchDropPanic::new(handler);
        let call = async move {
            // The work ends with the handler, also if it panics.
            let _work = work;
            handler.take().into_iter().for_each(|handler| handler());
        };
        let (runnable, task) = async_task::spawn(call, move |runnable| shared.schedule(runnable, true));
        task.detach();
        runnable.schedule();
    }

    /// Spawns a future as a task of the loop. It is work until it has ended. If it panics, its handle returns the panic.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let work = self.work_guard();
        self.handle().spawn(async move {
            let _work = work;
            future.await
        })
    }

    /// Returns a timer on the loop's engine.
    #[must_use]
    pub fn timer(&self) -> Timer {
        Timer::on(self.engine())
    }

    /// Runs a handler in the loop when the timer expires or its wait is cancelled, exactly once. Until then it is work. The timer can be
    /// of any engine.
    ///
    /// When the call that ends the wait returns ([`Timer::cancel`], [`WaitHandle::cancel`], a new expiry, the timer's drop), the handler
    /// is ready: [`poll`](EventLoop::poll) runs it, and a handler that is posted afterwards runs after it. (One exception: if another
    /// thread is just ending waits of the same timer, because it expires or is cancelled there, that thread queues the handler, a moment
    /// later.)
    ///
    /// If the loop is gone by then, the handler runs where the callbacks of the loop's engine do: see [`Timer`].
    ///
    /// (A callback that is given to the timer itself is no handler of the loop: the timer's engine calls it.)
    pub fn on_expiry(&self, timer: &Timer, handler: impl FnOnce(Outcome) + Send + 'static) -> WaitHandle {
        let wait = timer.wait();
        let handle = wait.handle();
        let waiting = ExpiryTask { wait, handler: Some(handler), work: Some(self.work_guard()), is_begun: false };
        let shared = Arc::clone(self.handle().shared());
        let (runnable, task) = async_task::spawn(waiting, move |runnable| shared.schedule(runnable, true));
        task.detach();
        // This poll only leaves a waker with the wait: the thread that ends the wait queues the handler.
        let _woken = runnable.run();
        handle
    }

    /// Returns the engine of the loop's timers.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        self.inner.runtime.engine()
    }

    /// Returns the back end of the loop's threads: [`Backend::Epoll`].
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.inner.runtime.backend()
    }

    fn handle(&self) -> &Handle {
        self.inner.runtime.handle()
    }

    fn run_within(&self, limit: RunLimit) -> usize {
        let work = &self.inner.work;
        if context::has_worker() {
            return 0;
        }
        let Some(guard) = WorkerGuard::new(self.handle().shared(), Role::External) else { return 0 };
        let worker = guard.worker();
        let mut called = 0;
        while called < limit.handlers && !self.is_stopped() {
            let most = (limit.handlers - called).min(HANDLERS);
            let runs_one = || !self.is_stopped() && !limit.is_over() && worker.run_tasks(1) > 0;
            called += (0..most).take_while(|_| runs_one()).count();
            let more = worker.turn_timers().more;
            worker.reap();
            if limit.is_over() {
                break;
            }
            if more || worker.has_task() {
                continue;
            }
            if !limit.waits || work.count() == 0 {
                break;
            }
            if called < limit.handlers {
                worker.park(limit.until);
            }
        }
        called
    }
}

/// The number of handlers that run before the thread looks at its timers and sockets.
const HANDLERS: usize = 64;

impl RunLimit {
    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| until <= clock::now())
    }
}

impl<F: FnOnce(Outcome) + Send + 'static> Future for ExpiryTask<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let outcome = Pin::new(&mut self.wait).poll(context);
        match outcome {
            Poll::Pending => self.is_begun = true,
            Poll::Ready(_) if !self.is_begun => {
                self.is_begun = true;
                context.waker().wake_by_ref();
            }
            Poll::Ready(outcome) => {
                // The work ends with the handler, also if it panics.
                let _work = self.work.take();
                self.handler.take().into_iter().for_each(|handler| handler(outcome));
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}

/// Nothing in it is pinned.
impl<F: FnOnce(Outcome) + Send + 'static> Unpin for ExpiryTask<F> {}

impl<F: FnOnce(Outcome) + Send + 'static> Drop for ExpiryTask<F> {
    fn drop(&mut self) {
        let (Some(handler), Some(work)) = (self.handler.take(), self.work.take()) else { return };
        let poll = Pin::new(&mut self.wait).poll(&mut Context::from_waker(Waker::noop()));
        let outcome = if let Poll::Ready(outcome) = poll { outcome } else { Outcome::Stopped };
        // The call that ends the wait may be dropping this, and no handler may run inside of that call: the engine calls the handler of a
        // new wait, which ends at once.
        let _call = Timer::on(&work.shared.engine).on_expiry(move |_| handler(outcome));
    }
}

impl Drop for WorkGuard {
    fn drop(&mut self) {
        if self.work.end() == WorkLeft::None {
            self.shared.unpark_all();
        }
    }
}

impl fmt::Debug for EventLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLoop")
            .field("backend", &self.backend())
            .field("work", &self.inner.work.count())
            .field("is_stopped", &self.is_stopped())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for WorkGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkGuard").finish_non_exhaustive()
    }
}
