//! Which engine a timer belongs to where time is virtual.
//!
//! | where | engine | its clock |
//! |---|---|---|
//! | in the context of a current-thread Tokio runtime | one for each runtime | that of the runtime: Tokio's `pause`, `advance` and auto-advance govern it |
//! | in the context of a Tokio runtime with several workers, after `pause` | one for each runtime | a manual clock, which [`advance`](api::advance) moves |
//! | on a thread without a Tokio context, after `pause` | one for each thread | a manual clock, which [`advance`](api::advance) moves |
//!
//! With the feature `test-util` a current-thread runtime has its engine from the first timer on, so that timers made before `pause` follow
//! it. Without it a program pays for nothing of this: a runtime gets an engine if its clock stands still when a thread makes its first
//! timer there (`start_paused`), so that a test of a program that depends on a library that uses this crate follows Tokio's clock. (A debug
//! build looks at every timer.) From then on every timer of the process looks which runtime it is made in.

#[cfg(feature = "test-util")]
mod api;
#[cfg(feature = "test-util")]
pub(crate) mod auto_advance;
#[cfg(feature = "tokio")]
mod runtimes;
#[cfg(feature = "test-util")]
pub(crate) mod simulated_thread;
#[cfg(feature = "test-util")]
mod threads;
#[cfg(feature = "test-util")]
mod watcher;

use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(feature = "test-util")]
pub use self::api::{advance, auto_advance, blocking_advance, pause, resume, run};
use crate::core::CoreRef;
use crate::core::thread_shard;
use crate::{Builder, Clock, Engine, QueueKind};

/// Whether some clock of this process is or was virtual.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// Whether a current-thread Tokio runtime has an engine of its own even while its clock runs.
const ALWAYS: bool = cfg!(all(feature = "test-util", feature = "tokio"));

/// Whether time may be virtual here: whether each timer has to [look](look).
#[inline(always)]
pub(crate) fn is_possible() -> bool {
    ALWAYS || cfg!(debug_assertions) || IN_USE.load(Ordering::Relaxed)
}

/// The core of the engine that a timer made here belongs to because time is virtual here, if it is. An engine that the thread has entered
/// comes first.
pub(crate) fn look() -> Option<CoreRef> {
    if thread_shard::has_entered() {
        return None;
    }
    #[cfg(feature = "tokio")]
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        return runtimes::core_of(&runtime);
    }
    #[cfg(feature = "test-util")]
    return threads::core();
    #[cfg(not(feature = "test-util"))]
    None
}

/// An engine for virtual time: with one shard, so that timers fire in order, and a heap, which knows its next deadline after each change
/// without a search.
fn builder(clock: Clock) -> Builder {
    Engine::builder().clock(clock).shards(1).queue(QueueKind::Heap).exact()
}

/// Tells on the standard error stream of timers that do not follow a virtual clock: the first of them on each thread.
///
/// Nothing else can be done: which thread was meant to follow which clock, only the program knows.
#[cold]
pub(crate) fn tell_of_real_time() {
    if IN_USE.load(Ordering::Relaxed) {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("without a name");
        eprintln!(
            "tourbillon: the timers of thread `{name}` follow the real clock, while time is virtual elsewhere in this process. If they \
             should follow that time, add `let _entered = engine.enter();` on this thread, with `let engine = \
             tourbillon::Engine::current();` from where time is virtual"
        );
    }
}

/// Tells of timers that were armed before their thread's time was paused.
#[cold]
pub(crate) fn tell_of_earlier_timers() {
    if !thread_shard::has_entered() && thread_shard::has_pending() {
        eprintln!(
            "tourbillon: timers that this thread has armed before its time was paused follow the real clock. Call `pause` before the first \
             timer; on a current-thread Tokio runtime timers follow in any case with `tourbillon = {{ version = \"{}\", features = \
             [\"test-util\"] }}` under [dev-dependencies]",
            env!("CARGO_PKG_VERSION")
        );
    }
}
