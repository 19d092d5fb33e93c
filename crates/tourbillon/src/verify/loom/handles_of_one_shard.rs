//! Several entries of one shard, each with its handle on another thread.

use std::sync::Arc;
use std::task::Waker;

use loom::thread;

use super::{
    DUE, EARLIER, LATER, Lock, SharedShard, WakerTally, arm, assert_all_free, change_waker, explore, explore_up_to,
    handle, local, move_to, release_owned, release_remote, shard, stats, stop, try_arm, visit,
};
use crate::shard::node::NodeRef;
use crate::shard::state::{Later, NodeState};
use crate::shard::{Access, Release, Shard};

/// An action of the owning thread on its own entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OwnerAction {
    Arm,
    Cancel,
    Move,
    ChangeWaker,
}

/// An action of a remote thread on another entry of the same shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RemoteAction {
    Cancel,
    Later,
}

impl OwnerAction {
    /// Acts on an entry that is due at `DUE`. Returns the nodes that are in use afterwards, which are due at `DUE` at the latest.
    fn act(self, shard: &Shard, node: NodeRef, tally: &'static WakerTally) -> [Option<NodeRef>; 2] {
        match self {
            OwnerAction::Arm => return [Some(node), Some(arm(shard, DUE, tally.waker()).0)],
            OwnerAction::Cancel => {
                assert!(release_owned(shard, node).is_ok(), "no other thread has ended it");
                return [None, None];
            }
            OwnerAction::Move => assert!(matches!(move_to(shard, node, EARLIER), Some(_))),
            OwnerAction::ChangeWaker => {
                assert!(matches!(change_waker(shard, node, &mut Some(tally.waker())), Some(_)));
            }
        }
        [Some(node), None]
    }
}

impl RemoteAction {
    /// Acts on an entry that is due at `DUE`. Returns the node if it is in use afterwards; it is due at `LATER`.
    fn act(self, shard: &Shard, node: NodeRef) -> Option<NodeRef> {
        match self {
            RemoteAction::Cancel => {
                assert!(release_remote(shard, node).is_ok(), "no other thread has ended it");
                None
            }
            RemoteAction::Later => {
                assert_eq!(node.state().later(DUE, LATER), Later::Won, "no other thread has ended it");
                Some(node)
            }
        }
    }
}

/// Runs an action of the owning thread beside an action of a remote thread.
fn race(owner: OwnerAction, remote: RemoteAction) {
    for lock in [Lock::Biased, Lock::Revoked] {
        explore(move || {
            let shard = shard(lock);
            let tally = WakerTally::new();
            let [one, two] = [(); 2].map(|()| arm(&shard, DUE, tally.waker()).0);
            let other = {
                let shard = shard.clone();
                thread::spawn(move || remote.act(&shard, two))
            };
            let due = owner.act(&shard, one, tally);
            let later = other.join().unwrap();
            let due: Vec<_> = due.into_iter().flatten().collect();
            finish(&shard, &due, later.as_slice(), tally);
            assert_all_free(&shard, 2 + usize::from(owner == OwnerAction::Arm));
        });
    }
}

/// Fires the timers that are left, each at its deadline, and releases their nodes.
#[track_caller]
fn finish(shard: &SharedShard, due: &[NodeRef], later: &[NodeRef], tally: &'static WakerTally) {
    for (nodes, at) in [(due, DUE), (later, LATER)] {
        assert!(nodes.is_empty() || shard.next_wake().next(EARLIER) <= at, "no visit is planned for it");
        let batch = visit(shard, at);
        assert_eq!(batch.len(), nodes.len(), "due at {at:?}");
        assert!(nodes.iter().all(|node| node.state().load() == NodeState::Fired));
        batch.into_iter().for_each(Waker::wake);
    }
    for node in due.iter().chain(later) {
        assert!(release_owned(shard, *node).is_err());
    }
    tally.assert_none_lost_or_doubled();
}

#[test]
fn d39_p2_an_arm_beside_a_remote_cancel_may_reuse_its_node() {
    race(OwnerAction::Arm, RemoteAction::Cancel);
}

#[test]
fn d39_p2_an_arm_beside_a_deadline_pushed_later() {
    race(OwnerAction::Arm, RemoteAction::Later);
}

#[test]
fn d39_p2_a_cancel_by_the_owner_beside_a_remote_cancel() {
    race(OwnerAction::Cancel, RemoteAction::Cancel);
}

#[test]
fn d39_p2_a_cancel_by_the_owner_beside_a_deadline_pushed_later() {
    race(OwnerAction::Cancel, RemoteAction::Later);
}

#[test]
fn d39_p2_a_move_beside_a_remote_cancel() {
    race(OwnerAction::Move, RemoteAction::Cancel);
}

#[test]
fn d39_p2_a_move_beside_a_deadline_pushed_later() {
    race(OwnerAction::Move, RemoteAction::Later);
}

#[test]
fn d39_p2_a_change_of_waker_beside_a_remote_cancel() {
    race(OwnerAction::ChangeWaker, RemoteAction::Cancel);
}

#[test]
fn d39_p2_a_change_of_waker_beside_a_deadline_pushed_later() {
    race(OwnerAction::ChangeWaker, RemoteAction::Later);
}

#[test]
fn d39_p2_a_remote_arm_beside_an_arm_by_the_owner() {
    for lock in [Lock::Biased, Lock::Revoked] {
        explore(move || {
            let shard = shard(lock);
            let tally = WakerTally::new();
            let remote = {
                let shard = shard.clone();
                thread::spawn(move || {
                    try_arm(&shard, Access::Remote, DUE, tally.waker()).handle.expect("an open shard arms").node()
                })
            };
            let mine = arm(&shard, DUE, tally.waker()).0;
            let theirs = remote.join().unwrap();
            assert!(mine != theirs, "two entries have the same node");
            finish(&shard, &[mine, theirs], &[], tally);
            assert_all_free(&shard, 2);
        });
    }
}

/// Runs the actions of two remote threads that are not the driver.
fn race_remote(one: RemoteAction, two: RemoteAction) {
    explore(move || {
        let shard = shard(Lock::Biased);
        let tally = WakerTally::new();
        let nodes = [(); 2].map(|()| arm(&shard, DUE, tally.waker()).0);
        let other = {
            let shard = shard.clone();
            thread::spawn(move || one.act(&shard, nodes[0]))
        };
        let second = two.act(&shard, nodes[1]);
        let later: Vec<_> = other.join().unwrap().into_iter().chain(second).collect();
        finish(&shard, &[], &later, tally);
        assert_all_free(&shard, 2);
    });
}

#[test]
fn d39_p2_two_remote_cancels_fill_the_remote_free_list_and_one_of_them_drains_it() {
    race_remote(RemoteAction::Cancel, RemoteAction::Cancel);
}

#[test]
fn d39_p2_a_remote_cancel_beside_a_deadline_pushed_later() {
    race_remote(RemoteAction::Cancel, RemoteAction::Later);
}

#[test]
fn d39_p2_two_deadlines_pushed_later() {
    race_remote(RemoteAction::Later, RemoteAction::Later);
}

#[test]
fn d39_p2_the_remote_free_list_is_drained_while_the_owner_arms_and_cancels() {
    explore_up_to(3, || {
        let shard = shard(Lock::Biased);
        let tally = WakerTally::new();
        let nodes = [(); 2].map(|()| arm(&shard, DUE, tally.waker()).0);
        let other = {
            let shard = shard.clone();
            thread::spawn(move || nodes.map(|node| release_remote(&shard, node)).iter().flatten().count())
        };
        let released = arm(&shard, DUE, tally.waker()).0;
        assert!(release_owned(&shard, released).is_ok());
        let kept = arm(&shard, DUE, tally.waker()).0;
        assert_eq!(other.join().unwrap(), 2);
        assert_eq!(
            stats(&shard).cancelled,
            if kept.state().load() == NodeState::Armed(DUE) { 5 } else { unreachable!() }
        );
        finish(&shard, &[kept], &[], tally);
        assert_all_free(&shard, 3);
    });
}

#[test]
fn d39_p2_a_node_released_remotely_is_reused_by_the_owner_while_the_shard_is_visited() {
    explore_up_to(3, || {
        let shard = shard(Lock::Biased);
        let (first, second) = (WakerTally::new(), WakerTally::new());
        let node = arm(&shard, DUE, first.waker()).0;
        let remote = {
            let shard = shard.clone();
            thread::spawn(move || release_remote(&shard, node).is_ok())
        };
        let driver = {
            let shard = shard.clone();
            thread::spawn(move || visit(&shard, DUE).into_iter().for_each(Waker::wake))
        };
        let again = arm(&shard, DUE, second.waker()).0;
        let cancelled = remote.join().unwrap();
        driver.join().unwrap();
        assert_eq!(first.woken(), usize::from(!cancelled), "the timer was cancelled and fired, or neither");
        first.assert_none_lost_or_doubled();
        let fired = second.woken() == 1;
        assert_eq!(again.state().load(), if fired { NodeState::Fired } else { NodeState::Armed(DUE) });
        assert!(fired || shard.next_wake().next(EARLIER) <= DUE, "no visit is planned for it");
        assert_eq!(release_owned(&shard, again).is_ok(), !fired);
        second.assert_none_lost_or_doubled();
        assert_all_free(&shard, 2);
    });
}

#[test]
fn d39_p2_a_remote_cancel_a_visit_and_shutdown_at_once_have_one_winner() {
    explore_up_to(3, || {
        let shard = shard(Lock::Biased);
        let tally = WakerTally::new();
        let node = arm(&shard, DUE, tally.waker()).0;
        let driver = {
            let shard = shard.clone();
            thread::spawn(move || visit(&shard, DUE).len())
        };
        let shutdown = {
            let shard = shard.clone();
            thread::spawn(move || stop(&shard).len())
        };
        let cancelled = usize::from(release_remote(&shard, node).is_ok());
        let (fired, stopped) = (driver.join().unwrap(), shutdown.join().unwrap());
        assert_eq!(cancelled + fired + stopped, 1);
        tally.assert_none_lost_or_doubled();
        let stats = stats(&shard);
        assert_eq!((stats.fired, stats.stopped, stats.pending), (fired as u64, stopped as u64, 0));
    });
}

#[test]
fn d39_p2_an_entry_that_migrates_is_counted_once_and_is_not_fired_in_its_old_shard() {
    explore(|| {
        let [here, there] = [(); 2].map(|()| shard(Lock::Revoked));
        let tally = WakerTally::new();
        let node = arm(&there, DUE, tally.waker()).0;
        let driver = {
            let there = there.clone();
            thread::spawn(move || visit(&there, DUE).len())
        };
        let waker = there.release_remote(handle(node), Release::Migrating);
        let moved = waker.ok().map(|waker| arm(&here, DUE, waker).0);
        let fired = driver.join().unwrap();
        assert_eq!(fired, usize::from(moved.is_none()));
        assert_eq!(stats(&there).cancelled, 0);
        finish(&here, moved.as_slice(), &[], tally);
        assert_all_free(&here, 1);
    });
}

/// Runs a worker, which visits its own shard, against `remote` on another thread. `judge` gets the result of `remote` and how many timers
/// fired, and returns the node if it is still in use.
fn worker<T: 'static>(remote: fn(&Shard, NodeRef) -> T, judge: fn(T, usize) -> Option<NodeRef>) {
    for lock in [Lock::Biased, Lock::Revoked] {
        explore(move || {
            let shard = shard(lock);
            let tally = WakerTally::new();
            let node = arm(&shard, DUE, tally.waker()).0;
            let other = {
                let shard = shard.clone();
                thread::spawn(move || remote(&shard, node))
            };
            let mut batch = Vec::new();
            let _ = local(&shard, Access::Owner).visit(DUE, &mut batch);
            let did = other.join().unwrap();
            if let Some(node) = judge(did, batch.len()) {
                drop(release_owned(&shard, node));
            }
            batch.into_iter().for_each(Waker::wake);
            tally.assert_none_lost_or_doubled();
            assert_eq!(stats(&shard).pending, 0);
        });
    }
}

#[test]
fn d39_p2_a_visit_by_a_worker_against_a_remote_cancel_has_one_winner() {
    worker(
        |shard, node| release_remote(shard, node).is_ok(),
        |cancelled, fired| {
            assert_eq!(fired, usize::from(!cancelled));
            None
        },
    );
}

#[test]
fn d39_p1_a_visit_by_a_worker_does_not_fire_a_timer_that_was_pushed_later() {
    worker(
        |_, node| (node, node.state().later(DUE, LATER)),
        |(node, later), fired| {
            assert_eq!(fired, usize::from(later == Later::Lost));
            Some(node)
        },
    );
}

#[test]
fn d39_p2_a_visit_by_a_worker_against_shutdown_has_one_winner() {
    worker(
        |shard, node| (node, stop(shard).len()),
        |(node, stopped), fired| {
            assert_eq!(fired + stopped, 1);
            Some(node)
        },
    );
}
