//! Tests in virtual time: `pause`, `advance`, `resume`.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tourbillon_queue::Span;

#[cfg(feature = "tokio")]
use super::runtimes;
use super::{IN_USE, threads, watcher};
use crate::core::Core;
use crate::core::thread_shard;
use crate::driver::ClockAdvance;
use crate::virtual_time::auto_advance as paused_runtime;
use crate::{Clock, Driver, Engine};

/// Whose time it is, where a function of this module is called.
enum Scope {
    /// An engine on a manual clock.
    Manual(Engine),
    /// That of a current-thread Tokio runtime.
    #[cfg(feature = "tokio")]
    Runtime(Engine),
}

impl Scope {
    /// `None`: time was never paused here.
    fn current() -> Option<Scope> {
        if let Some(engine) = thread_shard::with_entered(Engine::of) {
            #[cfg(feature = "tokio")]
            if engine.clock().runtime().is_some() {
                return Some(Scope::Runtime(engine));
            }
            if engine.clock().is_manual() {
                return Some(Scope::Manual(engine));
            }
        }
        #[cfg(feature = "tokio")]
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // With its engine made, if need be.
            runtimes::core_of(&runtime)?;
            let engine = runtimes::find(runtime.id())??;
            let has_clock = engine.clock().runtime().is_some();
            return Some(if has_clock { Scope::Runtime(engine) } else { Scope::Manual(engine) });
        }
        threads::engine().map(Scope::Manual)
    }

    /// The same, with an engine made for what has none.
    fn current_or_new() -> Scope {
        Scope::current().unwrap_or_else(|| {
            super::tell_of_earlier_timers();
            let built = super::builder(Clock::manual()).driver(Driver::external()).build_untraced();
            let built = built.expect("an engine with a manual clock needs nothing that could fail");
            #[cfg(feature = "tokio")]
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                assert!(!runtimes::has_clock(&runtime), "{}", runtimes::NO_TIME_DRIVER);
                let engine = runtimes::set(&runtime, built).expect(runtimes::NO_TIME_DRIVER);
                return Scope::Manual(engine);
            }
            threads::set(built.engine().clone());
            Scope::Manual(built.trace())
        })
    }

    fn is_paused(&self) -> bool {
        match self {
            Scope::Manual(engine) => engine.clock().is_paused(),
            #[cfg(feature = "tokio")]
            Scope::Runtime(engine) => engine.clock().runtime().is_some_and(|clock| clock.is_paused()),
        }
    }

    fn core(&self) -> &Core {
        match self {
            Scope::Manual(engine) => engine.core(),
            #[cfg(feature = "tokio")]
            Scope::Runtime(engine) => engine.core(),
        }
    }
}

/// Stops time: that of the current-thread Tokio runtime in whose context it is called, of the Tokio runtime with several workers, or else
/// of the calling thread. [`Instant::now`](crate::time::Instant::now) and all timers follow it.
///
/// In a current-thread Tokio runtime this is `tokio::time::pause`, and the other way round: the runtime's clock is stopped, the timers of
/// both crates follow it, those that were made before too, and Tokio moves it to the next deadline whenever the runtime has nothing to
/// do. Elsewhere [`advance`] moves time; the guide "Testing with virtual time" lists what else does.
///
/// Time that stands still is not stopped again: calling it twice does no harm.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::time::{Instant, pause, sleep};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// pause();
/// let start = Instant::now();
/// sleep(Duration::from_secs(86_400)).await; // at once
/// assert_eq!(start.elapsed(), Duration::from_secs(86_400));
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Elsewhere, timers made before stay on the real clock
/// On a thread outside Tokio, and in a runtime with several workers, virtual time begins with this call. If the calling thread has armed
/// timers before, a note on the standard error stream says that those do not follow.
///
/// Where an engine is [entered](Engine::enter) whose clock can be moved, as in the tasks of a paused runtime of `tourbillon-rt`, all
/// functions of this module act on that engine.
///
/// # Panics
/// If an engine is entered on this thread whose clock cannot be paused: its timers would not follow. And in a current-thread Tokio runtime
/// that was built without `enable_time`, whose clock nothing could move.
pub fn pause() {
    paused_runtime::expect_no_real_time();
    let scope = Scope::current_or_new();
    IN_USE.store(true, Ordering::Relaxed);
    match &scope {
        Scope::Manual(engine) if engine.clock().is_pausable() => paused_runtime::pause(engine),
        Scope::Manual(engine) => engine.clock().set(engine.clock().now()),
        #[cfg(feature = "tokio")]
        Scope::Runtime(_) if scope.is_paused() => {}
        #[cfg(feature = "tokio")]
        Scope::Runtime(engine) => in_runtime(engine, tokio::time::pause),
    }
}

/// CallbackQueue a function of Tokio's for the runtime that has this engine.
#[cfg(feature = "tokio")]
fn in_runtime(engine: &Engine, call: fn()) {
    let _context = engine.clock().runtime().map(|clock| clock.runtime().enter());
    call();
}

/// Lets virtual time run on, as fast as real time. Does nothing where time was not stopped.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::time::{Instant, pause, resume};
///
/// pause();
/// let start = Instant::now();
/// std::thread::sleep(Duration::from_millis(2));
/// assert_eq!(start.elapsed(), Duration::ZERO);
/// resume();
/// std::thread::sleep(Duration::from_millis(2));
/// assert!(start.elapsed() >= Duration::from_millis(2));
/// ```
pub fn resume() {
    match Scope::current().filter(Scope::is_paused) {
        Some(Scope::Manual(engine)) if engine.clock().is_pausable() => paused_runtime::resume(&engine),
        Some(Scope::Manual(engine)) => {
            engine.clock().resume();
            watcher::start(engine.core());
        }
        #[cfg(feature = "tokio")]
        Some(Scope::Runtime(engine)) => in_runtime(&engine, tokio::time::resume),
        None => {}
    }
}

/// Moves virtual time forward by `duration`.
///
/// What comes due on the way is fired, each timer at its own time: callbacks of [`Timer`](crate::Timer) and
/// [`NamedTimers`](crate::NamedTimers) are called and runs of a [`Scheduler`](crate::Scheduler) made while the clock shows the time
/// for which they were due, and they have ended before time moves on. (Of a run that is a future, as much as can be done without waiting.)
/// Tasks whose sleeps come due on the way run afterwards, as with `tokio::time::advance`, when the clock shows the end of the way; they get
/// a turn before this returns.
///
/// ```
/// use std::pin::pin;
/// use std::time::Duration;
/// use tourbillon::time::{advance, pause, sleep};
///
/// # futures_lite::future::block_on(async {
/// pause();
/// let mut tea = pin!(sleep(Duration::from_secs(180)));
/// assert!(futures_lite::future::poll_once(tea.as_mut()).await.is_none()); // a sleep is armed by its first poll
/// advance(Duration::from_secs(180)).await;
/// assert!(tea.is_elapsed());
/// # });
/// ```
///
/// # Cancel safety
/// Unless something runs on other threads on the way, time is moved at the first poll, all of the way. Dropped before it has ended, it
/// leaves time where it has come to.
///
/// # Panics
/// If time does not stand still: call [`pause`] before.
pub async fn advance(duration: Duration) {
    let scope = Scope::paused();
    let core = scope.core();
    let mut clock_advance = ClockAdvance::to(core, core.clock.now() + Span::from(duration));
    poll_fn(|context| core.poll_work(context)).await;
    while clock_advance.step() {
        poll_fn(|context| core.poll_work(context)).await;
    }
    scope.let_others_run().await;
}

/// [`advance`] for code without an executor: returns when what came due on the way has been fired, called and made.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Scheduler;
/// use tourbillon::time::{blocking_advance, pause};
///
/// pause();
/// let jobs: Scheduler<&str> = Scheduler::builder().build()?;
/// jobs.schedule("beat", Duration::from_secs(60), |_: &_| {})?;
/// blocking_advance(Duration::from_secs(600));
/// assert_eq!(jobs.report(&"beat").unwrap().runs, 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// If time does not stand still: call [`pause`] before.
pub fn blocking_advance(duration: Duration) {
    let scope = Scope::paused();
    let core = scope.core();
    let mut clock_advance = ClockAdvance::to(core, core.clock.now() + Span::from(duration));
    core.wait_for_work();
    while clock_advance.step() {
        core.wait_for_work();
    }
}

/// Runs a future on this thread in virtual time: when it waits, and nothing has woken it, time moves to the next deadline. For tests that
/// need no executor, or whose executor is a future as well, such as `smol::LocalExecutor::run`.
///
/// This is exact for everything that runs inside the future. It sees callbacks and job runs on the threads of this crate, too, and waits
/// for them; but not other threads of the program: time moves on while one of those works.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::time::{self, Instant};
///
/// let slept = time::run(async {
///     let start = Instant::now();
///     time::sleep(Duration::from_secs(86_400)).await;
///     start.elapsed()
/// });
/// assert_eq!(slept, Duration::from_secs(86_400));
/// ```
///
/// Time on this thread stands still afterwards.
///
/// # Panics
/// In the context of a Tokio runtime: `tokio::test(start_paused = true)` does the same there.
pub fn run<F: Future>(future: F) -> F::Output {
    pause();
    let scope = Scope::paused();
    #[cfg(feature = "tokio")]
    assert!(
        tokio::runtime::Handle::try_current().is_err(),
        "`run` cannot be used in a Tokio runtime, which moves its own clock: use `#[tokio::test(start_paused = true)]`"
    );
    let woken = Arc::new(Woken { is_woken: AtomicBool::new(false), thread: std::thread::current() });
    let waker = Waker::from(woken.clone());
    let mut future = pin!(future);
    loop {
        crate::coop::refill();
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        scope.core().wait_for_work();
        if woken.is_woken.swap(false, Ordering::SeqCst) {
            continue;
        }
        let next = scope.core().next_step();
        if next.is_never() {
            // It waits for another thread.
            std::thread::park();
        } else {
            scope.core().step_to(next);
        }
    }
}

/// Lets the virtual time of this runtime or thread also move by itself: to the next deadline, when every thread that has made or polled a
/// timer of it waits for the kernel's events or for another thread.
///
/// A current-thread Tokio runtime does so anyway, exactly: there this does nothing. Elsewhere a watcher on a thread of its own finds
/// out from the kernel (`/proc`, on Linux only) what the threads do. It cannot see:
///
/// - threads that have not used this virtual time, but for a moment after it has moved: work in `spawn_blocking`, in a
///   thread pool, or in another process;
/// - that a thread which seems to wait is about to be given what it waits for by such work.
///
/// Where that matters, move time by [`advance`]. A step takes some hundred microseconds.
///
/// # Panics
/// If time does not stand still: call [`pause`] before.
pub fn auto_advance() {
    if let Scope::Manual(engine) = Scope::paused() {
        // The first thread that asks the kernel for this waits for some milliseconds, and the watcher would take it for idle.
        crate::shard::asymmetric_fence::find_out();
        engine.core().watch.enable_auto_advance();
        watcher::start(engine.core());
    }
}

impl Scope {
    /// With time that stands still.
    #[track_caller]
    fn paused() -> Scope {
        let scope = Scope::current().filter(Scope::is_paused);
        scope.expect("time is not paused, so it cannot be advanced: call `pause` first")
    }

    /// Yields, so that tasks that were woken run.
    async fn let_others_run(&self) {
        // So does `tokio::time::advance`: Tokio's driver fires its own timers meanwhile. (The future of `block_on` comes before the
        // tasks that those wake. Hence the other yield.)
        #[cfg(feature = "tokio")]
        if let Scope::Runtime(_) = self {
            tokio::task::yield_now().await;
        }
        let mut has_yielded = false;
        poll_fn(|context| {
            if std::mem::replace(&mut has_yielded, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

/// A thread that waits in [`run`].
struct Woken {
    is_woken: AtomicBool,
    thread: std::thread::Thread,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}
