//! Tasks where it gets difficult: blocked threads, nested runtimes, foreign threads, shutdown in the middle (F10, D11, D41, D44).

#[path = "../support/mod.rs"]
mod support;

mod blocked;
mod elsewhere;
mod end;
mod handles;
mod nested;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tourbillon_rt::{Backend, Runtime};

fn runtime(backend: Backend, workers: usize) -> Runtime {
    Runtime::builder().backend(backend).workers(workers).build().unwrap()
}

/// Counts its drop.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
