//! A shard: queues and nodes behind one lock, at home with one thread.
//!
//! ```text
//!     its own thread ---- arm, cancel, move: as the lock's owner, some nanoseconds -----+
//!                                                                                      v
//!     other threads ----- push later: the state word alone             +--------------------------------+
//!                    \--- cancel: the state word, then `returns` ----> | lock { queues, slab, counts }  |
//!                                                                      +--------------------------------+
//!     the driver ------- visits when `wants` says that something is due ---------------^
//! ```
//!
//! Nothing of the user's runs under the lock: wakers are cloned before it is taken and dropped or woken after it is
//! given back (P10). A visit is bounded: it fires at most a batch and moves a bounded number of entries (D26).

pub(crate) mod asymmetric_fence;
pub(crate) mod biased_lock;
pub(crate) mod insert_buffer;
pub(crate) mod leads;
pub(crate) mod node;
pub(crate) mod queue;
pub(crate) mod remote_free;
pub(crate) mod slab;
pub(crate) mod state;

use std::ptr::NonNull;
use std::sync::Arc;
use std::task::Waker;

use tourbillon_queue::{Place, RoundsError, Settled, Span, Time};

use crate::outcome::Outcome;
use crate::shard::biased_lock::{BiasedLock, Busy};
use crate::shard::insert_buffer::InsertBuffer;
use crate::shard::leads::Leads;
use crate::shard::node::{Locked, NodeRef};
use crate::shard::queue::{Queue, QueueKind};
use crate::shard::remote_free::{DRAIN_AT, RemoteFreeList};
use crate::shard::slab::{NONE, Slab};
use crate::shard::state::{Cancel, Ended, Fire, Seen, Stop};
use crate::slack::{LEAD, SlackBits, SlackClass};
use crate::stats::ShardCounts;
use crate::sync::catch_panic::catch_panic;
use crate::sync::fork;
use crate::sync::{AtomicBool, AtomicU64, IS_CHECK, Ordering, aside};

/// So many timers are fired in one visit.
pub(crate) const BATCH: usize = if IS_CHECK { 2 } else { 256 };

/// So many come out of the queue before the first of them is fired.
const AHEAD: usize = if IS_CHECK { 2 } else { 16 };

/// So many entries may one visit move within a queue.
const STEPS: usize = 4096;

/// Who turns a shard of its own need not visit it as long as nothing is due for so long.
///
/// A visit also makes the shard's wishes exact again after cancels. So one that is left out may cost a wake-up for nothing: at most one in
/// this time.
const QUIET: Span = Span::from_nanos(if IS_CHECK { 300_000 } else { 1_000_000_000 });

#[repr(align(128))]
pub(crate) struct Shard {
    inner: BiasedLock<ShardInner>,
    next_wake: NextWake,
    /// The address of the core that owns the shard, for entries and threads that have only the shard.
    core: NonNull<()>,
    /// The process that made it: see [`fork`].
    generation: u32,
    /// Whether its own thread turns it.
    has_worker: aside::AtomicBool,
    /// How to tell that thread that somebody else has armed a timer here.
    notify: aside::Mutex<Option<Notify>>,
    /// Whether nodes that are sent home are to be taken in at once: the engine is gone, and nobody else comes for them.
    is_released: aside::AtomicBool,
    remote_free: Apart<RemoteFreeList>,
}

pub(crate) type Notify = Arc<dyn Fn() + Send + Sync>;

// SAFETY: `core` is an address that shards are asked for; the rest is `Sync` by itself.
unsafe impl Sync for Shard {}
// SAFETY: as above, nothing in it belongs to a thread.
unsafe impl Send for Shard {}

/// Other threads write this: it has a cache line of its own.
#[repr(align(128))]
struct Apart<T>(T);

/// Why a handle gives up its node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Release {
    /// The timer is cancelled.
    Cancelled,
    /// The timer goes on elsewhere: nothing is counted.
    Migrating,
}

/// Whether a timer is armed for the first time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ArmKind {
    New,
    /// It was armed in another shard before, and counted there.
    Migrated,
}

/// How the calling thread stands to a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// It is its home, and the thread is the lock's owner.
    Owner,
    Remote,
}

/// When a shard wants to be visited: the next time for each queue, never if there is none.
///
/// Written under the shard's lock and read by the driver without it.
pub(crate) struct NextWake {
    times: [AtomicU64; 2],
    /// A precise timer is due within [`LEAD`]: the last visit has found so. The driver stays awake until then.
    lead_in: AtomicBool,
}

/// Which of a shard's queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum SlackQueue {
    Adaptive,
    Exact,
}

/// Whether a shard wants a visit that the driver may not know of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum NotifyDriver {
    /// Before any other of its line: the driver is to be [told](Core::tell).
    Yes,
    No,
}

/// What came of arming.
#[derive(Clone, Copy)]
#[must_use]
pub(crate) struct Arm {
    /// `None`: refused. The engine has been shut down, or there are as many timers in the shard as its queues can hold.
    pub(crate) node: Option<NodeRef>,
    pub(crate) notify_driver: NotifyDriver,
}

/// What came of moving an armed entry or giving it another waker.
#[must_use]
pub(crate) enum Change<T> {
    Done(T),
    /// It has ended. What was to be used is not, and is given back.
    Ended,
}

/// What a visit did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Visit {
    pub(crate) fired: usize,
    /// There is more to do at the same time.
    pub(crate) more: bool,
}

pub(crate) struct ShardInner {
    /// Those that are not in the relaxed queue yet.
    insert_buffer: InsertBuffer,
    queues: [Queue; 2],
    slab: Slab,
    counts: ShardCounts,
    /// How many are in the strict queue.
    exact: usize,
    /// When the precise ones among those are due there.
    leads: Leads,
    closed: bool,
    /// How many nodes are in use, once the engine is gone: with the last of them goes their memory.
    left: Option<usize>,
}

impl Shard {
    /// # Safety
    /// The shard stays where the caller puts it, and `core` outlives it.
    pub(crate) unsafe fn new(core: NonNull<()>, kind: QueueKind, now: Time) -> Result<Shard, RoundsError> {
        let mut queues = [Queue::new(kind)?, Queue::new(kind)?];
        // SAFETY: nobody else knows of the queues yet.
        let mut locked = unsafe { Locked::new() };
        // A queue begins at time zero and is told here where time stands.
        for queue in &mut queues {
            assert!(queue.pop(&mut locked, now).is_none(), "a new queue is empty");
        }
        let inner = ShardInner {
            insert_buffer: InsertBuffer::new(),
            queues,
            slab: Slab::new(),
            counts: ShardCounts::default(),
            exact: 0,
            leads: Leads::default(),
            closed: false,
            left: None,
        };
        Ok(Shard {
            inner: BiasedLock::new(inner),
            next_wake: NextWake::new(),
            core,
            generation: fork::generation(),
            has_worker: aside::AtomicBool::new(false),
            notify: aside::Mutex::new(None),
            is_released: aside::AtomicBool::new(false),
            remote_free: Apart(RemoteFreeList::new()),
        })
    }

    pub(crate) fn core(&self) -> NonNull<()> {
        self.core
    }

    pub(crate) fn next_wake(&self) -> &NextWake {
        &self.next_wake
    }

    /// Whether a visit at `now` would do nothing that cannot wait.
    pub(crate) fn is_quiet(&self, now: Time) -> bool {
        self.next_wake.next(now) > now + QUIET && self.remote_free.0.is_empty()
    }

    /// Whether its own thread turns it, rather than the engine's driver.
    pub(crate) fn has_worker(&self) -> bool {
        self.has_worker.load(Ordering::SeqCst)
    }

    /// Gives it to a worker, unless it has one.
    pub(crate) fn set_worker(&self, notify: Notify) -> bool {
        let mut current = aside::lock(&self.notify);
        if current.is_some() {
            return false;
        }
        *current = Some(notify);
        self.has_worker.store(true, Ordering::SeqCst);
        true
    }

    /// Ends the rule of this worker, or of any. `false`: another one has taken over.
    pub(crate) fn end_worker(&self, notify: Option<&Notify>) -> bool {
        let mut current = aside::lock(&self.notify);
        let is_its = current.as_ref().is_some_and(|current| notify.is_none_or(|its| Arc::ptr_eq(current, its)));
        let ended = if is_its { current.take() } else { None };
        if is_its {
            self.has_worker.store(false, Ordering::SeqCst);
        }
        drop(current);
        // What it owns is the user's.
        drop(ended);
        is_its
    }

    /// Tells its worker that it has a timer that the worker may not know of.
    pub(crate) fn notify_worker(&self) {
        let notify = aside::lock(&self.notify).clone();
        if let Some(notify) = notify {
            let _ignored = catch_panic(|| notify());
        }
    }

    /// # Safety
    /// With [`Access::Owner`]: the contract of [`BiasedLock::owner`].
    #[inline(always)]
    unsafe fn with<R>(&self, access: Access, f: impl FnOnce(&mut ShardInner) -> R) -> R {
        // SAFETY: the caller's contract.
        unsafe {
            match access {
                Access::Owner => match self.inner.lock_owner() {
                    Some(mut inside) => inside.with(f),
                    None => self.inner.lock_owner_slow(f),
                },
                Access::Remote => self.inner.lock_remote(f),
            }
        }
    }

    /// Arms an entry for the handle that will have the node. If that is refused, the waker is given back, to be dropped
    /// where that is allowed.
    ///
    /// # Safety
    /// As for [`with`](Shard::with).
    #[inline(always)]
    pub(crate) unsafe fn arm(
        &self,
        access: Access,
        kind: ArmKind,
        deadline: Time,
        slack: SlackBits,
        waker: Waker,
        refused: &mut Option<Waker>,
    ) -> Arm {
        // What follows is `with`, written out so that on the quick way everything stays in registers.
        if access == Access::Owner
            // SAFETY: the caller's contract.
            && let Some(mut inside) = unsafe { self.inner.lock_owner() }
            && let Some(node) = inside.with(|inner| inner.take_node(self))
        {
            return inside.with(|inner| inner.arm(&self.next_wake, node, kind, deadline, slack, waker));
        }
        // SAFETY: the caller's contract.
        unsafe { self.arm_slowly(access, kind, deadline, slack, waker, refused) }
    }

    #[cold]
    #[inline(never)]
    unsafe fn arm_slowly(
        &self,
        access: Access,
        kind: ArmKind,
        deadline: Time,
        slack: SlackBits,
        waker: Waker,
        refused: &mut Option<Waker>,
    ) -> Arm {
        *refused = Some(waker);
        let arm = |inner: &mut ShardInner| {
            if let Some(node) = inner.take_node(self)
                && let Some(waker) = refused.take()
            {
                return inner.arm(&self.next_wake, node, kind, deadline, slack, waker);
            }
            // It was armed elsewhere, and the engine was shut down while it was on its way.
            inner.counts.stopped += u64::from(inner.closed && kind == ArmKind::Migrated);
            Arm { node: None, notify_driver: NotifyDriver::No }
        };
        // SAFETY: the caller's contract.
        unsafe { self.with(access, arm) }
    }

    /// Cancels and frees the node of the calling handle, as the owner. Gives the waker; or if it had ended, how.
    ///
    /// # Safety
    /// The caller is the owner as for [`with`](Shard::with), and the node's handle, and forgets the node.
    #[inline(always)]
    pub(crate) unsafe fn release_owned(&self, node: NodeRef, release: Release) -> Result<Waker, Outcome> {
        // SAFETY: the caller's contract.
        unsafe {
            match self.inner.lock_owner() {
                Some(mut inside) => inside.with(|inner| inner.cancel(node, release)),
                None => self.cancel_slowly(node, release),
            }
        }
    }

    #[cold]
    #[inline(never)]
    unsafe fn cancel_slowly(&self, node: NodeRef, release: Release) -> Result<Waker, Outcome> {
        // SAFETY: the caller's contract.
        unsafe { self.inner.lock_owner_slow(|inner| inner.cancel(node, release)) }
    }

    /// Cancels and sends home the node of the calling handle, on any thread. Gives the waker; or if it had ended, how.
    ///
    /// # Safety
    /// The caller is the node's handle, and forgets the node. The node is one of this shard.
    pub(crate) unsafe fn release_remote(&self, node: NodeRef, release: Release) -> Result<Waker, Outcome> {
        let waker = match node.state().cancel() {
            // SAFETY: whoever wins the cancel owns the waker.
            Cancel::Won => Ok(unsafe { node.take_waker() }),
            Cancel::Lost(outcome) => Err(outcome),
        };
        let cancelled = waker.is_ok() && release == Release::Cancelled;
        let ended = if cancelled { Ended::Cancelled } else { Ended::Before };
        // The thread that makes the heap full clears it; the others go on.
        let is_full = self.remote_free.0.push(node, ended) == DRAIN_AT;
        // Should this miss that the shard was released in between, the memory is freed with the core.
        if is_full || self.is_released.load(Ordering::SeqCst) {
            self.drain_remote_free_now();
        }
        waker
    }

    #[cold]
    fn drain_remote_free_now(&self) {
        if self.generation == fork::generation() {
            self.inner.lock_remote(|inner| inner.drain_remote_free(self));
        }
    }

    /// When the engine is gone and its timers are stopped: frees the queues, and the nodes when nobody has one any more.
    pub(crate) fn release(&self) {
        self.is_released.store(true, Ordering::SeqCst);
        self.inner.lock_remote(|inner| {
            inner.drain_remote_free(self);
            inner.release();
        });
    }

    /// Moves an armed entry of the calling handle to any deadline.
    ///
    /// # Safety
    /// The caller is the owner as for [`with`](Shard::with), and the node's handle.
    pub(crate) unsafe fn move_as_owner(&self, node: NodeRef, deadline: Time) -> Change<NotifyDriver> {
        let change = |inner: &mut ShardInner| {
            let Seen::Armed(_) = node.state().see() else { return Change::Ended };
            inner.unlink(node);
            node.state().arm(deadline);
            // SAFETY: the lock is held.
            let slack = unsafe { node.slack() };
            Change::Done(inner.link(&self.next_wake, node, deadline, slack))
        };
        // SAFETY: the caller's contract.
        unsafe { self.with(Access::Owner, change) }
    }

    /// Gives an armed entry of the calling handle another waker, and the old one back to be dropped.
    ///
    /// # Safety
    /// The caller is the owner as for [`with`](Shard::with), and the node's handle.
    pub(crate) unsafe fn change_waker_as_owner(&self, node: NodeRef, waker: &mut Option<Waker>) -> Change<Waker> {
        let change = |_: &mut ShardInner| {
            let Seen::Armed(_) = node.state().see() else { return Change::Ended };
            let Some(new) = waker.take() else { return Change::Ended };
            // SAFETY: it is armed, the handle is here and the shard is locked: nobody else takes or reads the waker.
            unsafe {
                let old = node.take_waker();
                node.put_waker(new);
                Change::Done(old)
            }
        };
        // SAFETY: the caller's contract.
        unsafe { self.with(Access::Owner, change) }
    }

    /// Fires what is due at `now`, up to a batch, and says when to come again. The wakers are the caller's to wake.
    ///
    /// # Safety
    /// As for [`with`](Shard::with).
    pub(crate) unsafe fn visit(&self, access: Access, now: Time, batch: &mut Vec<Waker>) -> Visit {
        // SAFETY: the caller's contract.
        unsafe { self.with(access, |inner| inner.visit(self, now, batch)) }
    }

    /// Makes its wishes exact after a cancel: they ask for no visit for the sake of a timer that is not there any more.
    pub(crate) fn refresh(&self) {
        self.inner.lock_remote(|inner| {
            inner.drain_remote_free(self);
            inner.drain_insert_buffer();
            let exact = inner.next(SlackQueue::Exact);
            let early = inner.leads.first().map_or(exact, |first| exact.min(ahead(first)));
            self.next_wake.set([inner.next(SlackQueue::Adaptive), early], self.next_wake.is_lead_in());
        });
    }

    /// Counts a timer that was found due while it was between two shards.
    ///
    /// # Safety
    /// As for [`with`](Shard::with).
    pub(crate) unsafe fn count_fired(&self, access: Access, late: Span) {
        // SAFETY: the caller's contract.
        unsafe { self.with(access, |inner| inner.counts.fired(late)) }
    }

    /// Refuses all further arming.
    pub(crate) fn close(&self) {
        self.inner.lock_remote(|inner| inner.closed = true);
    }

    /// Stops a batch of entries, those from `*cursor` on. To be called, with wakers woken, until it returns `false`.
    pub(crate) fn stop_some(&self, cursor: &mut u32, batch: &mut Vec<Waker>) -> bool {
        self.inner.lock_remote(|inner| {
            debug_assert!(inner.closed);
            inner.drain_remote_free(self);
            for (count, index) in inner.slab.indices(*cursor).enumerate() {
                if batch.len() == BATCH || count == STEPS {
                    *cursor = index;
                    return true;
                }
                inner.stop(inner.slab.get(index), batch);
            }
            self.next_wake.set([Time::NEVER; 2], false);
            false
        })
    }

    /// Whether there are timers in it.
    #[cfg(any(feature = "test-util", feature = "tokio"))]
    pub(crate) fn has_pending(&self) -> bool {
        self.inner.lock_remote(|inner| {
            inner.drain_remote_free(self);
            inner.drain_insert_buffer();
            [SlackQueue::Adaptive, SlackQueue::Exact].into_iter().any(|line| !inner.next(line).is_never())
        })
    }

    /// What has been counted, all that is on its way home included.
    pub(crate) fn counts(&self) -> ShardCounts {
        self.inner.lock_remote(|inner| {
            inner.drain_remote_free(self);
            inner.counts.clone()
        })
    }
}

impl ShardInner {
    /// A free node, unless arming is to be refused.
    #[inline(always)]
    fn take_node(&mut self, shard: &Shard) -> Option<NodeRef> {
        if self.closed {
            return None;
        }
        self.slab.reuse().or_else(|| self.find_node(shard))
    }

    /// A node that has come home, or else a fresh one.
    #[cold]
    #[inline(never)]
    fn find_node(&mut self, shard: &Shard) -> Option<NodeRef> {
        self.drain_remote_free(shard);
        // SAFETY: the slab is that shard's, and handles keep the core alive, which keeps the shard.
        self.slab.reuse().or_else(|| unsafe { self.slab.touch(NonNull::from(shard)) })
    }

    #[inline(always)]
    fn arm(
        &mut self,
        next_wake: &NextWake,
        node: NodeRef,
        kind: ArmKind,
        deadline: Time,
        slack: SlackBits,
        waker: Waker,
    ) -> Arm {
        // SAFETY: the node is free, so nobody has it, and the lock is held.
        unsafe {
            node.put_waker(waker);
            node.set_slack(slack);
        }
        node.state().arm(deadline);
        self.counts.armed += u64::from(kind == ArmKind::New);
        Arm { node: Some(node), notify_driver: self.link(next_wake, node, deadline, slack) }
    }

    #[inline(always)]
    fn cancel(&mut self, node: NodeRef, release: Release) -> Result<Waker, Outcome> {
        let seen = node.state().see();
        let Seen::Armed(_) = seen else {
            self.put(node);
            return Err(seen.outcome());
        };
        self.counts.cancelled += u64::from(release == Release::Cancelled);
        self.unlink(node);
        // SAFETY: it is armed, the handle is here and the shard is locked: the waker is the handle's.
        let waker = unsafe { node.take_waker() };
        self.slab.put(node);
        Ok(waker)
    }

    /// Places an armed node in its queue.
    #[inline(always)]
    fn link(&mut self, next_wake: &NextWake, node: NodeRef, deadline: Time, slack: SlackBits) -> NotifyDriver {
        if slack != SlackBits::ADAPTIVE {
            return self.link_strict(next_wake, node, deadline, slack);
        }
        if deadline.is_never() {
            return NotifyDriver::No;
        }
        if self.insert_buffer.is_full() {
            self.drain_insert_buffer();
        }
        // SAFETY: under the lock.
        unsafe { node.set_young(Some(self.insert_buffer.push(node))) };
        next_wake.set_earlier(SlackQueue::Adaptive, deadline)
    }

    /// Places the young ones in the queue.
    #[cold]
    #[inline(never)]
    fn drain_insert_buffer(&mut self) {
        while let Some(node) = self.insert_buffer.pop() {
            // SAFETY: under the lock.
            unsafe { node.set_young(None) };
            // Whoever is not armed any more is on its way home, and needs no place.
            if let Seen::Armed(deadline) = node.state().see()
                && !deadline.is_never()
            {
                self.insert(SlackQueue::Adaptive, node, deadline);
            }
        }
    }

    #[inline(never)]
    fn link_strict(&mut self, next_wake: &NextWake, node: NodeRef, deadline: Time, slack: SlackBits) -> NotifyDriver {
        let due = slack.round_up(deadline);
        if due.is_never() {
            return NotifyDriver::No;
        }
        self.insert(SlackQueue::Exact, node, due);
        self.exact += 1;
        if slack.class() != SlackClass::Precise {
            return next_wake.set_earlier(SlackQueue::Exact, due);
        }
        self.leads.put(due);
        next_wake.set_earlier(SlackQueue::Exact, ahead(due))
    }

    #[inline(always)]
    fn insert(&mut self, line: SlackQueue, node: NodeRef, due: Time) {
        // SAFETY: we are under the lock of the shard that has these queues.
        let mut locked = unsafe { Locked::new() };
        let place = self.queues[line as usize].insert(&mut locked, node, due);
        // SAFETY: likewise.
        unsafe { node.set_place(place) };
    }

    /// Takes a node out of its queue, if it is in one.
    #[inline(always)]
    fn unlink(&mut self, node: NodeRef) {
        // SAFETY: we are under the lock of the shard that has these queues.
        let (mut locked, insert_buffer, place, slack) =
            unsafe { (Locked::new(), node.insert_buffer(), node.place(), node.slack()) };
        if let Some(insert_buffer) = insert_buffer {
            self.insert_buffer.remove(insert_buffer);
            // SAFETY: under the lock.
            unsafe { node.set_young(None) };
            return;
        }
        if place == Place::NOWHERE {
            return;
        }
        let due = if slack == SlackBits::ADAPTIVE {
            self.queues[SlackQueue::Adaptive as usize].remove(&mut locked, place)
        } else {
            self.queues[SlackQueue::Exact as usize].remove(&mut locked, place)
        };
        self.left_queue(node, due, slack);
    }

    /// Notes that a node, which was due at `due` in its queue, is in no queue any more.
    #[inline(always)]
    fn left_queue(&mut self, node: NodeRef, due: Time, slack: SlackBits) {
        // SAFETY: under the lock.
        unsafe { node.set_place(Place::NOWHERE) };
        if slack != SlackBits::ADAPTIVE {
            self.exact -= 1;
            if slack.class() == SlackClass::Precise {
                self.leads.take(due);
            }
        }
    }

    /// Takes in the nodes that other threads have sent home.
    fn drain_remote_free(&mut self, shard: &Shard) {
        if shard.remote_free.0.is_empty() {
            return;
        }
        let mut index = shard.remote_free.0.take_all();
        while index != NONE {
            let node = self.slab.get(index);
            let Seen::Returned(next, ended) = node.state().see() else { unreachable!("a node that was not sent home") };
            if ended == Ended::Cancelled {
                self.counts.cancelled += 1;
            }
            self.unlink(node);
            self.put(node);
            index = next;
        }
    }

    /// Puts a node back that has ended.
    #[inline(never)]
    fn put(&mut self, node: NodeRef) {
        self.slab.put(node);
        if let Some(left) = &mut self.left {
            *left -= 1;
            if *left == 0 {
                self.slab.free_all();
            }
        }
    }

    /// Frees the queues, in which no node is any more, and the nodes if none is in use.
    fn release(&mut self) {
        debug_assert!(self.closed);
        if self.left.is_some() {
            return;
        }
        // A node whose handle has cancelled it and has yet to send it home is in its queue still.
        for index in self.slab.indices(0) {
            self.unlink(self.slab.get(index));
        }
        self.queues.iter_mut().for_each(Queue::free);
        let left = self.slab.in_use();
        self.left = Some(left);
        if left == 0 {
            self.slab.free_all();
        }
    }

    fn visit(&mut self, shard: &Shard, now: Time, batch: &mut Vec<Waker>) -> Visit {
        self.drain_remote_free(shard);
        self.drain_insert_buffer();
        let before = batch.len();
        let more = self.fire_batch(&shard.next_wake, now, batch) == Settled::More;
        let (exact, lead_in) = self.next_exact(now);
        shard.next_wake.set([self.next(SlackQueue::Adaptive), exact], lead_in);
        Visit { fired: batch.len() - before, more }
    }

    /// Fires in the order of deadlines what is due at `now`, up to a batch; `More` if that was not all.
    fn fire_batch(&mut self, next_wake: &NextWake, now: Time, batch: &mut Vec<Waker>) -> Settled {
        // SAFETY: we are under the lock of the shard that has these queues.
        let mut locked = unsafe { Locked::new() };
        let mut handled = 0;
        loop {
            for queue in &mut self.queues {
                if queue.settle(&mut locked, now, STEPS) == Settled::More {
                    return Settled::More;
                }
            }
            let (line, alone) = self.first(&mut locked, now);
            let Some(first) = self.queues[line as usize].pop(&mut locked, now) else { return Settled::Done };
            let mut ready = [first; AHEAD];
            let mut count = 1;
            // Nodes lie anywhere in memory: those that come next are fetched while others come out of the queue.
            while alone && count < AHEAD.min(BATCH - handled) {
                let Some(next) = self.queues[line as usize].pop_ready(&mut locked, now) else { break };
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

    /// Which queue is next, and whether it is the only one with any timers that are due.
    fn first(&mut self, locked: &mut Locked, now: Time) -> (SlackQueue, bool) {
        if self.exact == 0 {
            return (SlackQueue::Adaptive, true);
        }
        let [adaptive, exact] = &mut self.queues;
        match (adaptive.peek(locked, now), exact.peek(locked, now)) {
            (_, None) => (SlackQueue::Adaptive, true),
            (None, Some(_)) => (SlackQueue::Exact, true),
            (Some(adaptive), Some(exact)) if adaptive < exact => (SlackQueue::Adaptive, false),
            _ => (SlackQueue::Exact, false),
        }
    }

    /// Fires nodes that have come out of their queue, with when they were due there. One that has been pushed later takes its new place:
    /// among the others if it is due before the last of them (P3), else in the queue.
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
            // SAFETY: under the lock.
            let slack = unsafe { node.slack() };
            match node.state().fire(due) {
                Fire::Won(deadline) => {
                    self.left_queue(node, due, slack);
                    self.counts.fired(now - deadline);
                    // SAFETY: the shard has won, so the waker is its own.
                    batch.push(unsafe { node.take_waker() });
                }
                Fire::NotYet(deadline) => {
                    let others = ready[index..].iter();
                    let before = others.take_while(|(_, due)| *due <= slack.round_up(deadline)).count();
                    if index + before < ready.len() {
                        index -= 1;
                        ready[index..=index + before].rotate_left(1);
                        ready[index + before] = (node, slack.round_up(deadline));
                        if slack.class() == SlackClass::Precise {
                            self.leads.take(due);
                            self.leads.put(slack.round_up(deadline));
                        }
                    } else {
                        self.left_queue(node, due, slack);
                        self.link_again(next_wake, node, deadline, slack);
                    }
                }
                Fire::Lost => self.left_queue(node, due, slack),
            }
        }
    }

    /// Puts a node back into its queue. Its wish is heard at the end of the visit; so it must be there by then, not among the young.
    fn link_again(&mut self, next_wake: &NextWake, node: NodeRef, deadline: Time, slack: SlackBits) {
        if slack != SlackBits::ADAPTIVE {
            let _heard = self.link_strict(next_wake, node, deadline, slack);
        } else if !deadline.is_never() {
            self.insert(SlackQueue::Adaptive, node, deadline);
        }
    }

    fn stop(&mut self, node: NodeRef, batch: &mut Vec<Waker>) {
        if node.state().stop() == Stop::Won {
            self.unlink(node);
            self.counts.stopped += 1;
            // SAFETY: the shard has won, so the waker is its own.
            batch.push(unsafe { node.take_waker() });
        }
    }

    /// When a queue wants to be visited for its own sake.
    fn next(&self, line: SlackQueue) -> Time {
        self.queues[line as usize].next_wakeup().unwrap_or(Time::NEVER)
    }

    /// When the strict queue wants to be visited after a visit at `now`, and whether the driver stays awake until then because a precise
    /// timer is due within [`LEAD`]. Other timers of the queue do not get that (D73).
    fn next_exact(&self, now: Time) -> (Time, bool) {
        let next = self.next(SlackQueue::Exact);
        match self.leads.first().map(ahead) {
            Some(early) if early > now => (next.min(early), false),
            Some(_) => (next, true),
            None => (next, false),
        }
    }
}

impl Busy for ShardInner {
    #[inline(always)]
    fn visits(&self) -> u64 {
        self.counts.armed + self.counts.cancelled
    }
}

impl NextWake {
    fn new() -> NextWake {
        NextWake { times: [AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX)], lead_in: AtomicBool::new(false) }
    }

    /// When this queue wants to be visited.
    #[inline(always)]
    pub(crate) fn get(&self, line: SlackQueue) -> Time {
        Time::from_nanos(self.times[line as usize].load(Ordering::SeqCst))
    }

    /// The earliest of all wishes; but no relaxed timer is worth a visit before `floor`.
    pub(crate) fn next(&self, floor: Time) -> Time {
        self.get(SlackQueue::Adaptive).max(floor).min(self.get(SlackQueue::Exact))
    }

    /// Under the lock: no later than `at`.
    #[inline(always)]
    fn set_earlier(&self, line: SlackQueue, at: Time) -> NotifyDriver {
        let want = &self.times[line as usize];
        if at.as_nanos() >= want.load(Ordering::Relaxed) {
            return NotifyDriver::No;
        }
        // Before the driver's plan is looked at: see `driver`.
        want.store(at.as_nanos(), Ordering::SeqCst);
        NotifyDriver::Yes
    }

    /// Under the lock, after a visit.
    fn set(&self, times: [Time; 2], lead_in: bool) {
        for (want, time) in self.times.iter().zip(times) {
            want.store(time.as_nanos(), Ordering::Release);
        }
        self.lead_in.store(lead_in, Ordering::Relaxed);
    }

    /// RemoteFreeList whether the last visit has found a precise timer that is due within [`LEAD`].
    pub(crate) fn is_lead_in(&self) -> bool {
        self.lead_in.load(Ordering::Relaxed)
    }
}

impl SlackBits {
    /// Which queue its timers are in.
    #[inline(always)]
    pub(crate) fn line(self) -> SlackQueue {
        if self == SlackBits::ADAPTIVE { SlackQueue::Adaptive } else { SlackQueue::Exact }
    }
}

/// When the driver wakes up for a precise timer.
fn ahead(due: Time) -> Time {
    due - Span::from(LEAD)
}
