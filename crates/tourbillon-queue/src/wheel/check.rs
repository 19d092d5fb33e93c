//! The invariants of the wheel.

use super::deadlines::{ItemDeadline, WheelEntries};
use super::{DIGIT, LEVELS, WheelCore, run_owner};
use crate::raw::RawQueue;
use crate::violation::{Violation, ensure};

impl<Id, D: ItemDeadline> WheelCore<Id, D> {
    /// Verifies the wheel and all its parts, and returns how many items they hold.
    pub(super) fn check_invariants<E: WheelEntries<Id, D>>(&self, entries: &E) -> Result<usize, Violation> {
        let (mut count, mut blocks) = (self.overdue.check(entries)?, 0);
        for (level, run) in self.runs.iter().enumerate() {
            ensure!(run.is_empty() == (self.live_runs & 1 << level == 0), "wheel: a run and its bit disagree");
            let (items, used) = run.check(&self.blocks, run_owner(level), entries)?;
            (count, blocks) = (count + items, blocks + used);
            let shift = DIGIT * (level as u32 + 1);
            let above = |time: u64| time.checked_shr(shift).unwrap_or(0);
            ensure!(
                run.deadlines(&self.blocks).all(|deadline| above(deadline) == above(self.elapsed)),
                "wheel: a run is outside the slot that time is in"
            );
        }
        for height in 0..LEVELS {
            let splitting = self.splitting & 1 << height != 0;
            ensure!(self.splits[height].is_some() == splitting, "wheel: a split and its bit disagree");
        }
        let slots = self.levels.check(self.elapsed, |height| self.split_slot(height))?;
        for slot in slots {
            let list = &self.levels.list(slot.owner);
            let occupied = !list.is_empty() || self.is_split(slot);
            ensure!(self.levels.is_occupied(slot.owner) == occupied, "wheel: a slot and its bit disagree");
            count += self.blocks.check(list, slot.owner, entries)?;
            blocks += list.blocks();
            let width = 1u64 << (DIGIT * slot.height as u32);
            let inside = |deadline: u64| deadline >= slot.start && deadline - slot.start < width;
            ensure!(
                self.blocks.iter(list).filter_map(|(stored, _)| stored.stored()).all(inside),
                "wheel: an item is in the wrong slot"
            );
        }
        self.blocks.check_free(blocks)?;
        Ok(count)
    }
}
