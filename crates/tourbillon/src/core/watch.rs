//! What the watcher of a manual clock leaves in the engine.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::core::Core;

/// What there is to watch in an engine.
#[derive(Default)]
pub(crate) struct Watch {
    pub(crate) moves_by_itself: AtomicBool,
    /// There is a watcher, or the last one has yet to find that it is not wanted.
    pub(crate) has_watcher: AtomicBool,
}

impl Watch {
    /// From now on time moves when everybody waits.
    pub(crate) fn move_by_itself(&self) {
        self.moves_by_itself.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_wanted(&self, core: &Core) -> bool {
        !core.is_closed() && (self.moves_by_itself.load(Ordering::SeqCst) || !core.clock.is_paused())
    }
}
