//! The functions by which tests control virtual time: `pause`, `advance`, `resume`, `run`, `auto_advance`.

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
#[cfg(feature = "tokio")]
use crate::clock::TokioClock;
use crate::core::Core;
use crate::core::thread_shard;
use crate::driver::ClockAdvance;
use crate::virtual_time::auto_advance as paused_runtime;
use crate::{Clock, Driver, Engine};

/// The engine whose time a function of this module controls where it is called.
enum TimeScope {
    /// An engine on a manual clock.
    Manual(Engine),
    /// The engine of a current-thread Tokio runtime, on the runtime's clock.
    #[cfg(feature = "tokio")]
    Runtime(Engine),
}

impl TimeScope {
    /// Returns the scope of the calling thread; `None` if time was never paused here.
    fn current() -> Option<TimeScope> {
        if let Some(engine) = thread_shard::with_entered(Engine::of) {
            #[cfg(feature = "tokio")]
            if engine.clock().as_tokio().is_some() {
                return Some(TimeScope::Runtime(engine));
            }
            if engine.clock().is_manual() {
                return Some(TimeScope::Manual(engine));
            }
        }
        #[cfg(feature = "tokio")]
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // Makes the runtime's engine, if it needs one.
            runtimes::core_of(&runtime)?;
            let engine = runtimes::find(runtime.id())??;
            let is_on_runtime_clock = engine.clock().as_tokio().is_some();
            return Some(if is_on_runtime_clock { TimeScope::Runtime(engine) } else { TimeScope::Manual(engine) });
        }
        threads::engine().map(TimeScope::Manual)
    }

    /// Returns the scope of the calling thread, and makes an engine on a manual clock if there is none.
    fn current_or_new() -> TimeScope {
        TimeScope::current().unwrap_or_else(|| {
            super::warn_of_earlier_timers();
            let built = super::builder(Clock::manual()).driver(Driver::external()).build_untraced();
            let built = built.expect("an engine with a manual clock needs nothing that could fail");
            #[cfg(feature = "tokio")]
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                assert!(!runtimes::can_be_paused(&runtime), "{}", runtimes::NO_TIME_DRIVER);
                let engine = runtimes::set(&runtime, built).expect(runtimes::NO_TIME_DRIVER);
                return TimeScope::Manual(engine);
            }
            threads::set(built.engine().clone());
            TimeScope::Manual(built.trace())
        })
    }

    fn is_paused(&self) -> bool {
        match self {
            TimeScope::Manual(engine) => engine.clock().is_paused(),
            #[cfg(feature = "tokio")]
            TimeScope::Runtime(engine) => engine.clock().as_tokio().is_some_and(TokioClock::is_paused),
        }
    }

    fn core(&self) -> &Core {
        match self {
            TimeScope::Manual(engine) => engine.core(),
            #[cfg(feature = "tokio")]
            TimeScope::Runtime(engine) => engine.core(),
        }
    }
}

/// Stops time: that of the Tokio runtime in whose context it is called, or else that of the calling thread.
/// [`Instant::now`](crate::time::Instant::now) and all timers follow.
///
/// In a current-thread Tokio runtime this does the same as `tokio::time::pause`: the runtime's clock is stopped, the timers of both crates
/// follow it, also those that were made before, and Tokio moves it to the next deadline whenever the runtime has nothing to do. Elsewhere
/// [`advance`] moves time; the guide "Testing with virtual time" lists the other ways.
///
/// Does nothing if time stands still already.
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
/// timers before, a note on the standard error stream says that those timers do not follow.
///
/// If the calling thread has [entered](Engine::enter) an engine whose clock can be moved, as in the tasks of a paused runtime of
/// `tourbillon-rt`, all functions of this module act on that engine.
///
/// # Panics
/// If the engine that is entered on this thread has a clock that cannot be paused, because its timers would not follow. And in a
/// current-thread Tokio runtime that was built without `enable_time`, because nothing could move its clock.
pub fn pause() {
    paused_runtime::expect_no_real_time();
    let scope = TimeScope::current_or_new();
    IN_USE.store(true, Ordering::Relaxed);
    match &scope {
        TimeScope::Manual(engine) if engine.clock().is_pausable() => paused_runtime::pause(engine),
        TimeScope::Manual(engine) => engine.clock().set(engine.clock().now()),
        #[cfg(feature = "tokio")]
        TimeScope::Runtime(_) if scope.is_paused() => {}
        #[cfg(feature = "tokio")]
        TimeScope::Runtime(engine) => in_runtime(engine, tokio::time::pause),
    }
}

/// Calls a function of Tokio in the context of the runtime that has this engine.
#[cfg(feature = "tokio")]
fn in_runtime(engine: &Engine, call: fn()) {
    let _context = engine.clock().as_tokio().map(|clock| clock.runtime().enter());
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
    match TimeScope::current().filter(TimeScope::is_paused) {
        Some(TimeScope::Manual(engine)) if engine.clock().is_pausable() => paused_runtime::resume(&engine),
        Some(TimeScope::Manual(engine)) => {
            engine.clock().resume();
            watcher::start(engine.core());
        }
        #[cfg(feature = "tokio")]
        Some(TimeScope::Runtime(engine)) => in_runtime(&engine, tokio::time::resume),
        None => {}
    }
}

/// Moves virtual time forward by `duration`.
///
/// Each timer that comes due meanwhile fires at its own time: callbacks of [`Timer`](crate::Timer) and [`NamedTimers`](crate::NamedTimers) and
/// runs of a [`Scheduler`](crate::Scheduler) run while the clock shows the time at which they were due, and end before time moves on. (A run
/// that is a future gets as far as it can without waiting.) Tasks whose sleeps come due meanwhile run afterwards, as with
/// `tokio::time::advance`, when the clock shows the end of `duration`; they are polled before this returns.
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
/// The first poll moves time by the whole `duration`, unless callbacks or job runs are under way on other threads. If the future is dropped
/// before it has ended, time stays where it has moved to.
///
/// # Panics
/// If time does not stand still: call [`pause`] first.
pub async fn advance(duration: Duration) {
    let scope = TimeScope::paused();
    let core = scope.core();
    let mut advance = ClockAdvance::to(core, core.clock.now() + Span::from(duration));
    poll_fn(|context| core.poll_work(context)).await;
    while advance.step() {
        poll_fn(|context| core.poll_work(context)).await;
    }
    scope.let_others_run().await;
}

/// Moves virtual time forward by `duration`, for code without an executor. Returns when all timers that came due have fired, and their
/// callbacks and job runs have ended.
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
/// If time does not stand still: call [`pause`] first.
pub fn blocking_advance(duration: Duration) {
    let scope = TimeScope::paused();
    let core = scope.core();
    let mut advance = ClockAdvance::to(core, core.clock.now() + Span::from(duration));
    core.wait_for_work();
    while advance.step() {
        core.wait_for_work();
    }
}

/// Runs a future on this thread in virtual time: when the future waits and has not been woken, time moves to the next deadline. For tests
/// that need no executor, or whose executor is a future as well, such as `smol::LocalExecutor::run`.
///
/// This is exact for everything that runs inside the future. It also waits for callbacks and job runs on the threads of this crate, but not
/// for other threads of the program: time moves on while one of those works.
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
    let scope = TimeScope::paused();
    #[cfg(feature = "tokio")]
    assert!(
        tokio::runtime::Handle::try_current().is_err(),
        "`run` cannot be used in a Tokio runtime, which moves its own clock: use `#[tokio::test(start_paused = true)]`"
    );
    let wake = Arc::new(UnparkOnWake { is_woken: AtomicBool::new(false), thread: std::thread::current() });
    let waker = Waker::from(wake.clone());
    let mut future = pin!(future);
    loop {
        crate::coop::refill();
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        scope.core().wait_for_work();
        if wake.is_woken.swap(false, Ordering::SeqCst) {
            continue;
        }
        let next = scope.core().next_step();
        if next.is_never() {
            // The future waits for another thread.
            std::thread::park();
        } else {
            scope.core().step_to(next);
        }
    }
}

/// Makes the virtual time of this runtime or thread move by itself: to the next deadline, when every thread that has used its timers waits
/// for events of the kernel or for another thread.
///
/// A current-thread Tokio runtime does so anyway, exactly: there this does nothing. Elsewhere a watcher thread reads from the kernel
/// (`/proc`, on Linux only) whether the threads wait. It cannot see:
///
/// - threads that have not used this virtual time, except for a moment after it has moved: work in `spawn_blocking`, in a
///   thread pool, or in another process;
/// - that such work is about to wake a thread that waits.
///
/// Where that matters, move time by [`advance`]. A step takes some hundred microseconds.
///
/// # Panics
/// If time does not stand still: call [`pause`] first. And where the system does not tell which threads wait, because time would stand still
/// for ever: see [`can_auto_advance`].
pub fn auto_advance() {
    if let TimeScope::Manual(engine) = TimeScope::paused() {
        if let Err(why) = watcher::visibility() {
            panic!("virtual time cannot move by itself here: {why}. Move it by `advance`");
        }
        // The first thread that uses the fence waits for some milliseconds, and the watcher would take it for idle.
        crate::shard::asymmetric_fence::find_out();
        engine.core().watch.enable_auto_advance();
        watcher::start(engine.core());
    }
}

/// Returns whether [`auto_advance`] works here outside a current-thread Tokio runtime: on Linux, if `/proc` shows in which system calls the
/// threads of this process wait. It does not under Miri, and not in every sandbox.
#[must_use]
pub fn can_auto_advance() -> bool {
    watcher::visibility().is_ok()
}

impl TimeScope {
    /// Returns the scope of the calling thread, whose time stands still.
    #[track_caller]
    fn paused() -> TimeScope {
        let scope = TimeScope::current().filter(TimeScope::is_paused);
        scope.expect("time is not paused, so it cannot be advanced: call `pause` first")
    }

    /// Yields, so that tasks that were woken run.
    async fn let_others_run(&self) {
        // As `tokio::time::advance` does: Tokio's driver fires its own timers meanwhile. (The future of `block_on` runs before the tasks
        // that those wake. Hence the other yield.)
        #[cfg(feature = "tokio")]
        if let TimeScope::Runtime(_) = self {
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

/// A waker for a thread that is parked in [`run`].
struct UnparkOnWake {
    is_woken: AtomicBool,
    thread: std::thread::Thread,
}

impl Wake for UnparkOnWake {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}
