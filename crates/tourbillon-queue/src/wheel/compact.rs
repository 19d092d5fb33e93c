//! The wheel whose items have no deadlines.

use super::deadlines::{EntryDeadlines, WithEntry};
use super::{PlaceKind, SCAN_LIMIT, WheelCore};
use crate::blocks::{BLOCK, Blocks};
use crate::{Entries, Place, RawQueue, Settled, Time, Violation};

/// A [`RawWheel`](crate::RawWheel) for entries that store their own deadlines: an item of it is the id alone.
///
/// The methods mean the same as those of [`RawQueue`]. The difference is that an entry may move its own deadline later, and need
/// not tell the wheel: [`pop`](CompactWheel::pop) then returns the entry before that deadline, with the time until which the wheel knew
/// that it was not due, and the caller inserts it again.
///
/// ```
/// use tourbillon_queue::{CompactWheel, Entries, EntryDeadlines, Place, Time};
///
/// struct Timers(Vec<(Time, Place)>);
///
/// impl Entries<u32> for Timers {
///     fn place(&self, id: &u32) -> Place {
///         self.0[*id as usize].1
///     }
///     fn set_place(&mut self, id: &u32, place: Place) {
///         self.0[*id as usize].1 = place;
///     }
/// }
///
/// impl EntryDeadlines<u32> for Timers {
///     fn deadline(&self, id: &u32) -> Option<Time> {
///         Some(self.0[*id as usize].0)
///     }
/// }
///
/// let mut timers = Timers(vec![(Time::from_nanos(300), Place::NOWHERE), (Time::from_nanos(200), Place::NOWHERE)]);
/// let mut wheel = CompactWheel::new();
/// for id in 0..2 {
///     let deadline = timers.0[id as usize].0;
///     timers.0[id as usize].1 = wheel.insert(&mut timers, id, deadline);
/// }
/// assert_eq!(wheel.pop(&mut timers, Time::from_nanos(500)), Some((1, Time::from_nanos(200))));
/// ```
#[derive(Clone)]
pub struct CompactWheel<Id>(WheelCore<Id, WithEntry>);

impl<Id> CompactWheel<Id> {
    /// Bytes that one entry takes in the wheel, spare capacity not counted.
    pub const BYTES_PER_ENTRY: usize = Blocks::<WithEntry, Id>::ITEM_BYTES;

    /// Returns an empty wheel at [`Time::ZERO`]. Allocates nothing.
    #[must_use]
    pub const fn new() -> CompactWheel<Id> {
        CompactWheel(WheelCore::new())
    }

    /// Inserts `id`, due at `deadline`: see [`RawQueue::insert`].
    #[inline(always)]
    #[must_use]
    pub fn insert<E: EntryDeadlines<Id>>(&mut self, entries: &mut E, id: Id, deadline: Time) -> Place {
        self.0.insert(entries, id, deadline)
    }

    /// Takes out the entry at `place`.
    #[inline(always)]
    pub fn remove<E: Entries<Id>>(&mut self, entries: &mut E, place: Place) -> Id {
        let PlaceKind::Main(position) = place.kind() else { return self.0.overdue.remove(entries, place).0 };
        self.0.remove(entries, position).1
    }

    /// Returns when to call [`settle`](CompactWheel::settle) or [`pop`](CompactWheel::pop) next: see [`RawQueue::next_wakeup`].
    pub fn next_wakeup<E: EntryDeadlines<Id>>(&self, entries: &E) -> Option<Time> {
        // Each item is somewhere else in memory, so few are read.
        self.0.next_wakeup(entries, (SCAN_LIMIT / 4).max(BLOCK))
    }

    /// Does the upkeep for the next `pop`, in about `steps` steps: see [`RawQueue::settle`].
    pub fn settle<E: EntryDeadlines<Id>>(&mut self, entries: &mut E, now: Time, steps: usize) -> Settled {
        self.0.settle(entries, now, steps)
    }

    /// Returns the time that `pop` at `now` would return: see [`RawQueue::peek`].
    pub fn peek<E: EntryDeadlines<Id>>(&mut self, entries: &mut E, now: Time) -> Option<Time> {
        self.0.peek(entries, now)
    }

    /// Takes out the first entry that is due at `now`, as far as the wheel knows, and the time when it was due.
    #[inline]
    pub fn pop<E: EntryDeadlines<Id>>(&mut self, entries: &mut E, now: Time) -> Option<(Id, Time)> {
        self.0.pop(entries, now)
    }

    /// Takes out the first entry that is due, if that needs no upkeep: see [`RawQueue::pop_ready`].
    #[inline]
    pub fn pop_ready(&mut self, now: Time) -> Option<(Id, Time)> {
        self.0.pop_ready(now)
    }

    /// Verifies every invariant of the wheel, and returns the number of entries: see [`RawQueue::check`].
    ///
    /// # Errors
    /// Returns the first [`Violation`] found.
    pub fn check<E: EntryDeadlines<Id>>(&self, entries: &E) -> Result<usize, Violation> {
        self.0.check_invariants(entries)
    }
}

impl<Id> Default for CompactWheel<Id> {
    fn default() -> CompactWheel<Id> {
        CompactWheel::new()
    }
}

impl<Id> core::fmt::Debug for CompactWheel<Id> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("CompactWheel").field("elapsed", &Time::from_nanos(self.0.elapsed)).finish_non_exhaustive()
    }
}
