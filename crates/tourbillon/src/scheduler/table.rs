//! Which job is under which key: a hash table of indices.
//!
//! It knows nothing of keys. Whoever looks something up gives its hash and says, of an index with the same hash, whether that
//! is it.
//!
//! With a million jobs the table does not fit the caches near the processor, and to wait for one line of it takes longer than all
//! else that scheduling does. So the question that is asked most, whether a key is there, is answered by one byte a slot, side by
//! side, and what is written to a slot waits until others want its place:
//!
//! ```text
//!     hash ---> a bucket of 15 slots
//!
//!     tags:    a byte each: zero, or seven bits of the hash                 read always: one line of the cache
//!              and one that counts those that are beyond
//!     recent:  the slots that were written last, a few                      hot
//!     slots:   hash and index                                               read where a tag fits, and written when one
//!                                                                           leaves `recent`
//!     beyond:  those that found their bucket full; less than one in a hundred
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Indices by the hashes of their keys.
pub(super) struct Table {
    /// As many buckets as a power of two, or none.
    tags: Vec<Tags>,
    slots: Vec<Slot>,
    /// By the lower bits of their position.
    recent: Vec<Recent>,
    /// By bucket.
    beyond: BTreeMap<usize, Vec<Slot>>,
    len: usize,
}

/// Of the slots of one bucket: [`FREE`], or a byte of the hash. The last is how many there are beyond, or [`MANY`].
type Tags = [u8; BUCKET];

#[derive(Clone, Copy, PartialEq, Eq)]
struct Slot {
    hash: u32,
    index: u32,
}

/// What a slot holds, but for its memory.
#[derive(Clone, Copy)]
struct Recent {
    /// [`NONE`] if it holds nothing.
    position: usize,
    slot: Slot,
}

/// The tags of a bucket, with the one that is a count.
const BUCKET: usize = 16;
const COUNT: usize = BUCKET - 1;
/// So many, or more: it is not counted any more.
const MANY: u8 = u8::MAX;
const FREE: u8 = 0;
/// So many slots are written late.
const RECENT: usize = 64;
const NONE: usize = usize::MAX;
const EMPTY: Slot = Slot { hash: 0, index: 0 };

impl Table {
    pub(super) const fn new() -> Table {
        Table { tags: Vec::new(), slots: Vec::new(), recent: Vec::new(), beyond: BTreeMap::new(), len: 0 }
    }

    /// The index of this hash that is the one.
    #[inline]
    pub(super) fn find(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let is_it = |slot: Slot| slot.hash == hash && is_it(slot.index);
        self.position(hash, is_it).map(|(_, slot)| slot.index)
    }

    /// Puts in an index that is not there.
    #[inline]
    pub(super) fn insert(&mut self, hash: u32, index: u32) {
        // Five of eight, so that buckets are seldom full.
        if 8 * (self.len + 1) > 5 * self.slots.len() {
            self.grow();
        }
        self.len += 1;
        self.put(Slot { hash, index });
    }

    /// Takes out the index of this hash that is the one.
    #[inline]
    pub(super) fn remove(&mut self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let is_it = |slot: Slot| slot.hash == hash && is_it(slot.index);
        let (position, slot) = self.position(hash, is_it)?;
        self.len -= 1;
        let (bucket, at) = (position / BUCKET, position % BUCKET);
        if at == COUNT {
            self.remove_beyond(bucket, slot);
            return Some(slot.index);
        }
        self.tags[bucket][at] = FREE;
        let recent = &mut self.recent[position % RECENT];
        if recent.position == position {
            recent.position = NONE;
        }
        Some(slot.index)
    }

    #[inline]
    fn position(&self, hash: u32, mut is_it: impl FnMut(Slot) -> bool) -> Option<(usize, Slot)> {
        let bucket = self.bucket(hash)?;
        let (tags, tag) = (&self.tags[bucket], tag(hash));
        let mut fitting = fitting(tags, tag);
        while fitting != 0 {
            let position = bucket * BUCKET + fitting.trailing_zeros() as usize;
            let slot = self.slot(position);
            if is_it(slot) {
                return Some((position, slot));
            }
            fitting &= fitting - 1;
        }
        if tags[COUNT] == 0 {
            return None;
        }
        let slot = self.beyond.get(&bucket)?.iter().find(|slot| is_it(**slot))?;
        Some((bucket * BUCKET + COUNT, *slot))
    }

    /// What is at a position that is not free.
    fn slot(&self, position: usize) -> Slot {
        let recent = self.recent[position % RECENT];
        if recent.position == position { recent.slot } else { self.slots[position] }
    }

    #[inline]
    fn put(&mut self, slot: Slot) {
        let Some(bucket) = self.bucket(slot.hash) else { return };
        let tags = &mut self.tags[bucket];
        let free = fitting(tags, FREE);
        if free == 0 {
            return self.put_beyond(bucket, slot);
        }
        let at = free.trailing_zeros() as usize;
        tags[at] = tag(slot.hash);
        let position = bucket * BUCKET + at;
        let before = std::mem::replace(&mut self.recent[position % RECENT], Recent { position, slot });
        if before.position != NONE {
            self.slots[before.position] = before.slot;
        }
    }

    #[cold]
    fn put_beyond(&mut self, bucket: usize, slot: Slot) {
        let count = &mut self.tags[bucket][COUNT];
        *count = count.saturating_add(1);
        self.beyond.entry(bucket).or_default().push(slot);
    }

    #[cold]
    fn remove_beyond(&mut self, bucket: usize, slot: Slot) {
        let count = &mut self.tags[bucket][COUNT];
        if *count != MANY {
            *count -= 1;
        }
        let Some(slots) = self.beyond.get_mut(&bucket) else { return };
        slots.retain(|other| *other != slot);
        if slots.is_empty() {
            self.beyond.remove(&bucket);
        }
    }

    #[cold]
    fn grow(&mut self) {
        let all: Vec<Slot> = self.all().collect();
        let buckets = (2 * self.tags.len()).max(1);
        self.tags = vec![[FREE; BUCKET]; buckets];
        self.slots = vec![EMPTY; buckets * BUCKET];
        self.recent = vec![Recent { position: NONE, slot: EMPTY }; RECENT];
        self.beyond.clear();
        all.into_iter().for_each(|slot| self.put(slot));
    }

    fn all(&self) -> impl Iterator<Item = Slot> {
        let tags = self.tags.as_flattened().iter().enumerate();
        let taken = tags.filter(|(position, tag)| position % BUCKET != COUNT && **tag != FREE);
        taken.map(|(position, _)| self.slot(position)).chain(self.beyond.values().flatten().copied())
    }

    /// `None` as long as there are no buckets.
    fn bucket(&self, hash: u32) -> Option<usize> {
        (!self.tags.is_empty()).then(|| hash as usize & (self.tags.len() - 1))
    }
}

/// Which slots of a bucket have this tag, a bit each. (Written so that the compiler compares all at once.)
#[inline]
fn fitting(tags: &Tags, tag: u8) -> u32 {
    let mut bits = 0;
    for (at, found) in tags.iter().enumerate() {
        bits |= u32::from(*found == tag) << at;
    }
    bits & ((1 << COUNT) - 1)
}

/// The bits of a hash that say least about its bucket.
fn tag(hash: u32) -> u8 {
    (hash >> 25) as u8 | 0x80
}

/// Where a table's tags are, for those who have not locked it: they can only ask the cache to fetch some.
///
/// Asked for before the lock is taken, they come while other things are done.
#[derive(Default)]
pub(super) struct Hint {
    tags: AtomicUsize,
    mask: AtomicUsize,
}

impl Hint {
    /// The table is now there.
    pub(super) fn set(&self, table: &Table) {
        self.tags.store(table.tags.as_ptr().addr(), Ordering::Relaxed);
        self.mask.store(table.tags.len().wrapping_sub(1), Ordering::Relaxed);
    }

    /// Asks for the tags that a hash needs. If the table has moved meanwhile, for something else: no harm is done.
    #[inline]
    pub(super) fn fetch(&self, hash: u32) {
        let bucket = hash as usize & self.mask.load(Ordering::Relaxed);
        let address = self.tags.load(Ordering::Relaxed).wrapping_add(bucket.wrapping_mul(BUCKET));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Few hashes, so that they collide and buckets overflow.
    #[test]
    fn finds_what_is_there_and_nothing_else_after_any_insertions_and_removals() {
        let mut table = Table::new();
        let mut model: Vec<(u32, u32)> = Vec::new();
        let mut seed = 7_u32;
        let mut random = |below: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) % below
        };
        let mut most_beyond = 0;
        for step in 0..if cfg!(miri) { 300 } else { 300_000 } {
            let hash = random(8) << 25 | random(3);
            let most = if step % 1000 < 500 { 120 } else { 10 };
            if model.len() < most && random(5) < 3 {
                table.insert(hash, step);
                model.push((hash, step));
            } else if !model.is_empty() {
                let (hash, index) = model.swap_remove(random(model.len() as u32) as usize);
                assert_eq!(table.remove(hash, |found| found == index), Some(index));
                assert_eq!(table.find(hash, |found| found == index), None);
            }
            most_beyond = most_beyond.max(table.beyond.values().map(Vec::len).sum::<usize>());
            assert_eq!((table.len, table.all().count()), (model.len(), model.len()));
            for (hash, index) in &model {
                assert_eq!(table.find(*hash, |found| found == *index), Some(*index), "step {step}");
            }
        }
        assert!(most_beyond > 0, "no bucket was ever full");
    }

    #[test]
    #[cfg_attr(miri, ignore = "of few it says nothing")]
    fn few_of_very_many_find_their_bucket_full() {
        let mut table = Table::new();
        let hash = |n: u32| n.wrapping_mul(0x9E37_79B1) ^ n.wrapping_mul(0x85EB_CA6B) >> 15;
        for n in 0..1_300_000 {
            table.insert(hash(n), n);
        }
        let beyond = table.beyond.values().map(Vec::len).sum::<usize>();
        assert!(beyond * 100 < table.len, "{beyond} of {}", table.len);
        assert!((0..1_300_000).step_by(997).all(|n| table.find(hash(n), |found| found == n) == Some(n)));
    }
}
