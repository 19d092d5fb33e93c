//! Splitting a crowded slot into the slots of a finer level, in steps.

use super::deadlines::{ItemDeadline, WheelEntries, prefetch_block};
use super::levels::WheelSlot;
use super::{BLOCK, CROWDED, LEVELS, WheelCore, levels};
use crate::blocks::ListOwner;

impl<Id, D: ItemDeadline> WheelCore<Id, D> {
    /// Returns whether a slot is being split.
    pub(super) fn is_split(&self, slot: WheelSlot) -> bool {
        self.splits[slot.height] == Some(slot.owner)
    }

    /// Returns whether a slot must be split before it can be opened.
    pub(super) fn is_crowded(&self, slot: WheelSlot) -> bool {
        match self.splits[slot.height] {
            None => slot.height > 0 && self.levels.list(slot.owner).blocks() > CROWDED / BLOCK,
            Some(owner) => owner == slot.owner,
        }
    }

    /// Distributes the items of a crowded slot to its parts, about `steps` of them (a whole block at a time); returns
    /// whether none is left.
    ///
    /// The first part begins when the slot does, and must be opened at the same time. If it is crowded too, it is split as
    /// well before the slot counts as done.
    #[inline(never)]
    pub(super) fn split<E: WheelEntries<Id, D>>(
        &mut self,
        entries: &mut E,
        slot: WheelSlot,
        steps: &mut usize,
    ) -> bool {
        self.splits[slot.height] = Some(slot.owner);
        self.splitting |= 1 << slot.height;
        let mut rest = self.levels.list(slot.owner);
        while *steps > 0 && !rest.is_empty() {
            if let Some(second) = self.blocks.numbers(&rest).nth(1) {
                prefetch_block(&self.blocks, &rest, second, entries);
            }
            let mut parts = self.levels.parts_mut(slot.height);
            let count = parts.distribute_block(slot, &mut self.blocks, &mut rest, entries);
            *steps = steps.saturating_sub(count);
        }
        if let Some(list) = self.levels.list_mut(slot.owner) {
            *list = rest;
        }
        let first = self.levels.first_part(slot);
        rest.is_empty() && (!self.is_crowded(first) || self.split(entries, first, steps))
    }

    /// Replaces a slot whose split is done by its parts, and does the same with the first part if that was split too.
    pub(super) fn finish_split(&mut self, slot: WheelSlot) {
        let first = self.levels.first_part(slot);
        self.end_split(slot.height, slot.owner);
        self.levels.promote_parts(slot.height);
        if self.is_split(first) {
            self.finish_split(first);
        }
    }

    /// Forgets the split of a slot whose items have all been distributed or removed.
    fn end_split(&mut self, height: usize, owner: ListOwner) {
        self.splits[height] = None;
        self.splitting &= !(1 << height);
        self.levels.mark_vacated(owner);
    }

    /// Records that a list has become empty while a slot is being split, and ends each split that has no item left.
    #[cold]
    pub(super) fn note_emptied_while_splitting(&mut self, owner: ListOwner) {
        if self.splits[levels::height(owner)] != Some(owner) {
            self.levels.mark_vacated(owner);
        }
        // From the lowest height up, so that the first part of a slot comes before the slot.
        for height in 1..LEVELS {
            if let Some(whole) = self.splits[height]
                && self.levels.list(whole).is_empty()
                && self.levels.first_of(self.levels.parts(height)).is_none()
            {
                self.end_split(height, whole);
            }
        }
    }

    /// Returns the slot of a height that is being split.
    pub(super) fn split_slot(&self, height: usize) -> Option<WheelSlot> {
        let owner = self.splits.get(height).copied().flatten()?;
        if self.levels.is_root(owner) {
            return Some(self.levels.slot(self.elapsed, owner));
        }
        self.split_slot(height + 1).map(|whole| self.levels.first_part(whole))
    }
}
