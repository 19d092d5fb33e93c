//! Finds the job under a key: a hash table from keys to the indices of jobs.
//!
//! The table does not hold the keys, which are in the jobs. A look-up gives the hash of a key, and a closure that says of an index
//! with the same hash whether its job has that key.

use hashbrown::HashTable;

/// The indices of jobs, by the hashes of their keys.
pub(super) struct KeyIndex {
    table: HashTable<IndexedJob>,
}

/// The hash is kept here, so that growing the table does not read the jobs.
#[derive(Clone, Copy)]
struct IndexedJob {
    hash: u32,
    index: u32,
}

impl KeyIndex {
    pub(super) const fn new() -> KeyIndex {
        KeyIndex { table: HashTable::new() }
    }

    /// Returns the index with this hash for which `is_it` is true.
    #[inline]
    pub(super) fn find(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        self.table.find(wide(hash), |job| job.hash == hash && is_it(job.index)).map(|job| job.index)
    }

    /// Adds an index that is not in the table.
    #[inline]
    pub(super) fn insert(&mut self, hash: u32, index: u32) {
        self.table.insert_unique(wide(hash), IndexedJob { hash, index }, |job| wide(job.hash));
    }

    /// Removes and returns the index with this hash for which `is_it` is true.
    #[inline]
    pub(super) fn remove(&mut self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let found = self.table.find_entry(wide(hash), |job| job.hash == hash && is_it(job.index)).ok()?;
        Some(found.remove().0.index)
    }
}

/// Returns the hash in both halves of a word: the table takes the place of an item from the low bits, and its tag from the high ones.
fn wide(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Few hashes, so that they collide.
    #[test]
    fn finds_what_is_there_and_nothing_else_after_any_insertions_and_removals() {
        let mut keys = KeyIndex::new();
        let mut model: Vec<(u32, u32)> = Vec::new();
        let mut seed = 7_u32;
        let mut random = |below: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) % below
        };
        for step in 0..if cfg!(miri) { 300 } else { 300_000 } {
            let hash = random(8) << 25 | random(3);
            let most = if step % 1000 < 500 { 120 } else { 10 };
            if model.len() < most && random(5) < 3 {
                keys.insert(hash, step);
                model.push((hash, step));
            } else if !model.is_empty() {
                let (hash, index) = model.swap_remove(random(model.len() as u32) as usize);
                assert_eq!(keys.remove(hash, |found| found == index), Some(index));
                assert_eq!(keys.find(hash, |found| found == index), None);
            }
            assert_eq!(keys.table.len(), model.len());
            for (hash, index) in &model {
                assert_eq!(keys.find(*hash, |found| found == *index), Some(*index), "step {step}");
            }
        }
    }
}
