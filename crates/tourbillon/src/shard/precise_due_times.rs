//! The times at which the precise timers of a shard are due: the driver wakes up early for the earliest of them.
//!
//! Precise timers are in the same queue as the others that are not adaptive, so that timers with the same due time fire in the order in
//! which they were armed (P3). The queue cannot say when its first precise timer is due, so the shard keeps those times here as well: a
//! heap of the times that were put in, and a heap of those that were taken out. A time that is first in both heaps is removed from both. A
//! time that was taken out and is not first stays until it is first, or until more times were taken out than half of those put in; then
//! all of them are removed at once. An operation takes O(log n) on average, and allocates nothing once the heaps have grown.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tourbillon_queue::Time;

/// A multiset of times that knows the earliest.
#[derive(Default)]
pub(crate) struct PreciseDueTimes {
    put_in: BinaryHeap<Reverse<Time>>,
    /// A part of `put_in`; the first times of the two differ.
    taken_out: BinaryHeap<Reverse<Time>>,
}

/// Up to this many times that were taken out are kept, however few are left.
const MAX_TAKEN: usize = 64;

impl PreciseDueTimes {
    pub(crate) fn put(&mut self, time: Time) {
        self.put_in.push(Reverse(time));
    }

    /// Takes out a time that was put in.
    pub(crate) fn take(&mut self, time: Time) {
        self.taken_out.push(Reverse(time));
        while !self.taken_out.is_empty() && self.taken_out.peek() == self.put_in.peek() {
            self.taken_out.pop();
            self.put_in.pop();
        }
        if self.taken_out.len() > MAX_TAKEN.max(self.put_in.len() / 2) {
            self.remove_taken();
        }
    }

    /// Returns the earliest time.
    pub(crate) fn first(&self) -> Option<Time> {
        self.put_in.peek().map(|first| first.0)
    }

    #[cold]
    fn remove_taken(&mut self) {
        let mut remaining = std::mem::take(&mut self.put_in).into_sorted_vec();
        let mut taken = std::mem::take(&mut self.taken_out).into_sorted_vec();
        let mut to_remove = taken.drain(..).peekable();
        remaining.retain(|time| to_remove.next_if_eq(time).is_none());
        drop(to_remove);
        self.put_in = remaining.into();
        self.taken_out = taken.into();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::hash::{BuildHasher, RandomState};

    use super::*;

    #[test]
    fn d73_the_earliest_time_is_known_whatever_was_put_in_and_taken_out() {
        let seed = std::env::var("TOURBILLON_SEED").ok().map(|seed| seed.parse::<u64>().expect("a number"));
        let mut random = seed.unwrap_or_else(|| RandomState::new().hash_one(0));
        println!("to repeat this: TOURBILLON_SEED={random}");
        let mut below = |bound: usize| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (random >> 33) as usize % bound
        };
        let (mut due_times, mut times) = (PreciseDueTimes::default(), Vec::new());
        for step in 0..if cfg!(miri) { 2_000 } else { 20_000 } {
            // The collection grows for 1000 steps, shrinks for 1000, and so on.
            if below(10) < if step / 1000 % 2 == 0 { 6 } else { 4 } || times.is_empty() {
                let time = Time::from_nanos(below(1000) as u64);
                due_times.put(time);
                times.push(time);
            } else {
                due_times.take(times.swap_remove(below(times.len())));
            }
            assert_eq!(due_times.first(), times.iter().min().copied());
            assert!(
                due_times.put_in.len() <= 2 * times.len() + 2 * MAX_TAKEN,
                "times that were taken out are still there"
            );
        }
        times.drain(..).for_each(|time| due_times.take(time));
        assert_eq!((due_times.first(), due_times.put_in.len(), due_times.taken_out.len()), (None, 0, 0));
    }

    /// The times behind the first one are removed although the first one stays.
    #[test]
    fn d73_p7_times_that_come_and_go_take_no_more_room() {
        let mut due_times = PreciseDueTimes::default();
        due_times.put(Time::from_nanos(1));
        for n in 2..10_000 {
            due_times.put(Time::from_nanos(n));
            due_times.take(Time::from_nanos(n));
            assert!(due_times.put_in.len() <= 2 * MAX_TAKEN);
        }
        assert_eq!(due_times.first(), Some(Time::from_nanos(1)));
    }
}
