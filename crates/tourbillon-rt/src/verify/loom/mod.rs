//! Model checks (loom): each runs a handful of steps of two or three threads in every order, with every value that the memory model lets
//! a load see.
//!
//! ```text
//!     RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p tourbillon-rt --no-default-features --release --lib loom
//! ```
//!
//! A lost wake-up is a thread that waits for ever: loom reports that as a deadlock. Each model says which faults make it fail.

mod event_loop;
mod external_threads;
mod monitor;
mod nested;
mod reactor;
mod tasks;
mod unpark;
mod virtual_time;

use std::sync::Arc;
use std::task::Wake;

use loom::sync::{Condvar, Mutex};

use self::reactor::silent_reactor;
use crate::executor::virtual_time::VirtualTime;
use crate::executor::worker::IdleSlot;
use crate::executor::worker_shared::{ParkAttempt, WorkerShared};
use crate::reactor::EventBatch;
use crate::sync::lock;

/// Tries every order in which threads are interrupted at most three times where they could go on.
pub(crate) fn explore(model: impl Fn() + Send + Sync + 'static) {
    explore_up_to(3, model);
}

/// Tries every order in which threads are interrupted no more often than that, where they could go on.
pub(crate) fn explore_up_to(interruptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(model);
}

/// Stands for the kernel: raising it ends the current wait, or the next.
#[derive(Default)]
pub(crate) struct TestSignal {
    is_raised: Mutex<bool>,
    raised: Condvar,
}

impl TestSignal {
    pub(crate) fn new() -> Arc<TestSignal> {
        Arc::default()
    }

    pub(crate) fn raise(&self) {
        *lock(&self.is_raised) = true;
        self.raised.notify_one();
    }

    /// Waits until the signal is raised. One thread at a time.
    pub(crate) fn wait(&self) {
        let mut is_raised = lock(&self.is_raised);
        while !*is_raised {
            is_raised = self.raised.wait(is_raised).unwrap();
        }
        *is_raised = false;
    }
}

impl Wake for TestSignal {
    fn wake(self: Arc<Self>) {
        self.raise();
    }
}

/// Returns a worker whose reactor reports wake-ups and no events.
fn new_worker() -> Arc<WorkerShared> {
    IdleSlot::new(silent_reactor(), &VirtualTime::default()).worker
}

/// Does as `WorkerLocal::park`, without the list of idle workers.
fn park(worker: &WorkerShared, has_something_to_do: impl Fn() -> bool) {
    if worker.try_park() == ParkAttempt::Notified {
        return;
    }
    if !has_something_to_do() {
        worker.reactor.wait(None, &mut EventBatch::default()).unwrap();
    }
    worker.set_awake();
}
