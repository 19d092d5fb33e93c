//! The current engine: the one to which a timer belongs that is made without naming an engine.
//!
//! It is the engine that the thread has [entered](crate::Engine::enter) last; else the engine of [virtual time](crate::virtual_time) where
//! time is virtual; else the global engine.

use std::task::{Context, Poll};
use std::time::{Duration, Instant as StdInstant};

use crate::core::thread_shard::{self, ThreadShard, current};
use crate::engine::Engine;
use crate::entry::Entry;
use crate::instant::Instant;
use crate::outcome::Outcome;
use crate::shard::NotifyDriver;

/// Calls `f` with the thread's shard in the current engine.
#[inline(always)]
pub(crate) fn with_current<R>(f: impl FnOnce(&ThreadShard) -> R) -> R {
    match usable() {
        Some(local) => f(local),
        None => with_new_current(f),
    }
}

/// Returns the thread's shard in the current engine, if the thread has one there already.
#[inline(always)]
fn usable<'a>() -> Option<&'a ThreadShard> {
    #[cfg(any(feature = "test-util", feature = "tokio"))]
    if crate::virtual_time::may_be_virtual() {
        return virtual_or_current();
    }
    current()
}

/// As [`usable`], where time may be virtual. A shard in an engine of virtual time that is found here becomes the thread's current one, until
/// this function finds that the current engine is another.
#[cfg(any(feature = "test-util", feature = "tokio"))]
#[cold]
#[inline(never)]
fn virtual_or_current<'a>() -> Option<&'a ThreadShard> {
    // First: if it builds an engine, a `tracing` subscriber of the user may use timers, and with them remove shards of this thread.
    let found = crate::virtual_time::find_core();
    let before = current();
    let Some(core) = found else {
        return before.filter(|local| !local.is_found()).or_else(|| {
            thread_shard::forget_current();
            None
        });
    };
    if let Some(local) = before.filter(|local| local.core().as_ptr() == core.as_ptr()) {
        return Some(local);
    }
    let local = thread_shard::find_or_make(core.as_ptr())?;
    thread_shard::set_found(local);
    Some(local)
}

/// Calls `f` with the thread's shard in the current engine, if the thread has one there already.
pub(crate) fn with_known<R>(f: impl FnOnce(Option<&ThreadShard>) -> R) -> R {
    f(usable())
}

#[cold]
#[inline(never)]
fn with_new_current<R>(f: impl FnOnce(&ThreadShard) -> R) -> R {
    let entered = thread_shard::entered_core();
    #[cfg(any(feature = "test-util", feature = "tokio"))]
    if entered.is_none()
        && let Some(core) = crate::virtual_time::find_core()
    {
        return thread_shard::with_other(core.as_ptr(), f);
    }
    let core = entered.unwrap_or_else(|| crate::engine::global_core().as_ptr());
    #[cfg(any(feature = "test-util", feature = "tokio"))]
    if entered.is_none() && thread_shard::find(core).is_none() {
        crate::virtual_time::warn_of_real_time();
    }
    #[cfg(tourbillon_driver_task)]
    if entered.is_none() {
        let core = crate::engine::global_core();
        core.driver.offer_to_executor(core);
    }
    if let Some(local) = thread_shard::find_or_make(core) {
        thread_shard::set_current(local);
    }
    // The global engine is never freed, and the guard keeps an engine that was entered.
    thread_shard::with_other(core, f)
}

/// Returns the time of the current engine's clock, as an instant of the standard library. Starts no engine.
pub(crate) fn now_std() -> StdInstant {
    with_known(|local| match local {
        Some(local) if !local.core().clock.is_steady() => local.core().clock.now_std(),
        _ => StdInstant::now(),
    })
}

impl Entry {
    /// Returns an idle entry that is due in `duration` from now, on the current engine.
    #[inline(always)]
    pub(crate) fn after(duration: Duration) -> Entry {
        with_current(|local| Entry::idle(local, local.deadline(duration)))
    }

    /// Returns an idle entry that is due at `deadline`, on the current engine.
    pub(crate) fn until(deadline: Instant) -> Entry {
        with_current(|local| Entry::idle(local, local.core().clock.time_of(deadline.into_std())))
    }

    /// Returns an entry that is due in `duration` from now on the current engine and has been polled: [`after`](Entry::after) and
    /// [`poll`](Entry::poll) with one look-up of the thread's shard.
    #[inline(always)]
    pub(crate) fn polled(duration: Duration, context: &mut Context<'_>) -> (Entry, Poll<Outcome>) {
        let mut waker = Some(context.waker().clone());
        let Some((entry, notify_driver)) = with_current(|local| Entry::armed_on(local, duration, &mut waker)) else {
            drop(waker);
            let mut entry = Entry::after(duration);
            let poll = entry.poll(context);
            return (entry, poll);
        };
        if notify_driver == NotifyDriver::Yes {
            entry.notify_driver();
        }
        (entry, Poll::Pending)
    }
}

impl Engine {
    /// Returns the engine that was [entered](Engine::enter) on this thread, or the global one.
    #[must_use]
    pub fn current() -> Engine {
        with_current(|local| Engine::of(local.core())).unwrap_or_else(Engine::global)
    }
}

impl Instant {
    /// Returns the time of the current engine's clock.
    #[must_use]
    pub fn now() -> Instant {
        Instant::from_std(now_std())
    }
}
