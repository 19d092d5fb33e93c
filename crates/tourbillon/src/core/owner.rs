//! Shuts an engine down when its last handle is dropped.

use crate::clock::FollowsClock;
use crate::core::CoreRef;

/// The value that all handles of an engine share. Dropping it shuts the engine down.
pub(crate) struct EngineOwner {
    pub(crate) core: CoreRef,
}

#[cfg(feature = "tokio")]
impl EngineOwner {
    pub(crate) fn core(&self) -> &CoreRef {
        &self.core
    }
}

impl FollowsClock for EngineOwner {
    fn clock_was_set(&self) {
        self.core.clock_was_set();
    }
}

impl Drop for EngineOwner {
    fn drop(&mut self) {
        self.core.shut_down();
        self.core.release();
    }
}
