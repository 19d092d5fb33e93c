//! Random numbers from a seed: the plan of a run.

use std::time::Duration;

/// splitmix64.
#[derive(Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// Of one part of a run: parts do not disturb each other's numbers.
    pub(crate) fn of(seed: u64, part: &str, thread: usize) -> Random {
        let mut random = Random(seed ^ (thread as u64).wrapping_mul(0xd6e8_feb8_6659_fd93));
        for byte in part.bytes() {
            random.0 = random.next() ^ u64::from(byte);
        }
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`, which is not zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Shorter than `end`, which is not zero.
    pub(crate) fn duration(&mut self, end: Duration) -> Duration {
        Duration::from_nanos(self.below(crate::clock::nanos(end)))
    }

    /// Once in `times`, on average.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_each_part_its_own_numbers_and_always_the_same() {
        let numbers = |seed, part, thread| {
            let mut random = Random::of(seed, part, thread);
            [random.next(), random.next()]
        };
        assert_eq!(numbers(7, "sleeps", 0), numbers(7, "sleeps", 0));
        assert_ne!(numbers(7, "sleeps", 0), numbers(7, "sleeps", 1));
        assert_ne!(numbers(7, "sleeps", 0), numbers(7, "timers", 0));
        assert_ne!(numbers(7, "sleeps", 0), numbers(8, "sleeps", 0));
    }
}
