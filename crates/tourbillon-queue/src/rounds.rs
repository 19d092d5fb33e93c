//! A wheel of one revolution, with round counts.
//!
//! ```text
//!           slot 0     1     2     3     4     5     6     7        slot = tick of the deadline, modulo the slots
//!               [  ] [ab] [  ] [ c] [  ] [  ] [d ] [  ]
//!                      ^                                            a is due in this round, b two rounds later
//!                    cursor
//! ```
//!
//! The classic simple wheel, as many job schedulers have it: the tick and the number of slots are chosen once, and a
//! timer further away than one revolution waits in its slot until its round comes. The tick only determines how finely
//! deadlines are spread over the slots. It does not round them: a timer is due at its deadline, to the nanosecond,
//! and within a tick timers fire in order.
//!
//! When time reaches a tick, the queue *opens* it: it takes the timers that are due in the tick out of the slot and sorts
//! them into a run. A timer that is armed for an opened tick later waits in a heap.
//!
//! A slot with any timer takes at least one block of 64 items, so many slots with one or two timers each cost memory:
//! about 1.6 kB a slot for small values.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::blocks::{Blocks, List, ListOwner};
use crate::place::{Place, PlaceKind};
use crate::raw::{Entries, RawQueue};
use crate::violation::{Violation, ensure};
use crate::{Keyed, RawHeap, Span, Time, Timer};

/// A timer queue on a single wheel with round counts: simple and quick as long as most timers are due within one
/// revolution.
///
/// See [`RawRounds`] for the structure, [`TimerQueue`](crate::TimerQueue) for the methods.
///
/// ```
/// use tourbillon_queue::{Rounds, Span, Time, TimerQueue};
///
/// // Ticks of 10 ms, 512 slots: a revolution takes 5.12 s.
/// let mut rounds = Rounds::with_slots(Span::from_millis(10), 512)?;
/// rounds.insert(Time::ZERO + Span::from_secs(60), "in the twelfth round");
/// assert!(rounds.pop(Time::ZERO + Span::from_secs(59)).is_none());
/// assert!(rounds.pop(Time::ZERO + Span::from_secs(60)).is_some());
/// # Ok::<(), tourbillon_queue::RoundsError>(())
/// ```
pub type Rounds<T> = Keyed<T, RawRounds<Timer<T>>>;

/// A round-counting wheel of ids, for entries that live anywhere.
#[derive(Clone)]
pub struct RawRounds<Id> {
    /// Length of a tick in nanoseconds; not zero.
    tick: u64,
    slots: Vec<List>,
    /// Bitmap of the slots that are not empty.
    occupied: Vec<u64>,
    /// All timers due before this time have left the slots.
    opened: u64,
    /// The timers of the tick that was opened last, in order.
    run: List,
    /// Timers that were armed for a time before `opened`.
    overdue: RawHeap<Id>,
    blocks: Blocks<u64, Id>,
}

/// The error of a tick or a number of slots that no wheel can have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RoundsError {
    /// The tick is zero; it must be at least a nanosecond.
    ZeroTick,
    /// The number of slots is zero, or more than [`MAX_SLOTS`](RoundsError::MAX_SLOTS).
    Slots {
        /// The number of slots that was asked for.
        asked: usize,
    },
}

impl RoundsError {
    /// The most slots that a wheel can have.
    pub const MAX_SLOTS: usize = 1 << 24;
}

/// Ticks of a millisecond.
const DEFAULT_TICK: Span = Span::from_millis(1);
/// A revolution of about four seconds.
const DEFAULT_SLOTS: usize = 4096;

/// The result of a scan of the slots for the earliest deadline.
enum SlotScan {
    /// The earliest deadline.
    Earliest(u64),
    /// No timer is due before this time. The scan ended before the slots after it.
    NotBefore(u64),
    /// All slots are empty.
    Nothing,
}

/// The number of timers after which `next_wakeup` ends its scan.
const SCAN_LIMIT: usize = 4096;

/// The owner of the run's blocks. The owners of the slots are numbered from zero.
const RUN: ListOwner = ListOwner(u32::MAX);

impl<T> Rounds<T> {
    /// Returns an empty queue with the given tick and number of slots.
    ///
    /// # Errors
    /// Returns a [`RoundsError`] if the tick or the number of slots is zero, or there are too many slots.
    pub fn with_slots(tick: Span, slots: usize) -> Result<Rounds<T>, RoundsError> {
        RawRounds::with_slots(tick, slots).map(Keyed::with_raw)
    }
}

impl<Id> RawRounds<Id> {
    /// Returns an empty wheel with the given tick and number of slots.
    ///
    /// # Errors
    /// Returns a [`RoundsError`] if the tick or the number of slots is zero, or there are too many slots.
    pub fn with_slots(tick: Span, slots: usize) -> Result<RawRounds<Id>, RoundsError> {
        if tick == Span::ZERO {
            return Err(RoundsError::ZeroTick);
        }
        if !(1..=RoundsError::MAX_SLOTS).contains(&slots) {
            return Err(RoundsError::Slots { asked: slots });
        }
        Ok(RawRounds {
            tick: tick.as_nanos(),
            slots: vec![List::EMPTY; slots],
            occupied: vec![0; slots.div_ceil(u64::BITS as usize)],
            opened: 0,
            run: List::EMPTY,
            overdue: RawHeap::new(),
            blocks: Blocks::new(),
        })
    }

    fn slot_of(&self, tick: u64) -> usize {
        (tick % self.slots.len() as u64) as usize
    }

    /// Makes the bit of a slot agree with its list.
    fn update_bit(&mut self, slot: usize) {
        let bit = 1 << (slot % 64);
        if self.slots[slot].is_empty() {
            self.occupied[slot / 64] &= !bit;
        } else {
            self.occupied[slot / 64] |= bit;
        }
    }

    /// Returns the first occupied slot at or after `slot`, if there is one before the last slot ends.
    fn next_occupied(&self, slot: usize) -> Option<usize> {
        let mut word = slot / 64;
        let mut bits = self.occupied.get(word)? & (u64::MAX << (slot % 64));
        while bits == 0 {
            word += 1;
            bits = *self.occupied.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    /// Scans the slots for the earliest deadline, for one revolution from the slot that time is in. A timer that is due
    /// within that revolution ends the scan, for it is the earliest; only if there is none does the scan read all timers.
    ///
    /// Stops after the tick `last`, and goes to no further slot once it has read more than `most` timers.
    fn scan_slots(&self, last: u64, most: usize) -> SlotScan {
        let (from, slots) = (self.opened / self.tick, self.slots.len());
        let base = self.slot_of(from);
        let (mut later, mut scanned) = (u64::MAX, 0);
        let mut next = self.next_occupied(base).or_else(|| self.next_occupied(0));
        while let Some(slot) = next {
            let distance = (slot + slots - base) % slots;
            let tick = from.saturating_add(distance as u64);
            if tick > last || scanned > most {
                return SlotScan::NotBefore(tick.saturating_mul(self.tick).min(later));
            }
            let mut first = u64::MAX;
            for (deadline, _) in self.blocks.iter(&self.slots[slot]) {
                let earliest = if deadline / self.tick == tick { &mut first } else { &mut later };
                *earliest = deadline.min(*earliest);
                scanned += 1;
            }
            if first < u64::MAX {
                return SlotScan::Earliest(first);
            }
            let after = self.next_occupied(slot + 1).or_else(|| self.next_occupied(0));
            next = after.filter(|after| (after + slots - base) % slots > distance);
        }
        if later < u64::MAX { SlotScan::Earliest(later) } else { SlotScan::Nothing }
    }

    /// Returns the earliest timer outside the slots: its deadline, and whether it is in the run.
    fn first_opened(&self) -> Option<(u64, bool)> {
        let run = self.blocks.front_key(&self.run);
        let overdue = self.overdue.next_deadline().map(Time::as_nanos);
        match (run, overdue) {
            // On a tie the timer in the run was armed earlier: before its tick was opened.
            (Some(run), overdue) if overdue.is_none_or(|overdue| run <= overdue) => Some((run, true)),
            (_, overdue) => overdue.map(|overdue| (overdue, false)),
        }
    }

    /// Returns the first timer that is due, opening its tick if needed: its deadline, and whether it is in the run.
    fn find_front<E: Entries<Id>>(&mut self, entries: &mut E, now: Time) -> Option<(u64, bool)> {
        loop {
            if let Some((deadline, is_in_run)) = self.first_opened() {
                return (deadline <= now.as_nanos()).then_some((deadline, is_in_run));
            }
            match self.scan_slots(now.as_nanos() / self.tick, usize::MAX) {
                SlotScan::Earliest(deadline) if deadline <= now.as_nanos() => self.open(entries, deadline),
                _ => {
                    // The tick that `now` is in is not opened: timers armed for the rest of it go to its slot.
                    self.opened = self.opened.max(now.as_nanos() / self.tick * self.tick);
                    return None;
                }
            }
        }
    }

    /// Returns the earliest deadline; or, if the scan would read more than `most` timers, a time that is not after it.
    fn next(&self, most: usize) -> Option<Time> {
        // Timers outside the slots are due before those in the slots.
        let opened = self.first_opened().map(|(deadline, _)| deadline);
        let next = opened.or_else(|| match self.scan_slots(u64::MAX, most) {
            SlotScan::Earliest(time) | SlotScan::NotBefore(time) => Some(time),
            SlotScan::Nothing => None,
        });
        next.map(Time::from_nanos)
    }

    /// Opens the tick of `deadline`: moves its timers from the slot to the run, sorted.
    fn open<E: Entries<Id>>(&mut self, entries: &mut E, deadline: u64) {
        let tick = deadline / self.tick;
        let slot = self.slot_of(tick);
        let length = self.tick;
        let mut due = self.blocks.take_if(&mut self.slots[slot], |deadline| deadline / length == tick, entries);
        self.update_bit(slot);
        due.sort_by_key(|(deadline, _)| *deadline);
        debug_assert!(self.run.is_empty(), "a tick is opened before the previous one has fired");
        for (deadline, id) in due {
            self.blocks.push_entry(&mut self.run, RUN, deadline, id, entries);
        }
        self.opened = (tick + 1).saturating_mul(self.tick);
    }
}

impl<Id> Default for RawRounds<Id> {
    /// Returns a wheel with ticks of a millisecond and 4096 slots.
    fn default() -> RawRounds<Id> {
        match RawRounds::with_slots(DEFAULT_TICK, DEFAULT_SLOTS) {
            Ok(rounds) => rounds,
            Err(_) => unreachable!("the defaults are valid"),
        }
    }
}

impl<Id> RawQueue<Id> for RawRounds<Id> {
    const BYTES_PER_ENTRY: usize = Blocks::<u64, Id>::ITEM_BYTES;

    fn insert<E: Entries<Id>>(&mut self, entries: &mut E, id: Id, deadline: Time) -> Place {
        let nanos = deadline.as_nanos();
        if nanos < self.opened {
            return self.overdue.insert(entries, id, deadline);
        }
        let slot = self.slot_of(nanos / self.tick);
        let position = self.blocks.push(&mut self.slots[slot], ListOwner(slot as u32), nanos, id);
        self.update_bit(slot);
        Place::main(position)
    }

    fn remove<E: Entries<Id>>(&mut self, entries: &mut E, place: Place) -> (Id, Time) {
        let PlaceKind::Main(position) = place.kind() else { return self.overdue.remove(entries, place) };
        let owner = self.blocks.owner(position);
        let (deadline, id) = if owner == RUN {
            self.blocks.remove(&mut self.run, position, entries)
        } else {
            let slot = owner.0 as usize;
            let removed = self.blocks.remove(&mut self.slots[slot], position, entries);
            self.update_bit(slot);
            removed
        };
        (id, Time::from_nanos(deadline))
    }

    fn get(&self, place: Place) -> Option<(&Id, Time)> {
        let PlaceKind::Main(position) = place.kind() else { return self.overdue.get(place) };
        self.blocks.id(position).map(|id| (id, Time::from_nanos(self.blocks.key(position))))
    }

    fn get_mut(&mut self, place: Place) -> Option<&mut Id> {
        let PlaceKind::Main(position) = place.kind() else { return self.overdue.get_mut(place) };
        self.blocks.id_mut(position)
    }

    fn next_deadline(&self) -> Option<Time> {
        self.next(usize::MAX)
    }

    fn next_wakeup(&self) -> Option<Time> {
        self.next(SCAN_LIMIT)
    }

    fn peek<E: Entries<Id>>(&mut self, entries: &mut E, now: Time) -> Option<Time> {
        self.find_front(entries, now).map(|(deadline, _)| Time::from_nanos(deadline))
    }

    fn pop<E: Entries<Id>>(&mut self, entries: &mut E, now: Time) -> Option<(Id, Time)> {
        let (_, is_in_run) = self.find_front(entries, now)?;
        if !is_in_run {
            return self.overdue.pop(entries, now);
        }
        let (deadline, id) = self.blocks.pop_front_if(&mut self.run, |_| true)?;
        Some((id, Time::from_nanos(deadline)))
    }

    fn for_each(&self, mut visit: impl FnMut(&Id)) {
        self.blocks.ids().for_each(&mut visit);
        self.overdue.for_each(visit);
    }

    fn clear(&mut self) {
        self.slots.fill(List::EMPTY);
        self.occupied.fill(0);
        self.run = List::EMPTY;
        // Both are taken before either is dropped, so that a destructor that panics leaves no entry in the queue.
        let dropped = (core::mem::take(&mut self.overdue), core::mem::replace(&mut self.blocks, Blocks::new()));
        drop(dropped);
    }

    fn check<E: Entries<Id>>(&self, entries: &E) -> Result<usize, Violation> {
        let mut count = self.overdue.check(entries)? + self.blocks.check(&self.run, RUN, entries)?;
        let mut blocks = self.run.blocks();
        let in_run = || self.blocks.iter(&self.run).map(|(deadline, _)| deadline);
        ensure!(
            in_run().is_sorted() && in_run().all(|deadline| deadline < self.opened),
            "rounds: the run is not in order"
        );
        for (slot, list) in self.slots.iter().enumerate() {
            let bit = self.occupied[slot / 64] >> (slot % 64) & 1 == 1;
            ensure!(bit != list.is_empty(), "rounds: a slot and its bit disagree");
            count += self.blocks.check(list, ListOwner(slot as u32), entries)?;
            blocks += list.blocks();
            for (deadline, _) in self.blocks.iter(list) {
                ensure!(self.slot_of(deadline / self.tick) == slot, "rounds: an entry is in the wrong slot");
                ensure!(deadline >= self.opened, "rounds: a tick that time has reached is not opened");
            }
        }
        self.blocks.check_free(blocks)?;
        Ok(count)
    }
}

impl<Id> fmt::Debug for RawRounds<Id> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawRounds")
            .field("tick", &Span::from_nanos(self.tick))
            .field("slots", &self.slots.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for RoundsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RoundsError::ZeroTick => f.write_str("a tick of zero: it must be at least one nanosecond"),
            RoundsError::Slots { asked } => {
                write!(f, "{asked} slots: there must be at least one and at most {}", RoundsError::MAX_SLOTS)
            }
        }
    }
}

impl core::error::Error for RoundsError {}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;
    use crate::TimerQueue;

    /// Returns a wheel with `count` timers in its first half, due in a later round, and one at the end of the last slot.
    fn rounds_with(count: usize) -> Rounds<u64> {
        let mut rounds = Rounds::with_slots(Span::from_nanos(10), 64).unwrap();
        for number in 0..count as u64 {
            rounds.insert(Time::from_nanos(64_000 + 10 * (number % 32)), number);
        }
        rounds.insert(Time::from_nanos(639), 0);
        rounds
    }

    #[test]
    fn next_wakeup_scans_some_thousand_timers_and_not_all() {
        let last = Some(Time::from_nanos(639));
        let few = rounds_with(SCAN_LIMIT);
        assert_eq!((few.next_wakeup(), few.next_deadline()), (last, last));
        // The scan ends early: it knows only that nothing is due before the slot that it has reached.
        let many = rounds_with(2 * SCAN_LIMIT + 32);
        let wakeup = many.next_wakeup().unwrap();
        assert!(Time::from_nanos(80) < wakeup && wakeup < Time::from_nanos(320), "{wakeup:?}");
        assert_eq!(many.next_deadline(), last);
    }

    #[test]
    fn next_wakeup_scans_from_the_slot_that_time_is_in() {
        let mut rounds = Rounds::with_slots(Span::from_nanos(10), 64).unwrap();
        assert!(rounds.pop(Time::from_nanos(64_305)).is_none());
        for number in 0..2 * SCAN_LIMIT as u64 {
            rounds.insert(Time::from_nanos(128_000 + number % 300), number);
        }
        // In the slot that time is in, whose number is higher than those of all the others.
        rounds.insert(Time::from_nanos(64_309), 0);
        assert_eq!(rounds.next_wakeup(), Some(Time::from_nanos(64_309)));
    }

    #[test]
    fn a_queue_has_the_given_number_of_slots_and_uses_all_of_them() {
        let mut rounds = Rounds::with_slots(Span::from_nanos(7), 5).unwrap();
        for nanos in (100..).step_by(7).take(5) {
            rounds.insert(Time::from_nanos(nanos), nanos);
        }
        assert_eq!((rounds.raw().tick, rounds.raw().slots.len()), (7, 5));
        assert!(
            rounds.raw().slots.iter().all(|slot| !slot.is_empty()),
            "each tick of a revolution has a slot of its own"
        );
    }

    #[test]
    fn a_queue_keeps_up_with_time_and_a_timer_armed_for_the_rest_of_a_tick_goes_to_its_slot() {
        let mut rounds = Rounds::with_slots(Span::from_nanos(10), 8).unwrap();
        rounds.insert(Time::from_nanos(1_000_000), 0);
        for nanos in (0..2000).step_by(7) {
            let now = Time::from_nanos(nanos);
            assert!(rounds.pop(now).is_none());
            let opened = rounds.raw().opened;
            assert!(opened <= nanos && nanos < opened + 10, "{opened} at {nanos}");
            let key = rounds.insert(now, 1);
            assert!(rounds.raw().overdue.first().is_none());
            assert_eq!(rounds.remove(key), Some(1));
        }
    }

    #[test]
    fn p3_of_equal_deadlines_at_the_end_of_an_opened_tick_the_one_armed_first_comes_first() {
        let mut rounds = Rounds::with_slots(Span::from_nanos(10), 8).unwrap();
        rounds.insert(Time::from_nanos(20), 1);
        rounds.insert(Time::from_nanos(15), 0);
        assert_eq!(rounds.pop(Time::from_nanos(15)).map(|timer| timer.value), Some(0));
        rounds.insert(Time::from_nanos(20), 2);
        let mut fired = Vec::new();
        rounds.expire(Time::from_nanos(20), |timer| fired.push(timer.value));
        assert_eq!(fired, [1, 2]);
    }

    #[test]
    fn p6_the_error_of_an_impossible_wheel_says_what_was_asked_and_what_is_possible() {
        let text = |tick, slots| match Rounds::<u64>::with_slots(Span::from_nanos(tick), slots) {
            Ok(_) => panic!("a tick of {tick} ns and {slots} slots"),
            Err(error) => format!("{error}"),
        };
        assert_eq!(text(0, 8), "a tick of zero: it must be at least one nanosecond");
        assert_eq!(text(1, 0), format!("0 slots: there must be at least one and at most {}", RoundsError::MAX_SLOTS));
    }
}
