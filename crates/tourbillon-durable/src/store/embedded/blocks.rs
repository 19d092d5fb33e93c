//! Bytes of many keys and values in one allocation.
//!
//! The engine keeps every key and value in memory until it has written a table. With an allocation for each of them, the writer spends as
//! much time in the allocator as in the engine, and the engine's thread, which frees them, holds the allocator's locks meanwhile. What is
//! written one after the other is freed together, so it shares blocks.

use bytes::{Bytes, BytesMut};

/// The bytes of a block.
const BLOCK: usize = 64 << 10;

/// Copies bytes into blocks that many slices share. A block is free when the last of its slices is dropped.
#[derive(Debug, Default)]
pub(super) struct SharedBlocks {
    /// Empty, with the room that is left in the newest block.
    room: BytesMut,
}

impl SharedBlocks {
    /// Returns a copy of `bytes` in a block; in an allocation of its own if that would leave much of a block unused.
    pub(super) fn copy(&mut self, bytes: &[u8]) -> Bytes {
        if bytes.len() > BLOCK / 4 {
            return Bytes::copy_from_slice(bytes);
        }
        if self.room.capacity() < bytes.len() {
            self.room = BytesMut::with_capacity(BLOCK);
        }
        self.room.extend_from_slice(bytes);
        self.room.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_keep_their_bytes_when_blocks_are_full_or_dropped() {
        let mut blocks = SharedBlocks::default();
        let bytes = |number: usize| vec![number as u8; number * 37 % (BLOCK / 3)];
        let mut copies: Vec<(usize, Bytes)> = (0..2_000).map(|number| (number, blocks.copy(&bytes(number)))).collect();
        copies.retain(|(number, _)| number % 3 == 0);
        drop(blocks);
        assert!(copies.iter().all(|(number, copy)| *copy == bytes(*number)));
    }

    #[test]
    fn copies_that_follow_one_another_share_a_block() {
        let mut blocks = SharedBlocks::default();
        let (first, second) = (blocks.copy(&[1; 100]), blocks.copy(&[2; 100]));
        assert_eq!(first.as_ptr().wrapping_add(100), second.as_ptr());
    }
}
