//! Where the decisions of a plan come from: a seed, or the bytes of a fuzzer.

use tourbillon_tools::Random;

/// A stream of decisions: first those that the given bytes encode, then random ones.
///
/// A decision among `n` takes as few bytes as can hold `n - 1`, so that a fuzzer that changes one byte changes one decision. The random
/// ones depend on nothing but the seed, so a plan from bytes is the same each time.
#[derive(Clone, Debug)]
pub struct RandomSource<'a> {
    bytes: &'a [u8],
    is_from_bytes: bool,
    random: Random,
}

/// Seed of the decisions behind the end of a fuzzer's bytes. Any number will do, as long as it stays the same.
const AFTER_BYTES: u64 = 1;

impl<'a> RandomSource<'a> {
    /// Returns the decisions of a seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> RandomSource<'static> {
        RandomSource { bytes: &[], is_from_bytes: false, random: Random::new(seed) }
    }

    /// Returns the decisions that `bytes` encode, and fixed ones behind them.
    #[must_use]
    pub fn from_bytes(bytes: &'a [u8]) -> RandomSource<'a> {
        RandomSource { bytes, is_from_bytes: true, random: Random::new(AFTER_BYTES) }
    }

    /// Returns whether the bytes are used up. A seed is never used up.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.is_from_bytes && self.bytes.is_empty()
    }

    /// Returns any number.
    pub fn any(&mut self) -> u64 {
        self.take(size_of::<u64>()).unwrap_or_else(|| self.random.any())
    }

    /// Returns a number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        let width = (u64::BITS - (bound - 1).leading_zeros()).div_ceil(u8::BITS) as usize;
        self.take(width).map_or_else(|| self.random.below(bound), |number| number % bound)
    }

    /// Returns an index into `len` elements, of which there is at least one.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns true once in `times` decisions, on average.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Returns one of `choices`, of which there is at least one.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// Takes a number of up to `width` bytes, the highest first; `None` if no bytes are left.
    fn take(&mut self, width: usize) -> Option<u64> {
        if self.bytes.is_empty() {
            return None;
        }
        let (number, rest) = self.bytes.split_at(width.min(self.bytes.len()));
        self.bytes = rest;
        Some(number.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b6_a_seed_gives_the_numbers_of_the_shared_generator() {
        let (mut source, mut random) = (RandomSource::from_seed(7), Random::new(7));
        for bound in 1..100 {
            assert_eq!((source.any(), source.below(bound)), (random.any(), random.below(bound)));
        }
        assert!(!source.is_exhausted());
    }

    #[test]
    fn b6_bytes_are_the_first_decisions_and_fixed_ones_follow() {
        let mut source = RandomSource::from_bytes(&[3, 1, 2, 0, 9]);
        assert_eq!((source.below(1), source.below(256), source.below(257), source.one_in(2)), (0, 3, 1, true));
        assert!(!source.is_exhausted());
        assert_eq!((source.any(), source.is_exhausted()), (9, true));
        assert_eq!([source.any(), source.below(10)], {
            let mut random = Random::new(AFTER_BYTES);
            [random.any(), random.below(10)]
        });
    }
}
