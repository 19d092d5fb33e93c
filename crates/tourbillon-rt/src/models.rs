//! Model checks: each runs a handful of steps of two or three threads in every order, with every value that the memory model lets
//! a load see (loom).
//!
//! ```text
//!     RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p tourbillon-rt --release --lib models
//! ```
//!
//! They are beside what they check: `reactor/models.rs` (who waits for a socket, and what others leave for the owner of a ring)
//! and `runtime/models` (calls, sleepers, tasks, the event loop's work). This file is what they share.
//!
//! A wake-up that is lost is a thread that waits for ever: loom reports that as a deadlock. Each model says what was weakened to see
//! it fail.

use std::sync::Arc;
use std::task::Wake;

use loom::sync::{Condvar, Mutex};

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
pub(crate) struct Bell {
    is_rung: Mutex<bool>,
    rung: Condvar,
}

impl Bell {
    pub(crate) fn new() -> Arc<Bell> {
        Arc::default()
    }

    pub(crate) fn ring(&self) {
        *lock(&self.is_rung) = true;
        self.rung.notify_one();
    }

    /// One thread at a time.
    pub(crate) fn wait(&self) {
        let mut is_rung = lock(&self.is_rung);
        while !*is_rung {
            is_rung = self.rung.wait(is_rung).unwrap();
        }
        *is_rung = false;
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
}
