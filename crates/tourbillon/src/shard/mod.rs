//! A shard holds the pending timers of one thread.
//!
//! ```text
//!     the owning thread --- arm, cancel, move: under the biased lock ------------------------+
//!                                                                                            v
//!     any thread ---------- push later: the state word alone (*)          +--------------------------------+
//!                      \--- cancel: the state word, remote free list ---> | lock { queues, slab, counts }  |
//!                                                                         +--------------------------------+
//!     the driver ---------- visits when the next wake-up is due ----------------------------^
//! ```
//!
//! The owning thread arms and cancels under the shard's biased lock, which costs it two plain stores. Other threads do not
//! take the lock to cancel: they change the timer's state word and push its node onto the shard's remote free list. The
//! shard recycles it at its next visit, or when it has no free node left; the remote thread whose push makes the list 4,096
//! long takes the lock for that.
//! When the shard's next wake-up is due, the driver locks the shard, fires a bounded batch (D26), unlocks, and only then
//! wakes the wakers: no code of the user runs under the lock (P10).
//!
//! (*) Not in virtual time, where the node moves at once, so that the next wake-up stays exact; and on a manual clock the owning thread moves
//! the node at once.

pub(crate) mod asymmetric_fence;
pub(crate) mod biased_lock;
pub(crate) mod insert_buffer;
mod next_wake;
pub(crate) mod node;
mod packed_waker;
mod precise_due_times;
pub(crate) mod queue;
pub(crate) mod remote_free;
pub(crate) mod slab;
pub(crate) mod state;
mod timers;

use std::marker::{PhantomData, PhantomPinned};
use std::ops::Deref;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::Waker;

use tourbillon_queue::{RoundsError, Span, Time};

use self::next_wake::lead_start;
pub(crate) use self::next_wake::{NextWake, NotifyDriver, SlackQueue};
use self::timers::{STEPS, ShardTimers};
use crate::outcome::Outcome;
use crate::shard::biased_lock::{BiasedLock, OwnerGuard};
use crate::shard::node::NodeHandle;
use crate::shard::queue::QueueKind;
use crate::shard::remote_free::{DRAIN_AT, RemoteFreeList};
use crate::shard::slab::EngineTraits;
use crate::shard::state::CountAs;
use crate::slack::SlackBits;
use crate::stats::ShardCounts;
use crate::sync::catch_panic::catch_panic;
use crate::sync::fork;
use crate::sync::{IS_CHECK, Ordering, unmodelled};

/// How many timers one visit fires at most.
pub(crate) const BATCH: usize = if IS_CHECK { 2 } else { 256 };

/// A worker skips the visit to its own shard while nothing is due within this time.
///
/// A visit also makes the next wake-up exact again after cancels, so a skipped visit may cost one needless wake-up in this time.
const QUIET: Span = Span::from_nanos(if IS_CHECK { 300_000 } else { 1_000_000_000 });

/// The pending timers of one thread, and what other threads need to reach them.
#[repr(align(128))]
pub(crate) struct Shard {
    timers: BiasedLock<ShardTimers>,
    next_wake: NextWake,
    /// The address of the core that owns the shard, for entries and threads that have only the shard.
    core: NonNull<()>,
    /// The fork generation of the process that created the shard: see [`fork`].
    generation: u32,
    /// Whether a worker, which is the owning thread, drives the shard instead of the driver.
    has_worker: unmodelled::AtomicBool,
    /// Tells the worker that another thread has armed a timer here.
    notify: unmodelled::Mutex<Option<Notify>>,
    /// Whether a thread that releases a node frees it at once: the engine is gone, and no thread visits the shard any more.
    is_engine_gone: unmodelled::AtomicBool,
    remote_free: CachePadded<RemoteFreeList>,
    /// The chunks of the slab hold the shard's address.
    _pinned: PhantomPinned,
}

pub(crate) type Notify = Arc<dyn Fn() + Send + Sync>;

// SAFETY: of the fields only `core` is not `Sync` by itself, and that is an address that the shard returns and never follows.
unsafe impl Sync for Shard {}
// SAFETY: of the fields only `core` is not `Send` by itself, and that is an address that the shard returns and never follows.
unsafe impl Send for Shard {}

/// Keeps a value that other threads write in a cache line of its own.
#[repr(align(128))]
struct CachePadded<T>(T);

/// Why a handle releases its node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Release {
    /// The timer is cancelled.
    Cancelled,
    /// The timer migrates to another shard: nothing is counted.
    Migrating,
}

/// Whether a timer is armed for the first time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ArmKind {
    New,
    /// The timer was armed in another shard before, which has counted it.
    Migrated,
}

/// How a thread may lock a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// As the owner of its biased lock.
    Owner,
    /// As any other thread.
    Remote,
}

/// A shard with the proof of how the calling thread may lock it.
#[derive(Clone, Copy)]
pub(crate) struct LocalShard<'a> {
    shard: &'a Shard,
    access: Access,
    /// Not `Send`: the proof is this thread's.
    thread: PhantomData<*const ()>,
}

/// The outcome of arming a timer.
#[must_use]
pub(crate) struct Arm {
    /// `None`: refused. The engine has been shut down, or the shard has as many timers as its queues can hold.
    pub(crate) handle: Option<NodeHandle>,
    pub(crate) notify_driver: NotifyDriver,
}

impl From<(NodeHandle, NotifyDriver)> for Arm {
    fn from((handle, notify_driver): (NodeHandle, NotifyDriver)) -> Arm {
        Arm { handle: Some(handle), notify_driver }
    }
}

/// The result of a visit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Visit {
    pub(crate) fired: usize,
    /// More timers are due at the same time.
    pub(crate) more: bool,
}

impl Shard {
    /// Creates an empty shard. `core` is the address that [`core`](Shard::core) returns.
    pub(crate) fn new(
        core: NonNull<()>,
        kind: QueueKind,
        now: Time,
        engine: EngineTraits,
    ) -> Result<Pin<Box<Shard>>, RoundsError> {
        Ok(Box::pin(Shard {
            timers: BiasedLock::new(ShardTimers::new(kind, now, engine)?),
            next_wake: NextWake::new(),
            core,
            generation: fork::generation(),
            has_worker: unmodelled::AtomicBool::new(false),
            notify: unmodelled::Mutex::new(None),
            is_engine_gone: unmodelled::AtomicBool::new(false),
            remote_free: CachePadded(RemoteFreeList::new()),
            _pinned: PhantomPinned,
        }))
    }

    pub(crate) fn core(&self) -> NonNull<()> {
        self.core
    }

    pub(crate) fn next_wake(&self) -> &NextWake {
        &self.next_wake
    }

    /// Returns whether a visit at `now` would do nothing that cannot wait.
    pub(crate) fn is_quiet(&self, now: Time) -> bool {
        self.next_wake.next(now) > now + QUIET && self.remote_free.0.is_empty()
    }

    /// Returns whether a worker drives the shard, rather than the engine's driver.
    pub(crate) fn has_worker(&self) -> bool {
        self.has_worker.load(Ordering::SeqCst)
    }

    /// Gives the shard to a worker, unless it has one. Returns whether it did.
    #[must_use]
    pub(crate) fn set_worker(&self, notify: Notify) -> bool {
        let mut current = unmodelled::lock(&self.notify);
        if current.is_some() {
            return false;
        }
        *current = Some(notify);
        self.has_worker.store(true, Ordering::SeqCst);
        true
    }

    /// Takes the shard from the worker of `notify`, or from any worker. Returns `false` if another worker, or none, has it.
    #[must_use]
    pub(crate) fn end_worker(&self, notify: Option<&Notify>) -> bool {
        let mut current = unmodelled::lock(&self.notify);
        let is_its = current.as_ref().is_some_and(|current| notify.is_none_or(|its| Arc::ptr_eq(current, its)));
        let ended = if is_its { current.take() } else { None };
        if is_its {
            self.has_worker.store(false, Ordering::SeqCst);
        }
        drop(current);
        // Its destructor is the user's code, and runs outside the lock.
        drop(ended);
        is_its
    }

    /// Notifies the worker of the shard of a timer that the worker may not know of.
    pub(crate) fn notify_worker(&self) {
        let notify = unmodelled::lock(&self.notify).clone();
        if let Some(notify) = notify {
            let _ignored = catch_panic(|| notify());
        }
    }

    /// Releases the node of a timer on a thread that does not own the shard, without its lock. Returns the waker if that has cancelled
    /// the timer, or how the timer had ended before. The node is one of this shard.
    pub(crate) fn release_remote(&self, handle: NodeHandle, release: Release) -> Result<Waker, Outcome> {
        let top = self.remote_free.0.top();
        let as_cancelled = if release == Release::Cancelled { CountAs::Cancelled } else { CountAs::Nothing };
        let waker = handle.release_remote(top.node(), as_cancelled);
        let count = if waker.is_ok() { as_cancelled } else { CountAs::Nothing };
        // Only the thread whose push makes the list full drains it.
        let is_full = self.remote_free.0.push(handle.node(), count, top) == DRAIN_AT;
        // If this thread does not see yet that the shard was released, the memory is freed with the core.
        if is_full || self.is_engine_gone.load(Ordering::SeqCst) {
            self.drain_remote_free();
        }
        waker
    }

    #[cold]
    fn drain_remote_free(&self) {
        if self.generation == fork::generation() {
            self.timers.lock_remote(|timers| timers.drain_remote_free(self));
        }
    }

    /// Frees the queues, after the engine is gone and its timers are stopped. The nodes are freed with the last handle.
    pub(crate) fn free_memory(&self) {
        self.is_engine_gone.store(true, Ordering::SeqCst);
        self.timers.lock_remote(|timers| {
            timers.drain_remote_free(self);
            timers.free_memory();
        });
    }

    /// Fires the timers that are due at `now`, up to a batch. The caller wakes the wakers.
    pub(crate) fn visit_remote(&self, now: Time, batch: &mut Vec<Waker>) -> Visit {
        self.timers.lock_remote(|timers| timers.visit(self, now, batch))
    }

    /// Makes the next wake-up exact after a cancel: it may have been that of the cancelled timer.
    pub(crate) fn refresh(&self) {
        self.timers.lock_remote(|timers| {
            timers.drain_remote_free(self);
            timers.drain_insert_buffer();
            let on_time = timers.next(SlackQueue::OnTime);
            let early = timers.precise_due_times.first().map_or(on_time, |first| on_time.min(lead_start(first)));
            self.next_wake.set([timers.next(SlackQueue::Adaptive), early], self.next_wake.is_lead_in());
        });
    }

    /// Refuses all further arming.
    pub(crate) fn close(&self) {
        self.timers.lock_remote(|timers| timers.closed = true);
    }

    /// Stops a batch of timers, from the node with the index `*cursor` on. The caller wakes the wakers, and calls again until this returns
    /// `false`.
    #[must_use]
    pub(crate) fn stop_some(&self, cursor: &mut u32, batch: &mut Vec<Waker>) -> bool {
        self.timers.lock_remote(|timers| {
            debug_assert!(timers.closed);
            timers.drain_remote_free(self);
            for (count, index) in timers.slab.indices(*cursor).enumerate() {
                if batch.len() == BATCH || count == STEPS {
                    *cursor = index;
                    return true;
                }
                timers.stop(timers.slab.get(index), batch);
            }
            self.next_wake.set([Time::NEVER; 2], false);
            false
        })
    }

    /// Returns whether the shard has pending timers.
    #[cfg(any(feature = "test-util", feature = "tokio"))]
    pub(crate) fn has_pending(&self) -> bool {
        self.timers.lock_remote(|timers| {
            timers.drain_remote_free(self);
            timers.drain_insert_buffer();
            [SlackQueue::Adaptive, SlackQueue::OnTime].into_iter().any(|queue| !timers.next(queue).is_never())
        })
    }

    /// Returns the counts, after those for the nodes in the remote free list were added.
    pub(crate) fn counts(&self) -> ShardCounts {
        self.timers.lock_remote(|timers| {
            timers.drain_remote_free(self);
            timers.counts.clone()
        })
    }
}

impl<'a> LocalShard<'a> {
    /// # Safety
    /// With [`Access::Owner`]: as long as the value lives, the calling thread is the owner of the shard's lock, as
    /// [`BiasedLock::lock_owner`] demands. (The thread never has the lock already when it calls a method of this type: under the lock the
    /// methods run only code of [`ShardTimers`], which cannot reach the lock.)
    #[inline(always)]
    pub(crate) unsafe fn new(shard: &'a Shard, access: Access) -> LocalShard<'a> {
        LocalShard { shard, access, thread: PhantomData }
    }

    /// Locks the shard by the owner's fast path, if the thread is the owner and the lock is not revoked.
    #[inline(always)]
    fn lock(self) -> Option<OwnerGuard<'a, ShardTimers>> {
        if self.access != Access::Owner {
            return None;
        }
        // SAFETY: `access` is `Owner`, so the thread is the owner and does not have the lock already: the contract of `new`.
        unsafe { self.shard.timers.lock_owner() }
    }

    /// Runs `f` under the lock, by the mutex.
    fn with_slowly<R>(self, f: impl FnOnce(&mut ShardTimers) -> R) -> R {
        match self.access {
            // SAFETY: the thread is the owner and does not have the lock already: the contract of `new`.
            Access::Owner => unsafe { self.shard.timers.lock_owner_slow(f) },
            Access::Remote => self.shard.timers.lock_remote(f),
        }
    }

    /// Runs `f` under the lock.
    #[inline(always)]
    fn with<R>(self, f: impl FnOnce(&mut ShardTimers) -> R) -> R {
        match self.lock() {
            Some(mut guard) => guard.with(f),
            None => self.with_slowly(f),
        }
    }

    /// Arms a new timer by the owner's fast path, if there is a free node that has been in use; else returns the waker.
    #[inline(always)]
    pub(crate) fn arm_quickly(
        self,
        deadline: Time,
        slack: SlackBits,
        waker: Waker,
    ) -> Result<(NodeHandle, NotifyDriver), Waker> {
        let Some(mut guard) = self.lock() else { return Err(waker) };
        let Some(node) = guard.with(ShardTimers::reuse_node) else { return Err(waker) };
        Ok(guard.with(|timers| timers.arm(&self.shard.next_wake, node, ArmKind::New, deadline, slack, waker)))
    }

    /// Arms a timer. If that is refused, the waker is put into `refused`, for the caller to drop where that is allowed.
    #[inline(always)]
    pub(crate) fn arm(
        self,
        kind: ArmKind,
        deadline: Time,
        slack: SlackBits,
        waker: Waker,
        refused: &mut Option<Waker>,
    ) -> Arm {
        // This is `with`, written out so that the fast path keeps all values in registers.
        if let Some(mut guard) = self.lock()
            && let Some(node) = guard.with(|timers| timers.take_node(self.shard))
        {
            return guard.with(|timers| timers.arm(&self.shard.next_wake, node, kind, deadline, slack, waker)).into();
        }
        self.arm_slowly(kind, deadline, slack, waker, refused)
    }

    #[cold]
    #[inline(never)]
    fn arm_slowly(
        self,
        kind: ArmKind,
        deadline: Time,
        slack: SlackBits,
        waker: Waker,
        refused: &mut Option<Waker>,
    ) -> Arm {
        *refused = Some(waker);
        self.with_slowly(|timers| {
            if let Some(node) = timers.take_node(self.shard)
                && let Some(waker) = refused.take()
            {
                return timers.arm(&self.shard.next_wake, node, kind, deadline, slack, waker).into();
            }
            // A timer that was migrating when the engine was shut down counts as stopped.
            timers.counts.stopped += u64::from(timers.closed && kind == ArmKind::Migrated);
            Arm { handle: None, notify_driver: NotifyDriver::No }
        })
    }

    /// Cancels a timer of this shard and frees its node by the owner's fast path, if the timer is armed: then returns its waker, and the
    /// right to the node is used up.
    #[inline(always)]
    pub(crate) fn cancel_quickly(self, handle: &NodeHandle) -> Option<Waker> {
        self.lock()?.with(|timers| timers.cancel(handle))
    }

    /// Releases the node of a timer of this shard. Returns its waker if that has cancelled the timer, or how the timer had ended before.
    #[inline(always)]
    pub(crate) fn release_owned(self, handle: NodeHandle, release: Release) -> Result<Waker, Outcome> {
        match self.lock() {
            Some(mut guard) => guard.with(|timers| timers.release_locked(handle, release)),
            None => self.release_slowly(handle, release),
        }
    }

    #[cold]
    #[inline(never)]
    fn release_slowly(self, handle: NodeHandle, release: Release) -> Result<Waker, Outcome> {
        self.with_slowly(|timers| timers.release_locked(handle, release))
    }

    /// Moves an armed timer of this shard to `deadline`; `None` if it has ended.
    pub(crate) fn move_timer(self, handle: &NodeHandle, deadline: Time) -> Option<NotifyDriver> {
        self.with(|timers| timers.move_node(&self.shard.next_wake, handle, deadline))
    }

    /// Gives an armed timer of this shard the waker `new`, and returns the old one, for the caller to drop; `None` if the timer has ended.
    pub(crate) fn change_waker(self, handle: &NodeHandle, new: &mut Option<Waker>) -> Option<Waker> {
        self.with(|timers| timers.change_waker(handle, new))
    }

    /// Fires the timers that are due at `now`, up to a batch. The caller wakes the wakers.
    pub(crate) fn visit(self, now: Time, batch: &mut Vec<Waker>) -> Visit {
        self.with(|timers| timers.visit(self.shard, now, batch))
    }

    /// Counts as fired a timer that was found due while it migrated.
    pub(crate) fn count_fired(self, late: Span) {
        self.with(|timers| timers.counts.fired(late));
    }
}

impl Deref for LocalShard<'_> {
    type Target = Shard;

    #[inline(always)]
    fn deref(&self) -> &Shard {
        self.shard
    }
}
