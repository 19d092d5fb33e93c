//! Random numbers from a seed (splitmix64), the same on every machine.

use std::time::Duration;

/// A stream of random numbers.
///
/// ```
/// use tourbillon_tools::Random;
///
/// let (mut one, mut other) = (Random::new(7), Random::new(7));
/// assert_eq!(one.any(), other.any());
/// assert!(one.below(10) < 10);
/// ```
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns the stream of a seed.
    #[must_use]
    #[inline]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns the stream of one part of a run on one of its threads: parts do not affect each other's numbers.
    #[must_use]
    pub fn of(seed: u64, part: &str, thread: usize) -> Random {
        let mut random = Random(seed ^ (thread as u64).wrapping_mul(0xd6e8_feb8_6659_fd93));
        for byte in part.bytes() {
            random.0 = random.any() ^ u64::from(byte);
        }
        random
    }

    /// Returns any number.
    #[inline]
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, which is not zero.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        self.any() % bound
    }

    /// Returns an index into `len` elements, of which there is at least one.
    #[inline]
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns true once in `times` calls, on average.
    #[inline]
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Returns one of `things`, of which there is at least one.
    #[inline]
    pub fn one_of<T: Copy>(&mut self, things: &[T]) -> T {
        things[self.index(things.len())]
    }

    /// Returns a duration shorter than `end`, which is not zero, and than 584 years.
    #[inline]
    pub fn duration(&mut self, end: Duration) -> Duration {
        Duration::from_nanos(self.below(u64::try_from(end.as_nanos()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seeds that are written down must keep their meaning.
    #[test]
    fn a_seed_gives_the_numbers_that_it_has_always_given() {
        let mut random = Random::new(1_234_567);
        let first = [random.any(), random.any(), random.any()];
        // From the description of splitmix64.
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
        let mut part = Random::of(7, "sleeps", 3);
        assert_eq!([part.any(), part.any()], [3_399_290_584_579_514_755, 18_349_722_681_674_591_517]);
    }

    #[test]
    fn a_seed_gives_each_part_its_own_numbers_and_always_the_same() {
        let numbers = |seed, part, thread| {
            let mut random = Random::of(seed, part, thread);
            [random.any(), random.any()]
        };
        assert_eq!(numbers(7, "sleeps", 0), numbers(7, "sleeps", 0));
        assert_ne!(numbers(7, "sleeps", 0), numbers(7, "sleeps", 1));
        assert_ne!(numbers(7, "sleeps", 0), numbers(7, "timers", 0));
        assert_ne!(numbers(7, "sleeps", 0), numbers(8, "sleeps", 0));
    }

    #[test]
    fn numbers_are_within_their_bounds() {
        let mut random = Random::new(1);
        let things = ["a", "b", "c"];
        for bound in 1..1_000 {
            assert!(random.below(bound) < bound && random.index(bound as usize) < bound as usize);
            assert!(random.duration(Duration::from_nanos(bound)) < Duration::from_nanos(bound));
            assert!(things.contains(&random.one_of(&things)) && random.one_in(1));
        }
        assert!(random.duration(Duration::MAX) < Duration::from_nanos(u64::MAX));
    }
}
