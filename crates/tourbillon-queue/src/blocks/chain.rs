//! The chain of a list's blocks, and the list of free blocks.

use super::{BLOCK, Block, BlockItem, Blocks, List, ListOwner, NONE};
use crate::place::Place;

impl<K: Copy, Id> Blocks<K, Id> {
    /// Adds an empty block to the end of a list and returns its first position. `filler` is any key, for the holes of a
    /// new block.
    #[inline(never)]
    pub(super) fn extend(&mut self, list: &mut List, owner: ListOwner, filler: K) -> u32 {
        let tail = list.tail();
        let block = Block { prev: tail, next: NONE, owner, live: 0 };
        let number = if let Some(free) = self.blocks.get_mut(self.free as usize) {
            let number = self.free;
            self.free = free.next;
            *free = block;
            number
        } else {
            let number = self.blocks.len() as u32;
            assert!(number < Place::INDICES / BLOCK, "a timer queue holds at most {} timers", Place::INDICES);
            self.blocks.push(block);
            self.items.resize_with(self.blocks.len() * BLOCK as usize, || BlockItem { key: filler, id: None });
            number
        };
        match self.blocks.get_mut(tail as usize) {
            Some(tail) => tail.next = number,
            None => list.front = number * BLOCK,
        }
        list.blocks += 1;
        number * BLOCK
    }

    /// Removes a block from its list and frees it.
    #[inline(always)]
    pub(super) fn drop_block(&mut self, list: &mut List, number: u32) {
        if list.blocks == 1 {
            *list = List::EMPTY;
            self.release(number);
        } else {
            self.unlink(list, number);
        }
    }

    /// Removes a block from a list that has other blocks, and frees it. If the block was the first or the last of the list, this sets
    /// where the list now begins or ends.
    #[inline(never)]
    fn unlink(&mut self, list: &mut List, number: u32) {
        let Block { prev, next, .. } = self.blocks[number as usize];
        if prev == NONE {
            list.front = self.next_item(next * BLOCK);
        } else if next == NONE {
            list.end = self.end_before((prev + 1) * BLOCK);
        }
        self.detach(list, number);
    }

    /// Links the neighbours of a block with each other and frees the block.
    pub(super) fn detach(&mut self, list: &mut List, number: u32) {
        let Block { prev, next, .. } = self.blocks[number as usize];
        if let Some(block) = self.blocks.get_mut(prev as usize) {
            block.next = next;
        }
        if let Some(block) = self.blocks.get_mut(next as usize) {
            block.prev = prev;
        }
        list.blocks -= 1;
        self.release(number);
    }

    /// Puts a block on the free list.
    #[inline]
    fn release(&mut self, number: u32) {
        self.blocks[number as usize].next = self.free;
        self.free = number;
    }
}
