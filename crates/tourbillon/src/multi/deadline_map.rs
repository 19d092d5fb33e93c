//! Items with deadlines, which a surface keeps behind its lock: a slab whose keys are never reused, and a wheel.
//!
//! ```text
//!     DeadlineKey ---> heads:  generation, place    8 bytes each, side by side: all that the wheel reads and writes
//!                      values: T                    in chunks, so that no value moves when the map grows
//!                         ^
//!                      wheel:  indices, in the order of the deadlines
//! ```
//!
//! An item without a place in the wheel is *parked*: it has no deadline, or its deadline has passed and it was given no
//! other. It keeps its key.

use tourbillon_queue::{Entries, Place, RawQueue, RawWheel, Settled, Time};

/// Items of type `T`, some of which have a deadline.
pub(crate) struct DeadlineMap<T> {
    heads: ItemHeads,
    values: Vec<Vec<Option<T>>>,
    wheel: RawWheel<u32>,
    /// The item that was given a deadline last. It is not on the wheel yet, because many items are removed before the next one comes.
    insert_buffer: Option<(u32, Time)>,
    /// Indices that can be used again.
    free: Vec<u32>,
    len: usize,
}

/// The key of one item. It is never reused for another item.
// One word, so that it is moved as one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct DeadlineKey(u64);

/// The result of [`DeadlineMap::pop`].
pub(crate) enum Popped {
    /// The item with this key, which was due at this time.
    Due(DeadlineKey, Time),
    /// An item may be due, but the wheel needs more upkeep first.
    NotYet,
    Nothing,
}

/// The part of the items that the wheel reads and writes.
struct ItemHeads(Vec<ItemHead>);

#[derive(Clone, Copy)]
struct ItemHead {
    /// The generation of the key that is in use, or of the next key.
    generation: u32,
    place: Place,
}

/// The most items that a map can hold: a wheel has no more places.
pub(crate) const MOST: usize = 1 << 30;

const CHUNK: usize = 256;

impl<T> Default for DeadlineMap<T> {
    fn default() -> DeadlineMap<T> {
        DeadlineMap::new()
    }
}

impl<T> DeadlineMap<T> {
    pub(crate) fn new() -> DeadlineMap<T> {
        DeadlineMap {
            heads: ItemHeads(Vec::new()),
            values: Vec::new(),
            wheel: RawWheel::new(),
            insert_buffer: None,
            free: Vec::new(),
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is no room for another item.
    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty() && self.heads.0.len() == MOST
    }

    /// Inserts an item; with the deadline `NEVER` it is parked.
    ///
    /// # Panics
    /// If the map [is full](DeadlineMap::is_full).
    #[inline]
    pub(crate) fn insert(&mut self, deadline: Time, value: T) -> DeadlineKey {
        self.insert_with(|| (deadline, value))
    }

    /// Inserts the item that `make` returns: see [`insert`](DeadlineMap::insert). Nothing that could panic comes between `make` and the
    /// write to the item's place, so the item is made there, and not copied.
    ///
    /// # Panics
    /// If the map [is full](DeadlineMap::is_full).
    #[inline(always)]
    pub(crate) fn insert_with(&mut self, make: impl FnOnce() -> (Time, T)) -> DeadlineKey {
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.grow(),
        };
        let key = DeadlineKey::new(index, self.heads.0[index as usize].generation);
        self.len += 1;
        let slot = &mut self.values[index as usize / CHUNK][index as usize % CHUNK];
        let (deadline, value) = make();
        let before = slot.replace(value);
        debug_assert!(before.is_none(), "a free index has no value");
        // Not dropped: a check for a value that is never there, and code for its drop.
        std::mem::forget(before);
        self.place(index, deadline);
        key
    }

    /// Removes an item. (Inlined, so that of a large item only the fields that the caller uses are moved.)
    #[inline(always)]
    pub(crate) fn remove(&mut self, key: DeadlineKey) -> Option<T> {
        self.check_key(key)?;
        let index = key.index();
        self.unplace(index);
        let head = &mut self.heads.0[index as usize];
        head.generation = head.generation.wrapping_add(1);
        // An index whose generations have all been used is not used again.
        if head.generation != 0 {
            self.free.push(index);
        }
        self.len -= 1;
        // Last, because nothing that could panic may come between this and the caller's use of some fields.
        self.values[index as usize / CHUNK][index as usize % CHUNK].take()
    }

    #[inline]
    pub(crate) fn get(&self, key: DeadlineKey) -> Option<&T> {
        self.check_key(key)?;
        self.values[key.index() as usize / CHUNK][key.index() as usize % CHUNK].as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: DeadlineKey) -> Option<&mut T> {
        self.check_key(key)?;
        self.values[key.index() as usize / CHUNK][key.index() as usize % CHUNK].as_mut()
    }

    /// Returns the key of the item that has this [index](DeadlineKey::index).
    pub(crate) fn key_at(&self, index: u32) -> Option<DeadlineKey> {
        self.heads.0.get(index as usize).map(|head| DeadlineKey::new(index, head.generation))
    }

    /// Gives an item another deadline, or parks it if that is `NEVER`. Does nothing if the key is stale.
    pub(crate) fn set_deadline(&mut self, key: DeadlineKey, deadline: Time) {
        if self.check_key(key).is_some() {
            self.unplace(key.index());
            self.place(key.index(), deadline);
        }
    }

    /// Parks and returns the first item that is due at `now`. Does at most about `steps` steps of the wheel's upkeep: see
    /// [`RawQueue::settle`].
    #[inline]
    pub(crate) fn pop(&mut self, now: Time, steps: usize) -> Popped {
        self.drain_insert_buffer();
        let popped = match self.wheel.pop_ready(&mut self.heads, now) {
            None if self.wheel.settle(&mut self.heads, now, steps) == Settled::More => return Popped::NotYet,
            None => self.wheel.pop(&mut self.heads, now),
            ready => ready,
        };
        popped.map_or(Popped::Nothing, |(index, deadline)| Popped::Due(self.park(index), deadline))
    }

    /// Returns when to call [`pop`](DeadlineMap::pop) next: the first deadline, or an earlier time if the wheel needs upkeep; `NEVER` if
    /// there is no deadline.
    pub(crate) fn next_wakeup(&self) -> Time {
        let buffered = self.insert_buffer.map_or(Time::NEVER, |(_, deadline)| deadline);
        self.wheel.next_wakeup().map_or(buffered, |next| next.min(buffered))
    }

    /// Returns the keys of all items, in no particular order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = DeadlineKey> {
        let filled = self.values.iter().flatten().zip(&self.heads.0).enumerate();
        filled.filter_map(|(index, (value, head))| {
            value.as_ref().map(|_| DeadlineKey::new(index as u32, head.generation))
        })
    }

    /// Returns all items, in no particular order.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.values.iter_mut().flatten().flatten()
    }

    /// Returns all items.
    pub(crate) fn into_values(self) -> impl Iterator<Item = T> {
        self.values.into_iter().flatten().flatten()
    }

    #[inline]
    fn place(&mut self, index: u32, deadline: Time) {
        if !deadline.is_never() {
            self.drain_insert_buffer();
            self.insert_buffer = Some((index, deadline));
        }
    }

    #[inline]
    fn drain_insert_buffer(&mut self) {
        if let Some((index, deadline)) = self.insert_buffer.take() {
            let place = self.wheel.insert(&mut self.heads, index, deadline);
            self.heads.0[index as usize].place = place;
        }
    }

    #[inline]
    fn unplace(&mut self, index: u32) {
        if self.insert_buffer.is_some_and(|(buffered, _)| buffered == index) {
            self.insert_buffer = None;
        } else {
            self.take_off_wheel(index);
        }
    }

    #[inline(never)]
    fn take_off_wheel(&mut self, index: u32) {
        let place = std::mem::replace(&mut self.heads.0[index as usize].place, Place::NOWHERE);
        if place != Place::NOWHERE {
            self.wheel.remove(&mut self.heads, place);
        }
    }

    /// Records that an item has left the wheel.
    #[inline]
    fn park(&mut self, index: u32) -> DeadlineKey {
        let head = &mut self.heads.0[index as usize];
        head.place = Place::NOWHERE;
        DeadlineKey::new(index, head.generation)
    }

    #[inline]
    fn check_key(&self, key: DeadlineKey) -> Option<()> {
        let head = self.heads.0.get(key.index() as usize)?;
        (head.generation == key.generation()).then_some(())
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        assert!(!self.is_full(), "a deadline map holds at most {MOST} items");
        let index = self.heads.0.len() as u32;
        self.heads.0.push(ItemHead { generation: 1, place: Place::NOWHERE });
        if (index as usize).is_multiple_of(CHUNK) {
            self.values.push(Vec::with_capacity(CHUNK));
        }
        self.values[index as usize / CHUNK].push(None);
        index
    }
}

impl Entries<u32> for ItemHeads {
    #[inline]
    fn place(&self, index: &u32) -> Place {
        self.0[*index as usize].place
    }

    #[inline]
    fn set_place(&mut self, index: &u32, place: Place) {
        self.0[*index as usize].place = place;
    }
}

impl DeadlineKey {
    fn new(index: u32, generation: u32) -> DeadlineKey {
        DeadlineKey(u64::from(generation) << 32 | u64::from(index))
    }

    /// Returns the index of the item, which another item may have once this one is removed.
    pub(crate) fn index(self) -> u32 {
        self.0 as u32
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn p1_an_item_that_is_put_in_when_its_deadline_is_past_comes_out() {
        let mut deadlines = DeadlineMap::new();
        let at = Time::from_nanos;
        let first = deadlines.insert(at(10), "first");
        assert_eq!(popped(&mut deadlines, at(1_000_000)), [first]);
        let late = deadlines.insert(at(5), "late");
        let earlier = deadlines.insert(at(4), "earlier");
        assert_eq!(popped(&mut deadlines, at(1_000_000)), [earlier, late]);
    }

    fn popped(deadlines: &mut DeadlineMap<&str>, now: Time) -> Vec<DeadlineKey> {
        let mut keys = Vec::new();
        loop {
            match deadlines.pop(now, 100) {
                Popped::Due(key, _) => keys.push(key),
                Popped::NotYet => {}
                Popped::Nothing => return keys,
            }
        }
    }
}
