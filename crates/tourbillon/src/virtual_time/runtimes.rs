//! The engines of Tokio runtimes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, RwLock};

use tokio::runtime::{Handle, Id, RuntimeFlavor};

use super::{EVERY_RUNTIME, IN_USE};
use crate::alarm::TokioSleepAlarm;
use crate::clock::{Clock, TokioClock};
use crate::core::CoreRef;
use crate::driver::Driver;
use crate::engine::Engine;
#[cfg(feature = "test-util")]
use crate::engine::builder::UntracedEngine;
use crate::sync::ignore_poison;

/// The engine of each runtime; `None` for a runtime without a time driver.
static ENGINES: LazyLock<RwLock<HashMap<Id, Option<Engine>>>> = LazyLock::new(RwLock::default);

/// Counts the changes of [`ENGINES`].
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// The result of a thread's last look-up in [`ENGINES`], and the number of changes before it.
struct CachedLookup {
    runtime: Id,
    changes: u64,
    core: Option<CoreRef>,
}

thread_local! {
    static LAST_LOOKUP: RefCell<Option<CachedLookup>> = const { RefCell::new(None) };
}

/// Returns the core of the runtime's engine. Makes the engine if there is none and the runtime needs one.
pub(super) fn core_of(runtime: &Handle) -> Option<CoreRef> {
    let (id, changes) = (runtime.id(), CHANGES.load(Ordering::Acquire));
    let known = LAST_LOOKUP.try_with(|last| match &*last.borrow() {
        Some(cached) if cached.runtime == id && cached.changes == changes => Some(cached.core.clone()),
        _ => None,
    });
    if let Ok(Some(core)) = known {
        return core;
    }
    let core = find(id).unwrap_or_else(|| make_engine(runtime)).map(|engine| engine.core().clone());
    // A runtime whose clock runs now may be paused later.
    if EVERY_RUNTIME || core.is_some() {
        // With the count from before the look-up, so that a change since then causes another look-up.
        let cached = CachedLookup { runtime: id, changes, core: core.clone() };
        let before = LAST_LOOKUP.try_with(|last| last.replace(Some(cached)));
        drop(before);
    }
    core
}

/// Returns the entry of a runtime in [`ENGINES`].
pub(super) fn find(runtime: Id) -> Option<Option<Engine>> {
    ignore_poison(ENGINES.read()).get(&runtime).cloned()
}

/// Makes this engine the one of a runtime, unless another thread was faster. Returns the engine that the runtime has then.
#[cfg(feature = "test-util")]
pub(super) fn set(runtime: &Handle, built: UntracedEngine) -> Option<Engine> {
    let (has, is_new) = insert(runtime.id(), Some(built.engine().clone()));
    if is_new {
        remove_on_runtime_end(runtime);
        drop(built.trace());
    }
    has
}

/// The panic message where a clock would stand still for ever.
pub(super) const NO_TIME_DRIVER: &str =
    "the clock of this Tokio runtime cannot move when it is paused: call `enable_time` or `enable_all` on its builder";

/// Returns whether Tokio can pause the clock of this runtime.
pub(super) fn can_be_paused(runtime: &Handle) -> bool {
    matches!(runtime.runtime_flavor(), RuntimeFlavor::CurrentThread)
}

/// Makes an engine on the runtime's own clock, if the runtime needs one: see the [module](super).
fn make_engine(runtime: &Handle) -> Option<Engine> {
    if !can_be_paused(runtime) {
        return None;
    }
    let clock = TokioClock::of(runtime.clone());
    let is_paused = clock.is_paused();
    if !EVERY_RUNTIME && !is_paused {
        return None;
    }
    let clock = Clock::of_tokio(clock);
    let Some(alarm) = TokioSleepAlarm::new(runtime, clock.clone()) else {
        assert!(!is_paused, "{NO_TIME_DRIVER}");
        if insert(runtime.id(), None).1 {
            remove_on_runtime_end(runtime);
        }
        return None;
    };
    if !EVERY_RUNTIME {
        super::warn_of_earlier_timers();
    }
    if is_paused {
        IN_USE.store(true, Ordering::Relaxed);
    }
    let built = super::builder(clock).driver(Driver::tokio_time_driver(alarm.clone())).build_untraced();
    let built = built.expect("an engine that Tokio turns needs nothing that could fail");
    let owner = built.engine().downgrade();
    alarm.on_expiry(move || {
        if let Some(owner) = owner.upgrade() {
            owner.core().drive();
        }
    });
    let (has, is_new) = insert(runtime.id(), Some(built.engine().clone()));
    if is_new {
        let end = RemoveOnRuntimeEnd(runtime.id());
        alarm.start(move || drop(end));
        // A `tracing` subscriber may make timers, and those have to find the engine (D81).
        drop(built.trace());
    }
    has
}

/// Inserts an engine into [`ENGINES`], unless another thread was faster. Returns the entry, and whether it is the inserted one.
fn insert(runtime: Id, engine: Option<Engine>) -> (Option<Engine>, bool) {
    let mut engines = ignore_poison(ENGINES.write());
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
    // An engine that came too late is shut down here, outside the lock.
    drop(engine);
    entered
}

/// Removes the runtime's engine when the runtime ends, by a task that the runtime then drops.
fn remove_on_runtime_end(runtime: &Handle) {
    let end = RemoveOnRuntimeEnd(runtime.id());
    drop(runtime.spawn(async move {
        let _end = end;
        std::future::pending::<()>().await;
    }));
}

/// Removes the engine of a runtime and shuts it down, when the runtime ends and drops this.
struct RemoveOnRuntimeEnd(Id);

impl Drop for RemoveOnRuntimeEnd {
    fn drop(&mut self) {
        // The engine's shutdown wakes tasks, so it happens outside the lock.
        let engine = ignore_poison(ENGINES.write()).remove(&self.0);
        CHANGES.fetch_add(1, Ordering::Release);
        if let Some(Some(engine)) = &engine {
            engine.shutdown();
        }
        drop(engine);
    }
}
