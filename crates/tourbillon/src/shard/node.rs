//! A node is the engine's record of one armed timer: 32 bytes, in a chunk of its shard's slab.
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
//! A node's address does not change, and its chunk lives while the engine does or any node of the shard is in use. So a handle on any
//! thread can reach the state word and, through the chunk, the shard. Which thread may use which field:
//!
//! - `state`: any, see [`StateWord`].
//! - `waker`: the handle writes it, under the shard's lock. The shard takes it when it fires or stops the timer, by a copy, without
//!   writing; a handle that has cancelled the timer takes it likewise. So as long as the handle does not write, any thread may read its
//!   bits: the handle does so to compare it with the waker of a poll.
//! - `place`, `buffered`: a thread that holds the shard's lock ([`Locked`]).
//! - `slack`: the handle writes it, under the shard's lock; the handle ([`NodeHandle`]) and the shard read it.

use std::mem::ManuallyDrop;
use std::ptr::{NonNull, null};
use std::task::{RawWakerVTable, Waker};

use tourbillon_queue::{Entries, Place, Time};

use crate::outcome::Outcome;
use crate::shard::state::{Cancel, Fire, NodeState, StateWord, Stop};
use crate::slack::SlackBits;
use crate::sync::{Cell, UnsafeCell};

pub(crate) struct Node {
    pub(crate) state: StateWord,
    waker: UnsafeCell<WakerParts>,
    place: Cell<Place>,
    slack: Cell<SlackBits>,
    /// One more than its place in the insert buffer; zero if it is not there.
    buffered: Cell<u16>,
}

#[cfg(all(not(any(loom, shuttle)), target_pointer_width = "64"))]
const _: () = assert!(size_of::<Node>() == 32);

/// The two words of a waker. (They are written and read one by one: a load of both at once, after two stores, has to wait until the stores
/// have left the core, which would be most of the cost of arming.)
#[derive(Clone, Copy)]
struct WakerParts {
    data: *const (),
    /// Null only before the node was first armed.
    vtable: *const RawWakerVTable,
}

/// A node of a shard, as its queues have it.
///
/// It can be copied, and any thread may read and change the state word through it. The other fields need the [`Locked`] of the node's
/// shard.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeRef(NonNull<Node>);

// SAFETY: any thread may use the state word, which is atomic. A thread reaches the other fields with `Locked`, so that it holds the
// shard's lock, or with the node's only `NodeHandle`, by the rules of the module.
unsafe impl Send for NodeRef {}

/// The right of a timer's handle to its node: [`ShardTimers::arm`](crate::shard) creates it, and the release of the node consumes it, so
/// there is one for each node that is in use. It cannot be copied.
#[derive(PartialEq, Eq)]
pub(crate) struct NodeHandle(NodeRef);

/// The proof that the calling thread holds the lock of a shard, for the nodes of that shard.
///
/// A shard has one, behind its lock, next to its queues: a thread that can name it has locked the shard.
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
            waker: UnsafeCell::new(WakerParts { data: null(), vtable: null() }),
            place: Cell::new(Place::NOWHERE),
            slack: Cell::new(SlackBits::default()),
            buffered: Cell::new(0),
        }
    }
}

impl NodeRef {
    /// # Safety
    /// The node is in a chunk of a shard, and no thread uses the reference after the shard has freed its chunks. (A shard does that when it
    /// goes; and before, when its engine is gone and no node is in use.)
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
        // SAFETY: the chunk of the node has not been freed: the contract of `new`.
        unsafe { self.0.as_ref() }
    }

    /// Lets the processor load the node into its cache.
    #[inline(always)]
    pub(crate) fn prefetch(self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch is a hint: it neither reads nor writes memory in the sense of the language.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(self.0.as_ptr().cast());
        }
    }

    #[inline(always)]
    pub(crate) fn state(&self) -> &StateWord {
        &self.node().state
    }

    /// Arms a free node and returns the right to it.
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
            // SAFETY: the shard has won the swap out of `Armed`, so the waker is the shard's, and it takes it here, once.
            Fire::Won(deadline) => FireNode::Won(deadline, unsafe { self.take_waker() }),
            Fire::NotYet(deadline) => FireNode::NotYet(deadline),
            Fire::Lost => FireNode::Lost,
        }
    }

    /// Stops the timer and returns its waker, if it had not ended.
    pub(crate) fn stop(self, _: &mut Locked) -> Option<Waker> {
        // SAFETY: the shard has won the swap out of `Armed`, so the waker is the shard's, and it takes it here, once.
        (self.state().stop() == Stop::Won).then(|| unsafe { self.take_waker() })
    }

    /// # Safety
    /// The waker is the caller's by the table of [`state`](crate::shard::state), and the caller takes it only once.
    #[inline(always)]
    unsafe fn take_waker(self) -> Waker {
        // SAFETY: (1) Only the handle writes the waker, under the lock. The caller holds the lock or is the handle, so no thread writes it
        // now. (2) The words are those of a waker that `put_waker` has forgotten, and no thread has taken it since: the caller's contract.
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
    /// The node is in use, and the caller has the right that [`NodeRef::arm`] created: no other thread uses it at the same time, and no
    /// thread uses it after the node was released.
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
        // No race: only `NodeRef::arm` writes it, before it returns this handle.
        self.0.node().slack.get()
    }

    #[inline(always)]
    fn put_waker(&self, _: &mut Locked, waker: Waker) {
        let waker = ManuallyDrop::new(waker);
        let (data, vtable) = (waker.data(), std::ptr::from_ref(waker.vtable()));
        // SAFETY: other threads reach the waker under the lock, which this thread holds (`Locked`), or by the node's only handle, which is
        // this one.
        self.0.node().waker.with_mut(|parts| unsafe {
            (*parts).data = data;
            (*parts).vtable = vtable;
        });
    }

    /// Takes the waker of an armed node; `None` if the timer has ended. The node then has no waker: the caller frees the node, or
    /// [puts](NodeHandle::put_waker) another.
    #[inline(always)]
    pub(crate) fn take_armed_waker(&self, _: &mut Locked) -> Option<Waker> {
        let NodeState::Armed(_) = self.0.state().load() else { return None };
        // SAFETY: the node is armed, so no thread has taken the waker. The shard takes it only under the lock, which this thread holds, and a
        // cancelling handle would be this one. The caller frees the node or puts another waker, so the waker is not taken again.
        Some(unsafe { self.0.take_waker() })
    }

    /// Exchanges the waker of a node that is armed, and returns the old one; `None` if the timer has ended, or there is no new one.
    pub(crate) fn change_waker(&self, locked: &mut Locked, new: &mut Option<Waker>) -> Option<Waker> {
        let NodeState::Armed(_) = self.0.state().load() else { return None };
        let new = new.take()?;
        let old = self.take_armed_waker(locked);
        self.put_waker(locked, new);
        old
    }

    /// Returns whether the waker that was put last is `waker`.
    #[inline(always)]
    pub(crate) fn has_waker(&self, waker: &Waker) -> bool {
        // SAFETY: only the handle writes the waker, and that is this thread. If the shard has taken the waker meanwhile, the words are still
        // there: they are compared, and the pointers are not followed.
        self.0
            .node()
            .waker
            .with(|parts| unsafe { (*parts).data == waker.data() && std::ptr::eq((*parts).vtable, waker.vtable()) })
    }

    /// Cancels the timer without the lock of its shard. Returns the waker, or how the timer had ended before.
    pub(crate) fn cancel_remote(&self) -> Result<Waker, Outcome> {
        match self.0.state().cancel() {
            // SAFETY: the handle has won the swap out of `Armed`, so the waker is the handle's, and it takes it here, once.
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
