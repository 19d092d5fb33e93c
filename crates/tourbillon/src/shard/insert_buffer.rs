//! The insert buffer of a shard: the timers armed last, before they are placed in the queue.
//!
//! Most timers are cancelled, and most of those soon: the answer comes, the lock is taken, the stream has data. So the shard first puts a
//! newly armed timer into this buffer. A timer that is cancelled there never enters the queue. When the buffer is full, or the shard is
//! visited, the shard places the timers that are left in the queue, in the order in which they were armed.
//!
//! ```text
//!     the queue  <--- full, or a visit ---  [ a | - | c | d ]  <--- arm
//!                                                 |
//!                                              cancelled: a hole; holes at either end are removed at once
//! ```
//!
//! The buffer is a ring. So timers that are cancelled in the order of arming, or in the reverse order, never fill it.

use crate::shard::node::NodeRef;
use crate::sync::IS_CHECK;

/// How many timers the buffer holds: as many as a busy thread has requests under way, and no more than half of a first-level cache has
/// room for.
pub(crate) const CAPACITY: usize = if IS_CHECK { 2 } else { 2048 };

pub(crate) struct InsertBuffer {
    /// `None` before the first timer, and after the engine is gone.
    ring: Option<Box<[Option<NodeRef>; CAPACITY]>>,
    /// Where the buffered timers begin and end, counted from the first timer ever. The places between are in use, holes included; the first
    /// and the last of them are not holes.
    begin: u32,
    end: u32,
}

const _: () = assert!(CAPACITY.is_power_of_two(), "counts wrap around, and their places in the ring with them");

impl InsertBuffer {
    pub(crate) const fn new() -> InsertBuffer {
        InsertBuffer { ring: None, begin: 0, end: 0 }
    }

    /// Appends a node and returns its place, for [`remove`](InsertBuffer::remove); `None` if the buffer is full or has no memory yet.
    #[inline(always)]
    pub(crate) fn push(&mut self, node: NodeRef) -> Option<u16> {
        let ring = self.ring.as_mut().filter(|_| self.end.wrapping_sub(self.begin) != CAPACITY as u32)?;
        let place = place(self.end);
        ring[place] = Some(node);
        self.end = self.end.wrapping_add(1);
        Some(place as u16)
    }

    /// Allocates the memory of an empty buffer, if it has none.
    pub(crate) fn reserve(&mut self) {
        // Built on the heap: the stack of a thread may be smaller than the ring.
        let build = || vec![None; CAPACITY].into_boxed_slice().try_into().ok();
        self.ring = self.ring.take().or_else(build);
    }

    /// Frees the memory of an empty buffer.
    pub(crate) fn free(&mut self) {
        debug_assert!(self.begin == self.end);
        self.ring = None;
    }

    #[inline(always)]
    pub(crate) fn remove(&mut self, at: u16) {
        let Some(ring) = &mut self.ring else { return };
        ring[usize::from(at) % CAPACITY] = None;
        while self.begin != self.end && ring[place(self.end.wrapping_sub(1))].is_none() {
            self.end = self.end.wrapping_sub(1);
        }
        while self.begin != self.end && ring[place(self.begin)].is_none() {
            self.begin = self.begin.wrapping_add(1);
        }
    }

    /// Removes and returns the node that was pushed first.
    pub(crate) fn pop(&mut self) -> Option<NodeRef> {
        let oldest = self.ring.as_ref()?[place(self.begin)]?;
        self.remove(place(self.begin) as u16);
        Some(oldest)
    }
}

#[inline(always)]
fn place(count: u32) -> usize {
    count as usize % CAPACITY
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::collections::VecDeque;
    use std::ptr::NonNull;

    use super::*;
    use crate::shard::node::Node;

    #[test]
    fn p3_whichever_timers_are_cancelled_the_others_come_out_in_the_order_of_arming() {
        let nodes: Vec<Node> = (0..8 * CAPACITY).map(|_| Node::new()).collect();
        // SAFETY: `nodes` outlives the references, and this test uses their addresses alone.
        let node = |index: usize| unsafe { NodeRef::new(NonNull::from(&nodes[index % nodes.len()])) };
        let (mut insert_buffer, mut model) = (InsertBuffer::new(), VecDeque::new());
        assert!(insert_buffer.push(node(0)).is_none(), "a buffer without memory takes no timer");
        insert_buffer.reserve();
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut below = |most: usize| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (random >> 33) as usize % most
        };
        let mut full = 0;
        for count in 0..if cfg!(miri) { 5000 } else { 1_000_000 } {
            match below(20) {
                0..=10 => match insert_buffer.push(node(count)) {
                    Some(place) => model.push_back((node(count), place)),
                    None => {
                        full += 1;
                        (0..1 + below(CAPACITY)).for_each(|_| {
                            assert_eq!(
                                insert_buffer.pop().map(NodeRef::as_ptr),
                                model.pop_front().map(|(node, _)| NodeRef::as_ptr(node))
                            );
                        });
                    }
                },
                11..=15 if !model.is_empty() => insert_buffer.remove(model.pop_front().unwrap().1),
                16..=17 if !model.is_empty() => insert_buffer.remove(model.pop_back().unwrap().1),
                18 if !model.is_empty() => insert_buffer.remove(model.remove(below(model.len())).unwrap().1),
                _ => assert_eq!(insert_buffer.pop().is_some(), model.pop_front().is_some()),
            }
        }
        assert!(full > 10, "the buffer was never full");
        while let Some(oldest) = insert_buffer.pop() {
            assert_eq!(Some(oldest.as_ptr()), model.pop_front().map(|(node, _)| node.as_ptr()));
        }
        assert!(model.is_empty());
    }

    #[test]
    fn a_full_buffer_cancelled_from_either_end_always_has_a_place_for_the_next() {
        let nodes: Vec<Node> = (0..CAPACITY).map(|_| Node::new()).collect();
        // SAFETY: `nodes` outlives the references, and this test uses their addresses alone.
        let node = |index: usize| unsafe { NodeRef::new(NonNull::from(&nodes[index])) };
        for cancelled in [VecDeque::pop_front, VecDeque::pop_back] {
            let mut insert_buffer = InsertBuffer::new();
            insert_buffer.reserve();
            let mut places: VecDeque<_> = (0..CAPACITY).map(|index| insert_buffer.push(node(index)).unwrap()).collect();
            for count in 0..10 * CAPACITY {
                insert_buffer.remove(cancelled(&mut places).unwrap());
                places.push_back(insert_buffer.push(node(count % CAPACITY)).unwrap());
            }
        }
    }
}
