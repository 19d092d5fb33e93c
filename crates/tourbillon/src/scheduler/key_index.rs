//! Finds the job under a key: a hash table from keys to the indices of jobs.
//!
//! The table does not hold the keys, which are in the jobs. A look-up gives the hash of a key, and a closure that says of an index
//! with the same hash whether its job has that key.
//!
//! With a million jobs the table does not fit the caches near the processor. So it answers the most frequent question, whether a key is
//! there, from a summary of half a byte a job, which does fit them; and it writes to a bucket late, when another key needs the place in
//! `recent`: many jobs are removed before that. (`hashbrown` takes half as long again: see the design log.)
//!
//! ```text
//!     hash ---> recent:    the items that were inserted last, a few: one for each value of some bits of the hash
//!      |
//!      `------> a bucket of 15 slots, for the items that had to leave `recent`
//!
//!     summaries: two bits of 32 for each item of the bucket                 read where `recent` has not the key
//!     tags:      a byte each: zero, or eight bits of the hash               read where the summary has both bits, by chance one time in six
//!                and one byte that counts the overflow of the bucket
//!     slots:     hash and index                                             read where a tag fits
//!     overflow:  items that found their bucket full; less than one in a hundred
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sync::prefetch;

/// The indices of jobs, by the hashes of their keys.
pub(super) struct KeyIndex {
    /// One for each bucket: the [`summary_bits`] of all its items.
    summaries: Vec<u32>,
    /// One for each bucket; a power of two of them, or none.
    tags: Vec<BucketTags>,
    slots: Vec<IndexedJob>,
    /// Items that are in no bucket yet, by [`recent_place`] of their hashes.
    recent: [Option<IndexedJob>; RECENT],
    /// By the number of the bucket.
    overflow: BTreeMap<usize, Vec<IndexedJob>>,
    len: usize,
}

/// The tags of the slots of one bucket: [`FREE`], or bits of the hash. The last byte is the length of the overflow, or [`MANY`].
type BucketTags = [u8; BUCKET];

#[derive(Clone, Copy, PartialEq, Eq)]
struct IndexedJob {
    hash: u32,
    index: u32,
}

/// The bytes of a bucket: its tags, and the count.
const BUCKET: usize = 16;
const COUNT: usize = BUCKET - 1;
/// The overflow is this long or longer, and not counted any more.
const MANY: u8 = u8::MAX;
const FREE: u8 = 0;
/// How many items are written late.
const RECENT: usize = 64;
const EMPTY: IndexedJob = IndexedJob { hash: 0, index: 0 };

impl KeyIndex {
    pub(super) const fn new() -> KeyIndex {
        KeyIndex {
            summaries: Vec::new(),
            tags: Vec::new(),
            slots: Vec::new(),
            recent: [None; RECENT],
            overflow: BTreeMap::new(),
            len: 0,
        }
    }

    /// Returns the index with this hash for which `is_it` is true.
    #[inline(always)]
    pub(super) fn find(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut is_it = |slot: IndexedJob| slot.hash == hash && is_it(slot.index);
        match self.recent[recent_place(hash)] {
            Some(recent) if is_it(recent) => Some(recent.index),
            _ => self.position(hash, is_it).map(|(_, slot)| slot.index),
        }
    }

    /// Adds an index that is not in the table.
    #[inline(always)]
    pub(super) fn insert(&mut self, hash: u32, index: u32) {
        self.len += 1;
        if let Some(before) = self.recent[recent_place(hash)].replace(IndexedJob { hash, index }) {
            self.write_late(before);
        }
    }

    /// Removes and returns the index with this hash for which `is_it` is true.
    #[inline(always)]
    pub(super) fn remove(&mut self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut is_it = |slot: IndexedJob| slot.hash == hash && is_it(slot.index);
        let recent = &mut self.recent[recent_place(hash)];
        let index = match *recent {
            Some(found) if is_it(found) => {
                *recent = None;
                found.index
            }
            _ => self.remove_written(hash, is_it)?,
        };
        self.len -= 1;
        Some(index)
    }

    fn remove_written(&mut self, hash: u32, is_it: impl FnMut(IndexedJob) -> bool) -> Option<u32> {
        let (position, slot) = self.position(hash, is_it)?;
        let (bucket, at) = (position / BUCKET, position % BUCKET);
        if at == COUNT {
            self.remove_overflow(bucket, slot);
        } else {
            self.tags[bucket][at] = FREE;
        }
        self.summaries[bucket] = self.summary(bucket);
        Some(slot.index)
    }

    #[inline]
    fn position(&self, hash: u32, mut is_it: impl FnMut(IndexedJob) -> bool) -> Option<(usize, IndexedJob)> {
        let (bucket, tag) = (self.bucket(hash)?, tag(hash));
        if self.summaries[bucket] & summary_bits(hash) != summary_bits(hash) {
            return None;
        }
        let tags = &self.tags[bucket];
        let mut fitting = fitting(tags, tag);
        while fitting != 0 {
            let position = bucket * BUCKET + fitting.trailing_zeros() as usize;
            let slot = self.slots[position];
            if is_it(slot) {
                return Some((position, slot));
            }
            fitting &= fitting - 1;
        }
        if tags[COUNT] == 0 {
            return None;
        }
        let slot = self.overflow.get(&bucket)?.iter().find(|slot| is_it(**slot))?;
        Some((bucket * BUCKET + COUNT, *slot))
    }

    /// Returns the summary of a bucket, of its slots and its overflow.
    fn summary(&self, bucket: usize) -> u32 {
        let taken =
            self.tags[bucket][..COUNT].iter().zip(&self.slots[bucket * BUCKET..]).filter(|(tag, _)| **tag != FREE);
        let overflow = self.overflow.get(&bucket).filter(|_| self.tags[bucket][COUNT] != 0);
        let items = taken.map(|(_, slot)| slot).chain(overflow.into_iter().flatten());
        items.fold(0, |bits, slot| bits | summary_bits(slot.hash))
    }

    /// Writes an item that has left `recent`.
    fn write_late(&mut self, item: IndexedJob) {
        // At most five slots of eight are taken, so that buckets are seldom full.
        if 8 * self.len > 5 * self.slots.len() {
            self.grow();
        }
        self.put(item);
    }

    fn put(&mut self, slot: IndexedJob) {
        let Some(bucket) = self.bucket(slot.hash) else { return };
        let tags = &mut self.tags[bucket];
        let free = fitting(tags, FREE);
        if free == 0 {
            return self.put_overflow(bucket, slot);
        }
        let at = free.trailing_zeros() as usize;
        tags[at] = tag(slot.hash);
        self.summaries[bucket] |= summary_bits(slot.hash);
        self.slots[bucket * BUCKET + at] = slot;
    }

    #[cold]
    fn put_overflow(&mut self, bucket: usize, slot: IndexedJob) {
        let count = &mut self.tags[bucket][COUNT];
        *count = count.saturating_add(1);
        self.summaries[bucket] |= summary_bits(slot.hash);
        self.overflow.entry(bucket).or_default().push(slot);
    }

    #[cold]
    fn remove_overflow(&mut self, bucket: usize, slot: IndexedJob) {
        let count = &mut self.tags[bucket][COUNT];
        if *count != MANY {
            *count -= 1;
        }
        let Some(slots) = self.overflow.get_mut(&bucket) else { return };
        slots.retain(|other| *other != slot);
        if slots.is_empty() {
            self.overflow.remove(&bucket);
        }
    }

    #[cold]
    fn grow(&mut self) {
        let written: Vec<IndexedJob> = self.written().collect();
        let buckets = (2 * self.tags.len()).max(1);
        self.summaries = vec![0; buckets];
        self.tags = vec![[FREE; BUCKET]; buckets];
        self.slots = vec![EMPTY; buckets * BUCKET];
        self.overflow.clear();
        written.into_iter().for_each(|slot| self.put(slot));
    }

    /// Returns the items that are not in `recent`.
    fn written(&self) -> impl Iterator<Item = IndexedJob> {
        let tags = self.tags.as_flattened().iter().enumerate();
        let taken = tags.filter(|(position, tag)| position % BUCKET != COUNT && **tag != FREE);
        taken.map(|(position, _)| self.slots[position]).chain(self.overflow.values().flatten().copied())
    }

    /// Returns the bucket of a hash; `None` as long as there are no buckets.
    fn bucket(&self, hash: u32) -> Option<usize> {
        (!self.tags.is_empty()).then(|| hash as usize & (self.tags.len() - 1))
    }
}

/// Returns the slots of a bucket that have this tag, a bit each.
#[inline]
fn fitting(tags: &BucketTags, tag: u8) -> u32 {
    let all = u128::from_le_bytes(*tags);
    let bits = equal_bytes(all as u64, tag) | equal_bytes((all >> 64) as u64, tag) << 8;
    bits & ((1 << COUNT) - 1)
}

/// Returns which bytes of a word equal `byte`, a bit each.
#[inline]
fn equal_bytes(word: u64, byte: u8) -> u32 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let different = word ^ (ONES * u64::from(byte));
    // The highest bit of each byte: whether the byte of `different` is zero.
    let equal = !(((different & LOW) + LOW) | different | LOW);
    // The product has the bit of byte n at 56 + n.
    ((equal >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32
}

/// Returns where in `recent` an item with this hash is, if it is there. (By other bits than those that choose the bucket in a small table.)
#[inline]
fn recent_place(hash: u32) -> usize {
    (hash >> 18) as usize % RECENT
}

/// Returns the tag of a hash: the bits that say least about its bucket, but never [`FREE`].
#[inline]
fn tag(hash: u32) -> u8 {
    ((hash >> 24) as u8).max(1)
}

/// Returns the bits of a summary that stand for a hash. They depend on all bits of the hash, so that of two hashes with the same bucket and
/// the same tag the summary most often tells the other one apart.
#[inline]
fn summary_bits(hash: u32) -> u32 {
    let mixed = hash.wrapping_mul(0x9E37_79B1);
    1 << (mixed >> 27) | 1 << (mixed >> 22 & 31)
}

/// The address of a table, for a thread that has not locked it: it can ask the processor to fetch what a look-up reads into its cache, which
/// then happens while the thread waits for the lock.
#[derive(Default)]
pub(super) struct KeyTableAddress {
    summaries: AtomicUsize,
    tags: AtomicUsize,
    mask: AtomicUsize,
}

impl KeyTableAddress {
    /// Stores where the table is now.
    #[inline]
    pub(super) fn set(&self, keys: &KeyIndex) {
        self.summaries.store(keys.summaries.as_ptr().addr(), Ordering::Relaxed);
        self.tags.store(keys.tags.as_ptr().addr(), Ordering::Relaxed);
        self.mask.store(keys.tags.len().wrapping_sub(1), Ordering::Relaxed);
    }

    /// Asks the processor to fetch what the look-up of a hash reads. If the table has moved meanwhile, it fetches other memory, which does
    /// no harm.
    #[inline]
    pub(super) fn prefetch(&self, hash: u32) {
        let bucket = hash as usize & self.mask.load(Ordering::Relaxed);
        for (address, bytes) in [(&self.summaries, size_of::<u32>()), (&self.tags, BUCKET)] {
            prefetch::to_read(address.load(Ordering::Relaxed).wrapping_add(bucket.wrapping_mul(bytes)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Few hashes, so that they collide and buckets overflow.
    #[test]
    fn finds_what_is_there_and_nothing_else_after_any_insertions_and_removals() {
        let mut keys = KeyIndex::new();
        let mut model: Vec<(u32, u32)> = Vec::new();
        let mut seed = 7_u32;
        let mut random = |below: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) % below
        };
        let mut longest_overflow = 0;
        for step in 0..if cfg!(miri) { 300 } else { 300_000 } {
            let hash = random(8) << 25 | random(2) << 18 | random(3);
            let most = if step % 1000 < 500 { 120 } else { 10 };
            if model.len() < most && random(5) < 3 {
                keys.insert(hash, step);
                model.push((hash, step));
            } else if !model.is_empty() {
                let (hash, index) = model.swap_remove(random(model.len() as u32) as usize);
                assert_eq!(keys.remove(hash, |found| found == index), Some(index));
                assert_eq!(keys.find(hash, |found| found == index), None);
            }
            longest_overflow = longest_overflow.max(keys.overflow.values().map(Vec::len).sum::<usize>());
            let recent = keys.recent.iter().flatten().count();
            assert_eq!((keys.len, keys.written().count() + recent), (model.len(), model.len()));
            for (hash, index) in &model {
                assert_eq!(keys.find(*hash, |found| found == *index), Some(*index), "step {step}");
            }
        }
        assert!(longest_overflow > 0, "no bucket was ever full");
    }

    #[test]
    fn the_slots_that_fit_are_those_with_the_tag() {
        let mut seed = 7_u64;
        for round in 0..if cfg!(miri) { 20 } else { 20_000 } {
            let mut tags = [FREE; BUCKET];
            for found in &mut tags {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Few values, and those next to each other, which a mistake in the carries would confuse.
                *found = [0, 1, 2, 0x7f, 0x80, 0x81, 0xfe, 0xff][(seed >> 61) as usize];
            }
            for tag in [0, 1, 0x7f, 0x80, 0x81, 0xff] {
                let expected = (0..COUNT).filter(|at| tags[*at] == tag).fold(0, |bits, at| bits | 1 << at);
                assert_eq!(fitting(&tags, tag), expected, "round {round}: {tag} in {tags:?}");
            }
        }
    }

    #[test]
    fn hashes_with_the_same_bucket_and_tag_differ_in_their_summaries() {
        // With 2^17 buckets these seven bits are the only ones that differ.
        let of_one_tag = |tag: u32| (0..128).map(move |middle| summary_bits(tag << 24 | middle << 17 | 0x1_2345));
        for tag in [1, 2, 77, 255] {
            let different = of_one_tag(tag).collect::<std::collections::BTreeSet<_>>();
            assert!(different.len() > 100, "tag {tag}: {} of 128", different.len());
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes too long, and of few items it says nothing")]
    fn few_of_very_many_items_find_their_bucket_full() {
        let mut keys = KeyIndex::new();
        let hash = |n: u32| n.wrapping_mul(0x9E37_79B1) ^ n.wrapping_mul(0x85EB_CA6B) >> 15;
        for n in 0..1_300_000 {
            keys.insert(hash(n), n);
        }
        let overflow = keys.overflow.values().map(Vec::len).sum::<usize>();
        assert!(overflow * 100 < keys.len, "{overflow} of {}", keys.len);
        assert!((0..1_300_000).step_by(997).all(|n| keys.find(hash(n), |found| found == n) == Some(n)));
    }
}
