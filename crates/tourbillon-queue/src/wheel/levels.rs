//! The levels of the wheel and the slots in them.
//!
//! A level has 64 slots, each a list. There is room for two levels of each height: the *root*, where deadlines go
//! whose first difference from `elapsed` is at that digit; and the *parts* of a crowded slot one level higher, while
//! that is being split. When they are complete, time has left the old root, and the parts become the root.
//!
//! A level that has become empty stays for a while, lest arming and cancelling one timer set it up and take it down
//! each time. [`Levels::trim`] takes down those that have been empty since it was last called, and keeps one of them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{DIGIT, LEVELS, SLOTS};
use crate::blocks::{Blocks, List, Owner};
use crate::raw::{Entries, Violation, ensure};

#[derive(Clone)]
pub(super) struct Levels {
    /// Two for each height: see [`Number`].
    levels: [Option<Box<Level>>; 2 * LEVELS],
    /// Which of the two is the root: a bit a height.
    second: u32,
    /// Which heights have something in their root: a bit a height.
    rooted: u32,
    /// One that was taken down, for the next that is needed.
    spare: Option<Box<Level>>,
}

/// Names a level: twice its height, and one more for the second of that height.
type Number = usize;

#[derive(Clone)]
struct Level {
    /// Which slots are not empty: a bit a slot.
    occupied: u64,
    /// Whether it has become empty since the last trim.
    emptied: bool,
    slots: [List; SLOTS],
}

/// A level to put something in.
pub(super) struct LevelMut<'a> {
    level: &'a mut Level,
    number: Number,
}

/// A slot: where it is and what it covers.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) owner: Owner,
    pub(super) height: usize,
    /// The first nanosecond that belongs to it.
    pub(super) start: u64,
}

const _: () = assert!(LEVELS <= u32::BITS as usize);

/// The digit of `time` that chooses among the slots of a level.
#[inline]
fn digit(time: u64, height: usize) -> usize {
    (time >> (DIGIT * height as u32)) as usize % SLOTS
}

/// When a slot of the root of a height begins.
#[inline]
fn start(elapsed: u64, height: usize, slot: usize) -> u64 {
    let shift = DIGIT * height as u32;
    let above = (elapsed >> shift) & !(SLOTS as u64 - 1);
    (above | slot as u64) << shift
}

/// The height of the level that a slot is in.
#[inline]
pub(super) fn height(owner: Owner) -> usize {
    level_and_slot(owner).0 / 2
}

/// A slot is named by its level's number and its own.
#[inline]
fn owner(number: Number, slot: usize) -> Owner {
    Owner((number * SLOTS + slot) as u32)
}

#[inline]
fn level_and_slot(owner: Owner) -> (Number, usize) {
    (owner.0 as usize / SLOTS, owner.0 as usize % SLOTS)
}

impl Levels {
    pub(super) const fn new() -> Levels {
        Levels { levels: [const { None }; 2 * LEVELS], second: 0, rooted: 0, spare: None }
    }

    #[inline]
    fn root(&self, height: usize) -> Number {
        2 * height + (self.second >> height) as usize % 2
    }

    /// The number that the parts of a slot of the root of `height` have.
    #[inline]
    pub(super) fn parts(&self, height: usize) -> Number {
        self.root(height - 1) ^ 1
    }

    /// The first part of a slot: it begins when the slot does.
    pub(super) fn first_part(&self, slot: Slot) -> Slot {
        let number = self.parts(slot.height);
        Slot { owner: owner(number, 0), height: slot.height - 1, start: slot.start }
    }

    /// Whether a slot is in a root.
    pub(super) fn is_root(&self, owner: Owner) -> bool {
        self.root(height(owner)) == level_and_slot(owner).0
    }

    /// The slot for a deadline after `elapsed`, marked occupied, and its list.
    #[inline]
    pub(super) fn find(&mut self, elapsed: u64, deadline: u64) -> (Owner, &mut List) {
        debug_assert!(elapsed < deadline);
        let height = ((elapsed ^ deadline).ilog2() / DIGIT) as usize;
        self.rooted |= 1 << height;
        self.level_mut(self.root(height)).find(height, deadline)
    }

    /// The parts of a slot of the root of `height`.
    pub(super) fn parts_mut(&mut self, height: usize) -> LevelMut<'_> {
        self.level_mut(self.parts(height))
    }

    /// A level, set up if it is not there yet.
    #[inline]
    fn level_mut(&mut self, number: Number) -> LevelMut<'_> {
        if self.levels[number].is_none() {
            self.levels[number] = self.spare.take();
        }
        LevelMut { level: self.levels[number].get_or_insert_with(Level::new), number }
    }

    /// The list of a slot that is not empty.
    #[inline(always)]
    pub(super) fn list_mut(&mut self, owner: Owner) -> Option<&mut List> {
        let (number, slot) = level_and_slot(owner);
        self.levels[number].as_mut().map(|level| &mut level.slots[slot])
    }

    /// What is in a slot.
    pub(super) fn list(&self, owner: Owner) -> List {
        let (number, slot) = level_and_slot(owner);
        self.levels[number].as_ref().map_or(List::EMPTY, |level| level.slots[slot])
    }

    /// Empties a slot and returns the list that it held.
    pub(super) fn take(&mut self, owner: Owner) -> List {
        let list = self.list_mut(owner).map(|list| core::mem::replace(list, List::EMPTY));
        self.vacated(owner);
        list.unwrap_or(List::EMPTY)
    }

    /// Takes note that the list of a slot has become empty.
    #[inline(always)]
    pub(super) fn vacated(&mut self, owner: Owner) {
        let (number, slot) = level_and_slot(owner);
        let Some(level) = &mut self.levels[number] else { return };
        level.occupied &= !(1 << slot);
        if level.occupied == 0 {
            level.emptied = true;
            if self.root(number / 2) == number {
                self.rooted &= !(1 << (number / 2));
            }
        }
    }

    /// Takes down levels that have been empty since it was last called.
    pub(super) fn trim(&mut self) {
        for place in &mut self.levels {
            let Some(level) = place else { continue };
            if level.occupied == 0 && !core::mem::replace(&mut level.emptied, false) {
                self.spare = place.take();
            }
        }
    }

    /// Makes the parts of a slot of the root of `height` the root of their own height.
    pub(super) fn promote_parts(&mut self, height: usize) {
        let (old, new) = (self.root(height - 1), self.parts(height));
        debug_assert!(!self.is_used(old), "time has left a slot that is still occupied");
        self.second ^= 1 << (height - 1);
        self.rooted |= u32::from(self.is_used(new)) << (height - 1);
    }

    /// The first slot of all roots.
    #[inline]
    pub(super) fn first(&self, elapsed: u64) -> Option<Slot> {
        if self.rooted == 0 {
            return None;
        }
        let height = self.rooted.trailing_zeros() as usize;
        self.first_of(self.root(height)).map(|owner| self.slot(elapsed, owner))
    }

    /// A slot of a root.
    #[inline]
    pub(super) fn slot(&self, elapsed: u64, owner: Owner) -> Slot {
        let height = height(owner);
        Slot { owner, height, start: start(elapsed, height, level_and_slot(owner).1) }
    }

    /// The first slot of a level.
    #[inline]
    pub(super) fn first_of(&self, number: Number) -> Option<Owner> {
        let occupied = self.levels[number].as_ref()?.occupied;
        (occupied != 0).then(|| owner(number, occupied.trailing_zeros() as usize))
    }

    fn is_used(&self, number: Number) -> bool {
        self.levels[number].as_ref().is_some_and(|level| level.occupied != 0)
    }

    /// Verifies the levels and returns every slot of them. `split(height)` says which slot of the root of a height is
    /// being split.
    pub(super) fn check(&self, elapsed: u64, split: impl Fn(usize) -> Option<Slot>) -> Result<Vec<Slot>, Violation> {
        let mut slots = Vec::new();
        for (number, level) in self.levels.iter().enumerate() {
            let height = number / 2;
            let Some(level) = level else { continue };
            if level.occupied == 0 {
                ensure!(level.slots.iter().all(List::is_empty), "wheel: a slot of an empty level is not empty");
                continue;
            }
            let begin = if number == self.root(height) {
                ensure!(self.rooted & 1 << height != 0, "wheel: a root is not marked");
                let first = level.occupied.trailing_zeros() as usize;
                ensure!(first > digit(elapsed, height), "wheel: a slot that time has reached is not opened");
                start(elapsed, height, 0)
            } else {
                let Some(whole) = split(height + 1) else {
                    return Err(Violation::new("wheel: parts of no slot"));
                };
                whole.start
            };
            for slot in 0..SLOTS {
                let start = begin | (slot as u64) << (DIGIT * height as u32);
                slots.push(Slot { owner: owner(number, slot), height, start });
            }
        }
        for height in 0..LEVELS {
            let there = self.is_used(self.root(height));
            ensure!(there == (self.rooted & 1 << height != 0), "wheel: a root and its bit disagree");
        }
        Ok(slots)
    }

    /// Whether a slot is marked occupied.
    pub(super) fn is_occupied(&self, owner: Owner) -> bool {
        let (number, slot) = level_and_slot(owner);
        self.levels[number].as_ref().is_some_and(|level| level.occupied & 1 << slot != 0)
    }
}

impl<'a> LevelMut<'a> {
    /// The slot for a deadline in a level of this height, marked occupied, and its list.
    #[inline]
    fn find(self, height: usize, deadline: u64) -> (Owner, &'a mut List) {
        let LevelMut { level, number } = self;
        let slot = digit(deadline, height);
        level.occupied |= 1 << slot;
        (owner(number, slot), &mut level.slots[slot])
    }

    /// Moves the items of the first block of a list into this level; returns how many there were.
    pub(super) fn deal_block<Id, E: Entries<Id>>(
        &mut self,
        blocks: &mut Blocks<u64, Id>,
        list: &mut List,
        entries: &mut E,
    ) -> usize {
        let height = self.number / 2;
        let choose = |deadline| digit(deadline, height);
        let count = blocks.deal_block(list, &mut self.level.slots, owner(self.number, 0), choose, entries);
        let occupied = self.level.slots.iter().zip(0..).filter(|(list, _)| !list.is_empty());
        self.level.occupied |= occupied.fold(0, |bits, (_, slot)| bits | 1 << slot);
        count
    }
}

impl Level {
    #[cold]
    fn new() -> Box<Level> {
        Box::new(Level { occupied: 0, emptied: false, slots: [List::EMPTY; SLOTS] })
    }
}

#[cfg(test)]
impl Levels {
    /// How many levels take memory, not counting the one that is kept for the next.
    pub(super) fn set_up(&self) -> usize {
        self.levels.iter().flatten().count()
    }
}
