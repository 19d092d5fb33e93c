//! Tests in virtual time: `pause`, `advance`, `resume`.
//!
//! # Whose time
//!
//! [`pause`] gives virtual time to the Tokio runtime in whose context it is called (with the feature `tokio`; all its
//! threads), or else to the calling thread. Other threads join by [entering](crate::Engine::enter) the engine that
//! [`Engine::current`](crate::Engine::current) gives there. Tests that run side by side do not meet. A Tokio runtime whose own time
//! was stopped when it was built (`start_paused`) has virtual time here too.
//!
//! Where an engine is entered whose clock can be paused, as in the tasks of a runtime of `tourbillon-rt` that was built so, all
//! three functions act on that engine: its timers follow, also those that were made before [`pause`].
//!
//! Timers fire in the order of their deadlines, equal ones as they were armed, on any number of threads: virtual time has
//! one shard.
//!
//! # When it moves
//!
//! Virtual time moves by [`advance`]; and by itself to the next deadline, when every thread that has used it waits: for the
//! kernel's events or for another thread, not in a sleep or in input and output that blocks. A watcher on a thread of
//! its own finds that out from the kernel (`/proc`). On systems without that, time does not move by itself.

use std::cell::RefCell;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use tourbillon_queue::Span;

use super::watcher;
use crate::core::CoreRef;
use crate::{Clock, Driver, Engine, auto_advance};

/// Stops the time of this runtime or thread; see the [module](super) for whose. Timers that are made from now on, and
/// [`Instant::now`](super::Instant::now), follow the virtual time, which goes on from the real one.
///
/// Time that stands still is not stopped again: calling it twice does no harm.
///
/// Unlike Tokio's it works on any runtime, with any number of threads, and outside one. It does not stop Tokio's own timers.
///
/// # Panics
/// If an engine is entered on this thread whose clock cannot be paused: its timers would not follow.
///
/// ```
/// # #[cfg(target_os = "linux")] {
/// use std::time::Duration;
/// use tourbillon::time::{Instant, pause, sleep};
///
/// pause();
/// let start = Instant::now();
/// futures_lite::future::block_on(sleep(Duration::from_secs(86_400))); // at once: nobody else is at work
/// assert_eq!(start.elapsed(), Duration::from_secs(86_400));
/// # }
/// ```
pub fn pause() {
    if let Some(engine) = auto_advance::entered() {
        return auto_advance::pause(&engine);
    }
    auto_advance::expect_no_real_time();
    let engine = scope::get().unwrap_or_else(|| {
        let engine = virtual_engine();
        scope::set(engine.clone());
        engine
    });
    engine.clock().set(engine.clock().now());
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
    if let Some(engine) = auto_advance::entered() {
        return auto_advance::resume(&engine);
    }
    if let Some(engine) = scope::get().filter(|engine| engine.clock().stands_still()) {
        engine.clock().let_go();
    }
}

/// Moves virtual time forward; what comes due on the way is fired, each timer at its own time. Then the other tasks
/// get a turn before it returns.
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
/// Time is moved at the first poll, all of the way. Dropped after that, only the turn of the other tasks is given up.
///
/// # Panics
/// If time does not stand still: call [`pause`] before.
pub async fn advance(duration: Duration) {
    let entered = auto_advance::entered();
    let engine = entered.or_else(scope::get).filter(|engine| engine.clock().stands_still());
    let Some(engine) = engine else { panic!("time is not paused, so it cannot be advanced: call `pause` first") };
    let to = engine.clock().now() + Span::from(duration);
    if engine.clock().is_pausable() {
        engine.core().advance_paused(to);
    } else {
        engine.core().advance(to);
    }
    let mut yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The core of the virtual engine that is in force here, unless another engine was entered.
pub(crate) fn current_core() -> Option<CoreRef> {
    let in_use = IN_USE.load(Ordering::Relaxed) || cfg!(feature = "tokio");
    if !in_use || crate::home::has_entered() {
        return None;
    }
    scope::get().map(|engine| engine.core().clone())
}

/// Whether there ever was virtual time in this process.
static IN_USE: AtomicBool = AtomicBool::new(false);

fn virtual_engine() -> Engine {
    let engine = Engine::builder().clock(Clock::manual()).driver(Driver::external()).shards(1).build();
    let engine = engine.expect("an engine with a manual clock needs nothing that could fail");
    engine.core().is_virtual.store(true, Ordering::Relaxed);
    IN_USE.store(true, Ordering::Relaxed);
    // The first who asks the kernel for this waits for some milliseconds, and whoever asks meanwhile waits for that thread. The
    // watcher would take it for idle.
    crate::barrier::find_out();
    watcher::spawn(engine.core().clone());
    engine
}

/// Where virtual engines are kept.
mod scope {
    use super::*;

    thread_local! {
        static OF_THREAD: RefCell<Option<Engine>> = const { RefCell::new(None) };
    }

    pub(super) fn get() -> Option<Engine> {
        #[cfg(feature = "tokio")]
        if let Some(runtime) = of_runtimes::current() {
            return of_runtimes::get(runtime).or_else(|| of_runtimes::follow(runtime));
        }
        OF_THREAD.try_with(|engine| engine.borrow().clone()).ok().flatten()
    }

    pub(super) fn set(engine: Engine) {
        #[cfg(feature = "tokio")]
        if let Some(runtime) = of_runtimes::current() {
            return of_runtimes::set(runtime, engine);
        }
        OF_THREAD.set(Some(engine));
    }

    #[cfg(feature = "tokio")]
    mod of_runtimes {
        use std::cell::Cell;
        use std::collections::HashMap;
        use std::sync::{LazyLock, PoisonError, RwLock};
        use std::time::Instant;

        use tokio::runtime::{Handle, Id};

        use crate::Engine;

        static ENGINES: LazyLock<RwLock<HashMap<Id, Engine>>> = LazyLock::new(RwLock::default);

        pub(super) fn current() -> Option<Id> {
            Handle::try_current().ok().map(|handle| handle.id())
        }

        pub(super) fn get(runtime: Id) -> Option<Engine> {
            ENGINES.read().unwrap_or_else(PoisonError::into_inner).get(&runtime).cloned()
        }

        /// A virtual engine for a runtime whose own time stands still: one built with `start_paused`.
        pub(super) fn follow(runtime: Id) -> Option<Engine> {
            thread_local! {
                /// The last runtime of this thread whose time was found to run.
                static RUNS: Cell<Option<Id>> = const { Cell::new(None) };
            }
            if RUNS.get() == Some(runtime) {
                return None;
            }
            if !stands_still() {
                RUNS.set(Some(runtime));
                return None;
            }
            let engine = super::super::virtual_engine();
            set(runtime, engine.clone());
            Some(engine)
        }

        /// Whether the time of the current runtime stands still. It does not say so, but it can be watched.
        fn stands_still() -> bool {
            let (theirs, real) = (tokio::time::Instant::now(), Instant::now());
            while Instant::now() == real {}
            tokio::time::Instant::now() == theirs
        }

        pub(super) fn set(runtime: Id, engine: Engine) {
            ENGINES.write().unwrap_or_else(PoisonError::into_inner).insert(runtime, engine);
            let resident = Resident(runtime);
            Handle::current().spawn(async move {
                let _resident = resident;
                std::future::pending::<()>().await;
            });
        }

        /// Lives in a task of the runtime, and so goes with the runtime; the engine goes then too.
        struct Resident(Id);

        impl Drop for Resident {
            fn drop(&mut self) {
                // The engine's shutdown wakes tasks, so it happens outside the lock.
                let engine = ENGINES.write().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
                drop(engine);
            }
        }
    }
}
