//! The engines of threads on which time was paused outside a Tokio runtime.

use std::cell::RefCell;

use crate::core::CoreRef;
use crate::engine::Engine;

thread_local! {
    static OF_THREAD: RefCell<Option<Engine>> = const { RefCell::new(None) };
}

/// Returns the core of the calling thread's engine of virtual time.
pub(super) fn core() -> Option<CoreRef> {
    OF_THREAD.try_with(|engine| engine.borrow().as_ref().map(|engine| engine.core().clone())).ok().flatten()
}

/// Returns the calling thread's engine of virtual time.
pub(super) fn engine() -> Option<Engine> {
    OF_THREAD.try_with(|engine| engine.borrow().clone()).ok().flatten()
}

/// Makes `engine` the calling thread's engine of virtual time.
pub(super) fn set(engine: Engine) {
    OF_THREAD.set(Some(engine));
}
