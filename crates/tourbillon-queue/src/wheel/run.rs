//! An opened slot: its items in the order in which they will fire.
//!
//! The items stay where they are, in the blocks of the slot's list, and their entries are not told of anything. What
//! is sorted is a *word* for each item: its deadline within the slot, and behind that its number in the list.
//! Firing follows the words; an item that has been cancelled meanwhile is a hole that they lead to.
//!
//! ```text
//!     order   | deadline 3, number 130 | deadline 9, number 2 | ...      sorted; read from `next`
//!                                 |                    |
//!     blocks  [ ....item 2.... ] [ ............ ] [ ..item 130.. ]       as they were
//! ```
//!
//! For the same reason no block of it is freed before the last item has gone.
//!
//! A list whose items are in order already needs no words: it is read from its front.

use alloc::vec::Vec;

use super::{CROWDED, DIGIT, ITEM_BITS, levels::Slot, sort::Sorter};
use crate::blocks::{BLOCK, Blocks, List, Owner};
use crate::raw::{Entries, Place, Violation, ensure};

#[derive(Clone)]
pub(super) struct Run {
    list: List,
    /// When the slot begins.
    start: u64,
    /// A word for each item, or nothing if the list is in order.
    order: Vec<u64>,
    /// The first of them that has not fired.
    next: usize,
    /// The deadline and the position of the item that it leads to, which is not a hole.
    front: (u64, u32),
    /// How many items are left, if there are words.
    live: u32,
    /// The blocks of the list, by their place in it.
    table: Vec<u32>,
}

impl Run {
    pub(super) const EMPTY: Run =
        Run { list: List::EMPTY, start: 0, order: Vec::new(), next: 0, front: (0, 0), live: 0, table: Vec::new() };

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Opens a list that is in order.
    pub(super) fn open_in_order<Id>(&mut self, blocks: &mut Blocks<u64, Id>, list: List, owner: Owner) {
        blocks.set_owner(&list, owner);
        self.order.clear();
        self.list = list;
    }

    /// Opens a list that is not crowded: sorts its items by deadline, equal ones in their order.
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
        self.table.clear();
        self.table.extend(blocks.numbers(&list));
        let words = sorter.words();
        for (&number, ordinal) in self.table.iter().zip(0..) {
            let (first, items) = blocks.block(&list, number);
            let numbered = items.iter().zip(u64::from(ordinal * BLOCK + first)..);
            let live = numbered.filter(|(item, _)| item.id.is_some());
            words.reserve(BLOCK as usize);
            words.extend(live.map(|(item, number)| (item.key - slot.start) << ITEM_BITS | number));
        }
        sorter.sort(DIGIT * slot.height as u32 + ITEM_BITS, &mut self.order);
        (self.list, self.start) = (list, slot.start);
        (self.next, self.live) = (0, self.order.len() as u32);
        self.find_front(blocks);
    }

    /// The deadline of the first item.
    #[inline]
    pub(super) fn deadline<Id>(&self, blocks: &Blocks<u64, Id>) -> Option<u64> {
        if self.order.is_empty() { blocks.front_key(&self.list) } else { Some(self.front.0) }
    }

    /// Takes the first item if it is due before `bound`.
    #[inline(always)]
    pub(super) fn pop<Id>(&mut self, blocks: &mut Blocks<u64, Id>, bound: u64) -> Option<(u64, Id)> {
        if self.order.is_empty() {
            return blocks.pop_front_if(&mut self.list, |deadline| deadline < bound);
        }
        let (deadline, position) = self.front;
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
        self.find_front(blocks);
    }

    /// Goes on to the next item that is not a hole.
    #[inline]
    fn find_front<Id>(&mut self, blocks: &Blocks<u64, Id>) {
        while let Some(&word) = self.order.get(self.next) {
            let position = self.position(word);
            if !blocks.is_hole(position) {
                self.front = (self.start + (word >> ITEM_BITS), position);
                return;
            }
            self.next += 1;
        }
    }

    #[inline]
    fn position(&self, word: u64) -> u32 {
        let number = word as u32 % CROWDED;
        self.table[(number / BLOCK) as usize] * BLOCK + number % BLOCK
    }

    /// Gives back the memory that an empty run holds.
    pub(super) fn trim(&mut self) {
        if self.is_empty() && self.order.capacity() > 0 {
            *self = Run::EMPTY;
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
        ensure!(self.table.iter().copied().eq(blocks.numbers(&self.list)), "wheel: a run does not know its blocks");
        ensure!(self.order.is_sorted(), "wheel: a run's words are not in order");
        let mut live = 0;
        for (index, word) in self.order.iter().enumerate() {
            let position = self.position(*word);
            ensure!(blocks.owner(position) == owner, "wheel: a block of a run does not know its owner");
            if let Some(id) = blocks.id(position) {
                live += 1;
                ensure!(index >= self.next, "wheel: a run has gone past an item that has not fired");
                ensure!(entries.place(id) == Place::main(position), "wheel: an entry in a run has another place");
                ensure!(blocks.key(position) == self.start + (word >> ITEM_BITS), "wheel: a word has another deadline");
            } else {
                ensure!(index != self.next, "wheel: a run is at a hole");
            }
        }
        ensure!(live == self.live, "wheel: a run's count is not that of its items");
        let front = self.order.get(self.next).map(|word| (self.start + (word >> ITEM_BITS), self.position(*word)));
        ensure!(front == Some(self.front), "wheel: a run does not know its front");
        Ok((live as usize, self.list.blocks()))
    }

    /// The deadlines of its items, in no order.
    pub(super) fn deadlines<Id>(&self, blocks: &Blocks<u64, Id>) -> impl Iterator<Item = u64> {
        blocks.iter(&self.list).map(|(deadline, _)| deadline)
    }
}
