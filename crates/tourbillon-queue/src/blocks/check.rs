//! The invariants of the lists and their blocks.

use super::{BLOCK, Blocks, List, ListOwner, MERGE_LIMIT, NONE};
use crate::place::Place;
use crate::raw::Entries;
use crate::violation::{Violation, ensure};

impl<K: Copy, Id> Blocks<K, Id> {
    /// Verifies one list and returns how many items it holds.
    pub(crate) fn check<E: Entries<Id>>(&self, list: &List, owner: ListOwner, entries: &E) -> Result<usize, Violation> {
        if list.is_empty() {
            ensure!(list.blocks == 0, "blocks: an empty list has blocks");
            return Ok(0);
        }
        let at_ends = [list.front, list.end - 1].map(|position| self.items[position as usize].id.is_some());
        ensure!(at_ends == [true, true], "blocks: a list begins or ends with a hole");
        let (mut prev, mut blocks, mut count) = (NONE, 0, 0);
        for number in self.numbers(list) {
            let block = &self.blocks[number as usize];
            ensure!(block.prev == prev, "blocks: a block is not linked to the one before it");
            ensure!(block.owner == owner, "blocks: a block has the wrong owner");
            let mut live = 0;
            for position in self.span(list, number) {
                if let Some(id) = self.id(position) {
                    live += 1;
                    let place = Place::main(position);
                    ensure!(entries.place(id) == place, "blocks: an entry's place is not where its item is");
                }
            }
            ensure!(live > 0 && block.live == live, "blocks: a block's count is not that of its items");
            if let Some(before) = self.blocks.get(prev as usize)
                && number != list.tail()
                && prev != list.head()
            {
                ensure!(before.live + live > MERGE_LIMIT, "blocks: two sparse neighbours are not merged");
            }
            (prev, blocks, count) = (number, blocks + 1, count + live as usize);
        }
        ensure!(list.tail() == prev && list.blocks == blocks, "blocks: a list has the wrong end or length");
        Ok(count)
    }

    /// Verifies that `used` blocks are in lists and all others are free.
    pub(crate) fn check_free(&self, used: u32) -> Result<(), Violation> {
        let (mut number, mut free) = (self.free, 0);
        while let Some(block) = self.blocks.get(number as usize) {
            (number, free) = (block.next, free + 1);
            ensure!(free <= self.blocks.len(), "blocks: the free list is a cycle");
        }
        ensure!(used as usize + free == self.blocks.len(), "blocks: a block is neither free nor in a list");
        ensure!(self.items.len() == self.blocks.len() * BLOCK as usize, "blocks: not every block has its items");
        Ok(())
    }
}
