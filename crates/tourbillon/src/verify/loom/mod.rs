//! Loom models: each runs a handful of steps of two or three threads in every order, with every value that the memory model lets a load
//! return.
//!
//! ```text
//!     RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p tourbillon --no-default-features --release --lib loom
//! ```
//!
//! | models | check |
//! |---|---|
//! | `handle_against_shard` | each action of a handle against each action of the shard on the same entry (D39) |
//! | `handles_of_one_shard` | each action of a handle beside the actions of other handles in the same shard (D39) |
//! | `state`, `biased_lock`, `remote_free` | one part of the shard alone |
//! | `driver` | arming threads and the driver: no next wake-up is missed |
//! | `hand_over` | a driver that has a thread and a task: one of them is always in time |
//! | `capacity`, `callbacks`, `wakeup_timer` | one part of the core or of the surfaces alone |
//! | `timer`, `named`, `expiring_map`, `scheduler` | a surface, on a mock of the engine (`scheduler.rs` is a module of `scheduler`, and uses its parts) |
//!
//! The models check, wherever it applies, that an entry ends once (P2), that each waker is woken or dropped once, that a node is freed once
//! and can be used again, and that the next wake-up of a shard is no later than its earliest timer. Loom itself reports two threads that use
//! the same cell at once: the data of a shard and the fields of a node are such cells.
//!
//! The number of orders grows exponentially, so some models bound how often a running thread is preempted.

mod biased_lock;
mod callbacks;
mod capacity;
mod driver;
mod expiring_map;
mod hand_over;
mod handle_against_shard;
mod handles_of_one_shard;
mod named;
mod remote_free;
mod state;
pub(crate) mod timer;
mod wakeup_timer;

use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{RawWaker, RawWakerVTable, Waker};

use tourbillon_queue::Time;

use crate::outcome::Outcome;
use crate::shard::node::{NodeHandle, NodeRef};
use crate::shard::queue::QueueKind;
use crate::shard::slab::{EngineTraits, index_of};
use crate::shard::{Access, Arm, ArmKind, LocalShard, NotifyDriver, Release, Shard};
use crate::slack::SlackBits;
use crate::stats::Stats;

const EARLIER: Time = Time::from_nanos(50);
pub(crate) const DUE: Time = Time::from_nanos(100);
pub(crate) const LATER: Time = Time::from_nanos(200);

/// The state of a shard's biased lock when a model begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lock {
    /// The owner locks by the fast path.
    Biased,
    /// The owner locks by the mutex.
    Revoked,
}

/// Runs a model in every order.
pub(crate) fn explore(model: impl Fn() + Send + Sync + 'static) {
    explore_up_to(None, model);
}

/// Runs a model in every order in which running threads are preempted at most `preemptions` times.
pub(crate) fn explore_up_to(preemptions: impl Into<Option<usize>>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions.into();
    builder.check(model);
}

/// Counts the wakers of one kind that were made, woken and dropped. (With atomics that loom does not see, which would only add orders.)
#[derive(Default)]
pub(crate) struct WakerTally {
    made: AtomicUsize,
    woken: AtomicUsize,
    gone: AtomicUsize,
}

impl WakerTally {
    /// Creates a tally and leaks it, so that a waker that is used once too often is counted and does not use freed memory.
    pub(crate) fn new() -> &'static WakerTally {
        Box::leak(Box::default())
    }

    pub(crate) fn waker(&'static self) -> Waker {
        // SAFETY: the functions of the table take the pointer that `raw` stores, to a leaked tally, and only add to atomic counts.
        unsafe { Waker::from_raw(self.raw()) }
    }

    fn raw(&'static self) -> RawWaker {
        static TABLE: RawWakerVTable = RawWakerVTable::new(
            |data| WakerTally::of(data).raw(),
            |data| {
                WakerTally::of(data).woken.fetch_add(1, Ordering::Relaxed);
                WakerTally::of(data).gone.fetch_add(1, Ordering::Relaxed);
            },
            |data| _ = WakerTally::of(data).woken.fetch_add(1, Ordering::Relaxed),
            |data| _ = WakerTally::of(data).gone.fetch_add(1, Ordering::Relaxed),
        );
        self.made.fetch_add(1, Ordering::Relaxed);
        RawWaker::new(std::ptr::from_ref(self).cast(), &TABLE)
    }

    fn of(data: *const ()) -> &'static WakerTally {
        // SAFETY: `raw` made the pointer from a `&'static WakerTally`.
        unsafe { &*data.cast() }
    }

    pub(crate) fn woken(&self) -> usize {
        self.woken.load(Ordering::Relaxed)
    }

    #[track_caller]
    pub(crate) fn assert_none_lost_or_doubled(&self) {
        let (made, gone) = (self.made.load(Ordering::Relaxed), self.gone.load(Ordering::Relaxed));
        assert_eq!(made, gone, "wakers made, and wakers dropped or woken");
    }
}

/// A shard that the threads of a model share.
pub(super) type SharedShard = Arc<Pin<Box<Shard>>>;

/// Returns a shard with a biased or a revoked lock.
fn shard(lock: Lock) -> SharedShard {
    // In these models no thread uses the address of the core.
    let shard = Shard::new(NonNull::dangling(), QueueKind::Wheel, Time::ZERO, EngineTraits::default());
    let shard = Arc::new(shard.expect("a wheel takes no parameters"));
    let arms = if lock == Lock::Biased { 2 } else { 0 };
    for _ in 0..arms {
        let node = arm(&shard, Time::NEVER, Waker::noop().clone()).0;
        assert!(release_owned(&shard, node).is_ok());
    }
    shard
}

/// Arms an entry as the owner of a shard that is open.
#[track_caller]
fn arm(shard: &Shard, deadline: Time, waker: Waker) -> (NodeRef, NotifyDriver) {
    let Arm { handle, notify_driver } = try_arm(shard, Access::Owner, deadline, waker);
    (handle.expect("an open shard arms").node(), notify_driver)
}

fn try_arm(shard: &Shard, access: Access, deadline: Time, waker: Waker) -> Arm {
    local(shard, access).arm(ArmKind::New, deadline, SlackBits::ADAPTIVE, waker, &mut None)
}

fn local(shard: &Shard, access: Access) -> LocalShard<'_> {
    // SAFETY: in each model one thread at a time uses the shard as its owner, and it never has the lock during such a call.
    unsafe { LocalShard::new(shard, access) }
}

fn handle(node: NodeRef) -> NodeHandle {
    // SAFETY: in each model one thread at a time is the handle of a node, and does not use the node after its release.
    unsafe { NodeHandle::new(node) }
}

fn release_owned(shard: &Shard, node: NodeRef) -> Result<Waker, Outcome> {
    local(shard, Access::Owner).release_owned(handle(node), Release::Cancelled)
}

fn release_remote(shard: &Shard, node: NodeRef) -> Result<Waker, Outcome> {
    shard.release_remote(handle(node), Release::Cancelled)
}

fn move_to(shard: &Shard, node: NodeRef, deadline: Time) -> Option<NotifyDriver> {
    local(shard, Access::Owner).move_timer(&handle(node), deadline)
}

fn change_waker(shard: &Shard, node: NodeRef, waker: &mut Option<Waker>) -> Option<Waker> {
    local(shard, Access::Owner).change_waker(&handle(node), waker)
}

/// Fires all due timers, as the driver does.
fn visit(shard: &Shard, now: Time) -> Vec<Waker> {
    let mut batch = Vec::new();
    while shard.visit_remote(now, &mut batch).more {}
    batch
}

/// Stops all timers, as shutdown does.
fn stop(shard: &Shard) -> Vec<Waker> {
    shard.close();
    let (mut stopped, mut batch, mut cursor) = (Vec::new(), Vec::new(), 0);
    while shard.stop_some(&mut cursor, &mut batch) {
        stopped.append(&mut batch);
    }
    stopped.append(&mut batch);
    stopped
}

fn stats(shard: &Shard) -> Stats {
    let mut stats = Stats::default();
    stats.add(&shard.counts());
    stats
}

/// Asserts, when all handles are gone, that all timers have ended, and that each of the nodes, at most `nodes`, was freed once.
#[track_caller]
fn assert_all_free(shard: &Shard, nodes: usize) {
    assert_eq!(stats(shard).pending, 0, "an entry has not ended");
    assert!(visit(shard, Time::ZERO).is_empty());
    assert_eq!(shard.next_wake().next(Time::ZERO), Time::NEVER, "a node is left in a queue");
    let again: Vec<_> = (0..nodes).map(|_| arm(shard, DUE, Waker::noop().clone()).0).collect();
    let mut indices: Vec<_> = again.iter().map(|node| index_of(*node)).collect();
    indices.sort_unstable();
    indices.dedup();
    assert_eq!(indices.len(), nodes, "a node was freed twice");
    assert!(indices.iter().all(|index| *index as usize <= nodes), "a node was not freed: {indices:?}");
    assert_eq!(visit(shard, DUE).len(), nodes, "a node that was used again did not fire");
    for node in again {
        assert!(release_owned(shard, node).is_err());
    }
}
