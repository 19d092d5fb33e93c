//! The random numbers of a scheduler, for jitter.

use std::hash::{BuildHasher, RandomState};

use tourbillon_queue::Span;

/// A generator of random numbers (splitmix64). The same seed gives the same numbers.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns a generator whose seed differs each time.
    pub(super) fn seeded_at_random() -> Random {
        Random(RandomState::new().hash_one(0))
    }

    /// Returns a number from zero to less than one.
    pub(super) fn fraction(&mut self) -> f64 {
        // A double holds 53 bits exactly.
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a span from zero to less than `most`, or zero if `most` is zero.
    pub(super) fn span_below(&mut self, most: Span) -> Span {
        let product = u128::from(self.next()) * u128::from(most.as_nanos());
        Span::from_nanos((product >> 64) as u64)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
