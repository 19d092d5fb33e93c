//! Keys that never alias.
//!
//! A key is an index and the generation of that index. Releasing a key raises the generation, so that the old key
//! is refused from then on. A generation has 32 bits, and a busy index could use them up within a minute. When it has,
//! the slab retires the index and never uses it again: eight bytes for every four billion timers.
//!
//! The slab holds no values, only the place of each timer in its queue: eight bytes a timer. Firing a timer writes them
//! and does not read them.

use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU64;

use crate::place::Place;
use crate::violation::{Violation, ensure};

/// The key of one timer of one queue, valid for as long as that timer is in the queue.
///
/// Once the timer has expired or has been removed, its key is stale: every method returns `None` for it, and it never
/// becomes the key of another timer, however many are inserted afterwards.
///
/// A key is valid only in the queue that returned it.
// One word, the generation above the index: a load of two halves that were stored separately stalls the processor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(NonZeroU64);

/// The places of timers, each under a [`Key`].
#[derive(Clone)]
pub(crate) struct KeySlab {
    slots: Vec<KeySlot>,
    /// The first free slot, or `END`.
    free: u32,
    len: usize,
}

/// The state of one index.
#[derive(Clone, Copy)]
struct KeySlot {
    /// The generation of the key in use, or of the next key; zero once all generations have been used.
    generation: u32,
    word: SlotWord,
}

/// The place of the timer; in a free slot the next free slot, written as a place that is in no queue. So a key of another
/// queue that happens to equal the next key of a free slot finds no timer there.
#[derive(Clone, Copy)]
struct SlotWord(u32);

/// The bits that mark a word as the number of a free slot.
const FREE: u32 = Place::FIRST_NOWHERE;
/// The end of the free list.
const END: u32 = Place::NOWHERE.to_bits();

impl KeySlab {
    /// Bytes that one key takes.
    pub(crate) const BYTES: usize = size_of::<KeySlot>();

    pub(crate) const fn new() -> KeySlab {
        KeySlab { slots: Vec::new(), free: END, len: 0 }
    }

    /// Returns how many keys are in use.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns a new key. The caller sets its place.
    #[inline]
    pub(crate) fn acquire(&mut self) -> Key {
        self.len += 1;
        let index = self.free & !FREE;
        match self.slots.get_mut(index as usize) {
            Some(slot) => {
                self.free = slot.word.0;
                Key::new(index, slot.generation)
            }
            None => self.grow(),
        }
    }

    /// Adds a slot and returns its first key.
    #[cold]
    fn grow(&mut self) -> Key {
        let index = self.slots.len() as u32;
        assert!(index < Place::INDICES - 1, "a timer queue holds at most {} timers", Place::INDICES);
        self.slots.push(KeySlot { generation: 1, word: SlotWord(END) });
        Key::new(index, 1)
    }

    /// Returns the place of a key, if the key is in use.
    #[inline]
    pub(crate) fn place(&self, key: Key) -> Option<Place> {
        let slot = self.slots.get(key.index())?;
        (slot.generation == key.generation() && slot.word.0 < FREE).then(|| Place::from_bits(slot.word.0))
    }

    /// Releases a key if it is in use, and returns its place.
    #[inline]
    pub(crate) fn take(&mut self, key: Key) -> Option<Place> {
        let KeySlab { slots, free, len } = self;
        let slot = slots.get_mut(key.index())?;
        let place =
            (slot.generation == key.generation() && slot.word.0 < FREE).then(|| Place::from_bits(slot.word.0))?;
        *len -= 1;
        slot.release(key, free);
        Some(place)
    }

    /// Sets the place of a key that is in use.
    #[inline]
    pub(crate) fn set_place(&mut self, key: Key, place: Place) {
        self.slots[key.index()].word = SlotWord(place.to_bits());
    }

    /// Releases a key that is in use. Only writes to the slot, so it does not wait for a cache miss.
    #[inline]
    pub(crate) fn release(&mut self, key: Key) {
        self.len -= 1;
        self.slots[key.index()].release(key, &mut self.free);
    }

    /// Verifies the free list and the count of the keys in use.
    pub(crate) fn check(&self) -> Result<(), Violation> {
        let retired = self.slots.iter().filter(|slot| slot.generation == 0).count();
        let (mut next, mut free) = (self.free, 0);
        while let Some(slot) = self.slots.get((next & !FREE) as usize) {
            ensure!(slot.generation != 0, "slab: a retired slot is on the free list");
            ensure!(free < self.slots.len(), "slab: the free list is a cycle");
            (next, free) = (slot.word.0, free + 1);
        }
        ensure!(self.len + free + retired == self.slots.len(), "slab: a slot is neither in use, free nor retired");
        Ok(())
    }
}

impl KeySlot {
    /// Releases the key of the slot, and makes the slot the first free one, unless its generations are used up.
    #[inline(always)]
    fn release(&mut self, key: Key, free: &mut u32) {
        let generation = key.generation().wrapping_add(1);
        *self = KeySlot { generation, word: SlotWord(*free) };
        if generation != 0 {
            *free = FREE | key.index() as u32;
        }
    }
}

impl Key {
    /// Packs a key. The generation is not zero; if it were, the key would match no slot.
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
        let mut slab = KeySlab::new();
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
        assert_ne!(next.index(), last.index(), "the slot has used all its generations");
        assert!(slab.place(first).is_none() && slab.place(last).is_none());
        slab.check().unwrap();
    }

    #[test]
    fn a_key_and_its_option_take_eight_bytes_and_so_does_its_slot() {
        assert_eq!(size_of::<Key>(), 8);
        assert_eq!(size_of::<Option<Key>>(), 8);
        assert_eq!(KeySlab::BYTES, 8);
    }

    #[test]
    fn p7_the_slot_of_a_released_key_is_used_again() {
        let mut slab = KeySlab::new();
        for _ in 0..10 {
            let keys: Vec<Key> = (0..100).map(|_| slab.acquire()).collect();
            keys.into_iter().for_each(|key| slab.release(key));
        }
        assert_eq!((slab.len(), slab.slots.len()), (0, 100));
        slab.check().unwrap();
    }

    #[test]
    fn d38_the_next_key_of_a_free_slot_has_no_place_yet() {
        let mut slab = KeySlab::new();
        let keys = [(); 3].map(|()| slab.acquire());
        keys.into_iter().for_each(|key| slab.release(key));
        let mut other = slab.clone();
        for _ in keys {
            let foreign = other.acquire();
            assert!(slab.place(foreign).is_none(), "{foreign:?} is not a key of this slab");
        }
    }
}
