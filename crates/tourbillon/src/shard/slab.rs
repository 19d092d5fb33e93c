//! The memory of a shard's nodes: chunks that never move, and a list of the free nodes.
//!
//! ```text
//!     chunks --> [ header | node | node | ... ]   [ header | node | (fresh) ... ]
//!                            ^                                ^
//!     last_freed ------------+          free -----------------+--> next free node, by its state word
//! ```
//!
//! A chunk is aligned to its size, so the address of a node, masked, is the address of its chunk's header (see [`header_of`]). Chunks are
//! freed with the slab, or when the engine is gone and no node is in use.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::num::NonZeroU32;
use std::ptr::NonNull;

use tourbillon_queue::{Entries, EntryDeadlines, Place, Time};

use crate::clock::ClockOrigin;
use crate::shard::Shard;
use crate::shard::node::{Locked, Node, NodeRef};
use crate::shard::state::NodeState;
use crate::sync::IS_CHECK;

/// The nodes of one shard.
pub(crate) struct NodeSlab {
    /// The node that was freed last: most often it is armed next, and is still in the processor's cache.
    last_freed: Option<NodeRef>,
    /// The first of the list of the other free nodes, or [`NONE`].
    free: u32,
    /// The index of the first slot that has never been in use. The memory from there on is not initialised.
    first_fresh: u32,
    chunks: Vec<NonNull<Node>>,
    /// For the headers.
    engine: EngineTraits,
}

/// What the handle of a timer has to know of the engine. Each chunk has a copy, so that the handle does not follow pointers to the core.
#[derive(Clone, Copy, Default)]
pub(crate) struct EngineTraits {
    /// The origin of the clock, by which a handle moves a deadline later; `None` if that takes more than a new deadline.
    pub(crate) origin: Option<ClockOrigin>,
    /// Whether an entry that cancels its timer has to report that: the engine has a capacity, or is virtual.
    pub(crate) reports_cancels: bool,
}

/// The index of no node.
pub(crate) const NONE: u32 = u32::MAX;

/// The most nodes that a slab can have: some 715 million.
pub(crate) const MOST: u32 = INDICES / STRIDE * (PER_CHUNK - HEADER_SLOTS);

/// All indices are below this: as many as a queue has places for.
const INDICES: u32 = 1 << 30;

const CHUNK_BITS: u32 = if cfg!(loom) {
    20
} else if cfg!(shuttle) {
    10
} else {
    16
};
const CHUNK_BYTES: usize = 1 << CHUNK_BITS;
/// The slots of a chunk, each the size of a node. The header takes the first [`HEADER_SLOTS`] of them.
const PER_CHUNK: u32 = (CHUNK_BYTES / size_of::<Node>()) as u32;
const HEADER_SLOTS: u32 = size_of::<Header>().div_ceil(size_of::<Node>()) as u32;
/// The difference between the indices of the first slots of two chunks: a power of two, so that an index gives the chunk and the position
/// in it by shifts alone. No slot has the indices between the last slot and the next chunk.
const STRIDE: u32 = PER_CHUNK.next_power_of_two();

/// The start of a chunk.
struct Header {
    shard: NonNull<Shard>,
    /// The index of the header's slot.
    index: u32,
    /// The fields of [`EngineTraits`].
    origin: Option<ClockOrigin>,
    reports_cancels: bool,
}

const CHUNK: Layout = match Layout::from_size_align(PER_CHUNK as usize * size_of::<Node>(), CHUNK_BYTES) {
    Ok(layout) => layout,
    Err(_) => panic!("not a layout"),
};
const _: () = assert!(align_of::<Header>() <= align_of::<Node>() && CHUNK.size() <= CHUNK_BYTES);
const _: () = assert!(HEADER_SLOTS >= 1 && HEADER_SLOTS < PER_CHUNK && INDICES.is_multiple_of(STRIDE));

/// The index of a node, as the queues have it. It is not zero, because the first slot of the first chunk is in a header.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeIndex(NonZeroU32);

/// The nodes of a shard, as its queues use them: under the shard's lock.
pub(crate) struct ShardNodes<'a> {
    pub(crate) slab: &'a NodeSlab,
    pub(crate) locked: &'a mut Locked,
}

// SAFETY: only the slab allocates and frees its chunks, and nothing in it is bound to a thread. Threads that share a node follow the rules
// of `node`, whichever thread has the slab.
unsafe impl Send for NodeSlab {}

impl NodeSlab {
    pub(crate) const fn new(engine: EngineTraits) -> NodeSlab {
        NodeSlab { last_freed: None, free: NONE, first_fresh: 0, chunks: Vec::new(), engine }
    }

    /// Takes a free node that has been in use, if there is one. It stays in the state `Free`.
    #[inline(always)]
    pub(crate) fn reuse(&mut self) -> Option<NodeRef> {
        if let Some(node) = self.last_freed.take() {
            return Some(node);
        }
        if self.free == NONE {
            return None;
        }
        let node = self.get(self.free);
        let NodeState::Free(next) = node.state().load() else {
            unreachable!("a node in the free list that is not free")
        };
        self.free = next;
        Some(node)
    }

    /// Frees a node that is in no queue and has no waker.
    #[inline(always)]
    pub(crate) fn put(&mut self, node: NodeRef) {
        node.state().set_free(NONE);
        if let Some(before) = self.last_freed.replace(node) {
            before.state().set_free(self.free);
            self.free = index_of(before);
        }
    }

    /// Returns the node with this index, which has been in use.
    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> NodeRef {
        let chunk = self.chunks[(index / STRIDE) as usize];
        // SAFETY: the index is that of a node, so the position is below `PER_CHUNK`, and the address is inside the chunk. The slab keeps the
        // chunk, and the shard the slab.
        unsafe { NodeRef::new(chunk.add((index % STRIDE) as usize)) }
    }

    /// Returns the node that a queue of the shard has.
    #[inline(always)]
    pub(crate) fn node(&self, index: NodeIndex) -> NodeRef {
        self.get(index.0.get())
    }

    /// Returns the indices, from `first` on, of all nodes that have ever been in use.
    pub(crate) fn indices(&self, first: u32) -> impl Iterator<Item = u32> + use<> {
        (first..self.first_fresh).filter(|index| (HEADER_SLOTS..PER_CHUNK).contains(&(index % STRIDE)))
    }

    /// Takes a node that has never been in use; `None` if there are as many as a queue can hold.
    ///
    /// # Safety
    /// `shard` is the shard that owns this slab, and no thread uses the returned reference after that shard is gone.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn take_fresh(&mut self, shard: NonNull<Shard>) -> Option<NodeRef> {
        if self.first_fresh.is_multiple_of(STRIDE) {
            if self.first_fresh == INDICES {
                return None;
            }
            let EngineTraits { origin, reports_cancels } = self.engine;
            self.chunks.push(allocate(Header { shard, index: self.first_fresh, origin, reports_cancels }));
            self.first_fresh += HEADER_SLOTS;
        }
        let index = self.first_fresh;
        self.first_fresh += 1;
        if self.first_fresh % STRIDE == PER_CHUNK {
            self.first_fresh = self.first_fresh.next_multiple_of(STRIDE);
        }
        let node = self.get(index);
        // SAFETY: the memory is inside a chunk. The node has never been taken, so no other thread has a reference to it.
        unsafe { node.as_ptr().write(Node::new()) };
        Some(node)
    }
}

impl NodeSlab {
    /// Returns how many nodes are in use. Looks at each node.
    pub(crate) fn in_use(&self) -> usize {
        self.indices(0).filter(|index| !matches!(self.get(*index).state().load(), NodeState::Free(_))).count()
    }

    /// Frees all memory. No node is in use.
    pub(crate) fn free_all(&mut self) {
        debug_assert_eq!(self.in_use(), 0);
        *self = NodeSlab::new(self.engine);
    }
}

impl Drop for NodeSlab {
    fn drop(&mut self) {
        for index in self.indices(if IS_CHECK { 0 } else { self.first_fresh }) {
            // SAFETY: `take_fresh` has initialised the node. The shard is gone, or no node of it is in use: no thread uses a reference
            // to it. (Outside a check a node has nothing to drop.)
            unsafe { self.get(index).as_ptr().drop_in_place() };
        }
        for chunk in &self.chunks {
            // SAFETY: `allocate` has allocated the chunk with this layout. Only this destructor frees it. No thread uses its nodes, as above.
            unsafe { dealloc(chunk.as_ptr().cast(), CHUNK) };
        }
    }
}

/// Allocates a chunk and writes its header, not its nodes.
fn allocate(header: Header) -> NonNull<Node> {
    // SAFETY: the layout has a size above zero.
    let Some(chunk) = NonNull::new(unsafe { alloc(CHUNK) }.cast::<Node>()) else { handle_alloc_error(CHUNK) };
    // SAFETY: the memory was just allocated, and a header fits into the first slots (asserted above).
    unsafe { chunk.cast().write(header) };
    chunk
}

/// Returns the shard that a node belongs to.
#[inline(always)]
pub(crate) fn shard_of(node: NodeRef) -> NonNull<Shard> {
    header_of(node).shard
}

/// Returns the origin of the clock of a node's engine: see [`EngineTraits`].
#[inline(always)]
pub(crate) fn origin_of(node: NodeRef) -> Option<ClockOrigin> {
    header_of(node).origin
}

/// Returns whether a cancel has to be reported to a node's engine: see [`EngineTraits`].
#[inline(always)]
pub(crate) fn reports_cancels(node: NodeRef) -> bool {
    header_of(node).reports_cancels
}

/// Returns the index of a node in its slab.
#[inline(always)]
pub(crate) fn index_of(node: NodeRef) -> u32 {
    let position = (node.as_ptr().addr().get() % CHUNK_BYTES) / size_of::<Node>();
    header_of(node).index + position as u32
}

impl NodeIndex {
    #[inline(always)]
    pub(crate) fn of(node: NodeRef) -> NodeIndex {
        let Some(index) = NonZeroU32::new(index_of(node)) else { unreachable!("a node in the place of a header") };
        NodeIndex(index)
    }
}

impl Entries<NodeIndex> for ShardNodes<'_> {
    #[inline(always)]
    fn place(&self, index: &NodeIndex) -> Place {
        self.slab.node(*index).place(self.locked)
    }

    #[inline(always)]
    fn set_place(&mut self, index: &NodeIndex, place: Place) {
        self.slab.node(*index).set_place(self.locked, place);
    }
}

impl EntryDeadlines<NodeIndex> for ShardNodes<'_> {
    #[inline(always)]
    fn deadline(&self, index: &NodeIndex) -> Option<Time> {
        match self.slab.node(*index).state().load() {
            NodeState::Armed(deadline) => Some(deadline),
            _ => None,
        }
    }

    #[inline(always)]
    fn prefetch(&self, index: &NodeIndex) {
        self.slab.node(*index).prefetch();
    }
}

/// Returns the header of a node's chunk, which is at the masked address because chunks are aligned to their size.
#[inline(always)]
fn header_of<'a>(node: NodeRef) -> &'a Header {
    let header = node.as_ptr().as_ptr().map_addr(|address| address & !(CHUNK_BYTES - 1)).cast::<Header>();
    // SAFETY: `allocate` wrote the header before the slab handed out a node of the chunk, and no thread writes it again. It lives as long as
    // the chunk, which lives as long as the node. The callers copy a field and keep no reference.
    unsafe { &*header }
}
