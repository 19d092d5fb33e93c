//! Sorting the items of a slot.
//!
//! A word stands for each item: its deadline within the slot above its number in the list. The words come in the order
//! of their numbers, so a stable sort by the deadline alone is enough, and deadlines within a slot have few bits: a
//! radix sort needs two or three passes and takes no branch that depends on the data. For a handful of words an
//! ordinary sort is quicker.

use alloc::vec::Vec;
use core::mem;

/// Room to sort in, kept from one time to the next.
#[derive(Clone)]
pub(super) struct Sorter {
    words: Vec<u64>,
    /// Where the words go in a pass.
    target: Vec<u64>,
    /// How many words have each digit; then, where the next one with that digit goes. Empty before the first pass.
    counts: Vec<u16>,
    table: Vec<u32>,
    /// What a run that has ended has left for the next one.
    spare: Vec<u32>,
    /// Whether it has been used since the last trim.
    used: bool,
}

/// Fewer words than this are not worth the counting.
const FEW: usize = 256;

/// Bits that one pass sorts by, at most: as many counters as stay in the nearest cache.
const PASS_BITS: u32 = 12;
const DIGITS: usize = 1 << PASS_BITS;

impl Sorter {
    pub(super) const fn new() -> Sorter {
        Sorter {
            words: Vec::new(),
            target: Vec::new(),
            counts: Vec::new(),
            table: Vec::new(),
            spare: Vec::new(),
            used: false,
        }
    }

    /// Takes back the memory of a run that has ended.
    pub(super) fn recycle(&mut self, mut order: Vec<u32>) {
        if order.capacity() > self.spare.capacity() {
            order.clear();
            self.spare = order;
        }
    }

    /// An empty vector for a new run.
    pub(super) fn spare(&mut self) -> Vec<u32> {
        mem::take(&mut self.spare)
    }

    /// Gives back its memory if it has not been used since the last trim.
    pub(super) fn trim(&mut self) {
        if !mem::replace(&mut self.used, false) {
            *self = Sorter::new();
        }
    }

    /// Where the words to sort go, and a table that the caller needs to make sense of them; both empty.
    pub(super) fn begin(&mut self) -> (&mut Vec<u64>, &mut Vec<u32>) {
        self.used = true;
        self.words.clear();
        self.table.clear();
        (&mut self.words, &mut self.table)
    }

    /// Sorts the words, at most 65,535 of them, by the `bits` bits above the lowest `ignored` ones, by which they are in
    /// order already. Returns them and the table.
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

    /// Sorts by one digit, words with the same one in their order.
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
    fn p7_room_to_sort_in_is_kept_while_it_is_used_and_then_given_back() {
        let room = |sorter: &Sorter| {
            let words = sorter.words.capacity() + sorter.target.capacity();
            words + sorter.counts.capacity() + sorter.table.capacity() + sorter.spare.capacity()
        };
        let mut sorter = Sorter::new();
        sorter.recycle(Vec::with_capacity(10));
        sorter.begin().0.extend((0..1000).rev());
        sorter.sort(0, 10);
        let used = room(&sorter);
        sorter.trim();
        assert_eq!(room(&sorter), used, "it has been used since the last trim");
        sorter.trim();
        assert_eq!(room(&sorter), 0);
    }

    #[test]
    fn p7_of_the_room_that_runs_leave_behind_the_largest_is_kept() {
        let mut sorter = Sorter::new();
        for capacity in [10, 1000, 100] {
            let mut order = Vec::with_capacity(capacity);
            order.push(1);
            sorter.recycle(order);
        }
        let spare = sorter.spare();
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
