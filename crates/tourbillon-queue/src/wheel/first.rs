//! Finding the first timer without changing the wheel.

use super::WheelCore;
use super::deadlines::{ItemDeadline, NoEntries, WheelEntries, deadline_in};
use super::levels::WheelSlot;
use crate::{RawQueue, Time};

impl<Id> WheelCore<Id, u64> {
    /// Returns the first entry to fire, whether it is due or not, and its deadline. Reads all items of a slot.
    pub(super) fn first(&self) -> Option<(&Id, Time)> {
        let run = self.first_running().and_then(|(_, level)| self.runs[level].first(&self.blocks));
        let overdue = self.overdue.first().map(|(id, deadline)| (deadline.as_nanos(), id));
        let placed = self.levels.first(self.elapsed).and_then(|slot| self.first_placed(slot, &NoEntries));
        // `min_by_key` takes the first of equal ones. A run was opened before an item that ties with it was armed, and no
        // overdue item ties with one in a slot.
        let first = [run, overdue, placed].into_iter().flatten().min_by_key(|(deadline, _)| *deadline);
        first.map(|(deadline, id)| (id, Time::from_nanos(deadline)))
    }
}

impl<Id, D: ItemDeadline> WheelCore<Id, D> {
    /// Returns the first item to fire in the list of a slot.
    fn first_in<E: WheelEntries<Id, D>>(&self, slot: WheelSlot, entries: &E) -> Option<(u64, &Id)> {
        let items = self.blocks.iter(&self.levels.list(slot.owner));
        items.map(|(stored, id)| (deadline_in(slot, stored, id, entries), id)).min_by_key(|(deadline, _)| *deadline)
    }

    /// Returns the first item to fire of a slot, its parts included if it is being split.
    fn first_placed<E: WheelEntries<Id, D>>(&self, slot: WheelSlot, entries: &E) -> Option<(u64, &Id)> {
        let first_part = if self.is_split(slot) { self.levels.first_occupied_part(slot) } else { None };
        let in_part = first_part.and_then(|part| self.first_placed(part, entries));
        // Of equal items, those that were distributed were armed earlier.
        in_part.into_iter().chain(self.first_in(slot, entries)).min_by_key(|(deadline, _)| *deadline)
    }

    /// Returns the earliest deadline of a slot, its parts included if it is being split.
    pub(super) fn first_deadline<E: WheelEntries<Id, D>>(&self, slot: WheelSlot, entries: &E) -> Option<u64> {
        self.first_placed(slot, entries).map(|(deadline, _)| deadline)
    }

    /// Returns the earliest deadline of the runs, the overdue items, and `placed`.
    pub(super) fn earliest(&self, placed: Option<u64>) -> Option<Time> {
        let run = self.first_running().map(|(deadline, _)| deadline);
        let overdue = self.overdue.next_deadline().map(Time::as_nanos);
        run.into_iter().chain(overdue).chain(placed).min().map(Time::from_nanos)
    }
}
