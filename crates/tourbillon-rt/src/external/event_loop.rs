//! An event loop that threads of the user's run as long as there is work (A9).
//!
//! It is a runtime without workers. Whoever calls `run` takes a worker_shared of it, with a reactor. Handlers and tasks are in the global
//! queue, so any thread that runs the loop takes the next; timers are watched by the engine's driver, since a handler may
//! block its thread as it likes.
//!
//! *WorkCount* is whatever may still lead to a handler: one that was posted or runs, a wait for a timer, a task that has not ended, a
//! [`WorkGuard`]. Each of these holds a guard; when the last one goes, all who run the loop are called, and return.

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
use crate::sync::Fragile;
use crate::task::JoinHandle;

/// Runs handlers, on the threads that call [`run`](EventLoop::run), as long as there is work.
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
/// are called by who runs the loop, never by who posts them, one after the other on one thread, on several threads at the
/// same time. One that panics takes `run` with it, on its thread; the loop goes on as it was, on others and when `run` is called
/// again.
///
/// # I/O
/// A task of the loop ([`spawn`](EventLoop::spawn)) can use all of [`net`](crate::net) and `tourbillon::time`.
///
/// Its clones are the same loop. With the last, handlers that were posted and have not been called are dropped, and timers of the loop's
/// engine end as stopped; the handlers of pending waits are then called where the engine's callbacks are.
#[derive(Clone)]
pub struct EventLoop {
    inner: Arc<LoopShared>,
}

/// Keeps an [`EventLoop`] running as long as it lives.
pub struct WorkGuard {
    work: Arc<WorkCount>,
    shared: Arc<RuntimeShared>,
}

struct LoopShared {
    runtime: Runtime,
    work: Arc<WorkCount>,
}

/// A wait for a timer, as a task of the loop: its second poll calls the handler. If there is none, because the loop is gone, the handler
/// is called all the same (D28).
struct ExpiryTask<F: FnOnce(Outcome) + Send + 'static> {
    wait: Wait,
    handler: Option<F>,
    work: Option<WorkGuard>,
    /// It has been polled inside `on_expiry`, where no handler is called (A11).
    is_begun: bool,
}

/// How long to run it.
struct RunLimit {
    handlers: usize,
    until: Option<Time>,
    /// Whether to wait for handlers that are not ready yet.
    waits: bool,
}

impl EventLoop {
    /// One with the back end that can be had.
    ///
    /// # Errors
    /// The system refuses file descriptors, or the thread for timers while nobody runs the loop.
    pub fn new() -> Result<EventLoop, BuildError> {
        EventLoop::with_backend(Backend::Auto)
    }

    /// One with this back end; the environment variable `TOURBILLON_BACKEND` overrides it.
    ///
    /// # Errors
    /// Also if that back end cannot be had.
    pub fn with_backend(backend: Backend) -> Result<EventLoop, BuildError> {
        let runtime = Runtime::builder().workers(0).serves_external_threads().backend(backend).build()?;
        Ok(EventLoop { inner: Arc::new(LoopShared { runtime, work: Arc::default() }) })
    }

    /// Calls handlers until there is no work any more, or the loop is [stopped](EventLoop::stop). Returns how many; each time that a
    /// task is resumed counts as one.
    ///
    /// Any number of threads can run one loop. Within one of its handlers, or any other runtime, it returns zero at once.
    ///
    /// # Panics
    /// With what a handler panics.
    pub fn run(&self) -> usize {
        self.run_within(RunLimit { handlers: usize::MAX, until: None, waits: true })
    }

    /// Calls one handler, and waits for it if need be. Zero: there is no work, or the loop is stopped.
    ///
    /// # Panics
    /// With what the handler panics.
    pub fn run_one(&self) -> usize {
        self.run_within(RunLimit { handlers: 1, until: None, waits: true })
    }

    /// Calls handlers for so long; not beyond the end of all work.
    ///
    /// # Panics
    /// With what a handler panics.
    pub fn run_for(&self, duration: Duration) -> usize {
        let until = clock::now() + Span::from(duration);
        self.run_within(RunLimit { handlers: usize::MAX, until: Some(until), waits: true })
    }

    /// Calls handlers until then; not beyond the end of all work.
    ///
    /// # Panics
    /// With what a handler panics.
    pub fn run_until(&self, deadline: Instant) -> usize {
        self.run_for(deadline.saturating_duration_since(Instant::now()))
    }

    /// Calls the handlers that are ready, and waits for none. That of a timer is ready when the loop's engine has seen that it has
    /// expired, some microseconds later, and that of a cancelled wait when the cancel returns.
    ///
    /// # Panics
    /// With what a handler panics.
    pub fn poll(&self) -> usize {
        self.run_within(RunLimit { handlers: usize::MAX, until: None, waits: false })
    }

    /// Calls one handler if one is ready.
    ///
    /// # Panics
    /// With what the handler panics.
    pub fn poll_one(&self) -> usize {
        self.run_within(RunLimit { handlers: 1, until: None, waits: false })
    }

    /// Makes all who run the loop return, after the handlers that they are in. From then on nobody runs it, until it is
    /// [restarted](EventLoop::restart).
    pub fn stop(&self) {
        self.inner.work.stop();
        self.handle().shared().unpark_all();
    }

    /// Whether it has been stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.inner.work.is_stopped()
    }

    /// Lets it be run again. (After it has run out of work, that is not needed.)
    pub fn restart(&self) {
        self.inner.work.restart();
    }

    /// WorkCount that keeps the loop running until the guard is dropped.
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

    /// Has a handler called by who runs the loop.
    pub fn post(&self, handler: impl FnOnce() + Send + 'static) {
        let work = self.work_guard();
        let shared = Arc::clone(self.handle().shared());
        let handler = Fragile::new(handler);
        let call = async move {
            // Also if it panics.
            let _work = work;
            handler.take().into_iter().for_each(|handler| handler());
        };
        let (runnable, task) = async_task::spawn(call, move |runnable| shared.schedule(runnable, true));
        task.detach();
        runnable.schedule();
    }

    /// Makes a task of a future, resumed by who runs the loop. It is work until it has ended. What it panics with comes out of its
    /// handle.
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

    /// A timer on the loop's engine.
    #[must_use]
    pub fn timer(&self) -> Timer {
        Timer::on(self.engine())
    }

    /// Has a handler called by who runs the loop when the timer expires, or its wait is cancelled; exactly once. Until then it is
    /// work. The timer can be of any engine.
    ///
    /// When the call returns that ends the wait ([`Timer::cancel`], [`WaitHandle::cancel`], a new expiry, the timer's drop), the
    /// handler is ready: [`poll`](EventLoop::poll) calls it, and a handler that is posted afterwards is called after it. (Unless another
    /// thread is just telling waits of the same timer, because it expires or is cancelled there: then that thread queues it, a moment
    /// later.)
    ///
    /// If the loop is gone by then, the handler is called where the callbacks of the loop's engine are: see [`Timer`].
    ///
    /// (A callback that is given to the timer itself is no handler of the loop: it is called where the timer's engine calls.)
    pub fn on_expiry(&self, timer: &Timer, handler: impl FnOnce(Outcome) + Send + 'static) -> WaitHandle {
        let wait = timer.wait();
        let handle = wait.handle();
        let waiting = ExpiryTask { wait, handler: Some(handler), work: Some(self.work_guard()), is_begun: false };
        let shared = Arc::clone(self.handle().shared());
        let (runnable, task) = async_task::spawn(waiting, move |runnable| shared.schedule(runnable, true));
        task.detach();
        // Here it only leaves its waker with the wait: the thread that ends the wait queues the handler.
        let _woken = runnable.run();
        handle
    }

    /// The engine of the loop's timers.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        self.inner.runtime.engine()
    }

    /// The back end that was taken.
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
            let keep_watching = || !self.is_stopped() && !limit.is_over() && worker.run_tasks(1) > 0;
            called += (0..most).take_while(|_| keep_watching()).count();
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

/// So many handlers are called before timers and sockets get their turn.
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
                // It ends with the handler, also if that panics.
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
        // The call that ends the wait may be what drops this, and no handler is called inside of that: a wait that ends at once has
        // the engine call it.
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
