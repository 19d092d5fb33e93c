//! The remote free list alone.

use std::ptr::NonNull;
use std::sync::Arc;

use loom::thread;
use tourbillon_queue::{Place, Time};

use super::explore;
use crate::shard::node::{Locked, NodeRef};
use crate::shard::remote_free::RemoteFreeList;
use crate::shard::slab::{EngineTraits, NONE, NodeSlab, index_of};
use crate::shard::state::{CountAs, NodeState, Released};

fn nodes<const N: usize>(slab: &mut NodeSlab) -> [NodeRef; N] {
    [(); N].map(|()| {
        // SAFETY: no thread asks these nodes for their shard, and each model keeps the slab until its threads have ended.
        let node = unsafe { slab.take_fresh(NonNull::dangling()) }.expect("room for a few");
        node.state().arm(Time::NEVER);
        node
    })
}

fn locked() -> Locked {
    // SAFETY: these nodes have no shard. One thread at a time uses the fields of a node: the handle until it pushes the node, then the
    // thread that drains the list.
    unsafe { Locked::new() }
}

/// Cancels and pushes a node, as a remote handle does. Returns the length of the list.
fn release(list: &RemoteFreeList, node: NodeRef) -> u32 {
    let top = list.top();
    assert_eq!(node.state().release(top.node(), CountAs::Cancelled), Released::Cancelled);
    // The thread that drains the list has to see this write.
    node.set_place(&mut locked(), Place::nowhere_with(1));
    list.push(node, CountAs::Cancelled, top)
}

/// Drains the list, and returns the indices of its nodes, the last pushed first.
fn drain(list: &RemoteFreeList, slab: &NodeSlab) -> Vec<u32> {
    let mut taken = Vec::new();
    let mut index = list.take_all();
    while index != NONE {
        taken.push(index);
        let node = slab.get(index);
        let NodeState::Released(next, CountAs::Cancelled) = node.state().load() else {
            panic!("a node in the list that was not released")
        };
        assert_eq!(node.place(&locked()).own_number(), Some(1));
        node.set_place(&mut locked(), Place::NOWHERE);
        node.state().set_free(NONE);
        index = next;
    }
    taken
}

#[test]
fn d39_p7_nodes_pushed_by_two_threads_are_drained_once_each() {
    explore(|| {
        let mut slab = NodeSlab::new(EngineTraits::default());
        let nodes: [_; 2] = nodes(&mut slab);
        let list = Arc::new(RemoteFreeList::new());
        let pushers = nodes.map(|node| {
            let list = list.clone();
            thread::spawn(move || release(&list, node))
        });
        let mut taken = drain(&list, &slab);
        for pusher in pushers {
            pusher.join().unwrap();
        }
        taken.append(&mut drain(&list, &slab));
        taken.sort_unstable();
        assert_eq!(taken, nodes.map(index_of));
        assert!(list.is_empty());
    });
}

#[test]
fn d39_p7_one_pushing_thread_learns_that_the_list_is_full() {
    explore(|| {
        let mut slab = NodeSlab::new(EngineTraits::default());
        let [one, two] = nodes(&mut slab);
        let list = Arc::new(RemoteFreeList::new());
        let pusher = {
            let list = list.clone();
            thread::spawn(move || release(&list, one))
        };
        let mut lengths = [release(&list, two), pusher.join().unwrap()];
        lengths.sort_unstable();
        assert_eq!(lengths, [1, 2]);
        assert_eq!(drain(&list, &slab).len(), 2);
    });
}

#[test]
fn d39_p7_a_node_that_was_drained_can_be_pushed_again() {
    explore(|| {
        let mut slab = NodeSlab::new(EngineTraits::default());
        let [one, two] = nodes(&mut slab);
        let list = Arc::new(RemoteFreeList::new());
        let pusher = {
            let list = list.clone();
            thread::spawn(move || release(&list, one))
        };
        release(&list, two);
        let mut count = 0;
        for index in drain(&list, &slab) {
            count += 1;
            slab.get(index).state().arm(Time::NEVER);
            if index == index_of(two) {
                // Meanwhile the other thread may be about to push its node on top of this one's old place.
                release(&list, two);
                count -= 1;
            }
        }
        pusher.join().unwrap();
        assert_eq!(count + drain(&list, &slab).len(), 2);
    });
}
