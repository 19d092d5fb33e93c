//! Random numbers for tests that can be repeated.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::time::Duration;

/// Random numbers from a seed (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    /// Returns a duration less than `bound`.
    pub(crate) fn duration(&mut self, bound: Duration) -> Duration {
        Duration::from_nanos(self.below(bound.as_nanos() as u64))
    }

    /// Returns a number of milliseconds less than a random one of `bounds`.
    pub(crate) fn millis<const N: usize>(&mut self, bounds: [u64; N]) -> Duration {
        let bound = self.one_of(bounds);
        Duration::from_millis(self.below(bound))
    }

    pub(crate) fn one_of<T: Copy, const N: usize>(&mut self, things: [T; N]) -> T {
        things[self.below(N as u64) as usize]
    }
}

/// Returns the variable `TOURBILLON_SEED` if it is set, else a new seed. Prints it, so that a failing test shows it.
pub(crate) fn seed() -> u64 {
    let seed = match std::env::var("TOURBILLON_SEED") {
        Ok(text) => text.parse().expect("TOURBILLON_SEED is a number"),
        Err(_) => std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64),
    };
    println!("to repeat this: TOURBILLON_SEED={seed}");
    seed
}
