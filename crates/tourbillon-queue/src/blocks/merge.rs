//! Merging blocks that removals have made sparse.

use super::{BLOCK, Block, BlockItem, Blocks, List, MERGE_LIMIT};
use crate::place::Place;
use crate::raw::Entries;

impl<K: Copy, Id> Blocks<K, Id> {
    /// Merges a sparse block with a neighbour if both fit into half a block.
    #[inline(never)]
    pub(super) fn merge_sparse<E: Entries<Id>>(&mut self, list: &mut List, number: u32, entries: &mut E) {
        let Block { prev, next, live, .. } = self.blocks[number as usize];
        let fits = |other: u32| self.blocks.get(other as usize).is_some_and(|block| block.live + live <= MERGE_LIMIT);
        if fits(next) {
            self.merge(list, number, next, entries);
        } else if fits(prev) {
            self.merge(list, prev, number, entries);
        }
    }

    /// Moves the items of a block and of the `next` one to the start of the first, and frees the second.
    #[cold]
    fn merge<E: Entries<Id>>(&mut self, list: &mut List, number: u32, next: u32, entries: &mut E) {
        let start = number * BLOCK;
        let mut end = start;
        for source in [self.span(list, number), self.span(list, next)] {
            for position in source {
                let item = &mut self.items[position as usize];
                let key = item.key;
                if let Some(id) = item.id.take() {
                    entries.set_place(&id, Place::main(end));
                    // `end` never passes the position being read: the items of this block only move down.
                    self.items[end as usize] = BlockItem { key, id: Some(id) };
                    end += 1;
                }
            }
        }
        self.blocks[number as usize].live = end - start;
        if list.head() == number {
            list.front = start;
        }
        if list.tail() == next {
            list.end = end;
        }
        self.detach(list, next);
    }

    /// Merges all neighbours that fit into half a block.
    pub(super) fn merge_all<E: Entries<Id>>(&mut self, list: &mut List, entries: &mut E) {
        let mut number = list.head();
        while let Some(&Block { next, live, .. }) = self.blocks.get(number as usize) {
            match self.blocks.get(next as usize) {
                Some(block) if block.live + live <= MERGE_LIMIT => self.merge(list, number, next, entries),
                _ => number = next,
            }
        }
    }
}
