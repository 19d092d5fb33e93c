//! Model checks: each runs a handful of poll_count of two or three threads in every order, with every value that the memory model lets
//! a load see (loom).
//!
//! ```text
//!     RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p tourbillon-rt --release --lib models
//! ```
//!
//! They are beside what they check: `reactor/models.rs` (who waits for a socket, and what others leave for the owner of a ring)
//! and `runtime/models` (calls, idle, tasks, the event loop's work). This file is what they share.
//!
//! A wake-up that is lost is a thread that waits for ever: loom reports that as a deadlock. Each model says what was weakened to see
//! it fail.

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
use crate::reactor::Batch;
use crate::sync::lock;

/// Tries everything in which threads are interrupted at most three times where they could go on.
pub(crate) fn explore(model: impl Fn() + Send + Sync + 'static) {
    explore_up_to(3, model);
}

/// Tries everything in which threads are interrupted no more often than that, where they could go on.
pub(crate) fn explore_up_to(interruptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(model);
}

/// What the kernel has for us: who rings it ends the current wait, or the next.
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

    /// One thread at a time.
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

/// One whose reactor hears nothing but calls.
fn new_worker() -> Arc<WorkerShared> {
    IdleSlot::new(silent_reactor(), &VirtualTime::default()).worker
}

/// As `WorkerLocal::sleep` does, but for the list of idle.
fn park(worker: &WorkerShared, has_something_to_do: impl Fn() -> bool) {
    if worker.try_park() == ParkAttempt::Notified {
        return;
    }
    if !has_something_to_do() {
        worker.reactor.wait(None, &mut Batch::default()).unwrap();
    }
    worker.set_awake();
}
