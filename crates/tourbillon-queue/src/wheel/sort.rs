//! Sorting the items of a slot.
//!
//! Deadlines within a slot are spread more or less evenly far more often than not. So each item is first dealt to
//! one of about as many buckets as there are items, by its leading bits, which leaves neighbours to put in order. That is
//! three passes over short words, and about twice as fast as comparing. Where the deadlines are bunched, an
//! ordinary sort takes over.

use alloc::vec::Vec;

/// Room to sort in, kept from one time to the next.
#[derive(Clone, Default)]
pub(super) struct Sorter {
    words: Vec<u64>,
    /// Where each bucket ends.
    ends: Vec<u16>,
}

/// How many words to a bucket, more or less. Few, to be quick to put in order; not too few, or counting them costs more.
const BUCKET: u64 = 1;

/// A bucket with more words than this is not put in order by insertion.
const BUNCHED: u16 = 16;

impl Sorter {
    pub(super) const fn new() -> Sorter {
        Sorter { words: Vec::new(), ends: Vec::new() }
    }

    /// Where the words to sort go; empty.
    pub(super) fn words(&mut self) -> &mut Vec<u64> {
        self.words.clear();
        &mut self.words
    }

    /// Makes `sorted` the sorted words, at most 65,535 of at most `bits` significant bits.
    pub(super) fn sort(&mut self, bits: u32, sorted: &mut Vec<u64>) {
        let bucket_bits = (self.words.len() as u64 / BUCKET + 1).ilog2().min(bits);
        let shift = bits - bucket_bits;
        self.ends.clear();
        self.ends.resize(1 << bucket_bits, 0);
        for word in &self.words {
            self.ends[(word >> shift) as usize] += 1;
        }
        let (mut start, mut largest) = (0, 0);
        for end in &mut self.ends {
            let count = core::mem::replace(end, start);
            start += count;
            largest = largest.max(count);
        }
        sorted.clear();
        sorted.resize(self.words.len(), 0);
        for &word in &self.words {
            let next = &mut self.ends[(word >> shift) as usize];
            sorted[*next as usize] = word;
            *next += 1;
        }
        if largest > BUNCHED {
            sorted.sort_unstable();
        } else {
            insertion_sort(sorted);
        }
    }
}

/// Sorts words that are almost in order.
fn insertion_sort(words: &mut [u64]) {
    for index in 1..words.len() {
        let word = words[index];
        let mut hole = index;
        while hole > 0 && words[hole - 1] > word {
            words[hole] = words[hole - 1];
            hole -= 1;
        }
        words[hole] = word;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_out_sorted_whether_spread_or_bunched_or_few() {
        let mut state = 1u64;
        let mut random = move |bits: u32| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state.rotate_left(29) >> (64 - bits)
        };
        let (mut sorter, mut sorted) = (Sorter::new(), Vec::new());
        for (len, bits, bunched) in
            [(0, 20, 1), (1, 64, 1), (2, 1, 1), (1000, 24, 1), (5000, 64, 1), (3000, 40, 1 << 30)]
        {
            let words: Vec<u64> = (0..len).map(|_| random(bits) / bunched).collect();
            let mut expected = words.clone();
            expected.sort_unstable();
            sorter.words().extend(words);
            sorter.sort(bits, &mut sorted);
            assert_eq!(sorted, expected, "{len} words of {bits} bits");
        }
    }
}
