//! The engines of Tokio runtimes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, PoisonError, RwLock};

use tokio::runtime::{Handle, Id, RuntimeFlavor};

use super::{ALWAYS, IN_USE};
use crate::alarm::RuntimeAlarm;
use crate::clock::{Clock, RuntimeClock};
use crate::core::CoreRef;
use crate::driver::Driver;
use crate::engine::Engine;
#[cfg(feature = "test-util")]
use crate::engine::builder::UntracedEngine;

/// What each runtime has; `None`: no time driver.
static ENGINES: LazyLock<RwLock<HashMap<Id, Option<Engine>>>> = LazyLock::new(RwLock::default);

/// Counts the changes of that table.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// What a thread has found in the table, and after how many changes.
struct Found {
    runtime: Id,
    changes: u64,
    core: Option<CoreRef>,
}

thread_local! {
    static LAST: RefCell<Option<Found>> = const { RefCell::new(None) };
}

/// The core of the engine that this runtime has; made, if the runtime is one that has to have one.
pub(super) fn core_of(runtime: &Handle) -> Option<CoreRef> {
    let (id, changes) = (runtime.id(), CHANGES.load(Ordering::Acquire));
    let known = LAST.try_with(|last| match &*last.borrow() {
        Some(found) if found.runtime == id && found.changes == changes => Some(found.core.clone()),
        _ => None,
    });
    if let Ok(Some(core)) = known {
        return core;
    }
    let core = find(id).unwrap_or_else(|| follow(runtime)).map(|engine| engine.core().clone());
    // A runtime whose clock runs now may be paused later.
    if ALWAYS || core.is_some() {
        // With the count from before the look: what has changed since then is looked at again.
        let found = Found { runtime: id, changes, core: core.clone() };
        let before = LAST.try_with(|last| last.replace(Some(found)));
        drop(before);
    }
    core
}

/// What the table says.
pub(super) fn find(runtime: Id) -> Option<Option<Engine>> {
    ENGINES.read().unwrap_or_else(PoisonError::into_inner).get(&runtime).cloned()
}

/// Makes this engine the one of a runtime, unless another thread was faster. Gives the one that it has.
#[cfg(feature = "test-util")]
pub(super) fn set(runtime: &Handle, built: UntracedEngine) -> Option<Engine> {
    let (has, is_new) = insert(runtime.id(), Some(built.engine().clone()));
    if is_new {
        remove_at_the_end(runtime);
        drop(built.trace());
    }
    has
}

/// Said where a clock stands still for ever.
pub(super) const NO_TIME_DRIVER: &str =
    "the clock of this Tokio runtime cannot move when it is paused: call `enable_time` or `enable_all` on its builder";

/// Whether Tokio would let the clock of this runtime be paused.
pub(super) fn has_clock(runtime: &Handle) -> bool {
    matches!(runtime.runtime_flavor(), RuntimeFlavor::CurrentThread)
}

/// An engine on the runtime's own clock, if it has to have one: see the [module](super).
fn follow(runtime: &Handle) -> Option<Engine> {
    if !has_clock(runtime) {
        return None;
    }
    let clock = RuntimeClock::of(runtime.clone());
    let is_paused = clock.is_paused();
    if !ALWAYS && !is_paused {
        return None;
    }
    let clock = Clock::of_runtime(clock);
    let Some(alarm) = RuntimeAlarm::new(runtime, clock.clone()) else {
        assert!(!is_paused, "{NO_TIME_DRIVER}");
        if insert(runtime.id(), None).1 {
            remove_at_the_end(runtime);
        }
        return None;
    };
    if !ALWAYS {
        super::tell_of_earlier_timers();
    }
    if is_paused {
        IN_USE.store(true, Ordering::Relaxed);
    }
    let built = super::builder(clock).driver(Driver::on_runtime(alarm.clone())).build_untraced();
    let built = built.expect("an engine that Tokio turns needs nothing that could fail");
    let owner = built.engine().downgrade();
    alarm.on_expiry(move || {
        if let Some(owner) = owner.upgrade() {
            owner.core().drive();
        }
    });
    let (has, is_new) = insert(runtime.id(), Some(built.engine().clone()));
    if is_new {
        let end = OnEnd(runtime.id());
        alarm.start(move || drop(end));
        // A subscriber may make timers, which are to find it (D81).
        drop(built.trace());
    }
    has
}

/// Enters this into the table, unless another thread was faster. Gives what is there, and whether this is it.
fn insert(runtime: Id, engine: Option<Engine>) -> (Option<Engine>, bool) {
    let mut engines = ENGINES.write().unwrap_or_else(PoisonError::into_inner);
    let first = engines.get(&runtime).cloned();
    let entered = match first {
        Some(first) => (first, false),
        None => {
            engines.insert(runtime, engine.clone());
            (engine.clone(), true)
        }
    };
    drop(engines);
    CHANGES.fetch_add(1, Ordering::Release);
    // One that came too late is shut down here, outside the lock.
    drop(engine);
    entered
}

/// The runtime drops its tasks when it ends.
fn remove_at_the_end(runtime: &Handle) {
    let end = OnEnd(runtime.id());
    drop(runtime.spawn(async move {
        let _end = end;
        std::future::pending::<()>().await;
    }));
}

/// Dropped when the runtime ends; the engine goes then too, and the timers that are left end as stopped.
struct OnEnd(Id);

impl Drop for OnEnd {
    fn drop(&mut self) {
        // The engine's shutdown wakes tasks, so it happens outside the lock.
        let engine = ENGINES.write().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
        CHANGES.fetch_add(1, Ordering::Release);
        if let Some(Some(engine)) = &engine {
            engine.shutdown();
        }
        drop(engine);
    }
}
