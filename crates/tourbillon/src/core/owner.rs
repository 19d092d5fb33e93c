//! The end of an engine: when its last handle is dropped.

use crate::core::CoreRef;

/// What all handles share. Its end is the engine's.
pub(crate) struct EngineOwner {
    pub(crate) core: CoreRef,
}

#[cfg(feature = "tokio")]
impl EngineOwner {
    pub(crate) fn core(&self) -> &CoreRef {
        &self.core
    }
}

impl Drop for EngineOwner {
    fn drop(&mut self) {
        self.core.shut_down();
        self.core.release();
    }
}
