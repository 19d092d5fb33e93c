//! Which job is under which key: a hash table of indices.
//!
//! It knows nothing of keys. Whoever looks something up gives its hash and says, of an index with the same hash, whether that
//! is it. A slot is eight bytes, hash and index together, and those that follow are searched next: so a look takes one line of
//! the cache, most often, where one that keeps them apart takes two.
//!
//! ```text
//!     home of a hash: its lower bits          [ .... | 7a21:4 | 7a21:9 | 7a22:1 | free | .... ]
//!     removal: those that follow move up, so that no look ends at a gap too early
//! ```

use std::sync::atomic::{AtomicUsize, Ordering};

/// Indices by the hashes of their keys.
pub(super) struct Table {
    /// As many as a power of two, or none.
    slots: Vec<Slot>,
    len: usize,
}

#[derive(Clone, Copy)]
struct Slot {
    hash: u32,
    /// [`FREE`] if there is none.
    index: u32,
}

/// Where a table's slots are, for those who have not locked it: they can only ask the cache to fetch one.
///
/// With very many jobs a slot is in none of the nearer caches, and to wait for it is half of what scheduling costs. Asked
/// for before the lock is taken, it comes while other things are done.
#[derive(Default)]
pub(super) struct Hint {
    slots: AtomicUsize,
    mask: AtomicUsize,
}

impl Hint {
    /// The table is now there.
    pub(super) fn set(&self, table: &Table) {
        self.slots.store(table.slots.as_ptr().addr(), Ordering::Relaxed);
        self.mask.store(table.slots.len().wrapping_sub(1), Ordering::Relaxed);
    }

    /// Asks for the slot of a hash. If the table has moved meanwhile, for something else: no harm is done.
    #[inline]
    pub(super) fn fetch(&self, hash: u32) {
        let at = hash as usize & self.mask.load(Ordering::Relaxed);
        let address = self.slots.load(Ordering::Relaxed).wrapping_add(at.wrapping_mul(size_of::<Slot>()));
        #[cfg(target_arch = "x86_64")]
        // SAFETY: to prefetch is a hint. It reads nothing that a program could see, and no address makes it fail.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = address;
    }
}

const FREE: u32 = u32::MAX;
const EMPTY: Slot = Slot { hash: 0, index: FREE };

impl Table {
    pub(super) const fn new() -> Table {
        Table { slots: Vec::new(), len: 0 }
    }

    /// The index of this hash that is the one.
    #[inline]
    pub(super) fn find(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let mut at = self.home(hash);
        loop {
            let slot = self.slots[at];
            if slot.index == FREE {
                return None;
            }
            if slot.hash == hash && is_it(slot.index) {
                return Some(slot.index);
            }
            at = self.next(at);
        }
    }

    /// Puts in an index that is not there.
    pub(super) fn insert(&mut self, hash: u32, index: u32) {
        // At most five of eight are taken, so that looks are short.
        if 8 * (self.len + 1) > 5 * self.slots.len() {
            self.grow();
        }
        self.len += 1;
        self.put(Slot { hash, index });
    }

    /// Takes out an index, if it is there.
    pub(super) fn remove(&mut self, hash: u32, index: u32) {
        if self.slots.is_empty() {
            return;
        }
        let mut at = self.home(hash);
        while self.slots[at].index != index {
            if self.slots[at].index == FREE {
                return;
            }
            at = self.next(at);
        }
        self.len -= 1;
        self.close_gap(at);
    }

    /// Moves up those that follow a gap and would not be found behind it.
    fn close_gap(&mut self, mut gap: usize) {
        let mut at = gap;
        loop {
            at = self.next(at);
            let slot = self.slots[at];
            if slot.index == FREE {
                break;
            }
            // Whether the gap lies between its home and where it is.
            let mask = self.slots.len() - 1;
            let (from_home, from_gap) = (at.wrapping_sub(self.home(slot.hash)) & mask, at.wrapping_sub(gap) & mask);
            if from_home >= from_gap {
                self.slots[gap] = slot;
                gap = at;
            }
        }
        self.slots[gap] = EMPTY;
    }

    #[cold]
    fn grow(&mut self) {
        let size = (2 * self.slots.len()).max(16);
        let old = std::mem::replace(&mut self.slots, vec![EMPTY; size]);
        old.into_iter().filter(|slot| slot.index != FREE).for_each(|slot| self.put(slot));
    }

    fn put(&mut self, slot: Slot) {
        let mut at = self.home(slot.hash);
        while self.slots[at].index != FREE {
            at = self.next(at);
        }
        self.slots[at] = slot;
    }

    fn home(&self, hash: u32) -> usize {
        hash as usize & (self.slots.len() - 1)
    }

    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Few hashes, so that they collide, and some at the end of the table, so that they wrap around.
    #[test]
    fn finds_what_is_there_and_nothing_else_after_any_insertions_and_removals() {
        let mut table = Table::new();
        let mut model: Vec<(u32, u32)> = Vec::new();
        let mut seed = 7_u32;
        let mut random = |below: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) % below
        };
        for step in 0..200_000 {
            let hash = u32::MAX - 20;
            let hash = hash.wrapping_add(random(40));
            if model.len() < 60 && random(2) == 0 {
                table.insert(hash, step);
                model.push((hash, step));
            } else if !model.is_empty() {
                let (hash, index) = model.swap_remove(random(model.len() as u32) as usize);
                table.remove(hash, index);
                assert_eq!(table.find(hash, |found| found == index), None);
            }
            assert_eq!(table.len, model.len());
            for (hash, index) in &model {
                assert_eq!(table.find(*hash, |found| found == *index), Some(*index), "step {step}");
            }
        }
    }
}
