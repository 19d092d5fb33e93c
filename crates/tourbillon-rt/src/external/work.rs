//! What keeps an event loop running: how much work there is, and whether it has been stopped.
//!
//! Whoever changes either so that the loop is to return calls all who run it afterwards; who runs it looks here before it
//! sleeps. A call that comes in between ends that sleep before it begins: see [`WorkerShared`](super::worker_shared::WorkerShared).

use crate::sync::{AtomicBool, AtomicUsize, Ordering};

#[derive(Default)]
pub(crate) struct WorkCount {
    count: AtomicUsize,
    is_stopped: AtomicBool,
}

/// What is left when some work has been done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum WorkLeft {
    Some,
    /// All who run the loop are to be called.
    None,
}

impl WorkCount {
    pub(crate) fn begin(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn end(&self) -> WorkLeft {
        if self.count.fetch_sub(1, Ordering::SeqCst) == 1 { WorkLeft::None } else { WorkLeft::Some }
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// All who run the loop are to be called then.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
    }

    pub(crate) fn restart(&self) {
        self.is_stopped.store(false, Ordering::SeqCst);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }
}
