//! Lists of small items kept in fixed blocks of one vector.
//!
//! The wheel's slots and the runs of the list-and-tree queue are such lists. A list is a chain of
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
//! - Appending writes at `end`: the order of insertion is the order in the list, with no sequence number to store.
//! - An item is found by its position alone and taken out in place: no other item is moved or read.
//! - Reading a list reads memory in sequence, so firing a crowded slot does not cost a cache miss per timer, as linked
//!   nodes would.
//! - Holes do not accumulate. A block without items is freed at once, and a block that has become sparse is merged with a
//!   neighbour when both fit into half a block: any two neighbours hold more than that, except the first and the last
//!   block. (Removal at the ends of a list leaves no hole: the first block only shrinks until it is freed, and the last
//!   is refilled before it gets a successor.)
//!
//! [`Blocks::check`] verifies these invariants: the first and the last item of a list are not holes; each block of a
//! list has at least one item that is not a hole, and stores how many it has and the owner of its list.

mod chain;
mod check;
mod merge;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use crate::place::Place;
use crate::raw::Entries;

/// Whether the build has small blocks, and small limits in the wheel (`--cfg tourbillon_small`). Tests with few timers then run the code
/// for many.
pub(crate) const SMALL: bool = cfg!(tourbillon_small);

/// Items in a block.
pub(crate) const BLOCK: u32 = if SMALL { 4 } else { 64 };

/// Two neighbours with no more items than this between them become one block.
const MERGE_LIMIT: u32 = BLOCK / 2;

const NONE: u32 = u32::MAX;

const _: () = assert!(BLOCK.is_power_of_two());

/// All blocks of all lists of one queue. `K` is the sort key of an item, `Id` the entry that the item represents.
#[derive(Clone)]
pub(crate) struct Blocks<K, Id> {
    items: Vec<BlockItem<K, Id>>,
    blocks: Vec<Block>,
    /// The first free block; each free block's `next` is the one after it.
    free: u32,
}

/// An entry of a list, or a hole.
#[derive(Clone)]
pub(crate) struct BlockItem<K, Id> {
    pub(crate) key: K,
    /// `None` in a hole.
    pub(crate) id: Option<Id>,
}

#[derive(Clone, Copy)]
struct Block {
    prev: u32,
    next: u32,
    owner: ListOwner,
    /// The number of items that are not holes.
    live: u32,
}

/// The list that a block belongs to, as a code chosen by the queue that uses the blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ListOwner(pub(crate) u32);

/// A chain of blocks. Not a handle to share: the queue that holds it passes it to every call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct List {
    /// The position of the first item; meaningless in an empty list.
    front: u32,
    /// One past the position of the last item; zero in an empty list.
    end: u32,
    blocks: u32,
}

impl List {
    pub(crate) const EMPTY: List = List { front: NONE, end: 0, blocks: 0 };

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Returns the length in blocks.
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Returns the number of the first block.
    fn head(&self) -> u32 {
        if self.is_empty() { NONE } else { self.front / BLOCK }
    }

    /// Returns the number of the last block.
    fn tail(&self) -> u32 {
        if self.is_empty() { NONE } else { (self.end - 1) / BLOCK }
    }
}

impl<K: Copy, Id> Blocks<K, Id> {
    /// Bytes that one item takes in a full block.
    pub(crate) const ITEM_BYTES: usize = size_of::<BlockItem<K, Id>>();

    pub(crate) const fn new() -> Blocks<K, Id> {
        Blocks { items: Vec::new(), blocks: Vec::new(), free: NONE }
    }

    /// Returns the key of the item at `position`.
    pub(crate) fn key(&self, position: u32) -> K {
        self.items[position as usize].key
    }

    /// Returns the owner of the list that holds `position`.
    #[inline]
    pub(crate) fn owner(&self, position: u32) -> ListOwner {
        self.blocks[(position / BLOCK) as usize].owner
    }

    /// Returns how many items of a block are not holes.
    pub(crate) fn live(&self, number: u32) -> u32 {
        self.blocks[number as usize].live
    }

    /// Appends an item to the list of `owner` and returns its position.
    #[inline(always)]
    pub(crate) fn push(&mut self, list: &mut List, owner: ListOwner, key: K, id: Id) -> u32 {
        let position = self.next_position(list, owner, key);
        self.items[position as usize] = BlockItem { key, id: Some(id) };
        position
    }

    /// Reserves the position at the end of `list`.
    #[inline(always)]
    fn next_position(&mut self, list: &mut List, owner: ListOwner, key: K) -> u32 {
        if list.end.is_multiple_of(BLOCK) {
            return self.next_block(list, owner, key);
        }
        let position = list.end;
        list.end += 1;
        self.blocks[(position / BLOCK) as usize].live += 1;
        position
    }

    /// Reserves the position at the end of `list`, in a new block.
    #[inline(always)]
    fn next_block(&mut self, list: &mut List, owner: ListOwner, key: K) -> u32 {
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

    /// Returns the key of the first item of a list.
    #[inline]
    pub(crate) fn front_key(&self, list: &List) -> Option<K> {
        (!list.is_empty()).then(|| self.key(list.front))
    }

    /// Returns the number of items in a list, or `most` if there are at least as many.
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

    /// Returns the key of the last item of a list.
    pub(crate) fn last_key(&self, list: &List) -> Option<K> {
        list.end.checked_sub(1).map(|last| self.key(last))
    }

    /// Takes out the first item of a list if `accept` returns true for its key.
    #[inline]
    pub(crate) fn pop_front_if(&mut self, list: &mut List, accept: impl FnOnce(K) -> bool) -> Option<(K, Id)> {
        if list.is_empty() {
            return None;
        }
        let position = list.front;
        let item = &mut self.items[position as usize];
        if !accept(item.key) {
            return None;
        }
        let popped = (item.key, item.id.take()?);
        self.note_vacated(list, position);
        Some(popped)
    }

    /// Moves the items of the first block of a list to the ends of other lists: to number `choose(entries, key, id)` of `parts`,
    /// whose owners are `first_owner` and the codes after it. Returns how many positions the block had in the list.
    pub(crate) fn distribute_block<E: Entries<Id>>(
        &mut self,
        list: &mut List,
        parts: &mut [List],
        first_owner: ListOwner,
        choose: impl Fn(&E, K, &Id) -> usize,
        entries: &mut E,
    ) -> usize {
        let number = list.head();
        let span = self.span(list, number);
        for position in span.clone() {
            let item = &mut self.items[position as usize];
            let key = item.key;
            if let Some(id) = item.id.take() {
                let part = choose(entries, key, &id);
                self.push_entry(&mut parts[part], ListOwner(first_owner.0 + part as u32), key, id, entries);
            }
        }
        self.drop_block(list, number);
        span.len()
    }

    /// Takes the id at `position`, leaving a hole, and updates no count. For lists whose blocks are only
    /// [freed](Blocks::free) all at once.
    #[inline]
    pub(crate) fn take(&mut self, position: u32) -> Option<Id> {
        self.items[position as usize].id.take()
    }

    /// Returns the id at `position`, unless that is a hole.
    pub(crate) fn id(&self, position: u32) -> Option<&Id> {
        self.items[position as usize].id.as_ref()
    }

    /// Returns the id at `position` for change, unless that is a hole.
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
        let live = self.note_vacated(list, position);
        if makes_hole && live != 0 && live < MERGE_LIMIT {
            self.merge_sparse(list, position / BLOCK, entries);
        }
        (key, id)
    }

    /// Updates block and list after an item was taken from `position`; returns how many are left in its block.
    #[inline(always)]
    fn note_vacated(&mut self, list: &mut List, position: u32) -> u32 {
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

    /// Returns the position of the first item at or after `position`; there must be one in the same block.
    #[inline]
    fn next_item(&self, mut position: u32) -> u32 {
        while self.items[position as usize].id.is_none() {
            position += 1;
        }
        position
    }

    /// Returns one past the position of the last item before `position`; there must be one in the same block.
    #[inline]
    fn end_before(&self, mut position: u32) -> u32 {
        while self.items[position as usize - 1].id.is_none() {
            position -= 1;
        }
        position
    }

    /// Returns the positions of a block that are in the list: not those before its front or after its end.
    #[inline]
    fn span(&self, list: &List, number: u32) -> core::ops::Range<u32> {
        let first = if list.head() == number { list.front } else { number * BLOCK };
        let end = if list.tail() == number { list.end } else { (number + 1) * BLOCK };
        first..end
    }

    /// Iterates over a list from front to back.
    #[inline]
    pub(crate) fn iter<'a>(&'a self, list: &List) -> impl Iterator<Item = (K, &'a Id)> + use<'a, K, Id> {
        let list = *list;
        let items = self.numbers(&list).flat_map(move |number| self.block(&list, number).1);
        items.filter_map(|item| item.id.as_ref().map(|id| (item.key, id)))
    }

    /// Returns the items and holes of a block, and the offset of the first.
    #[inline]
    pub(crate) fn block(&self, list: &List, number: u32) -> (u32, &[BlockItem<K, Id>]) {
        let span = self.span(list, number);
        (span.start % BLOCK, &self.items[span.start as usize..span.end as usize])
    }

    /// Takes all items out of a list for whose keys `accept` returns true, in list order.
    pub(crate) fn take_if<E: Entries<Id>>(
        &mut self,
        list: &mut List,
        accept: impl Fn(K) -> bool,
        entries: &mut E,
    ) -> Vec<(K, Id)> {
        let mut taken = Vec::new();
        let mut number = list.head();
        while number != NONE {
            let next = self.blocks[number as usize].next;
            let before = taken.len();
            for position in self.span(list, number) {
                let item = &mut self.items[position as usize];
                if accept(item.key)
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

    /// Appends an item and stores its place with the entry.
    #[inline]
    pub(crate) fn push_entry<E: Entries<Id>>(
        &mut self,
        list: &mut List,
        owner: ListOwner,
        key: K,
        id: Id,
        entries: &mut E,
    ) {
        let position = self.next_position(list, owner, key);
        entries.set_place(&id, Place::main(position));
        self.items[position as usize] = BlockItem { key, id: Some(id) };
    }

    /// Sets the owner of a list. No item moves.
    pub(crate) fn set_owner(&mut self, list: &List, owner: ListOwner) {
        let mut number = list.head();
        while let Some(block) = self.blocks.get_mut(number as usize) {
            block.owner = owner;
            number = block.next;
        }
    }

    /// Iterates over the ids of all lists, in no particular order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &Id> {
        self.items.iter().filter_map(|item| item.id.as_ref())
    }

    /// Iterates over the numbers of a list's blocks.
    pub(crate) fn numbers(&self, list: &List) -> impl Iterator<Item = u32> + use<'_, K, Id> {
        let some = |number: u32| (number != NONE).then_some(number);
        core::iter::successors(some(list.head()), move |&number| some(self.blocks[number as usize].next))
    }
}
