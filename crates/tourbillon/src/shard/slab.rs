//! Where a shard's nodes live: chunks that do not move, and a list of the free ones.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use crate::shard::Shard;
use crate::shard::node::{Node, NodeRef};
use crate::shard::state::Seen;
use crate::sync::IS_CHECK;

/// The nodes of one shard.
pub(crate) struct Slab {
    /// The node that was put back last: what is armed next, most often.
    hot: Option<NodeRef>,
    /// The first of the list of the other free nodes, or [`NONE`].
    free: u32,
    /// Rooms below this index have been in use. Those beyond are memory that has not been touched.
    touched: u32,
    chunks: Vec<NonNull<Node>>,
}

/// No node.
pub(crate) const NONE: u32 = u32::MAX;

/// As many as a queue can find places for.
pub(crate) const MOST: u32 = 1 << 30;

const CHUNK_BITS: u32 = if cfg!(loom) {
    20
} else if cfg!(shuttle) {
    10
} else {
    16
};
const CHUNK_BYTES: usize = 1 << CHUNK_BITS;
/// A chunk is so many times the room of a node. The first is taken by its header, so that an index is a chunk and a
/// position in it by shifts alone.
const PER_CHUNK: usize = 1 << (CHUNK_BYTES / size_of::<Node>()).ilog2();

/// What is at the start of a chunk, in the room of one node.
struct Header {
    shard: NonNull<Shard>,
    /// The index of this room.
    index: u32,
}

const CHUNK: Layout = match Layout::from_size_align(PER_CHUNK * size_of::<Node>(), CHUNK_BYTES) {
    Ok(layout) => layout,
    Err(_) => panic!("not a layout"),
};
const _: () = assert!(size_of::<Header>() <= size_of::<Node>() && CHUNK.size() <= CHUNK_BYTES);
const _: () = assert!((MOST as usize).is_multiple_of(PER_CHUNK));

// SAFETY: the chunks belong to the slab alone; what threads share of a node is its own matter.
unsafe impl Send for Slab {}

impl Slab {
    pub(crate) const fn new() -> Slab {
        Slab { hot: None, free: NONE, touched: 0, chunks: Vec::new() }
    }

    /// A node that has been in use and is free, if there is one. It stays in the state `Free`.
    #[inline(always)]
    pub(crate) fn reuse(&mut self) -> Option<NodeRef> {
        if let Some(node) = self.hot.take() {
            return Some(node);
        }
        if self.free == NONE {
            return None;
        }
        let node = self.get(self.free);
        let Seen::Free(next) = node.state().see() else { unreachable!("a node in the free list that is not free") };
        self.free = next;
        Some(node)
    }

    /// Puts a node back. Its place is nowhere and its waker gone.
    #[inline(always)]
    pub(crate) fn put(&mut self, node: NodeRef) {
        node.state().set_free(NONE);
        if let Some(before) = self.hot.replace(node) {
            before.state().set_free(self.free);
            self.free = index_of(before);
        }
    }

    /// The node with this index, which has been in use.
    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> NodeRef {
        let chunk = self.chunks[index as usize / PER_CHUNK];
        // SAFETY: within the chunk, which lives as long as the slab. The node was written when it was first taken.
        unsafe { NodeRef::new(chunk.add(index as usize % PER_CHUNK)) }
    }

    /// The indices of all nodes from `first` on that have ever been in use.
    pub(crate) fn indices(&self, first: u32) -> impl Iterator<Item = u32> + use<> {
        (first..self.touched).filter(|index| !(*index as usize).is_multiple_of(PER_CHUNK))
    }

    /// A node that has never been in use; `None` if there are as many as a queue can hold.
    ///
    /// # Safety
    /// `shard` is the shard that owns this slab. The references do not outlive it.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn touch(&mut self, shard: NonNull<Shard>) -> Option<NodeRef> {
        if (self.touched as usize).is_multiple_of(PER_CHUNK) {
            if self.touched == MOST {
                return None;
            }
            self.chunks.push(allocate(Header { shard, index: self.touched }));
            self.touched += 1;
        }
        let index = self.touched;
        self.touched += 1;
        let node = self.get(index);
        // SAFETY: nobody has a reference to a node that has never been taken.
        unsafe { node.as_ptr().write(Node::new()) };
        Some(node)
    }
}

impl Slab {
    /// How many nodes are neither free nor untouched. Looks at all of them.
    pub(crate) fn in_use(&self) -> usize {
        self.indices(0).filter(|index| !matches!(self.get(*index).state().see(), Seen::Free(_))).count()
    }

    /// Gives all memory back. No node is in use.
    pub(crate) fn free_all(&mut self) {
        debug_assert_eq!(self.in_use(), 0);
        *self = Slab::new();
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        for index in self.indices(if IS_CHECK { 0 } else { self.touched }) {
            // SAFETY: nobody has a reference any more. (Outside a check a node has nothing to drop.)
            unsafe { self.get(index).as_ptr().drop_in_place() };
        }
        for chunk in &self.chunks {
            // SAFETY: allocated with this layout in `allocate`, and freed once.
            unsafe { dealloc(chunk.as_ptr().cast(), CHUNK) };
        }
    }
}

/// A chunk whose nodes are yet to be written.
fn allocate(header: Header) -> NonNull<Node> {
    // SAFETY: the layout is not empty.
    let Some(chunk) = NonNull::new(unsafe { alloc(CHUNK) }.cast::<Node>()) else { handle_alloc_error(CHUNK) };
    // SAFETY: freshly allocated, and a header fits into the room of a node.
    unsafe { chunk.cast().write(header) };
    chunk
}

/// The shard whose node this is.
#[inline(always)]
pub(crate) fn shard_of(node: NodeRef) -> NonNull<Shard> {
    header_of(node).shard
}

/// The index of a node in its slab.
#[inline(always)]
pub(crate) fn index_of(node: NodeRef) -> u32 {
    let rooms = (node.as_ptr().addr().get() % CHUNK_BYTES) / size_of::<Node>();
    header_of(node).index + rooms as u32
}

/// The header of a node's chunk: chunks are aligned to their size.
#[inline(always)]
fn header_of<'a>(node: NodeRef) -> &'a Header {
    let header = node.as_ptr().as_ptr().map_addr(|address| address & !(CHUNK_BYTES - 1)).cast::<Header>();
    // SAFETY: it was written before the first node of the chunk was given out, does not change, and lives as long as the
    // chunk does. The callers copy what they want from it.
    unsafe { &*header }
}
