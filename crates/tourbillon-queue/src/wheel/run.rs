//! An opened slot: its items in the order in which they will fire.
//!
//! The items stay where they are, in the blocks of the slot's list, and their entries are not told of anything. What
//! is sorted is their positions. Firing follows those; an item that has been cancelled meanwhile is a hole.
//!
//! ```text
//!     order   | 8390 | 131 | 8400 | ...                     positions; read from `next`
//!                 |     |      |
//!     blocks  [ ..b.......c.. ] [ ............ ] [ ....a... ]       as they were
//! ```
//!
//! So no block of it is freed before the last item has gone.
//!
//! A list whose items are in order already needs no positions: it is read from its front.

use alloc::vec::Vec;

use super::{CROWDED, DIGIT, ITEM_BITS, levels::Slot, sort::Sorter};
use crate::blocks::{BLOCK, Blocks, Item, List, Owner};
use crate::raw::{Entries, Place, Violation, ensure};

#[derive(Clone)]
pub(super) struct Run {
    list: List,
    /// The position of each item, or nothing if the list is in order.
    order: Vec<u32>,
    /// The first of them that has not fired; it is not that of a hole.
    next: usize,
    /// How many items are left, if there are positions.
    live: u32,
}

impl Run {
    pub(super) const EMPTY: Run = Run { list: List::EMPTY, order: Vec::new(), next: 0, live: 0 };

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Opens a list that is in order.
    pub(super) fn open_in_order<Id>(&mut self, blocks: &mut Blocks<u64, Id>, list: List, owner: Owner) {
        blocks.set_owner(&list, owner);
        self.list = list;
    }

    /// Opens a list that is not crowded: sorts its items by deadline, equal ones in their order.
    ///
    /// What is sorted first is one word for each: its deadline within the slot, and behind that its number in the list.
    pub(super) fn open<Id>(
        &mut self,
        blocks: &mut Blocks<u64, Id>,
        list: List,
        owner: Owner,
        slot: Slot,
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
            let word = |(item, number): (&Item<u64, Id>, u64)| ((item.key - slot.start) << ITEM_BITS) | number;
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

    /// The deadline of the first item.
    #[inline]
    pub(super) fn deadline<Id>(&self, blocks: &Blocks<u64, Id>) -> Option<u64> {
        match self.order.get(self.next) {
            Some(&position) => Some(blocks.key(position)),
            None => blocks.front_key(&self.list),
        }
    }

    /// The first item.
    pub(super) fn first<'a, Id>(&self, blocks: &'a Blocks<u64, Id>) -> Option<(u64, &'a Id)> {
        match self.order.get(self.next) {
            Some(&position) => blocks.id(position).map(|id| (blocks.key(position), id)),
            None => blocks.iter(&self.list).next(),
        }
    }

    /// Takes the first item if it is due before `bound`.
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
        self.taken(blocks);
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
        self.taken(blocks);
        (deadline, id)
    }

    /// Accounts for an item that has just been taken.
    #[inline]
    fn taken<Id>(&mut self, blocks: &mut Blocks<u64, Id>) {
        self.live -= 1;
        if self.live == 0 {
            self.order.clear();
            return blocks.free(&mut self.list);
        }
        while self.order.get(self.next).is_some_and(|&position| blocks.is_hole(position)) {
            self.next += 1;
        }
    }

    /// Hands over the memory of a run that has ended.
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
        owner: Owner,
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
            ensure!(blocks.owner(position) == owner, "wheel: a block of a run does not know its owner");
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

    /// The deadlines of its items, in no order.
    pub(super) fn deadlines<Id>(&self, blocks: &Blocks<u64, Id>) -> impl Iterator<Item = u64> {
        blocks.iter(&self.list).map(|(deadline, _)| deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p7_a_run_that_has_ended_leaves_its_room_to_the_next() {
        const COUNT: u64 = 8;
        let (mut blocks, mut list, mut sorter) = (Blocks::new(), List::EMPTY, Sorter::new());
        for deadline in (0..COUNT).rev() {
            blocks.push(&mut list, Owner(7), deadline, deadline);
        }
        let mut run = Run::EMPTY;
        run.open(&mut blocks, list, Owner(8), Slot { owner: Owner(7), height: 1, start: 0 }, &mut sorter);
        for deadline in 0..COUNT {
            assert_eq!(run.pop(&mut blocks, COUNT), Some((deadline, deadline)));
        }
        assert!(run.is_empty());
        run.close(&mut sorter);
        assert!(sorter.spare().capacity() as u64 >= COUNT);
    }
}
