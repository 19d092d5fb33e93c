//! Sorting the items of a slot.
//!
//! Each item is represented by one word: its deadline within the slot in the high bits, its number in the list in the low
//! ones. The words come in the order of their numbers, so a stable sort by the deadline alone is enough, and deadlines
//! within a slot have few bits: a radix sort needs two or three passes and no branch that depends on the data. For few
//! words an ordinary sort is quicker.

use alloc::vec::Vec;
use core::mem;

use super::run::FiringOrder;

/// The buffers of the sort, kept from one slot to the next.
#[derive(Clone)]
pub(super) struct Sorter {
    words: Vec<u64>,
    /// The output of a pass.
    target: Vec<u64>,
    /// Counts the words with each digit; then holds the index for the next word with that digit. Empty before the first pass.
    counts: Vec<u16>,
    table: Vec<u32>,
    /// The buffers of a run that has ended, for the next run.
    spare: FiringOrder,
    /// Whether the sorter has been used since the last trim.
    used: bool,
}

/// Fewer words than this are sorted by comparison.
const FEW: usize = 256;

/// The most bits that one pass sorts by: its counters stay in the L1 cache.
const PASS_BITS: u32 = 12;
const DIGITS: usize = 1 << PASS_BITS;

impl Sorter {
    pub(super) const fn new() -> Sorter {
        Sorter {
            words: Vec::new(),
            target: Vec::new(),
            counts: Vec::new(),
            table: Vec::new(),
            spare: FiringOrder::EMPTY,
            used: false,
        }
    }

    /// Keeps the buffers of a run that has ended, if they are larger than the spare ones.
    pub(super) fn recycle(&mut self, mut order: FiringOrder) {
        if order.positions.capacity() > self.spare.positions.capacity() {
            order.clear();
            self.spare = order;
        }
    }

    /// Returns empty buffers for a new run.
    pub(super) fn spare(&mut self) -> FiringOrder {
        mem::replace(&mut self.spare, FiringOrder::EMPTY)
    }

    /// Frees the buffers if they have not been used since the last trim.
    pub(super) fn trim(&mut self) {
        if !mem::replace(&mut self.used, false) {
            *self = Sorter::new();
        }
    }

    /// Returns the vector for the words to sort, and a table that the caller may need to read them; both empty.
    pub(super) fn begin(&mut self) -> (&mut Vec<u64>, &mut Vec<u32>) {
        self.used = true;
        self.words.clear();
        self.table.clear();
        (&mut self.words, &mut self.table)
    }

    /// Sorts the words, at most 65,535 of them, by the `bits` bits above the lowest `ignored` ones; by those they are in
    /// order already. Returns the words and the table.
    pub(super) fn sort(&mut self, ignored: u32, bits: u32) -> (&[u64], &[u32]) {
        if self.words.len() < FEW {
            self.words.sort_unstable();
        } else {
            let width = bits.div_ceil(bits.div_ceil(PASS_BITS).max(1));
            for shift in (ignored..ignored + bits).step_by(width.max(1) as usize) {
                self.pass(shift, width);
            }
        }
        (&self.words, &self.table)
    }

    /// Sorts by one digit, stably.
    fn pass(&mut self, shift: u32, width: u32) {
        self.counts.resize(DIGITS, 0);
        self.target.resize(self.words.len(), 0);
        let Some(counts) = self.counts.first_chunk_mut::<DIGITS>() else { return };
        let mask = (1 << width) - 1;
        let digit = |word: u64| (word >> shift) as usize & mask & (DIGITS - 1);
        counts[..=mask].fill(0);
        for &word in &self.words {
            counts[digit(word)] += 1;
        }
        let mut start = 0;
        for count in &mut counts[..=mask] {
            start += mem::replace(count, start);
        }
        for &word in &self.words {
            let next = &mut counts[digit(word)];
            self.target[*next as usize] = word;
            *next += 1;
        }
        mem::swap(&mut self.words, &mut self.target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_out_sorted_whether_spread_or_bunched_or_few() {
        const NUMBER: u32 = 14;
        let mut state = 1u64;
        let mut random = move |bits: u32| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state.rotate_left(29) >> (64 - bits)
        };
        let mut sorter = Sorter::new();
        for (len, bits, bunched) in
            [(0, 20, 1), (1, 50, 1), (2, 1, 1), (1000, 6, 1), (1000, 24, 1), (16_384, 50, 1), (9000, 40, 1 << 38)]
        {
            let words: Vec<u64> = (0..len).map(|number| ((random(bits) / bunched) << NUMBER) | number).collect();
            let mut expected = words.clone();
            expected.sort_unstable();
            sorter.begin().0.extend(words);
            assert_eq!(sorter.sort(NUMBER, bits).0, expected, "{len} words of {bits} bits");
        }
    }

    #[test]
    fn p7_the_buffers_are_kept_while_they_are_used_and_then_freed() {
        let capacity = |sorter: &Sorter| {
            let words = sorter.words.capacity() + sorter.target.capacity();
            words + sorter.counts.capacity() + sorter.table.capacity() + sorter.spare.positions.capacity()
        };
        let mut sorter = Sorter::new();
        sorter.recycle(FiringOrder { positions: Vec::with_capacity(10), deadlines: Vec::new() });
        sorter.begin().0.extend((0..1000).rev());
        sorter.sort(0, 10);
        let used = capacity(&sorter);
        sorter.trim();
        assert_eq!(capacity(&sorter), used, "the sorter has been used since the last trim");
        sorter.trim();
        assert_eq!(capacity(&sorter), 0);
    }

    #[test]
    fn p7_the_largest_buffer_of_the_ended_runs_is_kept() {
        let mut sorter = Sorter::new();
        for capacity in [10, 1000, 100] {
            let mut positions = Vec::with_capacity(capacity);
            positions.push(1);
            sorter.recycle(FiringOrder { positions, deadlines: Vec::new() });
        }
        let spare = sorter.spare().positions;
        assert!(spare.capacity() >= 1000 && spare.is_empty());
    }

    #[test]
    fn p7_few_words_are_sorted_without_counters_and_many_with_them() {
        for (len, counters) in [(FEW - 1, 0), (FEW, DIGITS)] {
            let mut sorter = Sorter::new();
            sorter.begin().0.extend((0..len as u64).rev());
            assert!(sorter.sort(0, 10).0.is_sorted());
            assert_eq!(sorter.counts.len(), counters, "{len} words");
        }
    }
}
