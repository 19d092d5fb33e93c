//! Opening slots as time reaches them, until the next timer to fire is at the front of a run.

use super::deadlines::{ItemDeadline, WheelEntries};
use super::levels::WheelSlot;
use super::{BLOCK, CROWDED, SORTABLE, TRIM_EVERY, WheelCore, run_owner};
use crate::Time;
use crate::raw::RawQueue;

/// The place of the next timer to fire.
#[derive(Clone, Copy)]
pub(super) enum Front {
    /// The run of a level.
    Run(usize),
    /// The heap of timers that were overdue when they were armed.
    Overdue,
    /// Nothing is due.
    Idle,
    /// Unknown until more items have been moved.
    Unsettled,
}

impl<Id, D: ItemDeadline> WheelCore<Id, D> {
    /// Returns the earliest deadline in the runs, and the level of its run.
    pub(super) fn first_running(&self) -> Option<(u64, usize)> {
        let mut first = None;
        let mut running = self.live_runs;
        while running != 0 {
            // From the highest level down: on a tie, the item of the higher level was armed earlier and stays first.
            let level = running.ilog2() as usize;
            running &= !(1 << level);
            if let Some(deadline) = self.runs[level].deadline(&self.blocks)
                && first.is_none_or(|(earliest, _)| deadline < earliest)
            {
                first = Some((deadline, level));
            }
        }
        first
    }

    /// Opens all slots that begin by `now` and not after the first item that is ready to fire; then returns the place of
    /// that item. Returns `Unsettled` when it has moved about `steps` items before that.
    #[inline(never)]
    pub(super) fn find_front<E: WheelEntries<Id, D>>(&mut self, entries: &mut E, now: u64, mut steps: usize) -> Front {
        loop {
            let run = self.first_running();
            let overdue = self.overdue.next_deadline().map(Time::as_nanos);
            let (deadline, front) = match (run, overdue) {
                (Some((deadline, level)), overdue) if overdue.is_none_or(|overdue| deadline <= overdue) => {
                    (deadline, Front::Run(level))
                }
                (_, Some(overdue)) => (overdue, Front::Overdue),
                (_, None) => (u64::MAX, Front::Idle),
            };
            match self.levels.first(self.elapsed) {
                Some(slot) if slot.start <= deadline.min(now) => {
                    if !self.open(entries, slot, &mut steps) {
                        return Front::Unsettled;
                    }
                }
                slot => {
                    self.bound = self.bound_of(front, slot);
                    if deadline <= now {
                        return front;
                    }
                    self.elapsed = self.elapsed.max(now);
                    self.trim();
                    return Front::Idle;
                }
            }
        }
    }

    /// Counts an idle poll; after every [`TRIM_EVERY`] of them, frees the memory that was not used since the last trim.
    fn trim(&mut self) {
        self.idle_polls += 1;
        if self.idle_polls == TRIM_EVERY {
            self.idle_polls = 0;
            self.levels.trim();
            self.sorter.trim();
        }
    }

    /// Returns the earliest time at which an item outside the front may be due.
    fn bound_of(&mut self, front: Front, first: Option<WheelSlot>) -> u64 {
        let mut others = match front {
            Front::Run(level) => {
                self.front = level as u8;
                self.live_runs & !(1 << level)
            }
            // All runs are empty, so any of them can be the front.
            Front::Idle => 0,
            Front::Overdue | Front::Unsettled => return 0,
        };
        let mut bound = first.map_or(u64::MAX, |slot| slot.start);
        while others != 0 {
            let other = others.trailing_zeros() as usize;
            others &= others - 1;
            if let Some(deadline) = self.runs[other].deadline(&self.blocks) {
                bound = bound.min(deadline);
            }
        }
        bound.min(self.overdue.next_deadline().map_or(u64::MAX, Time::as_nanos))
    }

    /// Moves `elapsed` to the first slot and opens it: its items become the run of its level. A crowded slot is split
    /// instead, and replaced by its parts. Returns `false` if `steps` ran out before that was done.
    fn open<E: WheelEntries<Id, D>>(&mut self, entries: &mut E, slot: WheelSlot, steps: &mut usize) -> bool {
        if self.is_crowded(slot) {
            let done = self.split(entries, slot, steps);
            if done {
                // The first part, if there is one, is now the first slot of all, is not crowded, and the caller's loop
                // opens it next. No other call can come in between and find `elapsed` in a slot that is not open.
                self.finish_split(slot);
                self.elapsed = slot.start;
            }
            return done;
        }
        self.elapsed = slot.start;
        let list = self.levels.take(slot.owner);
        let (run, owner) = (&mut self.runs[slot.height], run_owner(slot.height));
        debug_assert!(run.is_empty(), "time has left an opened slot before all its items have fired");
        if slot.height == 0 {
            run.open_at_once(&mut self.blocks, list, owner, slot.start);
        } else if list.blocks() > CROWDED / BLOCK || slot.height > SORTABLE {
            run.open_by_comparison(&mut self.blocks, list, owner, slot, &mut self.sorter, entries);
        } else {
            run.open(&mut self.blocks, list, owner, slot, &mut self.sorter, entries);
        }
        self.live_runs |= 1 << slot.height;
        true
    }
}
