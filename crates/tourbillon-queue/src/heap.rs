//! An indexed d-ary heap.
//!
//! ```text
//!                     0                      a parent is due before its children;
//!         +-------+---+---+-------+          children of i: 4i+1 .. 4i+4;
//!         1       2       3       4          every entry's place is its index here,
//!      5 6 7 8  9 ...                        so any of them can be taken out
//! ```
//!
//! Four children to a node: half the depth of a binary heap, and the four lie side by side in memory. Equal
//! deadlines are ordered by a sequence number of 64 bits, which does not wrap.

use alloc::vec::Vec;

use crate::place::{Place, PlaceKind};
use crate::raw::{Entries, RawQueue};
use crate::violation::{Violation, ensure};
use crate::{Keyed, Time, Timer};

/// A timer queue on an indexed heap: every operation in O(log n), little memory.
///
/// See [`RawHeap`] for the structure, [`TimerQueue`](crate::TimerQueue) for the methods.
///
/// ```
/// use tourbillon_queue::{Heap, Time, TimerQueue};
///
/// let mut queue = Heap::new();
/// let key = queue.insert(Time::from_nanos(100), 'a');
/// assert_eq!(queue.reschedule(key, Time::NEVER), Some(Time::from_nanos(100)));
/// assert!(queue.pop(Time::from_nanos(u64::MAX)).is_none()); // never means never
/// assert_eq!(queue.remove(key), Some('a'));
/// assert_eq!(queue.remove(key), None); // the key is stale now
/// ```
pub type Heap<T> = Keyed<T, RawHeap<Timer<T>>>;

/// An indexed heap of ids, for entries that live anywhere.
#[derive(Clone, Debug)]
pub struct RawHeap<Id> {
    nodes: Vec<HeapNode<Id>>,
    sequence: u64,
}

#[derive(Clone, Debug)]
struct HeapNode<Id> {
    deadline: Time,
    sequence: u64,
    id: Id,
}

const CHILDREN: usize = 4;

impl<Id> RawHeap<Id> {
    /// Returns an empty heap.
    #[must_use]
    pub const fn new() -> RawHeap<Id> {
        RawHeap { nodes: Vec::new(), sequence: 0 }
    }

    /// Returns the first entry to fire, whether it is due or not, and its deadline.
    #[must_use]
    pub fn first(&self) -> Option<(&Id, Time)> {
        self.nodes.first().map(|node| (&node.id, node.deadline))
    }

    /// Takes out the node at `index`.
    fn take<E: Entries<Id>>(&mut self, entries: &mut E, index: usize) -> HeapNode<Id> {
        let node = self.nodes.swap_remove(index);
        if index < self.nodes.len() {
            let index = self.sift_up(entries, index);
            let index = self.sift_down(entries, index);
            self.store_place(entries, index);
        }
        node
    }

    /// Moves the node at `index` up to its position and returns that. The caller stores the place of this node's entry.
    fn sift_up<E: Entries<Id>>(&mut self, entries: &mut E, mut index: usize) -> usize {
        while let Some(above) = index.checked_sub(1) {
            let parent = above / CHILDREN;
            if self.nodes[parent].order() < self.nodes[index].order() {
                break;
            }
            self.nodes.swap(parent, index);
            self.store_place(entries, index);
            index = parent;
        }
        index
    }

    /// Moves the node at `index` down to its position and returns that. The caller stores the place of this node's entry.
    fn sift_down<E: Entries<Id>>(&mut self, entries: &mut E, mut index: usize) -> usize {
        loop {
            let first = index * CHILDREN + 1;
            let children = first..(first + CHILDREN).min(self.nodes.len());
            let Some(least) = children.min_by_key(|&child| self.nodes[child].order()) else { break };
            if self.nodes[index].order() < self.nodes[least].order() {
                break;
            }
            self.nodes.swap(index, least);
            self.store_place(entries, index);
            index = least;
        }
        index
    }

    /// Stores the place of the entry at `index`.
    fn store_place<E: Entries<Id>>(&self, entries: &mut E, index: usize) {
        entries.set_place(&self.nodes[index].id, Place::side(index as u32));
    }
}

impl<Id> HeapNode<Id> {
    fn order(&self) -> (Time, u64) {
        (self.deadline, self.sequence)
    }
}

impl<Id> Default for RawHeap<Id> {
    fn default() -> RawHeap<Id> {
        RawHeap::new()
    }
}

/// All places in a heap are side places, so that a structure with a main store of its own can keep a heap beside it.
impl<Id> RawQueue<Id> for RawHeap<Id> {
    const BYTES_PER_ENTRY: usize = size_of::<HeapNode<Id>>();

    fn insert<E: Entries<Id>>(&mut self, entries: &mut E, id: Id, deadline: Time) -> Place {
        self.nodes.push(HeapNode { deadline, sequence: self.sequence, id });
        self.sequence += 1;
        Place::side(self.sift_up(entries, self.nodes.len() - 1) as u32)
    }

    fn remove<E: Entries<Id>>(&mut self, entries: &mut E, place: Place) -> (Id, Time) {
        let PlaceKind::Side(index) = place.kind() else { unreachable!("an entry that is not in a heap has its place") };
        let node = self.take(entries, index as usize);
        (node.id, node.deadline)
    }

    fn get(&self, place: Place) -> Option<(&Id, Time)> {
        let PlaceKind::Side(index) = place.kind() else { return None };
        self.nodes.get(index as usize).map(|node| (&node.id, node.deadline))
    }

    fn get_mut(&mut self, place: Place) -> Option<&mut Id> {
        let PlaceKind::Side(index) = place.kind() else { return None };
        self.nodes.get_mut(index as usize).map(|node| &mut node.id)
    }

    fn next_deadline(&self) -> Option<Time> {
        self.first().map(|(_, deadline)| deadline)
    }

    fn pop<E: Entries<Id>>(&mut self, entries: &mut E, now: Time) -> Option<(Id, Time)> {
        if self.next_deadline()? > now {
            return None;
        }
        let node = self.take(entries, 0);
        Some((node.id, node.deadline))
    }

    fn for_each(&self, visit: impl FnMut(&Id)) {
        self.nodes.iter().map(|node| &node.id).for_each(visit);
    }

    fn clear(&mut self) {
        self.nodes = Vec::new();
    }

    fn check<E: Entries<Id>>(&self, entries: &E) -> Result<usize, Violation> {
        for (index, node) in self.nodes.iter().enumerate() {
            let place = Place::side(index as u32);
            ensure!(entries.place(&node.id) == place, "heap: an entry's place is not its index");
            ensure!(node.sequence < self.sequence, "heap: a sequence number from the future");
            if let Some(above) = index.checked_sub(1) {
                ensure!(self.nodes[above / CHILDREN].order() < node.order(), "heap: a child is due before its parent");
            }
        }
        Ok(self.nodes.len())
    }
}
