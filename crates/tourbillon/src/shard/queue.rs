//! A queue of a shard: one of four kinds, chosen when the engine is built.

use std::time::Duration;

use tourbillon_queue::{
    CompactWheel, Place, RawHeap, RawListTree, RawQueue, RawRounds, RawWheel, RoundsError, Settled, Span, Time,
};

use crate::shard::next_wake::SlackQueue;
use crate::shard::node::NodeRef;
use crate::shard::slab::{NodeIndex, ShardNodes};

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

pub(crate) enum Queue {
    /// For nodes whose state words have the deadlines by which they are placed, or later ones.
    CompactWheel(CompactWheel<NodeIndex>),
    Wheel(RawWheel<NodeIndex>),
    Heap(RawHeap<NodeIndex>),
    ListTree(RawListTree<NodeIndex>),
    Rounds(RawRounds<NodeIndex>),
}

/// Makes the same call on a queue of any kind that stores deadlines, or the first one on the compact wheel.
macro_rules! on {
    ($queue:expr, $compact:ident => $compact_call:expr, $it:ident => $call:expr) => {
        match $queue {
            Queue::CompactWheel($compact) => $compact_call,
            Queue::Wheel($it) => $call,
            Queue::Heap($it) => $call,
            Queue::ListTree($it) => $call,
            Queue::Rounds($it) => $call,
        }
    };
}

impl Queue {
    pub(crate) fn new(kind: QueueKind, queue: SlackQueue) -> Result<Queue, RoundsError> {
        Ok(match kind {
            // On-time timers are placed by deadlines that are rounded for their slack, which the nodes do not have.
            QueueKind::Wheel if queue == SlackQueue::OnTime => Queue::Wheel(RawWheel::new()),
            QueueKind::Wheel => Queue::CompactWheel(CompactWheel::new()),
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
    pub(crate) fn insert(&mut self, nodes: &mut ShardNodes<'_>, node: NodeRef, due: Time) -> Place {
        let index = NodeIndex::of(node);
        on!(self, queue => queue.insert(nodes, index, due), queue => queue.insert(nodes, index, due))
    }

    /// Removes a node. Returns when it was due in the queue, if the queue stores that.
    #[inline(always)]
    pub(crate) fn remove(&mut self, nodes: &mut ShardNodes<'_>, place: Place) -> Option<Time> {
        on!(
            self,
            queue => {
                queue.remove(nodes, place);
                None
            },
            queue => Some(queue.remove(nodes, place).1)
        )
    }

    pub(crate) fn next_wakeup(&self, nodes: &ShardNodes<'_>) -> Option<Time> {
        on!(self, queue => queue.next_wakeup(nodes), queue => queue.next_wakeup())
    }

    pub(crate) fn peek(&mut self, nodes: &mut ShardNodes<'_>, now: Time) -> Option<Time> {
        on!(self, queue => queue.peek(nodes, now), queue => queue.peek(nodes, now))
    }

    pub(crate) fn settle(&mut self, nodes: &mut ShardNodes<'_>, now: Time, steps: usize) -> Settled {
        on!(self, queue => queue.settle(nodes, now, steps), queue => queue.settle(nodes, now, steps))
    }

    /// Takes out the first node that is due, and the time when it was due in the queue.
    pub(crate) fn pop(&mut self, nodes: &mut ShardNodes<'_>, now: Time) -> Option<(NodeRef, Time)> {
        let popped = on!(self, queue => queue.pop(nodes, now), queue => queue.pop(nodes, now));
        popped.map(|(index, due)| (nodes.slab.node(index), due))
    }

    /// [Takes out](Queue::pop) the first node that is due, if that needs no upkeep.
    #[inline]
    pub(crate) fn pop_ready(&mut self, nodes: &mut ShardNodes<'_>, now: Time) -> Option<(NodeRef, Time)> {
        let popped = on!(self, queue => queue.pop_ready(now), queue => queue.pop_ready(nodes, now));
        popped.map(|(index, due)| (nodes.slab.node(index), due))
    }
}
