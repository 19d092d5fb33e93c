//! Keys that never alias.
//!
//! A key is an index and the generation of that index. Releasing a key raises the generation, so that the old one
//! is refused from then on. A generation has 32 bits, and a busy index could use them up within a minute: when it has,
//! the index is retired and never used again. That costs eight bytes every four billion timers and makes "for ever"
//! true.
//!
//! The slab holds no values, only where in a queue each timer is: eight bytes a timer, which a fired timer need not
//! even read.

use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU64;

use crate::raw::{Place, Violation, ensure};

/// Names one timer of one queue, for as long as that timer is in it.
///
/// Once the timer has expired or has been removed, its key is stale: every method that is given it answers
/// `None`, and it never comes to mean another timer, however many are inserted afterwards.
///
/// A key means nothing to any queue but the one that gave it.
// One word, the generation above the index, so that a key is moved as one: two halves that are written apart and read
// together cost more than all the rest of an operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(NonZeroU64);

/// The places of timers, each under a [`Key`].
#[derive(Clone)]
pub(crate) struct Slab {
    slots: Vec<Slot>,
    /// The first free slot, or `END`.
    free: u32,
    len: usize,
}

#[derive(Clone, Copy)]
struct Slot {
    /// That of the key that is in use, or of the next one to be given; zero once all have been used.
    generation: u32,
    state: State,
}

/// The place of the timer; in a free slot the next free one, written as a place that is nowhere. So a key that some other
/// queue gave out, should it look like the next key of a free slot, finds no timer there.
#[derive(Clone, Copy)]
struct State(u32);

/// Marks a number as that of a free slot.
const FREE: u32 = Place::FIRST_NOWHERE;
/// After the last free slot.
const END: u32 = Place::NOWHERE.to_bits();

impl Slab {
    /// What one key takes, in bytes.
    pub(crate) const BYTES: usize = size_of::<Slot>();

    pub(crate) const fn new() -> Slab {
        Slab { slots: Vec::new(), free: END, len: 0 }
    }

    /// How many keys are in use.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Gives out a key. It has no place until that is set.
    #[inline]
    pub(crate) fn acquire(&mut self) -> Key {
        self.len += 1;
        let index = self.free & !FREE;
        match self.slots.get_mut(index as usize) {
            Some(slot) => {
                self.free = slot.state.0;
                Key::new(index, slot.generation)
            }
            None => self.grow(),
        }
    }

    #[cold]
    fn grow(&mut self) -> Key {
        let index = self.slots.len() as u32;
        assert!(index < Place::INDICES - 1, "a timer queue holds at most {} timers", Place::INDICES);
        self.slots.push(Slot { generation: 1, state: State(END) });
        Key::new(index, 1)
    }

    /// The place under a key that is in use.
    #[inline]
    pub(crate) fn place(&self, key: Key) -> Option<Place> {
        let slot = self.slots.get(key.index())?;
        (slot.generation == key.generation() && slot.state.0 < FREE).then(|| Place::from_bits(slot.state.0))
    }

    /// Sets the place under a key that is in use.
    #[inline]
    pub(crate) fn set_place(&mut self, key: Key, place: Place) {
        self.slots[key.index()].state = State(place.to_bits());
    }

    /// Takes back a key that is in use. It writes and does not read: nothing waits for the memory.
    #[inline]
    pub(crate) fn release(&mut self, key: Key) {
        self.len -= 1;
        let generation = key.generation().wrapping_add(1);
        self.slots[key.index()] = Slot { generation, state: State(self.free) };
        if generation != 0 {
            self.free = FREE | key.index() as u32;
        }
    }

    pub(crate) fn check(&self) -> Result<(), Violation> {
        let retired = self.slots.iter().filter(|slot| slot.generation == 0).count();
        let (mut next, mut free) = (self.free, 0);
        while let Some(slot) = self.slots.get((next & !FREE) as usize) {
            ensure!(slot.generation != 0, "slab: a retired slot is on the free list");
            ensure!(free < self.slots.len(), "slab: the free list is a cycle");
            (next, free) = (slot.state.0, free + 1);
        }
        ensure!(self.len + free + retired == self.slots.len(), "slab: a slot is neither in use, free nor retired");
        Ok(())
    }
}

impl Key {
    /// The generation is not zero; should it be, the key is one that no slot has.
    #[inline]
    fn new(index: u32, generation: u32) -> Key {
        Key(NonZeroU64::new(u64::from(generation) << 32 | u64::from(index)).unwrap_or(NonZeroU64::MIN))
    }

    #[inline]
    fn index(self) -> usize {
        self.0.get() as u32 as usize
    }

    #[inline]
    fn generation(self) -> u32 {
        (self.0.get() >> 32) as u32
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({}.{})", self.index(), self.generation())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d38_a_slot_whose_generations_are_used_up_is_retired() {
        let mut slab = Slab::new();
        let first = slab.acquire();
        slab.release(first);
        slab.slots[0].generation = u32::MAX;

        let last = slab.acquire();
        slab.set_place(last, Place::main(7));
        assert_eq!(last.generation(), u32::MAX);
        assert!(slab.place(last).is_some());
        slab.release(last);
        slab.check().unwrap();

        let next = slab.acquire();
        assert_ne!(next.index(), last.index(), "the slot has no generation left to give");
        assert!(slab.place(first).is_none() && slab.place(last).is_none());
        slab.check().unwrap();
    }

    #[test]
    fn a_key_and_its_option_take_eight_bytes_and_so_does_its_slot() {
        assert_eq!(size_of::<Key>(), 8);
        assert_eq!(size_of::<Option<Key>>(), 8);
        assert_eq!(Slab::BYTES, 8);
    }

    #[test]
    fn p7_a_key_that_is_given_back_leaves_its_slot_to_another() {
        let mut slab = Slab::new();
        for _ in 0..10 {
            let keys: Vec<Key> = (0..100).map(|_| slab.acquire()).collect();
            keys.into_iter().for_each(|key| slab.release(key));
        }
        assert_eq!((slab.len(), slab.slots.len()), (0, 100));
        slab.check().unwrap();
    }

    #[test]
    fn d38_a_key_that_a_slot_has_yet_to_give_has_no_place_wherever_the_slot_is_in_the_free_list() {
        let mut slab = Slab::new();
        let keys = [(); 3].map(|()| slab.acquire());
        keys.into_iter().for_each(|key| slab.release(key));
        let mut other = slab.clone();
        for _ in keys {
            let foreign = other.acquire();
            assert!(slab.place(foreign).is_none(), "{foreign:?} was not given by this one");
        }
    }
}
