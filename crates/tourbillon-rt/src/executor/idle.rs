//! Who sleeps, and who of them is called for a task.
//!
//! # No call is missed
//!
//! Who sends a task puts it into a queue and then looks for a sleeper; who goes to sleep enters itself here and then looks at the
//! queues. With a sequentially consistent fence between the two on both sides, one of the two sees the other.

use std::sync::Arc;

use super::worker_shared::WorkerShared;
use crate::sync::{AtomicUsize, Mutex, Ordering, fence, lock};

#[derive(Default)]
pub(crate) struct IdleWorkers {
    workers: Mutex<Vec<Arc<WorkerShared>>>,
    /// How many they are.
    count: AtomicUsize,
    /// How many were called and have not found a task yet.
    searching: AtomicUsize,
}

/// Why somebody sleeps no longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum WakeReason {
    /// For something of its own.
    OwnEvent,
    /// Somebody has called it to look for a task. When it has looked, it says so: [`IdleWorkers::search_done`].
    ToSearch,
}

impl IdleWorkers {
    /// Wakes one, unless somebody is looking for work already.
    pub(crate) fn unpark_searcher(&self) {
        if self.count.load(Ordering::SeqCst) > 0 && self.searching.load(Ordering::SeqCst) == 0 {
            self.unpark_one();
        }
    }

    /// Wakes one. What it is to find is in a queue by now.
    pub(crate) fn unpark_one(&self) {
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let sleeper = {
            let mut workers = lock(&self.workers);
            let sleeper = workers.pop();
            self.count.store(workers.len(), Ordering::SeqCst);
            sleeper
        };
        if let Some(worker) = sleeper {
            self.searching.fetch_add(1, Ordering::SeqCst);
            worker.unpark();
        }
    }

    /// By who is about to sleep, and looks at the queues once more.
    pub(crate) fn add(&self, worker: &Arc<WorkerShared>) {
        let mut workers = lock(&self.workers);
        workers.push(Arc::clone(worker));
        self.count.store(workers.len(), Ordering::SeqCst);
        drop(workers);
        fence(Ordering::SeqCst);
    }

    /// By who has slept.
    pub(crate) fn remove(&self, worker: &Arc<WorkerShared>) -> WakeReason {
        let mut workers = lock(&self.workers);
        let before = workers.len();
        workers.retain(|sleeper| !Arc::ptr_eq(sleeper, worker));
        self.count.store(workers.len(), Ordering::SeqCst);
        if workers.len() == before { WakeReason::ToSearch } else { WakeReason::OwnEvent }
    }

    /// By who was called: it has found something, or there was nothing.
    pub(crate) fn search_done(&self) {
        self.searching.fetch_sub(1, Ordering::SeqCst);
    }
}
