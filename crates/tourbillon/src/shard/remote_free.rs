//! The remote free list of a shard: a lock-free stack of nodes that threads other than the owner have released.
//!
//! ```text
//!     remote thread --- state word = Released(top), push -------->  [ top ] -> node -> node -> NONE
//!                                                                     |
//!     under the shard's lock <--- take_all, then recycle each --------+
//! ```
//!
//! A remote thread that drops a timer cancels it and links its node, by one swap of its state word. Only the shard may reuse the node and its
//! place in the queue, so the remote thread pushes the node here. The shard drains the list before it takes fresh memory and at each visit; the thread whose push
//! makes the list [`DRAIN_AT`] long locks the shard and drains it.
//!
//! Nodes are linked through their state words. No thread pops a single node, only the whole list, so there is no ABA problem.

use crate::shard::node::NodeRef;
use crate::shard::slab::{NONE, index_of};
use crate::shard::state::CountAs;
use crate::sync::{AtomicU64, IS_CHECK, Ordering};

/// The length at which the pushing thread drains the list. An owner that arms timers drains it earlier; a lower number would make the other
/// thread take the lock, which costs it a `membarrier`, while the owner is about to drain.
pub(crate) const DRAIN_AT: u32 = if IS_CHECK { 2 } else { 4096 };

pub(crate) struct RemoteFreeList {
    /// The length in the upper half; the index of the top node, or [`NONE`], in the lower.
    top: AtomicU64,
}

const EMPTY: u64 = NONE as u64;

/// The top of the list at some time: the node that a released node is linked to.
#[derive(Clone, Copy)]
pub(crate) struct Top(u64);

impl Top {
    /// Returns the index of the top node, or [`NONE`].
    #[inline(always)]
    pub(crate) fn node(self) -> u32 {
        self.0 as u32
    }
}

impl RemoteFreeList {
    pub(crate) fn new() -> RemoteFreeList {
        RemoteFreeList { top: AtomicU64::new(EMPTY) }
    }

    /// Returns the top, for the release of a node that is then pushed.
    #[inline(always)]
    pub(crate) fn top(&self) -> Top {
        Top(self.top.load(Ordering::Relaxed))
    }

    /// Pushes a node that was released and linked to `top`, and returns the length of the list.
    #[inline(always)]
    pub(crate) fn push(&self, node: NodeRef, count: CountAs, Top(mut top): Top) -> u32 {
        let index = u64::from(index_of(node));
        loop {
            let length = (top >> 32) + 1;
            match self.top.compare_exchange_weak(top, length << 32 | index, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return length as u32,
                Err(changed) => top = changed,
            }
            node.state().set_released(top as u32, count);
        }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.top.load(Ordering::Relaxed) == EMPTY
    }

    /// Empties the list and returns the index of its first node, or [`NONE`]. The state word of each node has the next index.
    pub(crate) fn take_all(&self) -> u32 {
        self.top.swap(EMPTY, Ordering::Acquire) as u32
    }
}
