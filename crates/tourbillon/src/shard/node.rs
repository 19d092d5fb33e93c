//! What the engine keeps of one armed timer: 32 bytes, in a chunk of its shard.
//!
//! ```text
//!     chunk, aligned to its size          node
//!     +--------------+                    +--------------------------------------+
//!     | shard, first |  <-- by masking    | state: a word (see `state`)      8   |
//!     +--------------+      the address   | waker                           16   |
//!     | node | node  |                    | place in the queue               4   |
//!     | node | ...   |                    | slack                            1   |
//!     +--------------+                    | place in the insert buffer       2   |
//!                                         +--------------------------------------+
//! ```
//!
//! A node's address does not change and its chunk lives as long as its shard, so a handle on any thread can reach the state
//! word and, through the chunk, the shard. Which thread may touch which field:
//!
//! - `state`: any, see [`StateWord`].
//! - `waker`: the handle writes it, under the shard's lock. The shard takes it when it fires or stops the timer, by a copy,
//!   without writing; a handle that has cancelled takes it likewise. So as long as the handle does not write, any thread may
//!   read the bits of it: the handle uses that to see whether a waker is still the same.
//! - `place`, `buffered`: a thread that holds the shard's lock ([`Locked`]).
//! - `slack`: the handle writes it, under the shard's lock; the handle ([`NodeHandle`]) and the shard read it.

use std::mem::ManuallyDrop;
use std::ptr::{NonNull, null};
use std::task::{RawWakerVTable, Waker};

use tourbillon_queue::{Entries, Place, Time};

use crate::outcome::Outcome;
use crate::shard::state::{Cancel, Fire, Seen, StateWord, Stop};
use crate::slack::SlackBits;
use crate::sync::{Cell, UnsafeCell};

pub(crate) struct Node {
    pub(crate) state: StateWord,
    waker: UnsafeCell<Parts>,
    place: Cell<Place>,
    slack: Cell<SlackBits>,
    /// One more than its place in the insert buffer; zero if it is not there.
    buffered: Cell<u16>,
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

/// A node of a shard, as its queues have it.
///
/// It can be copied, and any thread may read and change `state` through it. The other fields need the [`Locked`] of the node's shard.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeRef(NonNull<Node>);

// SAFETY: any thread may use the state word of a node. The other fields are reached with `Locked`, which is behind the shard's lock, or
// with `NodeHandle`, of which there is one for each node.
unsafe impl Send for NodeRef {}

/// The right of a timer's handle to its node: [`ShardInner::arm`](crate::shard) creates it, and the release of the node consumes it, so
/// there is one for each node that is in use. It cannot be copied.
#[derive(PartialEq, Eq)]
pub(crate) struct NodeHandle(NodeRef);

/// The proof that the calling thread holds the lock of a shard, for the nodes of that shard.
///
/// A shard has one, behind its lock, next to its queues: whoever can name it has locked the shard.
pub(crate) struct Locked(());

/// The outcome of an attempt to fire a timer.
#[must_use]
pub(crate) enum FireNode {
    /// The timer is due, and fires: its deadline, and its waker.
    Won(Time, Waker),
    /// The handle has pushed the deadline later, to this time.
    NotYet(Time),
    /// The timer had ended.
    Lost,
}

impl Node {
    pub(crate) fn new() -> Node {
        Node {
            state: StateWord::free(),
            waker: UnsafeCell::new(Parts { data: null(), vtable: null() }),
            place: Cell::new(Place::NOWHERE),
            slack: Cell::new(SlackBits::default()),
            buffered: Cell::new(0),
        }
    }
}

impl NodeRef {
    /// # Safety
    /// The node is in a chunk of a shard, and no thread uses the reference after the shard is gone.
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
        // SAFETY: the chunk of the node lives as long as its shard: the contract of `new`.
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

    /// Arms a free node and returns the right to it. The caller forgets what else it has of the node.
    #[inline(always)]
    pub(crate) fn arm(self, locked: &mut Locked, deadline: Time, slack: SlackBits, waker: Waker) -> NodeHandle {
        let handle = NodeHandle(self);
        handle.put_waker(locked, waker);
        self.node().slack.set(slack);
        self.state().arm(deadline);
        handle
    }

    /// Fires the timer if its deadline is `due` or earlier.
    #[inline(always)]
    pub(crate) fn fire(self, _: &mut Locked, due: Time) -> FireNode {
        match self.state().fire(due) {
            // SAFETY: the shard has won, so the waker is its own, and it takes it here.
            Fire::Won(deadline) => FireNode::Won(deadline, unsafe { self.take_waker() }),
            Fire::NotYet(deadline) => FireNode::NotYet(deadline),
            Fire::Lost => FireNode::Lost,
        }
    }

    /// Stops the timer and returns its waker, if it had not ended.
    pub(crate) fn stop(self, _: &mut Locked) -> Option<Waker> {
        // SAFETY: the shard has won, so the waker is its own, and it takes it here.
        (self.state().stop() == Stop::Won).then(|| unsafe { self.take_waker() })
    }

    /// # Safety
    /// The caller owns the waker by the rules of the module, and this is the only time that it takes it.
    #[inline(always)]
    unsafe fn take_waker(self) -> Waker {
        // SAFETY: no thread writes the waker while another owns it. These are the parts of a waker that was put, and that no thread has
        // taken: the caller's contract.
        self.node().waker.with(|parts| unsafe { Waker::new((*parts).data, &*(*parts).vtable) })
    }

    /// Returns the place in the queue.
    #[inline(always)]
    pub(crate) fn place(self, _: &Locked) -> Place {
        self.node().place.get()
    }

    #[inline(always)]
    pub(crate) fn set_place(self, _: &mut Locked, place: Place) {
        self.node().place.set(place);
    }

    /// Returns the place in the insert buffer, if the node is there.
    #[inline(always)]
    pub(crate) fn buffered(self, _: &Locked) -> Option<u16> {
        self.node().buffered.get().checked_sub(1)
    }

    #[inline(always)]
    pub(crate) fn set_buffered(self, _: &mut Locked, place: Option<u16>) {
        self.node().buffered.set(place.map_or(0, |place| place + 1));
    }

    #[inline(always)]
    pub(crate) fn slack(self, _: &Locked) -> SlackBits {
        self.node().slack.get()
    }
}

impl NodeHandle {
    /// # Safety
    /// The node is in use, and the caller has the right to it that was created when the node was armed: it is not used on two threads at
    /// once, and not after it was given up.
    #[inline(always)]
    pub(crate) unsafe fn new(node: NodeRef) -> NodeHandle {
        NodeHandle(node)
    }

    #[inline(always)]
    pub(crate) fn node(&self) -> NodeRef {
        self.0
    }

    #[inline(always)]
    pub(crate) fn slack(&self) -> SlackBits {
        // Written when the node was armed, by the handle.
        self.0.node().slack.get()
    }

    #[inline(always)]
    fn put_waker(&self, _: &mut Locked, waker: Waker) {
        let waker = ManuallyDrop::new(waker);
        let (data, vtable) = (waker.data(), std::ptr::from_ref(waker.vtable()));
        // SAFETY: other threads read or take the waker under the lock, which is held, or as the handle, which is here.
        self.0.node().waker.with_mut(|parts| unsafe {
            (*parts).data = data;
            (*parts).vtable = vtable;
        });
    }

    /// Returns the waker of a node that is armed, for the caller to own; `None` if the timer has ended. The node then has no waker: the
    /// caller frees it or [puts](NodeHandle::change_waker) another.
    #[inline(always)]
    pub(crate) fn take_armed_waker(&self, _: &mut Locked) -> Option<Waker> {
        let Seen::Armed(_) = self.0.state().see() else { return None };
        // SAFETY: it is armed, so the shard has not taken the waker, and cannot as long as this thread has the lock.
        Some(unsafe { self.0.take_waker() })
    }

    /// Exchanges the waker of a node that is armed, and returns the old one; `None` if the timer has ended, or there is no new one.
    pub(crate) fn change_waker(&self, locked: &mut Locked, new: &mut Option<Waker>) -> Option<Waker> {
        let Seen::Armed(_) = self.0.state().see() else { return None };
        let new = new.take()?;
        let old = self.take_armed_waker(locked);
        self.put_waker(locked, new);
        old
    }

    /// Whether the waker is this one, or was.
    #[inline(always)]
    pub(crate) fn has_waker(&self, waker: &Waker) -> bool {
        // SAFETY: only the handle writes the waker, and it is here. If the shard has taken the waker meanwhile, these are two addresses
        // that are compared and not followed.
        self.0
            .node()
            .waker
            .with(|parts| unsafe { (*parts).data == waker.data() && std::ptr::eq((*parts).vtable, waker.vtable()) })
    }

    /// Cancels the timer without the lock of its shard. Returns the waker, or how the timer had ended before.
    pub(crate) fn cancel_remote(&self) -> Result<Waker, Outcome> {
        match self.0.state().cancel() {
            // SAFETY: the handle has won, so the waker is its own, and it takes it here.
            Cancel::Won => Ok(unsafe { self.0.take_waker() }),
            Cancel::Lost(outcome) => Err(outcome),
        }
    }
}

impl Locked {
    /// # Safety
    /// The value is kept where only a thread that holds the lock of one shard can reach it, and is used for the nodes of that shard.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Locked {
        Locked(())
    }
}

impl Entries<NodeRef> for Locked {
    #[inline(always)]
    fn place(&self, node: &NodeRef) -> Place {
        NodeRef::place(*node, self)
    }

    #[inline(always)]
    fn set_place(&mut self, node: &NodeRef, place: Place) {
        NodeRef::set_place(*node, self, place);
    }
}
