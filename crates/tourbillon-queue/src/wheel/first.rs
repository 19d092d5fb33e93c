//! Finding the first timer without changing the wheel.

use super::RawWheel;
use super::levels::WheelSlot;
use crate::blocks::ListOwner;
use crate::{RawQueue, Time};

impl<Id> RawWheel<Id> {
    /// Returns the first entry to fire, whether it is due or not, and its deadline. Reads all items of a slot.
    #[must_use]
    pub fn first(&self) -> Option<(&Id, Time)> {
        let run = self.first_running().and_then(|(_, level)| self.runs[level].first(&self.blocks));
        let overdue = self.overdue.first().map(|(id, deadline)| (deadline.as_nanos(), id));
        let placed = self.levels.first(self.elapsed).and_then(|slot| self.first_placed(slot));
        // `min_by_key` takes the first of equal ones. A run was opened before an item that ties with it was armed, and no
        // overdue item ties with one in a slot.
        let first = [run, overdue, placed].into_iter().flatten().min_by_key(|(deadline, _)| *deadline);
        first.map(|(deadline, id)| (id, Time::from_nanos(deadline)))
    }

    /// Returns the first item to fire in the list of a slot.
    fn first_in(&self, owner: ListOwner) -> Option<(u64, &Id)> {
        self.blocks.iter(&self.levels.list(owner)).min_by_key(|(deadline, _)| *deadline)
    }

    /// Returns the first item to fire of a slot, its parts included if it is being split.
    fn first_placed(&self, slot: WheelSlot) -> Option<(u64, &Id)> {
        let first_part = if self.is_split(slot) { self.levels.first_of(self.levels.parts(slot.height)) } else { None };
        let first_part = first_part.map(|owner| WheelSlot { owner, height: slot.height - 1, start: slot.start });
        // Of equal items, those that were distributed were armed earlier.
        let items = first_part.and_then(|part| self.first_placed(part)).into_iter().chain(self.first_in(slot.owner));
        items.min_by_key(|(deadline, _)| *deadline)
    }

    /// Returns the earliest deadline of a slot, its parts included if it is being split.
    pub(super) fn first_deadline(&self, slot: WheelSlot) -> Option<u64> {
        self.first_placed(slot).map(|(deadline, _)| deadline)
    }

    /// Returns the earliest deadline of the runs, the overdue items, and `placed`.
    pub(super) fn earliest(&self, placed: Option<u64>) -> Option<Time> {
        let run = self.first_running().map(|(deadline, _)| deadline);
        let overdue = self.overdue.next_deadline().map(Time::as_nanos);
        run.into_iter().chain(overdue).chain(placed).min().map(Time::from_nanos)
    }
}
