//! Model checks: each runs a handful of steps of two or three threads in every order, with every value that the memory
//! model lets a load see (loom).
//!
//! ```text
//!     RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p tourbillon --release --lib models
//! ```
//!
//! In pairs (D39): each thing that a handle does against each thing that the shard's side does to the same entry
//! (`against`), and beside what other handles do in the same shard (`beside`). Below those, each part alone: the state word,
//! the biased lock, the stack of nodes on their way home. Above them, what a driver and those who arm owe to each other
//! (`driving`), the capacity, and the surfaces: calls and the bell; `Timer`, `NamedTimers` and `Scheduler` over an engine that
//! is made up for them. (`scheduler.rs` is a module of the scheduler's, whose parts it uses.)
//!
//! What is checked everywhere: an entry ends once (P2); its waker goes to one place, and neither is lost nor doubled;
//! a node comes home once and can be used again; the shard's wish is no later than its earliest timer. Loom itself reports two
//! threads that are in the same cell at once, the shard's data and the fields of a node included.
//!
//! Some models bound how often a thread is interrupted where it could go on, since their number grows exponentially.

mod against;
mod beside;
mod biased_lock;
mod callbacks;
mod capacity;
mod driver;
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
use crate::shard::slab::index_of;
use crate::shard::{Access, Arm, ArmKind, LocalShard, NotifyDriver, Release, Shard};
use crate::slack::SlackBits;
use crate::stats::Stats;

const EARLIER: Time = Time::from_nanos(50);
pub(crate) const DUE: Time = Time::from_nanos(100);
pub(crate) const LATER: Time = Time::from_nanos(200);

/// How the lock of a shard stands to its owner when a model begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lock {
    /// The owner's way is the quick one.
    Biased,
    Revoked,
}

/// Tries everything.
pub(crate) fn explore(model: impl Fn() + Send + Sync + 'static) {
    explore_up_to(None, model);
}

/// Tries everything in which threads are interrupted no more often than that, where they could go on.
pub(crate) fn explore_up_to(interruptions: impl Into<Option<usize>>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = interruptions.into();
    builder.check(model);
}

/// What became of the wakers of one kind. (Counted by what loom does not see: it would only make for more orders to try.)
#[derive(Default)]
pub(crate) struct Tally {
    made: AtomicUsize,
    woken: AtomicUsize,
    gone: AtomicUsize,
}

impl Tally {
    /// Leaked, so that a waker too many is counted and does not follow a stale address.
    pub(crate) fn new() -> &'static Tally {
        Box::leak(Box::default())
    }

    pub(crate) fn waker(&'static self) -> Waker {
        // SAFETY: the functions of the table take what is given here, and only count.
        unsafe { Waker::from_raw(self.raw()) }
    }

    fn raw(&'static self) -> RawWaker {
        static TABLE: RawWakerVTable = RawWakerVTable::new(
            |data| Tally::of(data).raw(),
            |data| {
                Tally::of(data).woken.fetch_add(1, Ordering::Relaxed);
                Tally::of(data).gone.fetch_add(1, Ordering::Relaxed);
            },
            |data| _ = Tally::of(data).woken.fetch_add(1, Ordering::Relaxed),
            |data| _ = Tally::of(data).gone.fetch_add(1, Ordering::Relaxed),
        );
        self.made.fetch_add(1, Ordering::Relaxed);
        RawWaker::new(std::ptr::from_ref(self).cast(), &TABLE)
    }

    fn of(data: *const ()) -> &'static Tally {
        // SAFETY: `raw` made it of a reference that lives for ever.
        unsafe { &*data.cast() }
    }

    pub(crate) fn woken(&self) -> usize {
        self.woken.load(Ordering::Relaxed)
    }

    #[track_caller]
    pub(crate) fn assert_none_lost_or_doubled(&self) {
        let (made, gone) = (self.made.load(Ordering::Relaxed), self.gone.load(Ordering::Relaxed));
        assert_eq!(made, gone, "wakers made, and wakers that are gone");
    }
}

/// A shard that the threads of a model share.
pub(super) type SharedShard = Arc<Pin<Box<Shard>>>;

/// A shard that has had one node in use.
fn shard(lock: Lock) -> SharedShard {
    // In these models no thread asks the shard for its core.
    let shard = Shard::new(NonNull::dangling(), QueueKind::Wheel, Time::ZERO);
    let shard = Arc::new(shard.expect("a wheel takes no parameters"));
    let counts = if lock == Lock::Biased { 2 } else { 0 };
    for _ in 0..counts {
        let node = arm(&shard, Time::NEVER, Waker::noop().clone()).0;
        assert!(release_owned(&shard, node).is_ok());
    }
    shard
}

/// Arms, as the owner, in a shard that is open.
#[track_caller]
fn arm(shard: &Shard, deadline: Time, waker: Waker) -> (NodeRef, NotifyDriver) {
    let Arm { handle, notify_driver } = try_arm(shard, Access::Owner, deadline, waker);
    (handle.expect("an open shard arms").node(), notify_driver)
}

fn try_arm(shard: &Shard, access: Access, deadline: Time, waker: Waker) -> Arm {
    local(shard, access).arm(ArmKind::New, deadline, SlackBits::ADAPTIVE, waker, &mut None)
}

fn local(shard: &Shard, access: Access) -> LocalShard<'_> {
    // SAFETY: in each model one thread at a time is the owner.
    unsafe { LocalShard::new(shard, access) }
}

fn handle(node: NodeRef) -> NodeHandle {
    // SAFETY: in each model one thread at a time has the right to a node, and forgets the node when it releases it.
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

/// As the driver does.
fn visit(shard: &Shard, now: Time) -> Vec<Waker> {
    let mut batch = Vec::new();
    while shard.visit_remote(now, &mut batch).more {}
    batch
}

/// As shutdown does.
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

/// When all handles are gone: everything armed has ended, and the nodes, of which there were at most so many, are all home
/// and each of them once.
#[track_caller]
fn assert_all_free(shard: &Shard, nodes: usize) {
    assert_eq!(stats(shard).pending, 0, "an entry that has not ended");
    assert!(visit(shard, Time::ZERO).is_empty());
    assert_eq!(shard.next_wake().next(Time::ZERO), Time::NEVER, "something is left in a queue");
    let again: Vec<_> = (0..nodes).map(|_| arm(shard, DUE, Waker::noop().clone()).0).collect();
    let mut indices: Vec<_> = again.iter().map(|node| index_of(*node)).collect();
    indices.sort_unstable();
    indices.dedup();
    assert_eq!(indices.len(), nodes, "a node that has come home twice");
    assert!(indices.iter().all(|index| *index as usize <= nodes), "a node that has not come home: {indices:?}");
    assert_eq!(visit(shard, DUE).len(), nodes, "a node that was used again did not fire");
    for node in again {
        assert!(release_owned(shard, node).is_err());
    }
}
