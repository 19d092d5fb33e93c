//! Nodes on their way home: a stack without a lock, which any thread pushes to and the shard empties at once.
//!
//! A timer that is dropped on another thread than its shard's is cancelled there by its state word. Its node, and its place in
//! the queue, are the shard's to reuse, so the node is sent home here. The shard empties the stack before it asks for
//! fresh memory and whenever it is turned, and whoever makes the stack a [`DRAIN_AT`] high does it for the shard.
//!
//! Nodes are linked through their state words. Nothing is ever taken from the middle or the top alone, so there is no ABA.

use crate::shard::node::NodeRef;
use crate::shard::slab::{NONE, index_of};
use crate::shard::state::Ended;
use crate::sync::{AtomicU64, IS_CHECK, Ordering};

/// So many nodes on their way are worth a visit to the shard.
pub(crate) const DRAIN_AT: u32 = if IS_CHECK { 2 } else { 1024 };

pub(crate) struct RemoteFreeList {
    /// The height in the upper half; the index of the top, or [`NONE`], in the lower.
    top: AtomicU64,
}

const EMPTY: u64 = NONE as u64;

impl RemoteFreeList {
    pub(crate) fn new() -> RemoteFreeList {
        RemoteFreeList { top: AtomicU64::new(EMPTY) }
    }

    /// Sends an ended node home. RemoteFreeList how many are on their way now.
    pub(crate) fn push(&self, node: NodeRef, ended: Ended) -> u32 {
        let index = u64::from(index_of(node));
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            node.state().set_returned(top as u32, ended);
            let height = (top >> 32) + 1;
            match self.top.compare_exchange_weak(top, height << 32 | index, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return height as u32,
                Err(changed) => top = changed,
            }
        }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.top.load(Ordering::Relaxed) == EMPTY
    }

    /// Takes all of them: the index of the first, or [`NONE`]. The state word of each has the next.
    pub(crate) fn take_all(&self) -> u32 {
        self.top.swap(EMPTY, Ordering::Acquire) as u32
    }
}
