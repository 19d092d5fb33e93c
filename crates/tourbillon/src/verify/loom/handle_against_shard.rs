//! One entry: an action of its handle against an action of the shard at the same time.

use std::task::Waker;

use loom::thread;

use super::{
    DUE, EARLIER, LATER, Lock, WakerTally, arm, assert_all_free, change_waker, explore, handle, move_to, release_owned,
    release_remote, shard, stats, stop, try_arm, visit,
};
use crate::outcome::Outcome;
use crate::shard::node::NodeRef;
use crate::shard::state::{Later, NodeState};
use crate::shard::{Access, Shard};

/// An action of the shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ShardAction {
    /// A visit at the deadline.
    Fire,
    /// Shutdown.
    Stop,
}

impl ShardAction {
    const BOTH: [ShardAction; 2] = [ShardAction::Fire, ShardAction::Stop];

    fn act(self, shard: &Shard) -> Vec<Waker> {
        match self {
            ShardAction::Fire => visit(shard, DUE),
            ShardAction::Stop => stop(shard),
        }
    }

    fn end(self) -> NodeState {
        match self {
            ShardAction::Fire => NodeState::Fired,
            ShardAction::Stop => NodeState::Stopped,
        }
    }
}

/// Races `action` of the handle of an armed entry, due at `DUE`, against `shard_action`. One of the two runs on the thread that owns the shard,
/// the other on another thread; both ways are explored.
/// `judge` gets the result of `action`, and how many wakers the shard has taken.
fn race<T: 'static>(
    shard_action: ShardAction,
    action: fn(&Shard, NodeRef, Waker) -> T,
    judge: fn(Race<T>) -> NodeAfter,
) {
    for (lock, first) in [
        (Lock::Biased, First::Handle),
        (Lock::Biased, First::Shard),
        (Lock::Revoked, First::Handle),
        (Lock::Revoked, First::Shard),
    ] {
        explore(move || {
            let shard = shard(lock);
            let (old, new) = (WakerTally::new(), WakerTally::new());
            let (node, _) = arm(&shard, DUE, old.waker());
            let (theirs, waker) = (shard.clone(), new.waker());
            let (did, batch) = match first {
                First::Handle => {
                    let other = thread::spawn(move || shard_action.act(&theirs));
                    (action(&shard, node, waker), other.join().unwrap())
                }
                First::Shard => {
                    let other = thread::spawn(move || action(&theirs, node, waker));
                    let batch = shard_action.act(&shard);
                    (other.join().unwrap(), batch)
                }
            };
            let taken = batch.len();
            assert!(taken <= 1, "a waker was taken twice");
            batch.into_iter().for_each(Waker::wake);
            assert_eq!(old.woken() + new.woken(), taken);
            let handle = judge(Race { did, shard_action, taken, new_woken: new.woken(), node, shard: &shard });
            if handle == NodeAfter::HasNode {
                drop(release_owned(&shard, node));
            }
            old.assert_none_lost_or_doubled();
            new.assert_none_lost_or_doubled();
            let stats = stats(&shard);
            let ended_by_shard = if shard_action == ShardAction::Fire { stats.fired } else { stats.stopped };
            assert_eq!(ended_by_shard, taken as u64, "the count and the wakers that the shard took differ");
            assert_eq!(stats.pending, 0);
            if shard_action == ShardAction::Fire {
                assert_all_free(&shard, 1);
            }
        });
    }
}

/// Which party runs first in the order that loom begins with. From there loom derives the other orders, and takes two steps for independent
/// if the same thread has loaded the word between them: one beginning does not lead to all orders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum First {
    Handle,
    Shard,
}

/// The result of a race.
struct Race<'a, T> {
    /// The result of the handle's action.
    did: T,
    shard_action: ShardAction,
    /// How many wakers the shard has taken.
    taken: usize,
    /// How many of them were of the new kind.
    new_woken: usize,
    node: NodeRef,
    shard: &'a Shard,
}

impl<T> Race<'_, T> {
    fn seen(&self) -> NodeState {
        self.node.state().load()
    }

    /// Asserts that the shard has ended the timer, and that the handle sees that.
    #[track_caller]
    fn assert_ended(&self) {
        assert_eq!((self.taken, self.seen()), (1, self.shard_action.end()));
    }
}

/// Whether the handle still has its node after its action.
#[derive(PartialEq, Eq)]
enum NodeAfter {
    HasNode,
    Released,
}

/// Checks a cancel. `did` is the outcome if the cancel has lost.
fn judge_cancel(race: Race<'_, Option<Outcome>>) -> NodeAfter {
    let expected = if race.shard_action == ShardAction::Fire { Outcome::Fired } else { Outcome::Stopped };
    assert_eq!(
        race.did,
        (race.taken == 1).then_some(expected),
        "the timer was cancelled and ended by the shard, or neither"
    );
    NodeAfter::Released
}

#[test]
fn d39_p2_a_cancel_by_the_owner_against_a_fire_has_one_winner() {
    race(ShardAction::Fire, |shard, node, _| release_owned(shard, node).err(), judge_cancel);
}

#[test]
fn d39_p2_a_cancel_by_the_owner_against_shutdown_has_one_winner() {
    race(ShardAction::Stop, |shard, node, _| release_owned(shard, node).err(), judge_cancel);
}

#[test]
fn d39_p2_a_remote_cancel_against_a_fire_has_one_winner() {
    race(ShardAction::Fire, |shard, node, _| release_remote(shard, node).err(), judge_cancel);
}

#[test]
fn d39_p2_a_remote_cancel_against_shutdown_has_one_winner() {
    race(ShardAction::Stop, |shard, node, _| release_remote(shard, node).err(), judge_cancel);
}

#[test]
fn d39_p1_a_deadline_that_was_pushed_later_does_not_fire_at_the_old_one() {
    let action = |_: &Shard, node: NodeRef, _| node.state().later(DUE, LATER);
    race(ShardAction::Fire, action, |race| {
        match race.did {
            Later::Won => {
                assert_eq!((race.taken, race.seen()), (0, NodeState::Armed(LATER)));
                assert!(race.shard.next_wake().next(EARLIER) <= LATER, "no visit is planned for it");
            }
            Later::Lost => race.assert_ended(),
        }
        NodeAfter::HasNode
    });
}

#[test]
fn d39_p2_a_deadline_that_was_pushed_later_is_stopped_all_the_same() {
    let action = |_: &Shard, node: NodeRef, _| node.state().later(DUE, LATER);
    race(ShardAction::Stop, action, |race| {
        race.assert_ended();
        NodeAfter::HasNode
    });
}

#[test]
fn d39_p2_a_deadline_pushed_later_and_then_cancelled_against_a_fire_has_one_winner() {
    race(
        ShardAction::Fire,
        |shard, node, _| {
            let later = node.state().later(DUE, LATER);
            (later, release_remote(shard, node).is_ok())
        },
        |race| {
            let (later, cancelled) = race.did;
            assert_eq!(later == Later::Won, cancelled, "a timer that is not due can be cancelled");
            assert_eq!(race.taken, usize::from(!cancelled));
            NodeAfter::Released
        },
    );
}

#[test]
fn d39_p2_a_move_to_an_earlier_deadline_against_a_fire_fires_once() {
    let action = |shard: &Shard, node: NodeRef, _| matches!(move_to(shard, node, EARLIER), Some(_));
    race(ShardAction::Fire, action, |race| {
        // Whether it was moved first or not, it was due.
        race.assert_ended();
        NodeAfter::HasNode
    });
}

#[test]
fn d39_p1_a_move_to_a_later_deadline_by_the_owner_does_not_fire_at_the_old_one() {
    let action = |shard: &Shard, node: NodeRef, _| matches!(move_to(shard, node, LATER), Some(_));
    race(ShardAction::Fire, action, |race| {
        if race.did {
            assert_eq!((race.taken, race.seen()), (0, NodeState::Armed(LATER)));
            assert!(race.shard.next_wake().next(EARLIER) <= LATER, "no visit is planned for it");
        } else {
            race.assert_ended();
        }
        NodeAfter::HasNode
    });
}

#[test]
fn d39_p2_a_move_against_shutdown_is_stopped_once() {
    let action = |shard: &Shard, node: NodeRef, _| matches!(move_to(shard, node, EARLIER), Some(_));
    race(ShardAction::Stop, action, |race| {
        race.assert_ended();
        NodeAfter::HasNode
    });
}

#[test]
fn d39_p2_a_change_of_waker_against_a_fire_or_shutdown_wakes_the_waker_set_last() {
    for shard_action in ShardAction::BOTH {
        race(
            shard_action,
            |shard, node, new| {
                let mut new = Some(new);
                let changed = matches!(change_waker(shard, node, &mut new), Some(_));
                assert_eq!(
                    new.is_none(),
                    changed,
                    "a waker that is not used is returned, not dropped under the lock (P10)"
                );
                changed
            },
            |race| {
                race.assert_ended();
                assert_eq!(race.new_woken, usize::from(race.did));
                NodeAfter::HasNode
            },
        );
    }
}

#[test]
fn d39_a_poll_that_compares_wakers_and_finds_the_entry_armed_will_be_woken() {
    for shard_action in ShardAction::BOTH {
        race(
            shard_action,
            |_, node, other| {
                let same = handle(node).has_waker(&other);
                assert!(!same, "the node has the old waker");
                matches!(node.state().load(), NodeState::Armed(_))
            },
            |race| {
                // An entry that the handle found armed was ended afterwards, and its waker woken: no wake-up is lost.
                race.assert_ended();
                NodeAfter::HasNode
            },
        );
    }
}

#[test]
fn d39_p1_an_early_visit_fires_a_timer_only_if_it_was_moved_before() {
    explore(|| {
        let shard = shard(Lock::Biased);
        let tally = WakerTally::new();
        let (node, _) = arm(&shard, DUE, tally.waker());
        let driver = {
            let shard = shard.clone();
            thread::spawn(move || visit(&shard, EARLIER).len())
        };
        assert!(matches!(move_to(&shard, node, EARLIER), Some(_)), "no thread has ended it");
        let fired = driver.join().unwrap();
        let next_wake = shard.next_wake().next(EARLIER);
        match node.state().load() {
            NodeState::Fired => assert_eq!(fired, 1),
            seen => assert!(
                fired == 0 && seen == NodeState::Armed(EARLIER) && next_wake <= EARLIER,
                "no visit is planned for it"
            ),
        }
        assert_eq!(fired + visit(&shard, EARLIER).len(), 1);
        assert!(release_owned(&shard, node).is_err());
        tally.assert_none_lost_or_doubled();
        assert_all_free(&shard, 1);
    });
}

#[test]
fn d39_an_arm_against_a_visit_is_fired_or_sets_the_next_wake_up() {
    for (access, lock) in
        [(Access::Owner, Lock::Biased), (Access::Owner, Lock::Revoked), (Access::Remote, Lock::Revoked)]
    {
        explore(move || {
            let shard = shard(lock);
            let tally = WakerTally::new();
            let driver = {
                let shard = shard.clone();
                thread::spawn(move || visit(&shard, DUE).len())
            };
            let node = try_arm(&shard, access, DUE, tally.waker()).handle.expect("an open shard arms").node();
            let fired = driver.join().unwrap();
            match node.state().load() {
                NodeState::Fired => assert_eq!(fired, 1),
                seen => assert!(fired == 0 && seen == NodeState::Armed(DUE) && shard.next_wake().next(EARLIER) <= DUE),
            }
            assert_eq!(release_owned(&shard, node).is_ok(), fired == 0);
            tally.assert_none_lost_or_doubled();
            assert_all_free(&shard, 1);
        });
    }
}

#[test]
fn d39_p2_an_arm_against_shutdown_is_refused_or_stopped() {
    for lock in [Lock::Biased, Lock::Revoked] {
        explore(move || {
            let shard = shard(lock);
            let tally = WakerTally::new();
            let shutdown = {
                let shard = shard.clone();
                thread::spawn(move || stop(&shard).len())
            };
            let node = try_arm(&shard, Access::Owner, DUE, tally.waker()).handle.map(|handle| handle.node());
            let stopped = shutdown.join().unwrap();
            assert_eq!(stopped, usize::from(node.is_some()));
            if let Some(node) = node {
                assert_eq!(node.state().load(), NodeState::Stopped);
                assert!(release_owned(&shard, node).is_err());
            }
            tally.assert_none_lost_or_doubled();
            let stats = stats(&shard);
            assert_eq!((stats.pending, stats.stopped), (0, stopped as u64));
        });
    }
}

#[test]
fn d39_p2_a_fire_against_shutdown_has_one_winner() {
    explore(|| {
        let shard = shard(Lock::Biased);
        let tally = WakerTally::new();
        let (node, _) = arm(&shard, DUE, tally.waker());
        let driver = {
            let shard = shard.clone();
            thread::spawn(move || visit(&shard, DUE).len())
        };
        let stopped = stop(&shard).len();
        let fired = driver.join().unwrap();
        assert_eq!(fired + stopped, 1);
        assert_eq!(node.state().load(), if fired == 1 { NodeState::Fired } else { NodeState::Stopped });
        assert!(release_remote(&shard, node).is_err());
        tally.assert_none_lost_or_doubled();
        let stats = stats(&shard);
        assert_eq!((stats.fired, stats.stopped, stats.pending), (fired as u64, stopped as u64, 0));
    });
}

#[test]
fn d39_p2_two_visits_at_once_fire_an_entry_once() {
    explore(|| {
        let shard = shard(Lock::Biased);
        let tally = WakerTally::new();
        let (node, _) = arm(&shard, DUE, tally.waker());
        let driver = {
            let shard = shard.clone();
            thread::spawn(move || visit(&shard, DUE).len())
        };
        let fired = visit(&shard, DUE).len();
        assert_eq!(fired + driver.join().unwrap(), 1);
        assert!(release_owned(&shard, node).is_err());
        tally.assert_none_lost_or_doubled();
        assert_all_free(&shard, 1);
    });
}
