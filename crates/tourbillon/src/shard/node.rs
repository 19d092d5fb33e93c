//! What the engine keeps of one armed timer: 32 bytes, in a chunk of its shard.
//!
//! ```text
//!     chunk, aligned to its size          node
//!     +--------------+                    +--------------------------------------+
//!     | shard, first |  <-- by masking    | state: a word (see `state`)      8   |
//!     +--------------+      the address   | waker                           16   |
//!     | node | node  |                    | place in the queue               4   |
//!     | node | ...   |                    | mode: slack                      1   |
//!     +--------------+                    | place among the young            2   |
//!                                         +--------------------------------------+
//! ```
//!
//! A node's address does not change and its chunk lives as long as its shard, so a handle on any thread can reach the state
//! word and, through the chunk, the shard. Who may touch which field:
//!
//! - `state`: see [`StateWord`].
//! - `waker`: written by a handle that holds the shard's lock. The shard takes it when it fires or stops the entry, by a
//!   copy, without writing; a handle that has cancelled takes it likewise. So as long as the handle does not write,
//!   everybody may read the bits of it: the handle uses that to see whether a waker is still the same.
//! - `place`, `young`: only with the shard's lock.
//! - `mode`: written by a handle that holds the shard's lock, read by the handle and by the shard.

use std::mem::ManuallyDrop;
use std::ptr::{NonNull, null};
use std::task::{RawWakerVTable, Waker};

use tourbillon_queue::{Entries, Place};

use crate::shard::state::StateWord;
use crate::slack::SlackBits;
use crate::sync::{Cell, UnsafeCell};

pub(crate) struct Node {
    pub(crate) state: StateWord,
    waker: UnsafeCell<Parts>,
    place: Cell<Place>,
    slack: Cell<SlackBits>,
    /// One more than its place among the young; zero if it is not one of them.
    insert_buffer: Cell<u16>,
}

#[cfg(all(not(any(loom, shuttle)), target_pointer_width = "64"))]
const _: () = assert!(size_of::<Node>() == 32);

/// A waker taken apart. (Its two words are written and read one by one: a load of both that follows two stores has to wait
/// until those have left the core, and that is most of what arming would cost.)
#[derive(Clone, Copy)]
struct Parts {
    data: *const (),
    /// Null only before there was any waker.
    vtable: *const RawWakerVTable,
}

/// A node that is somebody's: of a handle, or of the shard's queue.
///
/// It can be copied, and reading `state` through it is always right. The other fields follow the rules of the module.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeRef(NonNull<Node>);

// SAFETY: a node reference is a pointer that is used on any thread under the rules of the module.
unsafe impl Send for NodeRef {}

impl Node {
    pub(crate) fn new() -> Node {
        Node {
            state: StateWord::free(),
            waker: UnsafeCell::new(Parts { data: null(), vtable: null() }),
            place: Cell::new(Place::NOWHERE),
            slack: Cell::new(SlackBits::default()),
            insert_buffer: Cell::new(0),
        }
    }
}

impl NodeRef {
    /// # Safety
    /// The node is in a chunk of a shard, and nobody uses the reference after the shard is gone.
    #[inline(always)]
    pub(crate) unsafe fn new(node: NonNull<Node>) -> NodeRef {
        NodeRef(node)
    }

    #[inline(always)]
    pub(crate) fn as_ptr(self) -> NonNull<Node> {
        self.0
    }

    #[inline(always)]
    fn node(&self) -> &Node {
        // SAFETY: see `new`.
        unsafe { self.0.as_ref() }
    }

    /// Tells the processor that the node will be needed.
    #[inline(always)]
    pub(crate) fn prefetch(self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which does nothing to memory.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(self.0.as_ptr().cast());
        }
    }

    #[inline(always)]
    pub(crate) fn state(&self) -> &StateWord {
        &self.node().state
    }

    /// # Safety
    /// The caller is the handle and holds the shard's lock, and the node has no waker.
    #[inline(always)]
    pub(crate) unsafe fn put_waker(self, waker: Waker) {
        let waker = ManuallyDrop::new(waker);
        let (data, vtable) = (waker.data(), std::ptr::from_ref(waker.vtable()));
        // SAFETY: the handle is here and the shard is locked, so nobody else reads or writes.
        self.node().waker.with_mut(|parts| unsafe {
            (*parts).data = data;
            (*parts).vtable = vtable;
        });
    }

    /// # Safety
    /// The caller owns the waker by the rules of the module, and this is the only time that it takes it.
    #[inline(always)]
    pub(crate) unsafe fn take_waker(self) -> Waker {
        // SAFETY: nobody writes while somebody else owns the waker. These are the parts of one that was put, and that nobody
        // has taken.
        self.node().waker.with(|parts| unsafe { Waker::new((*parts).data, &*(*parts).vtable) })
    }

    /// Whether the waker is this one, or was.
    ///
    /// # Safety
    /// The caller is the handle, and the node has been armed since it was last free.
    #[inline(always)]
    pub(crate) unsafe fn has_waker(self, waker: &Waker) -> bool {
        // SAFETY: nobody but the handle writes. If the shard has taken the waker meanwhile, these are two addresses that are
        // compared and not followed.
        self.node()
            .waker
            .with(|parts| unsafe { (*parts).data == waker.data() && std::ptr::eq((*parts).vtable, waker.vtable()) })
    }

    /// # Safety
    /// The caller holds the shard's lock.
    #[inline(always)]
    pub(crate) unsafe fn place(self) -> Place {
        self.node().place.get()
    }

    /// # Safety
    /// The caller holds the shard's lock.
    #[inline(always)]
    pub(crate) unsafe fn set_place(self, place: Place) {
        self.node().place.set(place);
    }

    /// Its place among the young.
    ///
    /// # Safety
    /// The caller holds the shard's lock.
    #[inline(always)]
    pub(crate) unsafe fn insert_buffer(self) -> Option<u16> {
        self.node().insert_buffer.get().checked_sub(1)
    }

    /// # Safety
    /// The caller holds the shard's lock.
    #[inline(always)]
    pub(crate) unsafe fn set_young(self, place: Option<u16>) {
        self.node().insert_buffer.set(place.map_or(0, |place| place + 1));
    }

    /// # Safety
    /// The caller is the handle or holds the shard's lock.
    #[inline(always)]
    pub(crate) unsafe fn slack(self) -> SlackBits {
        self.node().slack.get()
    }

    /// # Safety
    /// The caller is the handle and holds the shard's lock.
    #[inline(always)]
    pub(crate) unsafe fn set_slack(self, slack: SlackBits) {
        self.node().slack.set(slack);
    }
}

/// The nodes in the queue of a shard, for those who hold its lock.
pub(crate) struct Locked(());

impl Locked {
    /// # Safety
    /// As long as the value is in use, the caller holds the lock of the shard whose queue it is given to.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Locked {
        Locked(())
    }
}

impl Entries<NodeRef> for Locked {
    #[inline(always)]
    fn place(&self, node: &NodeRef) -> Place {
        // SAFETY: the lock is held, see `new`.
        unsafe { node.place() }
    }

    #[inline(always)]
    fn set_place(&mut self, node: &NodeRef, place: Place) {
        // SAFETY: the lock is held, see `new`.
        unsafe { NodeRef::set_place(*node, place) }
    }
}
