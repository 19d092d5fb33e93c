//! Lists of small items kept in fixed blocks of one vector.
//!
//! This is what the wheel's slots and the runs of the list-and-tree queue are made of. A list is a chain of
//! blocks; a block is a short array, filled from one end and read from the other:
//!
//! ```text
//!     List { front, end }                   positions in the vector: block * BLOCK + offset
//!              |     \______________
//!              v                    v
//!     +-------------+  +-------------+      .  not in the list: before `front`, at or after `end`
//!     | . . c d x f |->| g h . . . . |      x  a hole: taken from the middle
//!     +-------------+  +-------------+
//! ```
//!
//! - Appending writes at `end`: order of arrival is order in the list, with no number to store.
//! - An item is found by its position alone and taken out in place: no other item moves, none is touched.
//! - Reading a list reads memory in sequence, which is why firing a crowded slot does not pay a cache miss a timer
//!   as linked nodes would.
//! - Holes do not add up. A block without items is free at once, and a block that has become sparse is
//!   merged with a neighbour when both fit into half a block: any two neighbours hold more than that, the first and the
//!   last block aside. (What is taken from the ends of a list leaves no hole: the first block only shrinks until it is
//!   gone, and the last is refilled before it gets a successor.)
//!
//! Invariants, verified by [`Blocks::check`]: the first and the last item of a list are not holes; no block of a
//! list is without items; every block knows how many it has, and the owner of its list.

use alloc::vec::Vec;

use crate::raw::{Entries, Place, Violation, ensure};

/// Whether blocks and crowds are tiny (`--cfg tourbillon_small`), so that a few timers get where otherwise only many do.
/// For tests.
pub(crate) const SMALL: bool = cfg!(tourbillon_small);

/// Items in a block.
pub(crate) const BLOCK: u32 = if SMALL { 4 } else { 64 };

/// Two neighbours with no more items than this between them become one block.
const MERGED: u32 = BLOCK / 2;

const NONE: u32 = u32::MAX;

const _: () = assert!(BLOCK.is_power_of_two());

/// All blocks of all lists of one queue. `K` is what an item is ordered by, `Id` whom it stands for.
#[derive(Clone)]
pub(crate) struct Blocks<K, Id> {
    items: Vec<Item<K, Id>>,
    blocks: Vec<Block>,
    /// The first free block; each free block's `next` is the one after it.
    free: u32,
}

#[derive(Clone)]
pub(crate) struct Item<K, Id> {
    pub(crate) key: K,
    /// `None` in a hole.
    pub(crate) id: Option<Id>,
}

#[derive(Clone, Copy)]
struct Block {
    prev: u32,
    next: u32,
    owner: Owner,
    /// Items in it that are not holes.
    live: u32,
}

/// Whose list a block belongs to: a code of the queue that uses the blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner(pub(crate) u32);

/// A chain of blocks. Not a handle to share: the one who holds it passes it to every call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct List {
    /// The position of the first item; of no meaning in an empty list.
    front: u32,
    /// One past the position of the last item, or zero.
    end: u32,
    blocks: u32,
}

impl List {
    pub(crate) const EMPTY: List = List { front: NONE, end: 0, blocks: 0 };

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Length in blocks.
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }

    fn head(&self) -> u32 {
        if self.is_empty() { NONE } else { self.front / BLOCK }
    }

    fn tail(&self) -> u32 {
        if self.is_empty() { NONE } else { (self.end - 1) / BLOCK }
    }
}

impl<K: Copy, Id> Blocks<K, Id> {
    /// What one item takes, in bytes, in a full block.
    pub(crate) const ITEM_BYTES: usize = size_of::<Item<K, Id>>();

    pub(crate) const fn new() -> Blocks<K, Id> {
        Blocks { items: Vec::new(), blocks: Vec::new(), free: NONE }
    }

    /// The key of the item at `position`.
    pub(crate) fn key(&self, position: u32) -> K {
        self.items[position as usize].key
    }

    /// The owner of the list that holds `position`.
    #[inline]
    pub(crate) fn owner(&self, position: u32) -> Owner {
        self.blocks[(position / BLOCK) as usize].owner
    }

    /// How many items of a block are not holes.
    pub(crate) fn live(&self, number: u32) -> u32 {
        self.blocks[number as usize].live
    }

    /// Appends an item to `list`, which `owner` owns, and returns its position.
    #[inline(always)]
    pub(crate) fn push(&mut self, list: &mut List, owner: Owner, key: K, id: Id) -> u32 {
        let position = self.next_position(list, owner, key);
        self.items[position as usize] = Item { key, id: Some(id) };
        position
    }

    /// Makes room for an item at the end of `list`.
    #[inline(always)]
    fn next_position(&mut self, list: &mut List, owner: Owner, key: K) -> u32 {
        if list.end.is_multiple_of(BLOCK) {
            return self.next_block(list, owner, key);
        }
        let position = list.end;
        list.end += 1;
        self.blocks[(position / BLOCK) as usize].live += 1;
        position
    }

    /// Makes room for an item at the end of `list`, in a new block.
    #[inline(always)]
    fn next_block(&mut self, list: &mut List, owner: Owner, key: K) -> u32 {
        match self.blocks.get_mut(self.free as usize) {
            Some(block) if list.is_empty() => {
                let position = self.free * BLOCK;
                self.free = block.next;
                *block = Block { prev: NONE, next: NONE, owner, live: 1 };
                *list = List { front: position, end: position + 1, blocks: 1 };
                position
            }
            _ => {
                let position = self.extend(list, owner, key);
                list.end = position + 1;
                self.blocks[(position / BLOCK) as usize].live = 1;
                position
            }
        }
    }

    /// The key of the first item of a list.
    #[inline]
    pub(crate) fn front_key(&self, list: &List) -> Option<K> {
        (!list.is_empty()).then(|| self.key(list.front))
    }

    /// How many items a list has, or `most` if they are no fewer.
    pub(crate) fn len_up_to(&self, list: &List, most: usize) -> usize {
        let mut len = 0;
        for number in self.numbers(list) {
            len += self.blocks[number as usize].live as usize;
            if len >= most {
                return most;
            }
        }
        len
    }

    /// The key of the last item of a list.
    pub(crate) fn last_key(&self, list: &List) -> Option<K> {
        list.end.checked_sub(1).map(|last| self.key(last))
    }

    /// Takes out the first item of a list if its key is the right one.
    #[inline]
    pub(crate) fn pop_front_if(&mut self, list: &mut List, right: impl FnOnce(K) -> bool) -> Option<(K, Id)> {
        if list.is_empty() {
            return None;
        }
        let position = list.front;
        let item = &mut self.items[position as usize];
        if !right(item.key) {
            return None;
        }
        let popped = (item.key, item.id.take()?);
        self.vacated(list, position);
        Some(popped)
    }

    /// Moves the items of the first block of a list to the ends of other lists: to number `choose(key)` of `parts`, whose
    /// owners are `first_owner` and those after it. Returns how many there were.
    pub(crate) fn deal_block<E: Entries<Id>>(
        &mut self,
        list: &mut List,
        parts: &mut [List],
        first_owner: Owner,
        choose: impl Fn(K) -> usize,
        entries: &mut E,
    ) -> usize {
        let number = list.head();
        let span = self.span(list, number);
        for position in span.clone() {
            let item = &mut self.items[position as usize];
            let key = item.key;
            if let Some(id) = item.id.take() {
                let part = choose(key);
                self.push_entry(&mut parts[part], Owner(first_owner.0 + part as u32), key, id, entries);
            }
        }
        self.drop_block(list, number);
        span.len()
    }

    /// Takes whom the item at `position` stands for, leaving a hole. For lists whose blocks are only
    /// [freed](Blocks::free) all at once: it keeps no account.
    #[inline]
    pub(crate) fn take(&mut self, position: u32) -> Option<Id> {
        self.items[position as usize].id.take()
    }

    /// Whom the item at `position` stands for, unless it is a hole.
    pub(crate) fn id(&self, position: u32) -> Option<&Id> {
        self.items[position as usize].id.as_ref()
    }

    /// The same, to change it.
    pub(crate) fn id_mut(&mut self, position: u32) -> Option<&mut Id> {
        self.items[position as usize].id.as_mut()
    }

    #[inline]
    pub(crate) fn is_hole(&self, position: u32) -> bool {
        self.items[position as usize].id.is_none()
    }

    /// Frees all blocks of a list.
    pub(crate) fn free(&mut self, list: &mut List) {
        if let Some(tail) = self.blocks.get_mut(list.tail() as usize) {
            tail.next = self.free;
            self.free = list.head();
            *list = List::EMPTY;
        }
    }

    /// Takes out the item at `position` of `list`.
    #[inline(always)]
    pub(crate) fn remove<E: Entries<Id>>(&mut self, list: &mut List, position: u32, entries: &mut E) -> (K, Id) {
        let item = &mut self.items[position as usize];
        let Some(id) = item.id.take() else { unreachable!("an entry was removed twice, or from another queue") };
        let key = item.key;
        let makes_hole = position != list.front && position + 1 != list.end;
        let live = self.vacated(list, position);
        if makes_hole && live != 0 && live < MERGED {
            self.merge_sparse(list, position / BLOCK, entries);
        }
        (key, id)
    }

    /// Accounts for the item that was just taken from `position`; returns how many are left in its block.
    #[inline(always)]
    fn vacated(&mut self, list: &mut List, position: u32) -> u32 {
        let number = position / BLOCK;
        let block = &mut self.blocks[number as usize];
        block.live -= 1;
        let live = block.live;
        if live == 0 {
            self.drop_block(list, number);
        } else if position == list.front {
            list.front = self.next_item(position + 1);
        } else if position + 1 == list.end {
            list.end = self.end_before(position);
        }
        live
    }

    /// The position of the first item at or after `position`; there must be one in the same block.
    #[inline]
    fn next_item(&self, mut position: u32) -> u32 {
        while self.items[position as usize].id.is_none() {
            position += 1;
        }
        position
    }

    /// One past the position of the last item before `position`; there must be one in the same block.
    #[inline]
    fn end_before(&self, mut position: u32) -> u32 {
        while self.items[position as usize - 1].id.is_none() {
            position -= 1;
        }
        position
    }

    /// Merges a sparse block with a neighbour if both fit into half a block.
    #[inline(never)]
    fn merge_sparse<E: Entries<Id>>(&mut self, list: &mut List, number: u32, entries: &mut E) {
        let Block { prev, next, live, .. } = self.blocks[number as usize];
        let fits = |other: u32| self.blocks.get(other as usize).is_some_and(|block| block.live + live <= MERGED);
        if fits(next) {
            self.merge(list, number, next, entries);
        } else if fits(prev) {
            self.merge(list, prev, number, entries);
        }
    }

    /// Gathers the items of a block and the `next` one in this one.
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
                    // Never ahead of what is still to be read: this block's items only move down.
                    self.items[end as usize] = Item { key, id: Some(id) };
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

    /// The positions of a block that are in the list: all but those before its front and after its end.
    #[inline]
    fn span(&self, list: &List, number: u32) -> core::ops::Range<u32> {
        let first = if list.head() == number { list.front } else { number * BLOCK };
        let end = if list.tail() == number { list.end } else { (number + 1) * BLOCK };
        first..end
    }

    /// Reads a list from its front to its back.
    #[inline]
    pub(crate) fn iter(&self, list: &List) -> impl Iterator<Item = (K, &Id)> {
        let list = *list;
        let items = self.numbers(&list).flat_map(move |number| self.block(&list, number).1);
        items.filter_map(|item| item.id.as_ref().map(|id| (item.key, id)))
    }

    /// The items and holes of a block, and the offset of the first.
    #[inline]
    pub(crate) fn block(&self, list: &List, number: u32) -> (u32, &[Item<K, Id>]) {
        let span = self.span(list, number);
        (span.start % BLOCK, &self.items[span.start as usize..span.end as usize])
    }

    /// Takes all items out of a list whose keys are the right ones, in their order.
    pub(crate) fn take_if<E: Entries<Id>>(
        &mut self,
        list: &mut List,
        right: impl Fn(K) -> bool,
        entries: &mut E,
    ) -> Vec<(K, Id)> {
        let mut taken = Vec::new();
        let mut number = list.head();
        while number != NONE {
            let next = self.blocks[number as usize].next;
            let before = taken.len();
            for position in self.span(list, number) {
                let item = &mut self.items[position as usize];
                if right(item.key)
                    && let Some(id) = item.id.take()
                {
                    taken.push((item.key, id));
                }
            }
            let block = &mut self.blocks[number as usize];
            block.live -= (taken.len() - before) as u32;
            if block.live == 0 {
                self.drop_block(list, number);
            }
            number = next;
        }
        if !list.is_empty() {
            list.front = self.next_item(list.front);
            list.end = self.end_before(list.end);
            self.merge_all(list, entries);
        }
        taken
    }

    /// Merges all neighbours that fit into half a block.
    fn merge_all<E: Entries<Id>>(&mut self, list: &mut List, entries: &mut E) {
        let mut number = list.head();
        while let Some(&Block { next, live, .. }) = self.blocks.get(number as usize) {
            match self.blocks.get(next as usize) {
                Some(block) if block.live + live <= MERGED => self.merge(list, number, next, entries),
                _ => number = next,
            }
        }
    }

    /// Sorts the items of a list by their keys, equal ones in their order, moving them.
    pub(crate) fn sort<E: Entries<Id>>(&mut self, list: &mut List, owner: Owner, entries: &mut E)
    where
        K: Ord,
    {
        let mut items = self.take_if(list, |_| true, entries);
        items.sort_by_key(|(key, _)| *key);
        for (key, id) in items {
            self.push_entry(list, owner, key, id, entries);
        }
    }

    /// Appends an item and tells its entry.
    #[inline]
    pub(crate) fn push_entry<E: Entries<Id>>(
        &mut self,
        list: &mut List,
        owner: Owner,
        key: K,
        id: Id,
        entries: &mut E,
    ) {
        let position = self.next_position(list, owner, key);
        entries.set_place(&id, Place::main(position));
        self.items[position as usize] = Item { key, id: Some(id) };
    }

    /// Gives a list to another owner. Nothing moves.
    pub(crate) fn set_owner(&mut self, list: &List, owner: Owner) {
        let mut number = list.head();
        while let Some(block) = self.blocks.get_mut(number as usize) {
            block.owner = owner;
            number = block.next;
        }
    }

    /// Everyone that some item stands for.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &Id> {
        self.items.iter().filter_map(|item| item.id.as_ref())
    }

    /// The blocks of a list.
    pub(crate) fn numbers(&self, list: &List) -> impl Iterator<Item = u32> + use<'_, K, Id> {
        let some = |number: u32| (number != NONE).then_some(number);
        core::iter::successors(some(list.head()), move |&number| some(self.blocks[number as usize].next))
    }

    /// Adds an empty block to the end of a list and returns its first position. `filler` is any key, for items that
    /// are not there yet.
    #[inline(never)]
    fn extend(&mut self, list: &mut List, owner: Owner, filler: K) -> u32 {
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
            self.items.resize_with(self.blocks.len() * BLOCK as usize, || Item { key: filler, id: None });
            number
        };
        match self.blocks.get_mut(tail as usize) {
            Some(tail) => tail.next = number,
            None => list.front = number * BLOCK,
        }
        list.blocks += 1;
        number * BLOCK
    }

    /// Takes a block out of its list.
    #[inline(always)]
    fn drop_block(&mut self, list: &mut List, number: u32) {
        if list.blocks == 1 {
            *list = List::EMPTY;
            self.release(number);
        } else {
            self.unlink(list, number);
        }
    }

    /// Takes a block out of its list, which has others.
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

    /// Closes the chain over a block and frees it.
    fn detach(&mut self, list: &mut List, number: u32) {
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

    #[inline]
    fn release(&mut self, number: u32) {
        self.blocks[number as usize].next = self.free;
        self.free = number;
    }

    /// Verifies one list and returns how many items it holds.
    pub(crate) fn check<E: Entries<Id>>(&self, list: &List, owner: Owner, entries: &E) -> Result<usize, Violation> {
        if list.is_empty() {
            ensure!(list.blocks == 0, "blocks: an empty list has blocks");
            return Ok(0);
        }
        let at_ends = [list.front, list.end - 1].map(|position| self.items[position as usize].id.is_some());
        ensure!(at_ends == [true, true], "blocks: a list begins or ends with a hole");
        let (mut prev, mut blocks, mut count) = (NONE, 0, 0);
        for number in self.numbers(list) {
            let block = &self.blocks[number as usize];
            ensure!(block.prev == prev, "blocks: a block does not lead back to the one before it");
            ensure!(block.owner == owner, "blocks: a block does not know its owner");
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
                ensure!(before.live + live > MERGED, "blocks: two sparse neighbours are not merged");
            }
            (prev, blocks, count) = (number, blocks + 1, count + live as usize);
        }
        ensure!(list.tail() == prev && list.blocks == blocks, "blocks: a list does not know its end or its length");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::Kind;

    const OWNER: Owner = Owner(7);

    /// The position of each entry, by its number.
    struct Positions(Vec<u32>);

    impl Entries<usize> for Positions {
        fn place(&self, id: &usize) -> Place {
            Place::main(self.0[*id])
        }

        fn set_place(&mut self, id: &usize, place: Place) {
            let Kind::Main(position) = place.kind() else { unreachable!("blocks are the main store") };
            self.0[*id] = position;
        }
    }

    /// A list of entries whose keys are their numbers.
    fn list_of(count: usize) -> (Blocks<usize, usize>, List, Positions) {
        let (mut blocks, mut list) = (Blocks::new(), List::EMPTY);
        let positions = (0..count).map(|number| blocks.push(&mut list, OWNER, number, number)).collect();
        (blocks, list, Positions(positions))
    }

    #[test]
    fn p7_what_is_left_of_a_list_when_most_of_it_has_gone_is_in_few_blocks() {
        const ALL: usize = 200 * BLOCK as usize;
        // Some in each block, here more, there fewer.
        for share in [4, 8, 16, 64] {
            let stays = |number: usize| ((number * 0x9e37_79b9) >> 12).is_multiple_of(share);
            let left: Vec<usize> = (0..ALL).filter(|number| stays(*number)).collect();
            for at_once in [true, false] {
                let (mut blocks, mut list, mut positions) = list_of(ALL);
                if at_once {
                    blocks.take_if(&mut list, |number| !stays(number), &mut positions);
                } else {
                    for number in (0..ALL).filter(|number| !stays(*number)) {
                        blocks.remove(&mut list, positions.0[number], &mut positions);
                    }
                }
                assert_eq!(blocks.check(&list, OWNER, &positions), Ok(left.len()));
                assert!(blocks.iter(&list).map(|(number, _)| number).eq(left.iter().copied()));
                // Any two neighbours hold more than half a block, the first and the last block aside.
                let least = list.blocks().saturating_sub(2) / 2 * (BLOCK / 2 + 1);
                assert!(least as usize <= left.len(), "{} items in {} blocks", left.len(), list.blocks());
            }
        }
    }

    #[test]
    fn a_list_is_counted_as_far_as_asked() {
        for count in [0, 1, 2, BLOCK as usize, BLOCK as usize + 1, 5 * BLOCK as usize - 1] {
            let (blocks, list, _) = list_of(count);
            for most in 0..count + 2 {
                assert_eq!(blocks.len_up_to(&list, most), count.min(most));
            }
        }
    }
}
