//! The part of a shard that is behind its lock: the queues, the nodes and the counts.

use std::ptr::NonNull;
use std::task::Waker;

use tourbillon_queue::{Place, RoundsError, Settled, Time};

use super::{ArmKind, BATCH, Release, Shard, Visit};
use crate::outcome::Outcome;
use crate::shard::biased_lock::Busy;
use crate::shard::insert_buffer::InsertBuffer;
use crate::shard::next_wake::{NextWake, NotifyDriver, SlackQueue, lead_start};
use crate::shard::node::{FireNode, Locked, NodeHandle, NodeRef};
use crate::shard::precise_due_times::PreciseDueTimes;
use crate::shard::queue::{Queue, QueueKind};
use crate::shard::slab::{EngineTraits, NONE, NodeSlab, ShardNodes};
use crate::shard::state::{CountAs, NodeState};
use crate::slack::{SlackBits, SlackClass};
use crate::stats::ShardCounts;
use crate::sync::IS_CHECK;

/// The most nodes that come out of the queue, and are prefetched, before the first of them is fired.
const PREFETCHED: usize = if IS_CHECK { 2 } else { 16 };

/// How many nodes one visit may move within a queue.
pub(super) const STEPS: usize = 4096;

pub(crate) struct ShardTimers {
    /// The proof that the thread that reaches this value holds the lock.
    locked: Locked,
    /// Timers with adaptive slack that are not in their queue yet.
    insert_buffer: InsertBuffer,
    queues: [Queue; 2],
    pub(super) slab: NodeSlab,
    pub(super) counts: ShardCounts,
    /// How many timers are in the queue of on-time timers.
    on_time_len: usize,
    /// When the precise timers among those are due.
    pub(super) precise_due_times: PreciseDueTimes,
    pub(super) closed: bool,
    /// How many nodes are still in use after the engine is gone; `None` before. With the last of them the slab frees its memory.
    remaining: Option<usize>,
}

impl ShardTimers {
    pub(super) fn new(kind: QueueKind, now: Time, engine: EngineTraits) -> Result<ShardTimers, RoundsError> {
        // SAFETY: `Shard::new` puts this value behind the lock of the shard, and never moves it out. It is used for nodes that come from the
        // slab beside it, which are those of the same shard.
        let mut locked = unsafe { Locked::new() };
        let slab = NodeSlab::new(engine);
        let mut queues = [Queue::new(kind, SlackQueue::Adaptive)?, Queue::new(kind, SlackQueue::OnTime)?];
        // A queue starts at time zero; this pop advances it to `now`.
        for queue in &mut queues {
            let mut nodes = ShardNodes { slab: &slab, locked: &mut locked };
            assert!(queue.pop(&mut nodes, now).is_none(), "a new queue is empty");
        }
        Ok(ShardTimers {
            locked,
            insert_buffer: InsertBuffer::new(),
            queues,
            slab,
            counts: ShardCounts::default(),
            on_time_len: 0,
            precise_due_times: PreciseDueTimes::default(),
            closed: false,
            remaining: None,
        })
    }

    /// Returns a free node that has been in use, if there is one, unless the engine has been shut down.
    #[inline(always)]
    pub(super) fn reuse_node(&mut self) -> Option<NodeRef> {
        if self.closed { None } else { self.slab.reuse() }
    }

    /// Returns a free node, unless the engine has been shut down.
    #[inline(always)]
    pub(super) fn take_node(&mut self, shard: &Shard) -> Option<NodeRef> {
        if self.closed {
            return None;
        }
        self.slab.reuse().or_else(|| self.find_node(shard))
    }

    /// Returns a node from the remote free list, or else a fresh one.
    #[cold]
    #[inline(never)]
    fn find_node(&mut self, shard: &Shard) -> Option<NodeRef> {
        self.drain_remote_free(shard);
        // SAFETY: this value is inside `shard`, so the slab is that shard's. A handle that has the node keeps the core alive, and the core
        // keeps its shards; all other uses of the node are inside the shard.
        self.slab.reuse().or_else(|| unsafe { self.slab.take_fresh(NonNull::from(shard)) })
    }

    /// Arms a timer with a free node.
    #[inline(always)]
    pub(super) fn arm(
        &mut self,
        next_wake: &NextWake,
        node: NodeRef,
        kind: ArmKind,
        deadline: Time,
        slack: SlackBits,
        waker: Waker,
    ) -> (NodeHandle, NotifyDriver) {
        let handle = node.arm(&mut self.locked, deadline, slack, waker);
        self.counts.armed += u64::from(kind == ArmKind::New);
        (handle, self.link(next_wake, node, deadline, slack))
    }

    /// Cancels a timer and frees its node, if the timer is armed. Returns its waker.
    #[inline(always)]
    pub(super) fn cancel(&mut self, handle: &NodeHandle) -> Option<Waker> {
        let waker = handle.take_armed_waker(&mut self.locked)?;
        self.counts.cancelled += 1;
        self.unlink(handle.node());
        self.slab.put(handle.node());
        Some(waker)
    }

    /// Releases the node of a timer. Returns its waker if that has cancelled the timer, or how the timer had ended before.
    #[inline(always)]
    pub(super) fn release_locked(&mut self, handle: NodeHandle, release: Release) -> Result<Waker, Outcome> {
        let node = handle.node();
        let Some(waker) = handle.take_armed_waker(&mut self.locked) else {
            let outcome = node.state().load().outcome();
            self.put(node);
            return Err(outcome);
        };
        self.counts.cancelled += u64::from(release == Release::Cancelled);
        self.unlink(node);
        self.slab.put(node);
        Ok(waker)
    }

    /// Moves an armed timer to `deadline`; `None` if it has ended.
    pub(super) fn move_node(
        &mut self,
        next_wake: &NextWake,
        handle: &NodeHandle,
        deadline: Time,
    ) -> Option<NotifyDriver> {
        let node = handle.node();
        let NodeState::Armed(_) = node.state().load() else { return None };
        self.unlink(node);
        node.state().arm(deadline);
        Some(self.link(next_wake, node, deadline, handle.slack()))
    }

    /// Exchanges the waker of an armed timer for `new`, and returns the old one; `None` if the timer has ended.
    pub(super) fn change_waker(&mut self, handle: &NodeHandle, new: &mut Option<Waker>) -> Option<Waker> {
        handle.change_waker(&mut self.locked, new)
    }

    /// Places an armed node in the insert buffer, or in its queue.
    #[inline(always)]
    fn link(&mut self, next_wake: &NextWake, node: NodeRef, deadline: Time, slack: SlackBits) -> NotifyDriver {
        if slack.queue() == SlackQueue::OnTime {
            return self.link_on_time(next_wake, node, deadline, slack);
        }
        if deadline.is_never() {
            return NotifyDriver::No;
        }
        match self.insert_buffer.push(node) {
            Some(buffered) => node.set_place(&mut self.locked, Place::nowhere_with(buffered.into())),
            None => self.make_room_and_insert(node, deadline),
        }
        next_wake.set_earlier(SlackQueue::Adaptive, deadline)
    }

    /// Makes room in the insert buffer for the next timers, and places an armed node in its queue, behind those of the buffer.
    #[cold]
    #[inline(never)]
    fn make_room_and_insert(&mut self, node: NodeRef, deadline: Time) {
        self.drain_insert_buffer();
        self.insert_buffer.reserve();
        self.insert(SlackQueue::Adaptive, node, deadline);
    }

    /// Places the nodes of the insert buffer in their queue.
    #[cold]
    #[inline(never)]
    pub(super) fn drain_insert_buffer(&mut self) {
        while let Some(node) = self.insert_buffer.pop() {
            node.set_place(&mut self.locked, Place::NOWHERE);
            // A node that is no longer armed is in the remote free list, or its handle is about to push it there: it needs no place.
            if let NodeState::Armed(deadline) = node.state().load()
                && !deadline.is_never()
            {
                self.insert(SlackQueue::Adaptive, node, deadline);
            }
        }
    }

    /// Places an armed node in the queue of on-time timers.
    #[inline(never)]
    fn link_on_time(&mut self, next_wake: &NextWake, node: NodeRef, deadline: Time, slack: SlackBits) -> NotifyDriver {
        let due = slack.round_up(deadline);
        if due.is_never() {
            return NotifyDriver::No;
        }
        self.insert(SlackQueue::OnTime, node, due);
        self.on_time_len += 1;
        if slack.class() != SlackClass::Precise {
            return next_wake.set_earlier(SlackQueue::OnTime, due);
        }
        self.precise_due_times.put(due);
        next_wake.set_earlier(SlackQueue::OnTime, lead_start(due))
    }

    #[inline(always)]
    fn insert(&mut self, queue: SlackQueue, node: NodeRef, due: Time) {
        let mut nodes = ShardNodes { slab: &self.slab, locked: &mut self.locked };
        let place = self.queues[queue as usize].insert(&mut nodes, node, due);
        node.set_place(&mut self.locked, place);
    }

    /// Takes a node out of its queue, if it is in one.
    #[inline(always)]
    fn unlink(&mut self, node: NodeRef) {
        let place = node.place(&self.locked);
        if let Some(buffered) = place.own_number() {
            self.insert_buffer.remove(buffered as u16);
            node.set_place(&mut self.locked, Place::NOWHERE);
        } else if place != Place::NOWHERE {
            self.unlink_queued(node, place);
        }
    }

    /// Takes a node out of the queue in which it has `place`.
    #[inline(never)]
    fn unlink_queued(&mut self, node: NodeRef, place: Place) {
        let slack = node.slack(&self.locked);
        let mut nodes = ShardNodes { slab: &self.slab, locked: &mut self.locked };
        // One branch for each queue, so that the address of the queue is a constant.
        let due = match slack.queue() {
            SlackQueue::Adaptive => self.queues[SlackQueue::Adaptive as usize].remove(&mut nodes, place),
            SlackQueue::OnTime => self.queues[SlackQueue::OnTime as usize].remove(&mut nodes, place),
        };
        self.left_queue(node, due, slack);
    }

    /// Records that a node is in no queue any more. `due` is when it was due there; the queue of on-time timers always returns that.
    #[inline(always)]
    fn left_queue(&mut self, node: NodeRef, due: Option<Time>, slack: SlackBits) {
        node.set_place(&mut self.locked, Place::NOWHERE);
        if slack.queue() == SlackQueue::OnTime {
            self.on_time_len -= 1;
            if slack.class() == SlackClass::Precise
                && let Some(due) = due
            {
                self.precise_due_times.take(due);
            }
        }
    }

    /// Frees the nodes that other threads have released.
    pub(super) fn drain_remote_free(&mut self, shard: &Shard) {
        if shard.remote_free.0.is_empty() {
            return;
        }
        let mut index = shard.remote_free.0.take_all();
        while index != NONE {
            let node = self.slab.get(index);
            let NodeState::Released(next, count) = node.state().load() else {
                unreachable!("a node in the remote free list that was not released")
            };
            if count == CountAs::Cancelled {
                self.counts.cancelled += 1;
            }
            self.unlink(node);
            self.put(node);
            index = next;
        }
    }

    /// Frees the node of an ended timer.
    #[inline(never)]
    fn put(&mut self, node: NodeRef) {
        self.slab.put(node);
        if let Some(remaining) = &mut self.remaining {
            *remaining -= 1;
            if *remaining == 0 {
                self.slab.free_all();
            }
        }
    }

    /// Frees the queues, after taking out the nodes that are left in them, and the slab if no node is in use.
    pub(super) fn free_memory(&mut self) {
        debug_assert!(self.closed);
        if self.remaining.is_some() {
            return;
        }
        // A node that its handle has cancelled, but not yet pushed onto the remote free list, is still in its queue.
        for index in self.slab.indices(0) {
            self.unlink(self.slab.get(index));
        }
        self.queues.iter_mut().for_each(Queue::free);
        self.insert_buffer.free();
        let remaining = self.slab.in_use();
        self.remaining = Some(remaining);
        if remaining == 0 {
            self.slab.free_all();
        }
    }

    /// Fires the timers that are due at `now`, up to a batch, and stores when the shard has to be visited next.
    pub(super) fn visit(&mut self, shard: &Shard, now: Time, batch: &mut Vec<Waker>) -> Visit {
        self.drain_remote_free(shard);
        self.drain_insert_buffer();
        let before = batch.len();
        let more = self.fire_batch(&shard.next_wake, now, batch) == Settled::More;
        let (on_time, lead_in) = self.next_on_time(now);
        shard.next_wake.set([self.next(SlackQueue::Adaptive), on_time], lead_in);
        Visit { fired: batch.len() - before, more }
    }

    /// Fires the timers that are due at `now` in the order of their deadlines, up to a batch; `More` if that was not all.
    fn fire_batch(&mut self, next_wake: &NextWake, now: Time, batch: &mut Vec<Waker>) -> Settled {
        let mut handled = 0;
        loop {
            let mut nodes = ShardNodes { slab: &self.slab, locked: &mut self.locked };
            for queue in &mut self.queues {
                if queue.settle(&mut nodes, now, STEPS) == Settled::More {
                    return Settled::More;
                }
            }
            let (queue, alone) = self.first(now);
            let mut nodes = ShardNodes { slab: &self.slab, locked: &mut self.locked };
            let Some(first) = self.queues[queue as usize].pop(&mut nodes, now) else { return Settled::Done };
            let mut ready = [first; PREFETCHED];
            let mut count = 1;
            // Nodes lie anywhere in memory: the processor prefetches them while others come out of the queue.
            while alone && count < PREFETCHED.min(BATCH - handled) {
                let Some(next) = self.queues[queue as usize].pop_ready(&mut nodes, now) else { break };
                next.0.prefetch();
                ready[count] = next;
                count += 1;
            }
            self.fire_in_order(next_wake, &mut ready[..count], now, batch);
            handled += count;
            if handled >= BATCH {
                return Settled::More;
            }
        }
    }

    /// Returns the queue that has the earliest timer, and whether it is the only one with timers that are due.
    fn first(&mut self, now: Time) -> (SlackQueue, bool) {
        if self.on_time_len == 0 {
            return (SlackQueue::Adaptive, true);
        }
        let [adaptive, on_time] = &mut self.queues;
        let mut nodes = ShardNodes { slab: &self.slab, locked: &mut self.locked };
        match (adaptive.peek(&mut nodes, now), on_time.peek(&mut nodes, now)) {
            (_, None) => (SlackQueue::Adaptive, true),
            (None, Some(_)) => (SlackQueue::OnTime, true),
            (Some(adaptive), Some(on_time)) if adaptive < on_time => (SlackQueue::Adaptive, false),
            _ => (SlackQueue::OnTime, false),
        }
    }

    /// Fires nodes that have come out of their queue, each with the time when it was due there. A node whose deadline was pushed later is
    /// placed again: among the others if it is due before the last of them (P3), else in the queue.
    #[inline(always)]
    fn fire_in_order(
        &mut self,
        next_wake: &NextWake,
        ready: &mut [(NodeRef, Time)],
        now: Time,
        batch: &mut Vec<Waker>,
    ) {
        let mut index = 0;
        while let Some(&(node, due)) = ready.get(index) {
            index += 1;
            let slack = node.slack(&self.locked);
            match node.fire(&mut self.locked, due) {
                FireNode::Won(deadline, waker) => {
                    self.left_queue(node, Some(due), slack);
                    self.counts.fired(now - deadline);
                    batch.push(waker);
                }
                FireNode::NotYet(deadline) => {
                    let others = ready[index..].iter();
                    let before = others.take_while(|(_, due)| *due <= slack.round_up(deadline)).count();
                    if index + before < ready.len() {
                        index -= 1;
                        ready[index..=index + before].rotate_left(1);
                        ready[index + before] = (node, slack.round_up(deadline));
                        if slack.class() == SlackClass::Precise {
                            self.precise_due_times.take(due);
                            self.precise_due_times.put(slack.round_up(deadline));
                        }
                    } else {
                        self.left_queue(node, Some(due), slack);
                        self.link_again(next_wake, node, deadline, slack);
                    }
                }
                FireNode::Lost => self.left_queue(node, Some(due), slack),
            }
        }
    }

    /// Puts a node back into its queue, not into the insert buffer: the end of the visit computes the next wake-up from the queues.
    fn link_again(&mut self, next_wake: &NextWake, node: NodeRef, deadline: Time, slack: SlackBits) {
        if slack.queue() == SlackQueue::OnTime {
            let _stored_after_the_visit = self.link_on_time(next_wake, node, deadline, slack);
        } else if !deadline.is_never() {
            self.insert(SlackQueue::Adaptive, node, deadline);
        }
    }

    /// Stops the timer of a node, if it had not ended.
    pub(super) fn stop(&mut self, node: NodeRef, batch: &mut Vec<Waker>) {
        if let Some(waker) = node.stop(&mut self.locked) {
            self.unlink(node);
            self.counts.stopped += 1;
            batch.push(waker);
        }
    }

    /// Returns when a queue has to be visited next.
    pub(super) fn next(&mut self, queue: SlackQueue) -> Time {
        let nodes = ShardNodes { slab: &self.slab, locked: &mut self.locked };
        self.queues[queue as usize].next_wakeup(&nodes).unwrap_or(Time::NEVER)
    }

    /// Returns when the queue of on-time timers has to be visited after a visit at `now`, and whether the driver stays awake until then
    /// because a precise timer is due within [`PRECISE_LEAD`](crate::slack::PRECISE_LEAD). The driver does not stay awake for
    /// the other timers of that queue (D73).
    fn next_on_time(&mut self, now: Time) -> (Time, bool) {
        let next = self.next(SlackQueue::OnTime);
        match self.precise_due_times.first().map(lead_start) {
            Some(early) if early > now => (next.min(early), false),
            Some(_) => (next, true),
            None => (next, false),
        }
    }
}

impl Busy for ShardTimers {
    #[inline(always)]
    fn owner_locks(&self) -> u64 {
        self.counts.armed + self.counts.cancelled
    }
}
