//! Entries of one shard, each with a handle on another thread.

use std::sync::Arc;
use std::task::Waker;

use loom::thread;

use super::{
    DUE, EARLIER, LATER, Lock, SharedShard, Tally, arm, assert_all_free, change_waker, explore, explore_up_to, handle,
    local, move_to, release_owned, release_remote, shard, stats, stop, try_arm, visit,
};
use crate::shard::node::NodeRef;
use crate::shard::state::{Later, NodeState};
use crate::shard::{Access, Release, Shard};

/// What the owner does with its entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OwnerAction {
    Arm,
    Cancel,
    Move,
    ChangeWaker,
}

/// What the handle of another entry of the same shard does on another thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RemoteAction {
    Cancel,
    Later,
}

impl OwnerAction {
    /// Does it to an entry that is due at `DUE`. The node, if there is one afterwards; it is due at `DUE` at the latest.
    fn act(self, shard: &Shard, node: NodeRef, tally: &'static Tally) -> [Option<NodeRef>; 2] {
        match self {
            OwnerAction::Arm => return [Some(node), Some(arm(shard, DUE, tally.waker()).0)],
            OwnerAction::Cancel => {
                assert!(release_owned(shard, node).is_ok(), "nothing else has ended it");
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
    /// Does it to an entry that is due at `DUE`. The node, if there is one afterwards; it is due at `LATER`.
    fn act(self, shard: &Shard, node: NodeRef) -> Option<NodeRef> {
        match self {
            RemoteAction::Cancel => {
                assert!(release_remote(shard, node).is_ok(), "nothing else has ended it");
                None
            }
            RemoteAction::Later => {
                assert_eq!(node.state().later(DUE, LATER), Later::Won, "nothing else has ended it");
                Some(node)
            }
        }
    }
}

/// What an owner does beside what somebody does from afar.
fn race(idle: OwnerAction, afar: RemoteAction) {
    for lock in [Lock::Biased, Lock::Revoked] {
        explore(move || {
            let shard = shard(lock);
            let tally = Tally::new();
            let [one, two] = [(); 2].map(|()| arm(&shard, DUE, tally.waker()).0);
            let other = {
                let shard = shard.clone();
                thread::spawn(move || afar.act(&shard, two))
            };
            let due = idle.act(&shard, one, tally);
            let later = other.join().unwrap();
            let due: Vec<_> = due.into_iter().flatten().collect();
            finish(&shard, &due, later.as_slice(), tally);
            assert_all_free(&shard, 2 + usize::from(idle == OwnerAction::Arm));
        });
    }
}

/// Fires what is left, each at its time, and lets go of it.
#[track_caller]
fn finish(shard: &SharedShard, due: &[NodeRef], later: &[NodeRef], tally: &'static Tally) {
    for (nodes, at) in [(due, DUE), (later, LATER)] {
        assert!(nodes.is_empty() || shard.next_wake().next(EARLIER) <= at, "nobody would come for it");
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
fn d39_p2_an_arm_beside_a_cancel_from_afar_may_reuse_its_node() {
    race(OwnerAction::Arm, RemoteAction::Cancel);
}

#[test]
fn d39_p2_an_arm_beside_a_deadline_pushed_later() {
    race(OwnerAction::Arm, RemoteAction::Later);
}

#[test]
fn d39_p2_a_release_owned_beside_a_cancel_from_afar() {
    race(OwnerAction::Cancel, RemoteAction::Cancel);
}

#[test]
fn d39_p2_a_release_owned_beside_a_deadline_pushed_later() {
    race(OwnerAction::Cancel, RemoteAction::Later);
}

#[test]
fn d39_p2_a_move_beside_a_cancel_from_afar() {
    race(OwnerAction::Move, RemoteAction::Cancel);
}

#[test]
fn d39_p2_a_move_beside_a_deadline_pushed_later() {
    race(OwnerAction::Move, RemoteAction::Later);
}

#[test]
fn d39_p2_a_change_of_waker_beside_a_cancel_from_afar() {
    race(OwnerAction::ChangeWaker, RemoteAction::Cancel);
}

#[test]
fn d39_p2_a_change_of_waker_beside_a_deadline_pushed_later() {
    race(OwnerAction::ChangeWaker, RemoteAction::Later);
}

#[test]
fn d39_p2_an_arm_as_a_guest_beside_one_as_the_owner() {
    for lock in [Lock::Biased, Lock::Revoked] {
        explore(move || {
            let shard = shard(lock);
            let tally = Tally::new();
            let guest = {
                let shard = shard.clone();
                thread::spawn(move || {
                    try_arm(&shard, Access::Remote, DUE, tally.waker()).handle.expect("an open shard arms").node()
                })
            };
            let mine = arm(&shard, DUE, tally.waker()).0;
            let theirs = guest.join().unwrap();
            assert!(mine != theirs, "one node for two");
            finish(&shard, &[mine, theirs], &[], tally);
            assert_all_free(&shard, 2);
        });
    }
}

/// Two handles on threads that are neither the owner's nor the driver's.
fn race_remote(one: RemoteAction, two: RemoteAction) {
    explore(move || {
        let shard = shard(Lock::Biased);
        let tally = Tally::new();
        let nodes = [(); 2].map(|()| arm(&shard, DUE, tally.waker()).0);
        let other = {
            let shard = shard.clone();
            thread::spawn(move || one.act(&shard, nodes[0]))
        };
        let left = two.act(&shard, nodes[1]);
        let later: Vec<_> = other.join().unwrap().into_iter().chain(left).collect();
        finish(&shard, &[], &later, tally);
        assert_all_free(&shard, 2);
    });
}

#[test]
fn d39_p2_two_cancels_from_afar_make_a_heap_and_one_of_them_clears_it() {
    race_remote(RemoteAction::Cancel, RemoteAction::Cancel);
}

#[test]
fn d39_p2_a_cancel_from_afar_beside_a_deadline_pushed_later() {
    race_remote(RemoteAction::Cancel, RemoteAction::Later);
}

#[test]
fn d39_p2_two_deadlines_pushed_later() {
    race_remote(RemoteAction::Later, RemoteAction::Later);
}

#[test]
fn d39_p2_a_heap_is_cleared_while_the_owner_arms_and_cancels() {
    explore_up_to(3, || {
        let shard = shard(Lock::Biased);
        let tally = Tally::new();
        let nodes = [(); 2].map(|()| arm(&shard, DUE, tally.waker()).0);
        let other = {
            let shard = shard.clone();
            thread::spawn(move || nodes.map(|node| release_remote(&shard, node)).iter().flatten().count())
        };
        let gone = arm(&shard, DUE, tally.waker()).0;
        assert!(release_owned(&shard, gone).is_ok());
        let kept = arm(&shard, DUE, tally.waker()).0;
        assert_eq!(other.join().unwrap(), 2);
        assert_eq!(stats(&shard).cancelled, if kept.state().load() == NodeState::Armed(DUE) { 5 } else { unreachable!() });
        finish(&shard, &[kept], &[], tally);
        assert_all_free(&shard, 3);
    });
}

#[test]
fn d39_p2_a_node_sent_home_is_reused_by_its_owner_while_the_shard_is_visited() {
    explore_up_to(3, || {
        let shard = shard(Lock::Biased);
        let (first, second) = (Tally::new(), Tally::new());
        let node = arm(&shard, DUE, first.waker()).0;
        let afar = {
            let shard = shard.clone();
            thread::spawn(move || release_remote(&shard, node).is_ok())
        };
        let driver = {
            let shard = shard.clone();
            thread::spawn(move || visit(&shard, DUE).into_iter().for_each(Waker::wake))
        };
        let again = arm(&shard, DUE, second.waker()).0;
        let cancelled = afar.join().unwrap();
        driver.join().unwrap();
        assert_eq!(first.woken(), usize::from(!cancelled), "cancelled and fired, or neither");
        first.assert_none_lost_or_doubled();
        let fired = second.woken() == 1;
        assert_eq!(again.state().load(), if fired { NodeState::Fired } else { NodeState::Armed(DUE) });
        assert!(fired || shard.next_wake().next(EARLIER) <= DUE, "nobody would come for it");
        assert_eq!(release_owned(&shard, again).is_ok(), !fired);
        second.assert_none_lost_or_doubled();
        assert_all_free(&shard, 2);
    });
}

#[test]
fn d39_p2_a_cancel_from_afar_a_visit_and_shutdown_at_once_have_one_winner() {
    explore_up_to(3, || {
        let shard = shard(Lock::Biased);
        let tally = Tally::new();
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
fn d39_p2_an_entry_that_moves_house_is_counted_once_and_is_not_fired_where_it_was() {
    explore(|| {
        let [here, there] = [(); 2].map(|()| shard(Lock::Revoked));
        let tally = Tally::new();
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

/// A thread that turns its own shard, against what is done there from another thread.
/// `judge` is given what that was and how many were fired, and says who is left.
fn worker<T: 'static>(afar: fn(&Shard, NodeRef) -> T, judge: fn(T, usize) -> Option<NodeRef>) {
    for lock in [Lock::Biased, Lock::Revoked] {
        explore(move || {
            let shard = shard(lock);
            let tally = Tally::new();
            let node = arm(&shard, DUE, tally.waker()).0;
            let other = {
                let shard = shard.clone();
                thread::spawn(move || afar(&shard, node))
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
fn d39_p2_a_worker_that_turns_its_shard_against_a_cancel_from_afar_has_one_winner() {
    worker(
        |shard, node| release_remote(shard, node).is_ok(),
        |cancelled, fired| {
            assert_eq!(fired, usize::from(!cancelled));
            None
        },
    );
}

#[test]
fn d39_p1_a_worker_that_turns_its_shard_does_not_fire_what_was_pushed_later() {
    worker(
        |_, node| (node, node.state().later(DUE, LATER)),
        |(node, later), fired| {
            assert_eq!(fired, usize::from(later == Later::Lost));
            Some(node)
        },
    );
}

#[test]
fn d39_p2_a_worker_that_turns_its_shard_against_shutdown_has_one_winner() {
    worker(
        |shard, node| (node, stop(shard).len()),
        |(node, stopped), fired| {
            assert_eq!(fired + stopped, 1);
            Some(node)
        },
    );
}
