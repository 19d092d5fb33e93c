//! The state of an engine's virtual-time watcher: see `virtual_time::watcher`.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::core::Core;

/// Whether an engine needs a watcher, and has one.
#[derive(Default)]
pub(crate) struct WatcherState {
    /// Whether time moves to the next deadline when all threads wait.
    pub(crate) is_auto_advance: AtomicBool,
    /// Whether there is a watcher, which may be about to end.
    pub(crate) has_watcher: AtomicBool,
}

impl WatcherState {
    /// Makes time move to the next deadline when all threads wait.
    pub(crate) fn enable_auto_advance(&self) {
        self.is_auto_advance.store(true, Ordering::SeqCst);
    }

    /// Returns whether the engine needs a watcher.
    pub(crate) fn is_wanted(&self, core: &Core) -> bool {
        !core.is_closed() && (self.is_auto_advance.load(Ordering::SeqCst) || !core.clock.is_paused())
    }
}
