//! The parked workers, and which of them is unparked for a task.
//!
//! # No wake-up is lost
//!
//! A thread that queues a task pushes it and then looks for a parked worker. A worker that parks adds itself here and then looks at the
//! queues. Both have a sequentially consistent fence between the two steps, so one of the two sees the other.

use std::sync::Arc;

use super::worker_shared::WorkerShared;
use crate::sync::{AtomicUsize, Mutex, Ordering, fence, lock};

#[derive(Default)]
pub(crate) struct IdleWorkers {
    workers: Mutex<Vec<Arc<WorkerShared>>>,
    /// The length of `workers`, to be read without the lock.
    count: AtomicUsize,
    /// The number of workers that were unparked for a task and have not found one yet.
    searching: AtomicUsize,
}

/// Why a worker is parked no longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum WakeReason {
    /// An event, a deadline, or a task of its own.
    OwnEvent,
    /// Another thread has unparked it to look for a task. After its search it calls [`IdleWorkers::search_done`].
    ToSearch,
}

impl IdleWorkers {
    /// Unparks a worker, unless one is searching for tasks already.
    pub(crate) fn unpark_searcher(&self) {
        if self.count.load(Ordering::SeqCst) > 0 && self.searching.load(Ordering::SeqCst) == 0 {
            self.unpark_one();
        }
    }

    /// Unparks a worker. The caller has queued a task for it before.
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

    /// Called by a worker that is about to park. Afterwards it looks at the queues once more.
    pub(crate) fn add(&self, worker: &Arc<WorkerShared>) {
        let mut workers = lock(&self.workers);
        workers.push(Arc::clone(worker));
        self.count.store(workers.len(), Ordering::SeqCst);
        drop(workers);
        fence(Ordering::SeqCst);
    }

    /// Called by a worker that has been parked.
    pub(crate) fn remove(&self, worker: &Arc<WorkerShared>) -> WakeReason {
        let mut workers = lock(&self.workers);
        let before = workers.len();
        workers.retain(|sleeper| !Arc::ptr_eq(sleeper, worker));
        self.count.store(workers.len(), Ordering::SeqCst);
        if workers.len() == before { WakeReason::ToSearch } else { WakeReason::OwnEvent }
    }

    /// Called by a worker that was unparked to search, whether or not it has found a task.
    pub(crate) fn search_done(&self) {
        self.searching.fetch_sub(1, Ordering::SeqCst);
    }
}
