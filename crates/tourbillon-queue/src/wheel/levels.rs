//! The levels of the wheel and the slots in them.
//!
//! A level has 64 slots, each a list. There can be two levels of each height: the *root*, for deadlines whose first
//! difference from `elapsed` is at that digit; and the *parts* of a crowded slot one level higher, while that slot is
//! being split. When the split is complete, time has left the old root, and the parts become the root.
//!
//! An empty level is kept for a while, so that arming and cancelling one timer does not allocate and free it each time.
//! [`Levels::trim`] frees the levels that have been empty since its last call, and keeps one of them as a spare.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::deadlines::{ItemDeadline, WheelEntries, deadline_for_split};
use super::{DIGIT, LEVELS, SLOTS};
use crate::blocks::{Blocks, List, ListOwner};
use crate::violation::{Violation, ensure};

/// The roots and the parts of all heights.
#[derive(Clone)]
pub(super) struct Levels {
    /// Two for each height: see [`LevelNumber`].
    levels: [Option<Box<Level>>; 2 * LEVELS],
    /// Bitmap of the heights whose root is the second of the two levels.
    second: u32,
    /// Bitmap of the heights whose root has an occupied slot.
    occupied_roots: u32,
    /// A freed level, for the next one that is needed.
    spare: Option<Box<Level>>,
}

/// The number of a level: twice its height, plus one for the second of that height.
type LevelNumber = usize;

#[derive(Clone)]
struct Level {
    /// Bitmap of the slots that are not empty.
    occupied: u64,
    /// Whether the level has become empty since the last trim.
    emptied: bool,
    slots: [List; SLOTS],
}

/// An allocated level that items can be added to.
pub(super) struct LevelMut<'a> {
    level: &'a mut Level,
    number: LevelNumber,
}

/// A slot: its level, its height and the time at which it begins.
#[derive(Clone, Copy)]
pub(super) struct WheelSlot {
    pub(super) owner: ListOwner,
    pub(super) height: usize,
    /// The first nanosecond of the slot.
    pub(super) start: u64,
}

const _: () = assert!(LEVELS <= u32::BITS as usize);

/// Returns the digit of `time` that selects a slot of a level.
#[inline]
fn digit(time: u64, height: usize) -> usize {
    (time >> (DIGIT * height as u32)) as usize % SLOTS
}

/// Returns the first nanosecond of a slot of the root of a height.
#[inline]
fn start(elapsed: u64, height: usize, slot: usize) -> u64 {
    let shift = DIGIT * height as u32;
    let above = (elapsed >> shift) & !(SLOTS as u64 - 1);
    (above | slot as u64) << shift
}

/// Returns the height of the level that a slot is in.
#[inline]
pub(super) fn height(owner: ListOwner) -> usize {
    level_and_slot(owner).0 / 2
}

/// Returns the owner code of a slot, from its level's number and its own.
#[inline]
fn owner(number: LevelNumber, slot: usize) -> ListOwner {
    ListOwner((number * SLOTS + slot) as u32)
}

#[inline]
fn level_and_slot(owner: ListOwner) -> (LevelNumber, usize) {
    (owner.0 as usize / SLOTS, owner.0 as usize % SLOTS)
}

impl Levels {
    pub(super) const fn new() -> Levels {
        Levels { levels: [const { None }; 2 * LEVELS], second: 0, occupied_roots: 0, spare: None }
    }

    #[inline]
    fn root(&self, height: usize) -> LevelNumber {
        2 * height + (self.second >> height) as usize % 2
    }

    /// Returns the number of the level for the parts of a slot of `height`.
    #[inline]
    pub(super) fn parts(&self, height: usize) -> LevelNumber {
        self.root(height - 1) ^ 1
    }

    /// Returns the first occupied part of a slot that is being split.
    pub(super) fn first_occupied_part(&self, slot: WheelSlot) -> Option<WheelSlot> {
        let owner = self.first_of(self.parts(slot.height))?;
        let height = slot.height - 1;
        let start = slot.start | (level_and_slot(owner).1 as u64) << (DIGIT * height as u32);
        Some(WheelSlot { owner, height, start })
    }

    /// Returns the first part of a slot: it begins when the slot does.
    pub(super) fn first_part(&self, slot: WheelSlot) -> WheelSlot {
        let number = self.parts(slot.height);
        WheelSlot { owner: owner(number, 0), height: slot.height - 1, start: slot.start }
    }

    /// Returns whether a slot is in a root.
    pub(super) fn is_root(&self, owner: ListOwner) -> bool {
        self.root(height(owner)) == level_and_slot(owner).0
    }

    /// Finds the slot for a deadline after `elapsed`, marks it occupied, and returns it with its list.
    #[inline]
    pub(super) fn find(&mut self, elapsed: u64, deadline: u64) -> (ListOwner, &mut List) {
        debug_assert!(elapsed < deadline);
        let height = ((elapsed ^ deadline).ilog2() / DIGIT) as usize;
        let (number, slot) = (self.root(height), digit(deadline, height));
        if self.levels[number].is_none() {
            self.allocate(number);
        }
        let Levels { levels, occupied_roots, .. } = self;
        let level = levels[number].get_or_insert_with(Level::new);
        let list = &mut level.slots[slot];
        // The bits of a slot that has items are set already.
        if list.is_empty() {
            level.occupied |= 1 << slot;
            *occupied_roots |= 1 << height;
        }
        (owner(number, slot), list)
    }

    /// Returns the level for the parts of a slot of `height`, allocating it if needed.
    pub(super) fn parts_mut(&mut self, height: usize) -> LevelMut<'_> {
        self.level_mut(self.parts(height))
    }

    /// Returns a level, allocating it if needed.
    #[inline]
    fn level_mut(&mut self, number: LevelNumber) -> LevelMut<'_> {
        if self.levels[number].is_none() {
            self.allocate(number);
        }
        LevelMut { level: self.levels[number].get_or_insert_with(Level::new), number }
    }

    /// Allocates a level, or takes the spare one.
    #[cold]
    fn allocate(&mut self, number: LevelNumber) {
        self.levels[number] = Some(self.spare.take().unwrap_or_else(Level::new));
    }

    /// Returns the list of a slot; `None` if its level is not allocated.
    #[inline(always)]
    pub(super) fn list_mut(&mut self, owner: ListOwner) -> Option<&mut List> {
        let (number, slot) = level_and_slot(owner);
        self.levels[number].as_mut().map(|level| &mut level.slots[slot])
    }

    /// Returns a copy of the list of a slot.
    pub(super) fn list(&self, owner: ListOwner) -> List {
        let (number, slot) = level_and_slot(owner);
        self.levels[number].as_ref().map_or(List::EMPTY, |level| level.slots[slot])
    }

    /// Empties a slot and returns the list that it held.
    pub(super) fn take(&mut self, owner: ListOwner) -> List {
        let list = self.list_mut(owner).map(|list| core::mem::replace(list, List::EMPTY));
        self.mark_vacated(owner);
        list.unwrap_or(List::EMPTY)
    }

    /// Clears the bit of a slot whose list has become empty.
    #[inline(always)]
    pub(super) fn mark_vacated(&mut self, owner: ListOwner) {
        let (number, slot) = level_and_slot(owner);
        let Some(level) = &mut self.levels[number] else { return };
        level.occupied &= !(1 << slot);
        if level.occupied == 0 {
            level.emptied = true;
            if self.root(number / 2) == number {
                self.occupied_roots &= !(1 << (number / 2));
            }
        }
    }

    /// Frees the levels that have been empty since the last call.
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
        debug_assert!(!self.is_occupied_level(old), "time has left a slot that is still occupied");
        self.second ^= 1 << (height - 1);
        self.occupied_roots |= u32::from(self.is_occupied_level(new)) << (height - 1);
    }

    /// Returns the first occupied slot of all roots.
    #[inline]
    pub(super) fn first(&self, elapsed: u64) -> Option<WheelSlot> {
        if self.occupied_roots == 0 {
            return None;
        }
        let height = self.occupied_roots.trailing_zeros() as usize;
        self.first_of(self.root(height)).map(|owner| self.slot(elapsed, owner))
    }

    /// Returns the slot of a root that `owner` stands for.
    #[inline]
    pub(super) fn slot(&self, elapsed: u64, owner: ListOwner) -> WheelSlot {
        let height = height(owner);
        WheelSlot { owner, height, start: start(elapsed, height, level_and_slot(owner).1) }
    }

    /// Returns the first occupied slot of a level.
    #[inline]
    pub(super) fn first_of(&self, number: LevelNumber) -> Option<ListOwner> {
        let occupied = self.levels[number].as_ref()?.occupied;
        (occupied != 0).then(|| owner(number, occupied.trailing_zeros() as usize))
    }

    fn is_occupied_level(&self, number: LevelNumber) -> bool {
        self.levels[number].as_ref().is_some_and(|level| level.occupied != 0)
    }

    /// Verifies the levels and returns every slot of them. `split(height)` returns the slot of that height that is being
    /// split.
    pub(super) fn check(
        &self,
        elapsed: u64,
        split: impl Fn(usize) -> Option<WheelSlot>,
    ) -> Result<Vec<WheelSlot>, Violation> {
        let mut slots = Vec::new();
        for (number, level) in self.levels.iter().enumerate() {
            let height = number / 2;
            let Some(level) = level else { continue };
            if level.occupied == 0 {
                ensure!(level.slots.iter().all(List::is_empty), "wheel: a slot of an empty level is not empty");
                continue;
            }
            let begin = if number == self.root(height) {
                ensure!(self.occupied_roots & 1 << height != 0, "wheel: a root is not marked");
                let first = level.occupied.trailing_zeros() as usize;
                ensure!(first > digit(elapsed, height), "wheel: a slot that time has reached is not opened");
                start(elapsed, height, 0)
            } else {
                let Some(whole) = split(height + 1) else {
                    return Err(Violation::new("wheel: there are parts, but no slot is being split"));
                };
                whole.start
            };
            for slot in 0..SLOTS {
                let start = begin | (slot as u64) << (DIGIT * height as u32);
                slots.push(WheelSlot { owner: owner(number, slot), height, start });
            }
        }
        for height in 0..LEVELS {
            let occupied = self.is_occupied_level(self.root(height));
            ensure!(occupied == (self.occupied_roots & 1 << height != 0), "wheel: a root and its bit disagree");
        }
        Ok(slots)
    }

    /// Returns whether a slot is marked occupied.
    pub(super) fn is_occupied(&self, owner: ListOwner) -> bool {
        let (number, slot) = level_and_slot(owner);
        self.levels[number].as_ref().is_some_and(|level| level.occupied & 1 << slot != 0)
    }
}

impl LevelMut<'_> {
    /// Moves the items of the first block of a list, which is that of `slot`, into this level; returns how many positions that
    /// block had.
    pub(super) fn distribute_block<Id, D: ItemDeadline, E: WheelEntries<Id, D>>(
        &mut self,
        slot: WheelSlot,
        blocks: &mut Blocks<D, Id>,
        list: &mut List,
        entries: &mut E,
    ) -> usize {
        let height = self.number / 2;
        let choose = |entries: &E, stored, id: &Id| digit(deadline_for_split(slot, stored, id, entries), height);
        let count = blocks.distribute_block(list, &mut self.level.slots, owner(self.number, 0), choose, entries);
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
    /// Returns how many levels are allocated, not counting the spare.
    pub(super) fn allocated_levels(&self) -> usize {
        self.levels.iter().flatten().count()
    }
}
