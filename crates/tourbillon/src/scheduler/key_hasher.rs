//! Hashes keys under random numbers of its own: an adversary that chooses the keys of jobs cannot make them collide.
//!
//! - A key that is one number of at most eight bytes: multiplied and added to modulo 2^128, which is strongly universal. Any two
//!   numbers collide with the same small probability, whatever they are. A second multiplication with a secret number then hides the
//!   linear structure, so that collisions that an adversary has somehow noticed do not tell the coefficients.
//! - Any other key: SipHash-1-3, the function of the standard library's maps. It takes four times as long for a number.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Makes hashers under the same random numbers.
#[derive(Clone, Copy)]
pub(super) struct KeyHashBuilder {
    /// The keys of SipHash.
    keys: [u64; 2],
    /// By these a number is multiplied, and to the product is added.
    coefficients: [u128; 2],
    /// By this odd number the result is multiplied.
    secret: u64,
}

/// A hash under way.
pub(super) struct KeyHasher {
    builder: KeyHashBuilder,
    written: Written,
}

/// What was written to a hasher.
enum Written {
    Nothing,
    /// One number, and how many bytes it has.
    Number(u64, usize),
    Bytes(SipHasher),
}

/// A SipHash-1-3 under way.
struct SipHasher {
    v: [u64; 4],
    /// The bytes that do not fill a word yet, from the lowest on.
    tail: u64,
    /// How many bits `tail` has: less than 64.
    tail_bits: u32,
    /// How many bytes were written. Only the lowest eight bits count.
    length: usize,
}

impl KeyHashBuilder {
    pub(super) fn with_random_keys() -> KeyHashBuilder {
        let random = RandomState::new();
        let wide = |n: u64| u128::from(random.hash_one(n)) << 64 | u128::from(random.hash_one(n + 1));
        KeyHashBuilder {
            keys: [random.hash_one(0), random.hash_one(1)],
            coefficients: [wide(2), wide(4)],
            secret: random.hash_one(6) | 1,
        }
    }

    #[inline]
    fn hash_number(&self, number: u64) -> u64 {
        let [factor, summand] = self.coefficients;
        let linear = (factor.wrapping_mul(number.into()).wrapping_add(summand) >> 64) as u64;
        let product = u128::from(linear) * u128::from(self.secret);
        (product >> 64) as u64 ^ product as u64
    }

    fn sip_hasher(&self) -> SipHasher {
        let [k0, k1] = self.keys;
        let v = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        SipHasher { v, tail: 0, tail_bits: 0, length: 0 }
    }
}

impl BuildHasher for KeyHashBuilder {
    type Hasher = KeyHasher;

    #[inline]
    fn build_hasher(&self) -> KeyHasher {
        KeyHasher { builder: *self, written: Written::Nothing }
    }
}

impl KeyHasher {
    /// Adds a number of `bytes` bytes, one to eight, whose other bytes are zero.
    #[inline(always)]
    fn add(&mut self, number: u64, bytes: usize) {
        match self.written {
            Written::Nothing => self.written = Written::Number(number, bytes),
            _ => self.bytes().add(number, bytes),
        }
    }

    /// Returns the hasher of a key that is not one number, to which all was written so far.
    fn bytes(&mut self) -> &mut SipHasher {
        if !matches!(self.written, Written::Bytes(_)) {
            let mut sip = self.builder.sip_hasher();
            if let Written::Number(number, bytes) = self.written {
                sip.add(number, bytes);
            }
            self.written = Written::Bytes(sip);
        }
        match &mut self.written {
            Written::Bytes(sip) => sip,
            _ => unreachable!("it was written just now"),
        }
    }
}

impl SipHasher {
    /// Adds the lowest `bytes` bytes of `value`, one to eight, whose other bytes are zero.
    #[inline(always)]
    fn add(&mut self, value: u64, bytes: usize) {
        let bits = 8 * bytes as u32;
        self.length = self.length.wrapping_add(bytes);
        let word = self.tail | value << self.tail_bits;
        if self.tail_bits + bits < 64 {
            (self.tail, self.tail_bits) = (word, self.tail_bits + bits);
            return;
        }
        self.compress(word);
        // In two shifts, because with an empty tail nothing of `value` is left, and a shift by 64 is none.
        self.tail = value >> 1 >> (63 - self.tail_bits);
        self.tail_bits = self.tail_bits + bits - 64;
    }

    #[inline(always)]
    fn compress(&mut self, word: u64) {
        self.v[3] ^= word;
        self.round();
        self.v[0] ^= word;
    }

    #[inline(always)]
    fn round(&mut self) {
        let [mut v0, mut v1, mut v2, mut v3] = self.v;
        v0 = v0.wrapping_add(v1);
        v2 = v2.wrapping_add(v3);
        v1 = v1.rotate_left(13) ^ v0;
        v3 = v3.rotate_left(16) ^ v2;
        v0 = v0.rotate_left(32);
        v2 = v2.wrapping_add(v1);
        v0 = v0.wrapping_add(v3);
        v1 = v1.rotate_left(17) ^ v2;
        v3 = v3.rotate_left(21) ^ v0;
        v2 = v2.rotate_left(32);
        self.v = [v0, v1, v2, v3];
    }

    fn finish(&self) -> u64 {
        let mut end = SipHasher { v: self.v, tail: 0, tail_bits: 0, length: 0 };
        end.compress((self.length as u64) << 56 | self.tail);
        end.v[2] ^= 0xff;
        (0..3).for_each(|_| end.round());
        end.v[0] ^ end.v[1] ^ end.v[2] ^ end.v[3]
    }
}

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        let sip = self.bytes();
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            sip.add(u64::from_le_bytes(word), part.len());
        }
    }

    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.add(value.into(), 1);
    }

    #[inline]
    fn write_u16(&mut self, value: u16) {
        self.add(value.into(), 2);
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.add(value.into(), 4);
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.add(value, 8);
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.add(value as u64, size_of::<usize>());
    }

    #[inline]
    fn finish(&self) -> u64 {
        match &self.written {
            Written::Nothing => self.builder.sip_hasher().finish(),
            Written::Number(number, _) => self.builder.hash_number(*number),
            Written::Bytes(sip) => sip.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash of the bytes 0, 1, 2, ... of each length, under the keys of the reference implementation: the bytes 0 to 15.
    const REFERENCE: [(usize, u64); 8] = [
        (0, 0xabac_0158_050f_c4dc),
        (1, 0xc9f4_9bf3_7d57_ca93),
        (7, 0xd392_7d98_9bb1_1140),
        (8, 0x3690_9511_8d29_9a8e),
        (9, 0x25a4_8eb3_6c06_3de4),
        (15, 0xd320_d86d_2a51_9956),
        (16, 0xcc4f_dd1a_7d90_8b66),
        (63, 0x9d19_9062_b7bb_b3a8),
    ];

    const BUILDER: KeyHashBuilder = KeyHashBuilder {
        keys: [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908],
        coefficients: [0x1234_5678_9abc_def0_0fed_cba9_8765_4321, 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210],
        secret: 0x9e37_79b9_7f4a_7c15,
    };

    fn hasher() -> KeyHasher {
        BUILDER.build_hasher()
    }

    #[test]
    fn the_hash_is_that_of_the_reference_implementation() {
        let bytes: Vec<u8> = (0..64).collect();
        for (length, expected) in REFERENCE {
            let mut hasher = hasher();
            hasher.write(&bytes[..length]);
            assert_eq!(hasher.finish(), expected, "{length} bytes");
        }
    }

    #[test]
    fn it_does_not_matter_in_which_parts_bytes_are_written() {
        let bytes: Vec<u8> = (0..40).collect();
        let mut whole = hasher();
        whole.write(&bytes);
        for first in 0..9 {
            let mut parts = hasher();
            parts.write(&bytes[..first]);
            let rest = &bytes[first..];
            parts.write_u8(rest[0]);
            parts.write_u16(u16::from_le_bytes([rest[1], rest[2]]));
            parts.write_u32(u32::from_le_bytes(rest[3..7].try_into().unwrap()));
            parts.write_u64(u64::from_le_bytes(rest[7..15].try_into().unwrap()));
            parts.write(&rest[15..]);
            assert_eq!(parts.finish(), whole.finish(), "{first} bytes before");
        }
    }

    #[test]
    fn a_number_and_then_more_is_hashed_as_all_its_bytes() {
        let bytes: Vec<u8> = (0..9).collect();
        let (mut whole, mut parts) = (hasher(), hasher());
        whole.write(&bytes);
        parts.write_u64(u64::from_le_bytes(bytes[..8].try_into().unwrap()));
        parts.write_u8(bytes[8]);
        assert_eq!(parts.finish(), whole.finish());
    }

    /// Sets of numbers that weak hash functions map to few values: multiples of powers of two, and numbers with few bits.
    #[test]
    fn numbers_of_any_pattern_are_spread_over_all_values_of_all_bits() {
        const NUMBERS: u64 = 1 << 12;
        let patterns: [fn(u64) -> u64; 6] =
            [|n| n, |n| n << 20, |n| n << 52, |n| (n * 3) << 30, |n| n * n, |n| n.rotate_right(6)];
        for (pattern, number) in patterns.iter().enumerate() {
            for shift in [0, 18, 24, 52] {
                let mut counts = [0_u32; 64];
                (0..NUMBERS).for_each(|n| counts[(BUILDER.hash_one(number(n)) >> shift) as usize % 64] += 1);
                // 64 are expected in each place; with a standard deviation of 8, 64 more would be a fault.
                assert!(counts.iter().all(|count| (1..128).contains(count)), "pattern {pattern}, {shift}: {counts:?}");
            }
        }
    }

    #[test]
    fn each_builder_has_other_keys() {
        let hashes = |builder: KeyHashBuilder| (builder.hash_one(7_u64), builder.hash_one("seven"));
        let (one, other) = (hashes(KeyHashBuilder::with_random_keys()), hashes(KeyHashBuilder::with_random_keys()));
        assert!(one.0 != other.0 && one.1 != other.1);
    }
}
