//! The stack of nodes on their way home, alone.

use std::ptr::NonNull;
use std::sync::Arc;

use loom::thread;
use tourbillon_queue::Time;

use super::explore;
use crate::shard::node::{Locked, NodeRef};
use crate::shard::remote_free::RemoteFreeList;
use crate::shard::slab::{NONE, NodeSlab, index_of};
use crate::shard::state::{Cancel, CountAs, NodeState};

fn nodes<const N: usize>(slab: &mut NodeSlab) -> [NodeRef; N] {
    [(); N].map(|()| {
        // SAFETY: nobody asks these nodes for their shard.
        let node = unsafe { slab.take_fresh(NonNull::dangling()) }.expect("room for a few");
        node.state().arm(Time::NEVER);
        node
    })
}

fn locked() -> Locked {
    // SAFETY: no shard has these nodes: their fields are the handle's until it pushes them, and then the thread's that drains the list.
    unsafe { Locked::new() }
}

/// What a handle does before and when it releases a node.
fn release(list: &RemoteFreeList, node: NodeRef) -> u32 {
    assert_eq!(node.state().cancel(), Cancel::Won);
    // The thread that drains the list has to see this.
    node.set_buffered(&mut locked(), Some(1));
    list.push(node, CountAs::Cancelled)
}

/// The nodes that have come, last ones first.
fn drain(list: &RemoteFreeList, slab: &NodeSlab) -> Vec<u32> {
    let mut taken = Vec::new();
    let mut index = list.take_all();
    while index != NONE {
        taken.push(index);
        let node = slab.get(index);
        let NodeState::Returned(next, CountAs::Cancelled) = node.state().load() else { panic!("a node that was not sent") };
        assert_eq!(node.buffered(&locked()), Some(1));
        node.set_buffered(&mut locked(), None);
        node.state().set_free(NONE);
        index = next;
    }
    taken
}

#[test]
fn d39_p7_nodes_pushed_by_two_threads_come_home_once_each() {
    explore(|| {
        let mut slab = NodeSlab::new();
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
fn d39_p7_of_those_who_push_one_is_told_that_the_heap_is_full() {
    explore(|| {
        let mut slab = NodeSlab::new();
        let [one, two] = nodes(&mut slab);
        let list = Arc::new(RemoteFreeList::new());
        let pusher = {
            let list = list.clone();
            thread::spawn(move || release(&list, one))
        };
        let mut heights = [release(&list, two), pusher.join().unwrap()];
        heights.sort_unstable();
        assert_eq!(heights, [1, 2]);
        assert_eq!(drain(&list, &slab).len(), 2);
    });
}

#[test]
fn d39_p7_a_node_that_has_come_home_can_be_sent_again() {
    explore(|| {
        let mut slab = NodeSlab::new();
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
                // While the other may be about to push itself on top of where this one was.
                release(&list, two);
                count -= 1;
            }
        }
        pusher.join().unwrap();
        assert_eq!(count + drain(&list, &slab).len(), 2);
    });
}
