//! Tasks that block on each other.

use std::sync::Arc;

use tourbillon_rt::{JoinHandle, Runtime};

/// Spawns a task that blocks on the next one, and so on, and returns how many there were.
pub(crate) fn chain(runtime: Arc<Runtime>, depth: usize) -> JoinHandle<usize> {
    let inner = Arc::clone(&runtime);
    runtime.spawn(async move {
        if depth == 0 {
            return 0;
        }
        let next = chain(Arc::clone(&inner), depth - 1);
        1 + inner.block_on(next).unwrap()
    })
}
