//! A node is the engine's record of one armed timer: 24 bytes, in a chunk of its shard's slab.
//!
//! ```text
//!     chunk, aligned to its size          node
//!     +--------------+                    +--------------------------------------+
//!     | shard, first |  <-- by masking    | state: a word (see `state`)      8   |
//!     +--------------+      the address   | waker: its data word             8   |
//!     | node | node  |                    | waker: distance of its vtable    3   |
//!     | node | ...   |                    | slack                            1   |
//!     +--------------+                    | place: queue or insert buffer    4   |
//!                                         +--------------------------------------+
//! ```
//!
//! A node's address does not change, and its chunk lives while the engine does or any node of the shard is in use. So a handle on any
//! thread can reach the state word and, through the chunk, the shard. Which thread may use which field:
//!
//! - `state`: any, see [`StateWord`].
//! - the waker: the handle writes it, under the shard's lock. The shard takes it when it fires or stops the timer, by a copy, without
//!   writing; a handle that has cancelled the timer takes it likewise. So as long as the handle does not write, any thread may read its
//!   bits: the handle does so to compare it with the waker of a poll.
//! - `place`: a thread that holds the shard's lock ([`Locked`]).
//! - the slack: as the waker.

use std::ptr::{NonNull, null};
use std::task::Waker;

use tourbillon_queue::{Place, Time};

use crate::outcome::Outcome;
use crate::shard::packed_waker::{self, VtableDistance};
use crate::shard::state::{CountAs, Fire, NodeState, Released, StateWord, Stop};
use crate::slack::SlackBits;
use crate::sync::{Cell, UnsafeCell, prefetch};

pub(crate) struct Node {
    pub(crate) state: StateWord,
    /// The data word of the [packed waker](packed_waker). Null before the node was first armed.
    waker_data: UnsafeCell<*const ()>,
    /// The place in the queue, or nowhere with the number of the place in the insert buffer.
    place: Cell<Place>,
    vtable_and_slack: Cell<VtableAndSlack>,
}

#[cfg(all(not(any(loom, shuttle)), target_pointer_width = "64"))]
const _: () = assert!(size_of::<Node>() == 24);

/// The distance of the vtable of the packed waker in the upper bits, the slack in the lower eight.
#[derive(Clone, Copy)]
struct VtableAndSlack(u32);

impl VtableAndSlack {
    #[inline(always)]
    fn new(distance: VtableDistance, slack: SlackBits) -> VtableAndSlack {
        VtableAndSlack(distance.with_low(slack.to_bits()))
    }

    #[inline(always)]
    fn distance(self) -> VtableDistance {
        VtableDistance::of_word(self.0)
    }

    #[inline(always)]
    fn slack(self) -> SlackBits {
        SlackBits::from_bits(self.0 as u8)
    }
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
            waker_data: UnsafeCell::new(null()),
            place: Cell::new(Place::NOWHERE),
            vtable_and_slack: Cell::new(VtableAndSlack(0)),
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
        prefetch::to_read(self.0.addr().get());
    }

    /// Lets the processor take the node out of another processor's cache.
    #[inline(always)]
    pub(crate) fn prefetch_to_write(self) {
        prefetch::to_write(self.0.addr().get());
    }

    #[inline(always)]
    pub(crate) fn state(&self) -> &StateWord {
        &self.node().state
    }

    /// Arms a free node and returns the right to it.
    #[inline(always)]
    pub(crate) fn arm(self, locked: &mut Locked, deadline: Time, slack: SlackBits, waker: Waker) -> NodeHandle {
        let handle = NodeHandle(self);
        handle.put_waker(locked, waker, slack);
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
        let node = self.node();
        // SAFETY: (1) Only the handle writes the waker, under the lock. The caller holds the lock or is the handle, so no thread writes it
        // now. (2) The data word and the distance are those that `put_waker` has packed, and no thread has taken that waker since: the
        // caller's contract.
        node.waker_data.with(|data| unsafe { packed_waker::unpack(*data, node.vtable_and_slack.get().distance()) })
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

    #[inline(always)]
    pub(crate) fn slack(self, _: &Locked) -> SlackBits {
        self.node().vtable_and_slack.get().slack()
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
        // No race: only `put_waker` writes it, which needs the handle by `&mut Entry`, or before any thread has the handle.
        self.0.node().vtable_and_slack.get().slack()
    }

    #[inline(always)]
    fn put_waker(&self, _: &mut Locked, waker: Waker, slack: SlackBits) {
        let (data, distance) = packed_waker::pack(waker);
        let node = self.0.node();
        node.vtable_and_slack.set(VtableAndSlack::new(distance, slack));
        // SAFETY: other threads reach the waker under the lock, which this thread holds (`Locked`), or by the node's only handle, which is
        // this one.
        node.waker_data.with_mut(|place| unsafe { *place = data });
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
        self.put_waker(locked, new, self.slack());
        old
    }

    /// Returns whether the waker that was put last is `waker`.
    #[inline(always)]
    pub(crate) fn has_waker(&self, waker: &Waker) -> bool {
        let node = self.0.node();
        // SAFETY: only the handle writes the waker, and that is this thread. If the shard has taken the waker meanwhile, the words are still
        // there: they are compared, and the pointer is not followed.
        let has_data = node.waker_data.with(|data| unsafe { *data == waker.data() });
        // A waker in a box has no distance, and counts as another one.
        has_data && VtableDistance::of(waker.vtable()) == Some(node.vtable_and_slack.get().distance())
    }

    /// Cancels the timer without the lock of its shard, and links the node to `next`. Returns the waker, or how the timer had ended before.
    /// The caller [pushes](crate::shard::remote_free::RemoteFreeList::push) the node after that.
    #[inline(always)]
    pub(crate) fn release_remote(&self, next: u32, count: CountAs) -> Result<Waker, Outcome> {
        match self.0.state().release(next, count) {
            // SAFETY: the handle has won the swap out of `Armed`, so the waker is the handle's, and it takes it here, once. The shard does not
            // reuse the node before the caller pushes it.
            Released::Cancelled => Ok(unsafe { self.0.take_waker() }),
            Released::Ended(outcome) => Err(outcome),
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
