//! Hashes keys with SipHash-1-3, the function of the standard library's maps, under random keys of its own: nobody who chooses the keys of
//! jobs can make them collide.
//!
//! The standard library's hasher copies each number to a buffer of bytes first, and that code is seldom inlined. Here a number of eight
//! bytes goes straight into the state.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Makes hashers under one pair of random keys.
pub(super) struct KeyHashBuilder {
    keys: [u64; 2],
}

/// A hash under way.
pub(super) struct KeyHasher {
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
        KeyHashBuilder { keys: [random.hash_one(0), random.hash_one(1)] }
    }
}

impl BuildHasher for KeyHashBuilder {
    type Hasher = KeyHasher;

    #[inline]
    fn build_hasher(&self) -> KeyHasher {
        let [k0, k1] = self.keys;
        let v = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        KeyHasher { v, tail: 0, tail_bits: 0, length: 0 }
    }
}

impl KeyHasher {
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
}

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.add(u64::from_le_bytes(word), part.len());
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
        let mut end = KeyHasher { v: self.v, tail: 0, tail_bits: 0, length: 0 };
        end.compress((self.length as u64) << 56 | self.tail);
        end.v[2] ^= 0xff;
        (0..3).for_each(|_| end.round());
        end.v[0] ^ end.v[1] ^ end.v[2] ^ end.v[3]
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

    fn hasher() -> KeyHasher {
        KeyHashBuilder { keys: [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908] }.build_hasher()
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
    fn each_builder_has_other_keys() {
        let hash = |builder: KeyHashBuilder| builder.hash_one(7_u64);
        assert_ne!(hash(KeyHashBuilder::with_random_keys()), hash(KeyHashBuilder::with_random_keys()));
    }
}
