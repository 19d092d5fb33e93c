//! Virtual time: which engine a timer belongs to where time is virtual, and how that time moves.
//!
//! | where | engine | its clock |
//! |---|---|---|
//! | in the context of a current-thread Tokio runtime | one for each runtime | that of the runtime: Tokio's `pause`, `advance` and auto-advance govern it |
//! | in the context of a Tokio runtime with several workers, after `pause` | one for each runtime | a manual clock, which `time::advance` moves |
//! | on a thread without a Tokio context, after `pause` | one for each thread | a manual clock, which `time::advance` moves |
//!
//! With the feature `test-util` a current-thread runtime has its engine from its first timer on, so that timers that were made before `pause`
//! follow it. Without that feature a program pays for none of this. A runtime then gets an engine if its clock stands still when a thread
//! makes its first timer there (`start_paused`), so that the tests of a program follow Tokio's clock also where a dependency uses this crate.
//! (A debug build checks at every timer.) From then on every timer of the process looks up the runtime in which it is made.

#[cfg(feature = "test-util")]
mod api;
#[cfg(feature = "test-util")]
pub(crate) mod auto_advance;
#[cfg(feature = "tokio")]
mod runtimes;
#[cfg(feature = "test-util")]
pub(crate) mod simulated_thread;
#[cfg(feature = "test-util")]
mod thread_state;
#[cfg(feature = "test-util")]
mod threads;
#[cfg(feature = "test-util")]
mod watcher;

use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(feature = "test-util")]
pub use self::api::{advance, auto_advance, blocking_advance, can_auto_advance, pause, resume, run};
use crate::core::CoreRef;
use crate::core::thread_shard;
use crate::{Builder, Clock, Engine, QueueKind};

/// Whether some clock of this process is or was virtual.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// Whether every current-thread Tokio runtime has an engine of its own, even while its clock runs.
const EVERY_RUNTIME: bool = cfg!(all(feature = "test-util", feature = "tokio"));

/// Returns whether time may be virtual here, so that each timer has to call [`find_core`].
#[inline(always)]
pub(crate) fn may_be_virtual() -> bool {
    EVERY_RUNTIME || cfg!(debug_assertions) || IN_USE.load(Ordering::Relaxed)
}

/// Returns the core of the engine of virtual time to which a timer that is made here belongs. `None` if time is not virtual here, or if the
/// thread has entered an engine.
pub(crate) fn find_core() -> Option<CoreRef> {
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

/// Returns a builder of an engine for virtual time: with one shard, so that timers fire in order, and a heap, which knows its next deadline
/// after each change without a search.
fn builder(clock: Clock) -> Builder {
    Engine::builder().clock(clock).shards(1).queue(QueueKind::Heap).exact()
}

/// Warns on the standard error stream, once for each thread, that its timers do not follow the virtual clock.
///
/// The crate cannot do more: only the program knows which thread was meant to follow which clock.
#[cold]
pub(crate) fn warn_of_real_time() {
    if IN_USE.load(Ordering::Relaxed) {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("without a name");
        eprintln!(
            "tourbillon: the timers of thread `{name}` follow the real clock, while time is virtual elsewhere in this process. If they \
             should follow the virtual clock, add `let _entered = engine.enter();` on this thread, with `let engine = \
             tourbillon::Engine::current();` from where time is virtual"
        );
    }
}

/// Warns of timers that were armed before the time of their thread was paused.
#[cold]
pub(crate) fn warn_of_earlier_timers() {
    if !thread_shard::has_entered() && thread_shard::has_pending() {
        eprintln!(
            "tourbillon: timers that this thread has armed before its time was paused follow the real clock. Call `pause` before the first \
             timer; on a current-thread Tokio runtime timers follow in any case with `tourbillon = {{ version = \"{}\", features = \
             [\"test-util\"] }}` under [dev-dependencies]",
            env!("CARGO_PKG_VERSION")
        );
    }
}
