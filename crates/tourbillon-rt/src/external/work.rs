//! The work of an event loop: how much there is, and whether the loop has been stopped.
//!
//! A thread that ends the last work, or stops the loop, afterwards unparks all threads that run it. Those look here before they park. An
//! `unpark` in between ends the park before it begins: see [`WorkerShared`](crate::executor::worker_shared::WorkerShared).

use crate::sync::{AtomicBool, AtomicUsize, Ordering};

#[derive(Default)]
pub(crate) struct WorkCount {
    count: AtomicUsize,
    is_stopped: AtomicBool,
}

/// The result of [`WorkCount::end`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum WorkLeft {
    Some,
    /// The caller unparks all threads that run the loop.
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

    /// Stops the loop. The caller unparks all threads that run it.
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
