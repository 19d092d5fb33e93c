//! An opened slot: its items in the order in which they will fire.
//!
//! The items stay where they are, in the blocks of the slot's list, and the places of their entries stay the same. Only
//! their positions are sorted. Items fire in the order of the positions; an item that was cancelled meanwhile is a hole.
//!
//! ```text
//!     order   | 8390 | 131 | 8400 | ...                     positions; read from `next`
//!                 |     |      |
//!     blocks  [ ..b.......c.. ] [ ............ ] [ ....a... ]       unchanged
//! ```
//!
//! So no block of the run is freed before the last item has gone.
//!
//! A list whose items are in order already needs no positions: the run reads it from its front.

use alloc::vec::Vec;

use super::{CROWDED, DIGIT, ITEM_BITS, levels::WheelSlot, sort::Sorter};
use crate::blocks::{BLOCK, BlockItem, Blocks, List, ListOwner};
use crate::place::Place;
use crate::raw::Entries;
use crate::violation::{Violation, ensure};

/// The items of an opened slot, in firing order.
#[derive(Clone)]
pub(super) struct SortedRun {
    list: List,
    /// The position of each item in firing order; empty if the list is in order.
    order: Vec<u32>,
    /// The index in `order` of the first item that has not fired; never that of a hole.
    next: usize,
    /// The number of items left, if there are positions.
    live: u32,
}

impl SortedRun {
    pub(super) const EMPTY: SortedRun = SortedRun { list: List::EMPTY, order: Vec::new(), next: 0, live: 0 };

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Opens a list that is in order.
    pub(super) fn open_in_order<Id>(&mut self, blocks: &mut Blocks<u64, Id>, list: List, owner: ListOwner) {
        blocks.set_owner(&list, owner);
        self.list = list;
    }

    /// Opens a list that is not crowded: sorts its items by deadline, equal ones in their order.
    ///
    /// It sorts one word for each item: the deadline within the slot, and below that its number in the list.
    pub(super) fn open<Id>(
        &mut self,
        blocks: &mut Blocks<u64, Id>,
        list: List,
        owner: ListOwner,
        slot: WheelSlot,
        sorter: &mut Sorter,
    ) {
        debug_assert!(list.blocks() <= CROWDED / BLOCK);
        blocks.set_owner(&list, owner);
        self.order = sorter.spare();
        let (words, table) = sorter.begin();
        table.extend(blocks.numbers(&list));
        for (&number, ordinal) in table.iter().zip(0..) {
            let (first, items) = blocks.block(&list, number);
            let numbered = items.iter().zip(u64::from(ordinal * BLOCK + first)..);
            let word = |(item, number): (&BlockItem<u64, Id>, u64)| ((item.key - slot.start) << ITEM_BITS) | number;
            if blocks.live(number) as usize == items.len() {
                words.extend(numbered.map(word));
            } else {
                words.extend(numbered.filter(|(item, _)| item.id.is_some()).map(word));
            }
        }
        let (sorted, table) = sorter.sort(ITEM_BITS, DIGIT * slot.height as u32);
        self.order.extend(sorted.iter().map(|word| {
            let number = *word as u32 % CROWDED;
            table[(number / BLOCK) as usize] * BLOCK + number % BLOCK
        }));
        (self.list, self.next, self.live) = (list, 0, self.order.len() as u32);
    }

    /// Returns the deadline of the first item.
    #[inline]
    pub(super) fn deadline<Id>(&self, blocks: &Blocks<u64, Id>) -> Option<u64> {
        match self.order.get(self.next) {
            Some(&position) => Some(blocks.key(position)),
            None => blocks.front_key(&self.list),
        }
    }

    /// Returns the first item.
    pub(super) fn first<'a, Id>(&self, blocks: &'a Blocks<u64, Id>) -> Option<(u64, &'a Id)> {
        match self.order.get(self.next) {
            Some(&position) => blocks.id(position).map(|id| (blocks.key(position), id)),
            None => blocks.iter(&self.list).next(),
        }
    }

    /// Takes out the first item if it is due before `bound`.
    #[inline(always)]
    pub(super) fn pop<Id>(&mut self, blocks: &mut Blocks<u64, Id>, bound: u64) -> Option<(u64, Id)> {
        let Some(&position) = self.order.get(self.next) else {
            return blocks.pop_front_if(&mut self.list, |deadline| deadline < bound);
        };
        let deadline = blocks.key(position);
        if deadline >= bound {
            return None;
        }
        let id = blocks.take(position)?;
        self.note_taken(blocks);
        Some((deadline, id))
    }

    /// Takes out the item at `position`.
    pub(super) fn remove<Id, E: Entries<Id>>(
        &mut self,
        blocks: &mut Blocks<u64, Id>,
        position: u32,
        entries: &mut E,
    ) -> (u64, Id) {
        if self.order.is_empty() {
            return blocks.remove(&mut self.list, position, entries);
        }
        let deadline = blocks.key(position);
        let Some(id) = blocks.take(position) else { unreachable!("an entry was removed twice") };
        self.note_taken(blocks);
        (deadline, id)
    }

    /// Updates the count and `next` after an item was taken; frees the blocks after the last one.
    #[inline]
    fn note_taken<Id>(&mut self, blocks: &mut Blocks<u64, Id>) {
        self.live -= 1;
        if self.live == 0 {
            self.order.clear();
            return blocks.free(&mut self.list);
        }
        while self.order.get(self.next).is_some_and(|&position| blocks.is_hole(position)) {
            self.next += 1;
        }
    }

    /// Gives the buffer of a run that has ended to the sorter.
    #[inline]
    pub(super) fn close(&mut self, sorter: &mut Sorter) {
        if self.order.capacity() > 0 {
            sorter.recycle(core::mem::take(&mut self.order));
        }
    }

    /// Verifies the run and returns how many items and how many blocks it holds.
    pub(super) fn check<Id, E: Entries<Id>>(
        &self,
        blocks: &Blocks<u64, Id>,
        owner: ListOwner,
        entries: &E,
    ) -> Result<(usize, u32), Violation> {
        if self.order.is_empty() {
            let deadlines = blocks.iter(&self.list).map(|(deadline, _)| deadline);
            ensure!(deadlines.is_sorted(), "wheel: a run is not in order");
            return Ok((blocks.check(&self.list, owner, entries)?, self.list.blocks()));
        }
        let deadlines = self.order.iter().map(|&position| blocks.key(position));
        ensure!(deadlines.is_sorted(), "wheel: a run is not in order");
        let mut live = 0;
        for (index, &position) in self.order.iter().enumerate() {
            ensure!(blocks.owner(position) == owner, "wheel: a block of a run has the wrong owner");
            if let Some(id) = blocks.id(position) {
                live += 1;
                ensure!(index >= self.next, "wheel: a run has gone past an item that has not fired");
                ensure!(entries.place(id) == Place::main(position), "wheel: an entry in a run has another place");
            } else {
                ensure!(index != self.next, "wheel: a run is at a hole");
            }
        }
        ensure!(live == self.live, "wheel: a run's count is not that of its items");
        ensure!(live as usize == blocks.iter(&self.list).count(), "wheel: an item of a run has no position");
        Ok((live as usize, self.list.blocks()))
    }

    /// Iterates over the deadlines of the items, in the order of the list.
    pub(super) fn deadlines<Id>(&self, blocks: &Blocks<u64, Id>) -> impl Iterator<Item = u64> {
        blocks.iter(&self.list).map(|(deadline, _)| deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p7_a_run_that_has_ended_leaves_its_buffer_to_the_next() {
        const COUNT: u64 = 8;
        let (mut blocks, mut list, mut sorter) = (Blocks::new(), List::EMPTY, Sorter::new());
        for deadline in (0..COUNT).rev() {
            blocks.push(&mut list, ListOwner(7), deadline, deadline);
        }
        let mut run = SortedRun::EMPTY;
        run.open(&mut blocks, list, ListOwner(8), WheelSlot { owner: ListOwner(7), height: 1, start: 0 }, &mut sorter);
        for deadline in 0..COUNT {
            assert_eq!(run.pop(&mut blocks, COUNT), Some((deadline, deadline)));
        }
        assert!(run.is_empty());
        run.close(&mut sorter);
        assert!(sorter.spare().capacity() as u64 >= COUNT);
    }
}
