//! A queue of a shard: one of four kinds, chosen when the engine is built.

use std::time::Duration;

use tourbillon_queue::{Place, RawHeap, RawListTree, RawQueue, RawRounds, RawWheel, RoundsError, Settled, Span, Time};

use crate::shard::node::{Locked, NodeRef};

/// The data structure that keeps an engine's timers in order. All kinds give the same results and differ in cost.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Engine, QueueKind};
///
/// let few = Engine::builder().queue(QueueKind::Heap).build()?;
/// let minutes = QueueKind::Rounds { tick: Duration::from_millis(10), slots: 6000 };
/// let engine = Engine::builder().queue(minutes).build()?;
/// # drop((few, engine));
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum QueueKind {
    /// A hierarchical wheel: arms and cancels in constant time. The right choice nearly always.
    #[default]
    Wheel,
    /// An indexed heap: every operation takes O(log n). For up to some thousands of timers in a shard.
    Heap,
    /// Sorted runs beside a tree. For a few fixed timeouts.
    ListTree,
    /// One wheel with round counts.
    Rounds {
        /// How long a slot lasts.
        tick: Duration,
        /// How many slots a revolution has.
        slots: usize,
    },
}

#[expect(clippy::large_enum_variant, reason = "a shard has two, and they stay where they are")]
pub(crate) enum Queue {
    Wheel(RawWheel<NodeRef>),
    Heap(RawHeap<NodeRef>),
    ListTree(RawListTree<NodeRef>),
    Rounds(RawRounds<NodeRef>),
}

/// Makes the same call on a queue of any kind.
macro_rules! on {
    ($queue:expr, $it:ident => $call:expr) => {
        match $queue {
            Queue::Wheel($it) => $call,
            Queue::Heap($it) => $call,
            Queue::ListTree($it) => $call,
            Queue::Rounds($it) => $call,
        }
    };
}

impl Queue {
    pub(crate) fn new(kind: QueueKind) -> Result<Queue, RoundsError> {
        Ok(match kind {
            QueueKind::Wheel => Queue::Wheel(RawWheel::new()),
            QueueKind::Heap => Queue::Heap(RawHeap::new()),
            QueueKind::ListTree => Queue::ListTree(RawListTree::new()),
            QueueKind::Rounds { tick, slots } => Queue::Rounds(RawRounds::with_slots(Span::from(tick), slots)?),
        })
    }

    /// Frees the memory of an empty queue into which nothing will be inserted any more.
    pub(crate) fn free(&mut self) {
        *self = Queue::Heap(RawHeap::new());
    }

    #[inline(always)]
    pub(crate) fn insert(&mut self, locked: &mut Locked, node: NodeRef, due: Time) -> Place {
        on!(self, queue => queue.insert(locked, node, due))
    }

    /// Removes a node and returns when it was due in the queue.
    #[inline(always)]
    pub(crate) fn remove(&mut self, locked: &mut Locked, place: Place) -> Time {
        on!(self, queue => queue.remove(locked, place).1)
    }

    pub(crate) fn next_wakeup(&self) -> Option<Time> {
        on!(self, queue => queue.next_wakeup())
    }

    pub(crate) fn peek(&mut self, locked: &mut Locked, now: Time) -> Option<Time> {
        on!(self, queue => queue.peek(locked, now))
    }

    pub(crate) fn settle(&mut self, locked: &mut Locked, now: Time, steps: usize) -> Settled {
        on!(self, queue => queue.settle(locked, now, steps))
    }

    pub(crate) fn pop(&mut self, locked: &mut Locked, now: Time) -> Option<(NodeRef, Time)> {
        on!(self, queue => queue.pop(locked, now))
    }

    #[inline]
    pub(crate) fn pop_ready(&mut self, locked: &mut Locked, now: Time) -> Option<(NodeRef, Time)> {
        on!(self, queue => queue.pop_ready(locked, now))
    }
}
