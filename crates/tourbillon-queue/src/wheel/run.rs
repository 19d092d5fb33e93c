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

use super::deadlines::{ItemDeadline, WheelEntries, deadline_in, prefetch_block};
use super::{CROWDED, DIGIT, ITEM_BITS, levels::WheelSlot, sort::Sorter};
use crate::blocks::{BLOCK, BlockItem, Blocks, List, ListOwner};
use crate::place::Place;
use crate::raw::Entries;
use crate::violation::{Violation, ensure};

/// The items of an opened slot, in firing order.
#[derive(Clone)]
pub(super) struct SortedRun {
    list: List,
    order: FiringOrder,
    /// The index in `order` of the first item that has not fired; never that of a hole.
    next: usize,
    /// The number of items left, if there are positions.
    live: u32,
    /// The deadline of all items, if there are no positions and the items store no deadlines.
    start: u64,
}

/// The order in which the items of a run fire; empty if that is the order of the list.
#[derive(Clone)]
pub(super) struct FiringOrder {
    /// The position of each item.
    pub(super) positions: Vec<u32>,
    /// The deadline of each item, as it was when the slot was opened; empty if the items store theirs.
    pub(super) deadlines: Vec<u64>,
}

impl FiringOrder {
    pub(super) const EMPTY: FiringOrder = FiringOrder { positions: Vec::new(), deadlines: Vec::new() };

    pub(super) fn clear(&mut self) {
        self.positions.clear();
        self.deadlines.clear();
    }
}

impl SortedRun {
    pub(super) const EMPTY: SortedRun =
        SortedRun { list: List::EMPTY, order: FiringOrder::EMPTY, next: 0, live: 0, start: 0 };

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Opens a list whose items are all due at `start`.
    pub(super) fn open_at_once<Id, D: Copy>(
        &mut self,
        blocks: &mut Blocks<D, Id>,
        list: List,
        owner: ListOwner,
        start: u64,
    ) {
        blocks.set_owner(&list, owner);
        (self.list, self.start) = (list, start);
    }

    /// Opens a list that is not crowded: sorts its items by deadline, equal ones in their order.
    ///
    /// It sorts one word for each item: the deadline within the slot, and below that its number in the list.
    pub(super) fn open<Id, D: ItemDeadline, E: WheelEntries<Id, D>>(
        &mut self,
        blocks: &mut Blocks<D, Id>,
        list: List,
        owner: ListOwner,
        slot: WheelSlot,
        sorter: &mut Sorter,
        entries: &E,
    ) {
        debug_assert!(list.blocks() <= CROWDED / BLOCK);
        blocks.set_owner(&list, owner);
        self.order = sorter.spare();
        let (words, table) = sorter.begin();
        table.extend(blocks.numbers(&list));
        for (index, &number) in table.iter().enumerate() {
            if let Some(&after) = table.get(index + 1) {
                prefetch_block(blocks, &list, after, entries);
            }
            let (first, items) = blocks.block(&list, number);
            let numbered = items.iter().zip(index as u64 * u64::from(BLOCK) + u64::from(first)..);
            let word = |(item, number): (&BlockItem<D, Id>, u64)| {
                // The callers have no hole here, so the deadline is always found.
                let deadline = deadline_of(slot, item, entries).unwrap_or(slot.start);
                ((deadline - slot.start) << ITEM_BITS) | number
            };
            if blocks.live(number) as usize == items.len() {
                words.extend(numbered.map(word));
            } else {
                words.extend(numbered.filter(|(item, _)| item.id.is_some()).map(word));
            }
        }
        let (sorted, table) = sorter.sort(ITEM_BITS, DIGIT * slot.height as u32);
        self.order.positions.extend(sorted.iter().map(|word| {
            let number = *word as u32 % CROWDED;
            table[(number / BLOCK) as usize] * BLOCK + number % BLOCK
        }));
        if !D::IS_STORED {
            self.order.deadlines.extend(sorted.iter().map(|word| slot.start + (word >> ITEM_BITS)));
        }
        (self.list, self.next, self.live) = (list, 0, sorted.len() as u32);
    }

    /// Opens a list of any length, of a slot of any width: sorts its items by deadline, equal ones in their order.
    #[cold]
    pub(super) fn open_by_comparison<Id, D: ItemDeadline, E: WheelEntries<Id, D>>(
        &mut self,
        blocks: &mut Blocks<D, Id>,
        list: List,
        owner: ListOwner,
        slot: WheelSlot,
        sorter: &mut Sorter,
        entries: &E,
    ) {
        blocks.set_owner(&list, owner);
        self.order = sorter.spare();
        let mut items = Vec::new();
        for number in blocks.numbers(&list) {
            let (first, block) = blocks.block(&list, number);
            let placed = block.iter().zip(number * BLOCK + first..).filter(|(item, _)| item.id.is_some());
            items.extend(placed.filter_map(|(item, position)| Some((deadline_of(slot, item, entries)?, position))));
        }
        items.sort_by_key(|(deadline, _)| *deadline);
        self.order.positions.extend(items.iter().map(|(_, position)| position));
        if !D::IS_STORED {
            self.order.deadlines.extend(items.iter().map(|(deadline, _)| deadline));
        }
        (self.list, self.next, self.live) = (list, 0, items.len() as u32);
    }

    /// Returns the deadline of the item that `order` has at `index`, which is at `position`.
    #[inline(always)]
    fn deadline_at<Id, D: ItemDeadline>(&self, blocks: &Blocks<D, Id>, index: usize, position: u32) -> u64 {
        blocks.key(position).stored().unwrap_or_else(|| self.order.deadlines[index])
    }

    /// Returns the deadline of the first item.
    #[inline]
    pub(super) fn deadline<Id, D: ItemDeadline>(&self, blocks: &Blocks<D, Id>) -> Option<u64> {
        match self.order.positions.get(self.next) {
            Some(&position) => Some(self.deadline_at(blocks, self.next, position)),
            None => blocks.front_key(&self.list).map(|stored| stored.stored().unwrap_or(self.start)),
        }
    }

    /// Returns the first item.
    pub(super) fn first<'a, Id>(&self, blocks: &'a Blocks<u64, Id>) -> Option<(u64, &'a Id)> {
        match self.order.positions.get(self.next) {
            Some(&position) => blocks.id(position).map(|id| (blocks.key(position), id)),
            None => blocks.iter(&self.list).next(),
        }
    }

    /// Takes out the first item if it is due before `bound`.
    #[inline(always)]
    pub(super) fn pop<Id, D: ItemDeadline>(&mut self, blocks: &mut Blocks<D, Id>, bound: u64) -> Option<(u64, Id)> {
        let Some(&position) = self.order.positions.get(self.next) else {
            let deadline = |stored: D| stored.stored().unwrap_or(self.start);
            let (stored, id) = blocks.pop_front_if(&mut self.list, |stored| deadline(stored) < bound)?;
            return Some((deadline(stored), id));
        };
        let deadline = self.deadline_at(blocks, self.next, position);
        if deadline >= bound {
            return None;
        }
        let id = blocks.take(position)?;
        self.note_taken(blocks);
        Some((deadline, id))
    }

    /// Takes out the item at `position`.
    pub(super) fn remove<Id, D: ItemDeadline, E: Entries<Id>>(
        &mut self,
        blocks: &mut Blocks<D, Id>,
        position: u32,
        entries: &mut E,
    ) -> (D, Id) {
        if self.order.positions.is_empty() {
            return blocks.remove(&mut self.list, position, entries);
        }
        let stored = blocks.key(position);
        let Some(id) = blocks.take(position) else { unreachable!("an entry was removed twice") };
        self.note_taken(blocks);
        (stored, id)
    }

    /// Updates the count and `next` after an item was taken; frees the blocks after the last one.
    #[inline]
    fn note_taken<Id, D: ItemDeadline>(&mut self, blocks: &mut Blocks<D, Id>) {
        self.live -= 1;
        if self.live == 0 {
            self.order.clear();
            return blocks.free(&mut self.list);
        }
        while self.order.positions.get(self.next).is_some_and(|&position| blocks.is_hole(position)) {
            self.next += 1;
        }
    }

    /// Gives the buffers of a run that has ended to the sorter.
    #[inline]
    pub(super) fn close(&mut self, sorter: &mut Sorter) {
        if self.order.positions.capacity() > 0 {
            sorter.recycle(core::mem::replace(&mut self.order, FiringOrder::EMPTY));
        }
    }

    /// Verifies the run and returns how many items and how many blocks it holds.
    pub(super) fn check<Id, D: ItemDeadline, E: Entries<Id>>(
        &self,
        blocks: &Blocks<D, Id>,
        owner: ListOwner,
        entries: &E,
    ) -> Result<(usize, u32), Violation> {
        ensure!(self.deadlines(blocks).is_sorted(), "wheel: a run is not in order");
        if self.order.positions.is_empty() {
            return Ok((blocks.check(&self.list, owner, entries)?, self.list.blocks()));
        }
        let mut live = 0;
        for (index, &position) in self.order.positions.iter().enumerate() {
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

    /// Iterates over the deadlines of the items in firing order, those included that have gone.
    pub(super) fn deadlines<Id, D: ItemDeadline>(&self, blocks: &Blocks<D, Id>) -> impl Iterator<Item = u64> {
        let ordered = self.order.positions.iter().enumerate();
        let ordered = ordered.map(|(index, &position)| self.deadline_at(blocks, index, position));
        let list = if self.order.positions.is_empty() { self.list } else { List::EMPTY };
        ordered.chain(blocks.iter(&list).map(|(stored, _)| stored.stored().unwrap_or(self.start)))
    }
}

/// Returns the deadline of an item; `None` if it stores none and is a hole.
#[inline(always)]
fn deadline_of<Id, D, E>(slot: WheelSlot, item: &BlockItem<D, Id>, entries: &E) -> Option<u64>
where
    D: ItemDeadline,
    E: WheelEntries<Id, D>,
{
    item.key.stored().or_else(|| item.id.as_ref().map(|id| deadline_in(slot, item.key, id, entries)))
}

#[cfg(test)]
mod tests {
    use super::super::deadlines::NoEntries;
    use super::*;

    #[test]
    fn p7_a_run_that_has_ended_leaves_its_buffer_to_the_next() {
        const COUNT: u64 = 8;
        let (mut blocks, mut list, mut sorter) = (Blocks::new(), List::EMPTY, Sorter::new());
        for deadline in (0..COUNT).rev() {
            blocks.push(&mut list, ListOwner(7), deadline, deadline);
        }
        let mut run = SortedRun::EMPTY;
        let slot = WheelSlot { owner: ListOwner(7), height: 1, start: 0 };
        run.open(&mut blocks, list, ListOwner(8), slot, &mut sorter, &NoEntries);
        for deadline in 0..COUNT {
            assert_eq!(run.pop(&mut blocks, COUNT), Some((deadline, deadline)));
        }
        assert!(run.is_empty());
        run.close(&mut sorter);
        assert!(sorter.spare().positions.capacity() as u64 >= COUNT);
    }
}
