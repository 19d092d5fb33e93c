//! A hierarchical timing wheel over all of time.
//!
//! # The picture
//!
//! A deadline is 64 bits, read as eleven digits of six bits. The wheel stands at a point `elapsed`. A timer belongs
//! to the *level* of the highest digit in which its deadline differs from `elapsed`, and there to the *slot* that
//! its own digit names:
//!
//! ```text
//!                      digit 10     ...     3      2      1      0
//!     elapsed             0         ...    17     41      5     63
//!     deadline            0         ...    17     44     20      1      first difference: level 2, slot 44
//!
//!     level 2   slots 0 ..... 41 ..... 44 ..... 63       64 slots of 4096 ns each
//!                             ^         |
//!                        elapsed is     +--> a list of items (deadline, id), in the order of arrival
//!                        inside here
//! ```
//!
//! All slots of a level lie within the slot of the level above that `elapsed` is inside, so the first occupied slot
//! of the lowest occupied level is the earliest: two bitmaps and two counts of trailing zeros find it. There is no
//! largest deadline and nothing wraps.
//!
//! # Opening a slot
//!
//! When time reaches a slot, the slot is *opened*: its items are sorted, once, into a *run*, from whose front they
//! fire. They do not trickle down level by level. `elapsed` is then inside the opened slot, so that whatever is
//! armed afterwards for the same stretch of time goes to lower levels, which are opened within it, and so on:
//!
//! ```text
//!     time  ------------------------------------------------------------>
//!     run 4     [ a        b                c                  d     ]       one run a level at most
//!     run 2                   [ e  f ]
//!     level 1                            | slot |  | slot |                  not yet opened
//! ```
//!
//! The next to fire is the first of at most eleven fronts. On a tie the higher level was armed earlier: a run
//! is closed to newcomers when it is opened. (A slot of level 0 is a nanosecond wide, holds equal deadlines in arming
//! order, and needs no sorting.)
//!
//! # Splitting a crowded slot
//!
//! A slot with more than [`CROWDED`] items is first *split*: its items are dealt out, front to back, to a level of
//! their own, one digit finer, which then takes its place. That is a cascade as other wheels do it, with two
//! differences: only crowded slots pay for it, and it can be done in steps ([`RawQueue::settle`]), between
//! which timers can be armed and cancelled. Newcomers for the slot meanwhile join the end of what has not been
//! dealt out, so that the order of arrival stays.
//!
//! (Splitting at arming time, before the slot comes due, was measured too. It makes ever more and shorter lists whose
//! ends no cache can hold, and arming among ten million timers costs twenty times as much.)
//!
//! # What is armed late
//!
//! A deadline at or before `elapsed` has no slot. It waits in a heap beside the wheel, ordered like everything
//! else.
//!
//! # Cost
//!
//! Arm, cancel: O(1), one write into a list and one word left with the entry; a cancel touches no other timer.
//! Expire: a place in a sort among some thousand neighbours, and a move for each time that it was in a crowd.
//! Memory: a timer's id and 8 bytes in a crowd; but a slot with any timer takes a block of 64 items at least, so few timers
//! far apart take some 1.6 kB each. A level takes 800 bytes, and is given back some thousand idle looks after its last timer
//! has gone. A timer that is cancelled when its slot has been opened leaves a hole until the last of that slot has gone.

mod levels;
mod run;
mod sort;

use self::levels::{Levels, Slot};
use self::run::Run;
use self::sort::Sorter;
use crate::blocks::{BLOCK, Blocks, Owner, SMALL};
use crate::raw::{Entries, Kind, Place, RawQueue, Settled, Violation, ensure};
use crate::{Keyed, RawHeap, Time, Timer};

/// A timer queue on a hierarchical wheel: arming and cancelling in constant time, however many timers there are.
///
/// See [`RawWheel`] for the structure, [`TimerQueue`](crate::TimerQueue) for the methods.
///
/// ```
/// use tourbillon_queue::{Span, Time, TimerQueue, Wheel};
///
/// let mut timeouts = Wheel::new();
/// let keys: Vec<_> = (0..1000).map(|n| timeouts.insert(Time::ZERO + Span::from_millis(n), n)).collect();
/// keys.iter().skip(1).for_each(|key| assert!(timeouts.remove(*key).is_some())); // nearly all are cancelled
/// assert_eq!(timeouts.expire(Time::ZERO + Span::from_secs(1), |timer| assert_eq!(timer.value, 0)), 1);
/// ```
pub type Wheel<T> = Keyed<T, RawWheel<Timer<T>>>;

/// The wheel itself, for entries that live anywhere.
///
/// Eleven levels of 64 slots cover every nanosecond of a `u64`; a level takes memory only while it is in use.
///
/// The wheel follows the time that it is told. After a [`pop`](RawQueue::pop) in the far future, what is armed for an earlier
/// time is late for it, and costs O(log n) until the time is reached or [`clear`](RawQueue::clear) is called.
#[derive(Clone)]
pub struct RawWheel<Id> {
    /// A time that has been, and not long ago. All slots that begin at or before it have been opened.
    elapsed: u64,
    levels: Levels,
    /// The slot of each height that is being split. What is yet to be dealt out is its list; it stays marked occupied
    /// to the end. Either it is in a root, or it is the first part of one that is being split itself.
    splits: [Option<Owner>; LEVELS],
    /// Which of them there are: a bit a height.
    splitting: u16,
    /// The opened slot of each level.
    runs: [Run; LEVELS],
    /// Which runs are not empty: a bit a level.
    running: u16,
    /// The run that the next timer comes from, as long as that is due before `bound`.
    front: u8,
    /// Everything due before it is in the run `front`.
    bound: u64,
    /// How often there was nothing to do since the last trim.
    looks: u32,
    late: RawHeap<Id>,
    blocks: Blocks<u64, Id>,
    sorter: Sorter,
}

/// Bits of a deadline that choose a slot of a level.
const DIGIT: u32 = 6;
const SLOTS: usize = 1 << DIGIT;
const LEVELS: usize = u64::BITS.div_ceil(DIGIT) as usize;

/// A slot with more items than this is split rather than sorted. (More exactly: with more blocks than they fill.)
const CROWDED: u32 = if SMALL { 8 } else { 16_384 };

/// To say when to wake up, it is worth looking through a slot with no more items than this. For one with more, waking up
/// once at its begin is nothing.
const GLANCE: u32 = if SMALL { 4 } else { 1024 };

/// So far behind may `elapsed` stay: a slot of level 4, or 17 ms.
const QUIET: u64 = 1 << (4 * DIGIT);

/// So many looks in vain are between two trims.
const TRIM: u32 = if SMALL { 4 } else { 1024 };

/// Bits that number the items of an uncrowded slot.
const ITEM_BITS: u32 = CROWDED.ilog2();
/// The highest level whose slots are sorted by one word: the deadline within the slot, and the item's number.
const SORTABLE: usize = ((u64::BITS - ITEM_BITS) / DIGIT) as usize;

const _: () = assert!(LEVELS == 11 && LEVELS <= u16::BITS as usize);
const _: () = assert!(CROWDED.is_power_of_two(), "an item's number must fit its bits");
const _: () = assert!(CROWDED <= u16::MAX as u32, "the sorter counts in sixteen bits");

impl<Id> RawWheel<Id> {
    /// An empty wheel that stands at [`Time::ZERO`]. Allocates nothing.
    #[must_use]
    pub const fn new() -> RawWheel<Id> {
        RawWheel {
            elapsed: 0,
            levels: Levels::new(),
            splits: [None; LEVELS],
            splitting: 0,
            runs: [Run::EMPTY; LEVELS],
            running: 0,
            front: 0,
            bound: 0,
            looks: 0,
            late: RawHeap::new(),
            blocks: Blocks::new(),
            sorter: Sorter::new(),
        }
    }

    fn is_split(&self, slot: Slot) -> bool {
        self.splits[slot.height] == Some(slot.owner)
    }

    /// Whether a slot must be split before it can be opened.
    fn is_crowded(&self, slot: Slot) -> bool {
        match self.splits[slot.height] {
            None => slot.height > 0 && self.levels.list(slot.owner).blocks() > CROWDED / BLOCK,
            Some(owner) => owner == slot.owner,
        }
    }

    /// Deals out the items of a crowded slot to its parts, about `steps` of them (a whole block at a time); says whether
    /// none is left.
    ///
    /// The first part begins when the slot does, and will have to be opened in the same moment. So, if it is crowded too,
    /// it is split as well before the slot counts as done.
    #[inline(never)]
    fn split<E: Entries<Id>>(&mut self, entries: &mut E, slot: Slot, steps: &mut usize) -> bool {
        self.splits[slot.height] = Some(slot.owner);
        self.splitting |= 1 << slot.height;
        let mut rest = self.levels.list(slot.owner);
        while *steps > 0 && !rest.is_empty() {
            let count = self.levels.parts_mut(slot.height).deal_block(&mut self.blocks, &mut rest, entries);
            *steps = steps.saturating_sub(count);
        }
        if let Some(list) = self.levels.list_mut(slot.owner) {
            *list = rest;
        }
        let first = self.levels.first_part(slot);
        rest.is_empty() && (!self.is_crowded(first) || self.split(entries, first, steps))
    }

    /// Puts the parts of a slot whose split is done in its place, and so on with the first part.
    fn finish_split(&mut self, slot: Slot) {
        let first = self.levels.first_part(slot);
        self.end_split(slot.height, slot.owner);
        self.levels.promote_parts(slot.height);
        if self.is_split(first) {
            self.finish_split(first);
        }
    }

    fn end_split(&mut self, height: usize, owner: Owner) {
        self.splits[height] = None;
        self.splitting &= !(1 << height);
        self.levels.vacated(owner);
    }

    /// Takes note that a list has become empty while some slot is being split: perhaps it is that slot, and perhaps
    /// nothing is left of it.
    #[cold]
    fn emptied_while_splitting(&mut self, owner: Owner) {
        if self.splits[levels::height(owner)] != Some(owner) {
            self.levels.vacated(owner);
        }
        // From the lowest: the first part of a slot before the slot.
        for height in 1..LEVELS {
            if let Some(whole) = self.splits[height]
                && self.levels.list(whole).is_empty()
                && self.levels.first_of(self.levels.parts(height)).is_none()
            {
                self.end_split(height, whole);
            }
        }
    }

    /// The slot of a height that is being split.
    fn split_slot(&self, height: usize) -> Option<Slot> {
        let owner = self.splits.get(height).copied().flatten()?;
        if self.levels.is_root(owner) {
            return Some(self.levels.slot(self.elapsed, owner));
        }
        self.split_slot(height + 1).map(|whole| self.levels.first_part(whole))
    }

    /// The next to fire: the earliest of the fronts of all runs, and which run it is in.
    fn first_running(&self) -> Option<(u64, usize)> {
        let mut first = None;
        let mut running = self.running;
        while running != 0 {
            // From the highest level down: on a tie, the higher one was armed earlier and stays.
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

    /// Opens all slots that begin by `now` and not after the first item that is ready to fire; then says where that
    /// one is. Gives up when it has moved `steps` items.
    #[inline(never)]
    fn find_front<E: Entries<Id>>(&mut self, entries: &mut E, now: u64, mut steps: usize) -> Front {
        loop {
            let run = self.first_running();
            let late = self.late.next_deadline().map(Time::as_nanos);
            let (deadline, front) = match (run, late) {
                (Some((deadline, level)), late) if late.is_none_or(|late| deadline <= late) => {
                    (deadline, Front::Run(level))
                }
                (_, Some(late)) => (late, Front::Late),
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

    /// Every so often, gives back memory that has been in no use for that long.
    fn trim(&mut self) {
        self.looks += 1;
        if self.looks == TRIM {
            self.looks = 0;
            self.levels.trim();
            self.sorter.trim();
        }
    }

    /// The earliest moment at which something outside the front may be due.
    fn bound_of(&mut self, front: Front, first: Option<Slot>) -> u64 {
        let mut others = match front {
            Front::Run(level) => {
                self.front = level as u8;
                self.running & !(1 << level)
            }
            // No run has anything, whichever is called the front.
            Front::Idle => 0,
            Front::Late | Front::Unsettled => return 0,
        };
        let mut bound = first.map_or(u64::MAX, |slot| slot.start);
        while others != 0 {
            let other = others.trailing_zeros() as usize;
            others &= others - 1;
            if let Some(deadline) = self.runs[other].deadline(&self.blocks) {
                bound = bound.min(deadline);
            }
        }
        bound.min(self.late.next_deadline().map_or(u64::MAX, Time::as_nanos))
    }

    /// Moves to the first slot and opens it: its items become the run of its level. A crowded slot is split first and
    /// its parts take its place; the answer is `false` if `steps` ran out before that was done.
    fn open<E: Entries<Id>>(&mut self, entries: &mut E, slot: Slot, steps: &mut usize) -> bool {
        if self.is_crowded(slot) {
            let done = self.split(entries, slot, steps);
            if done {
                // If there is a first part, it is now the first slot of all, is not crowded, and is opened next. Nothing
                // can come in between, so nothing finds `elapsed` in a slot that is not open.
                self.finish_split(slot);
                self.elapsed = slot.start;
            }
            return done;
        }
        self.elapsed = slot.start;
        let mut list = self.levels.take(slot.owner);
        let (run, owner) = (&mut self.runs[slot.height], run_owner(slot.height));
        debug_assert!(run.is_empty(), "time has left a slot in which something has not fired");
        if slot.height == 0 {
            run.open_in_order(&mut self.blocks, list, owner);
        } else if list.blocks() > CROWDED / BLOCK || slot.height > SORTABLE {
            self.blocks.sort(&mut list, owner, entries);
            run.open_in_order(&mut self.blocks, list, owner);
        } else {
            run.open(&mut self.blocks, list, owner, slot, &mut self.sorter);
        }
        self.running |= 1 << slot.height;
        true
    }

    /// Takes the first item of a run if it is due before `bound`.
    #[inline(always)]
    fn pop_run(&mut self, level: usize, bound: u64) -> Option<(Id, Time)> {
        let run = &mut self.runs[level];
        let (deadline, id) = run.pop(&mut self.blocks, bound)?;
        if run.is_empty() {
            run.close(&mut self.sorter);
            self.running &= !(1 << level);
        }
        Some((id, Time::from_nanos(deadline)))
    }

    /// Whether nothing is due but what may be in the front. It is not asked for long: `elapsed`, which stays behind, must
    /// not fall far behind, or what is armed meanwhile goes to slots that are too wide.
    #[inline]
    fn is_quiet(&self, now: Time) -> bool {
        now.as_nanos() < self.bound && now.as_nanos().saturating_sub(self.elapsed) < QUIET
    }

    /// Takes the next item that is due, from wherever it is.
    #[inline(never)]
    fn pop_next<E: Entries<Id>>(&mut self, entries: &mut E, now: Time) -> Option<(Id, Time)> {
        match self.find_front(entries, now.as_nanos(), usize::MAX) {
            Front::Run(level) => self.pop_run(level, u64::MAX),
            Front::Late => self.late.pop(entries, now),
            Front::Idle | Front::Unsettled => None,
        }
    }

    /// The first to fire of all, whether it is due or not, and its deadline. Looks through a slot.
    #[must_use]
    pub fn first(&self) -> Option<(&Id, Time)> {
        let run = self.first_running().and_then(|(_, level)| self.runs[level].first(&self.blocks));
        let late = self.late.first().map(|(id, deadline)| (deadline.as_nanos(), id));
        let placed = self.levels.first(self.elapsed).and_then(|slot| self.first_placed(slot));
        // The first of equal ones: a run was closed before what ties with it was armed, and nothing late ties with a slot.
        let first = [run, late, placed].into_iter().flatten().min_by_key(|(deadline, _)| *deadline);
        first.map(|(deadline, id)| (id, Time::from_nanos(deadline)))
    }

    fn first_in(&self, owner: Owner) -> Option<(u64, &Id)> {
        self.blocks.iter(&self.levels.list(owner)).min_by_key(|(deadline, _)| *deadline)
    }

    /// The first to fire of a slot, also if it is being split.
    fn first_placed(&self, slot: Slot) -> Option<(u64, &Id)> {
        let dealt = if self.is_split(slot) { self.levels.first_of(self.levels.parts(slot.height)) } else { None };
        let dealt = dealt.map(|owner| Slot { owner, height: slot.height - 1, start: slot.start });
        // Of equal ones, those that were dealt out are the older ones.
        let items = dealt.and_then(|part| self.first_placed(part)).into_iter().chain(self.first_in(slot.owner));
        items.min_by_key(|(deadline, _)| *deadline)
    }

    fn first_deadline(&self, slot: Slot) -> Option<u64> {
        self.first_placed(slot).map(|(deadline, _)| deadline)
    }

    /// The earliest of the runs, what is late, and `placed`.
    fn earliest(&self, placed: Option<u64>) -> Option<Time> {
        let run = self.first_running().map(|(deadline, _)| deadline);
        let late = self.late.next_deadline().map(Time::as_nanos);
        run.into_iter().chain(late).chain(placed).min().map(Time::from_nanos)
    }
}

/// Where the next timer comes from.
#[derive(Clone, Copy)]
enum Front {
    /// The run of a level.
    Run(usize),
    /// Those that were late when they were armed.
    Late,
    /// Nothing is due.
    Idle,
    /// Not known before more items have been moved.
    Unsettled,
}

/// The first moment after `now`. Nothing is due at the very last one, which is [`Time::NEVER`].
fn after(now: Time) -> u64 {
    now.as_nanos().saturating_add(1)
}

/// The owner of the blocks of a level's run.
fn run_owner(level: usize) -> Owner {
    Owner(u32::MAX - level as u32)
}

/// The level whose run an owner is, if it is one.
fn run_level(owner: Owner) -> Option<usize> {
    let level = (u32::MAX - owner.0) as usize;
    (level < LEVELS).then_some(level)
}

impl<Id> Default for RawWheel<Id> {
    fn default() -> RawWheel<Id> {
        RawWheel::new()
    }
}

impl<Id> RawQueue<Id> for RawWheel<Id> {
    const BYTES_PER_ENTRY: usize = Blocks::<u64, Id>::ITEM_BYTES;

    #[inline(always)]
    fn insert<E: Entries<Id>>(&mut self, entries: &mut E, id: Id, deadline: Time) -> Place {
        let nanos = deadline.as_nanos();
        self.bound = self.bound.min(nanos);
        if nanos <= self.elapsed {
            return self.late.insert(entries, id, deadline);
        }
        let (slot, list) = self.levels.find(self.elapsed, nanos);
        Place::main(self.blocks.push(list, slot, nanos, id))
    }

    #[inline(always)]
    fn remove<E: Entries<Id>>(&mut self, entries: &mut E, place: Place) -> (Id, Time) {
        let Kind::Main(position) = place.kind() else { return self.late.remove(entries, place) };
        let owner = self.blocks.owner(position);
        let (deadline, id) = if let Some(level) = run_level(owner) {
            let run = &mut self.runs[level];
            let removed = run.remove(&mut self.blocks, position, entries);
            if run.is_empty() {
                run.close(&mut self.sorter);
                self.running &= !(1 << level);
            }
            removed
        } else if let Some(list) = self.levels.list_mut(owner) {
            let removed = self.blocks.remove(list, position, entries);
            if list.is_empty() {
                if self.splitting == 0 {
                    self.levels.vacated(owner);
                } else {
                    self.emptied_while_splitting(owner);
                }
            }
            removed
        } else {
            unreachable!("an item is in a slot of a level that is not there")
        };
        (id, Time::from_nanos(deadline))
    }

    fn get(&self, place: Place) -> Option<(&Id, Time)> {
        let Kind::Main(position) = place.kind() else { return self.late.get(place) };
        self.blocks.id(position).map(|id| (id, Time::from_nanos(self.blocks.key(position))))
    }

    fn get_mut(&mut self, place: Place) -> Option<&mut Id> {
        let Kind::Main(position) = place.kind() else { return self.late.get_mut(place) };
        self.blocks.id_mut(position)
    }

    fn next_deadline(&self) -> Option<Time> {
        self.earliest(self.levels.first(self.elapsed).and_then(|slot| self.first_deadline(slot)))
    }

    fn next_wakeup(&self) -> Option<Time> {
        let first = self.levels.first(self.elapsed);
        self.earliest(first.and_then(|slot| {
            let many = self.levels.list(slot.owner).blocks() > GLANCE / BLOCK || self.is_split(slot);
            if many { Some(slot.start) } else { self.first_deadline(slot) }
        }))
    }

    fn settle<E: Entries<Id>>(&mut self, entries: &mut E, now: Time, steps: usize) -> Settled {
        match self.find_front(entries, now.as_nanos(), steps) {
            Front::Unsettled => Settled::More,
            Front::Run(_) | Front::Late | Front::Idle => Settled::Done,
        }
    }

    fn peek<E: Entries<Id>>(&mut self, entries: &mut E, now: Time) -> Option<Time> {
        match self.find_front(entries, now.as_nanos(), usize::MAX) {
            Front::Run(level) => self.runs[level].deadline(&self.blocks).map(Time::from_nanos),
            Front::Late => self.late.next_deadline(),
            Front::Idle | Front::Unsettled => None,
        }
    }

    #[inline]
    fn pop<E: Entries<Id>>(&mut self, entries: &mut E, now: Time) -> Option<(Id, Time)> {
        match self.pop_ready(entries, now) {
            None if !self.is_quiet(now) => self.pop_next(entries, now),
            popped => popped,
        }
    }

    #[inline]
    fn pop_ready<E: Entries<Id>>(&mut self, _: &mut E, now: Time) -> Option<(Id, Time)> {
        self.pop_run(self.front as usize, self.bound.min(after(now)))
    }

    #[inline]
    fn expire<E: Entries<Id>>(&mut self, entries: &mut E, now: Time, mut sink: impl FnMut(&mut E, Id, Time)) -> usize {
        let mut count = 0;
        loop {
            let (level, bound) = (self.front as usize, self.bound.min(after(now)));
            while let Some((id, deadline)) = self.pop_run(level, bound) {
                count += 1;
                sink(entries, id, deadline);
            }
            if self.is_quiet(now) {
                return count;
            }
            let Some((id, deadline)) = self.pop_next(entries, now) else { return count };
            count += 1;
            sink(entries, id, deadline);
        }
    }

    fn for_each(&self, mut show: impl FnMut(&Id)) {
        self.blocks.ids().for_each(&mut show);
        self.late.for_each(show);
    }

    fn clear(&mut self) {
        *self = RawWheel::new();
    }

    fn check<E: Entries<Id>>(&self, entries: &E) -> Result<usize, Violation> {
        let (mut count, mut blocks) = (self.late.check(entries)?, 0);
        for (level, run) in self.runs.iter().enumerate() {
            ensure!(run.is_empty() == (self.running & 1 << level == 0), "wheel: a run and its bit disagree");
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
                self.blocks.iter(list).all(|(deadline, _)| inside(deadline)),
                "wheel: an item is in the wrong slot"
            );
        }
        self.blocks.check_free(blocks)?;
        Ok(count)
    }
}

impl<Id> core::fmt::Debug for RawWheel<Id> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RawWheel").field("elapsed", &Time::from_nanos(self.elapsed)).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::{Span, TimerQueue};

    /// The begin of a slot of level 4, and one past its end.
    const BEGIN: u64 = 3 * WIDTH;
    const END: u64 = BEGIN + WIDTH;
    const WIDTH: u64 = 1 << (4 * DIGIT);

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    /// A wheel with so many timers all over one slot, but for its begin.
    fn wheel_with(count: u32) -> Wheel<u64> {
        let mut wheel = Wheel::new();
        for number in 1..=u64::from(count) {
            wheel.insert(at(BEGIN + WIDTH * number / (u64::from(count) + 1)), number);
        }
        wheel
    }

    #[test]
    fn d26_a_crowded_slot_is_split_in_steps_and_one_that_is_not_is_opened_at_once() {
        assert_eq!(wheel_with(CROWDED).settle(at(END), 1), Settled::Done);
        assert_eq!(wheel_with(CROWDED + 1).settle(at(END), 1), Settled::More);
        // A nanosecond is not split, however many are due in it.
        let mut wheel = Wheel::new();
        for number in 0..=CROWDED {
            wheel.insert(at(5), number);
        }
        assert_eq!(wheel.settle(at(5), 1), Settled::Done);
    }

    #[test]
    fn d26_settling_moves_as_many_as_it_is_asked_to_and_not_even_one_if_that_is_none() {
        const BLOCKS: u32 = 4 * CROWDED / BLOCK;
        let mut wheel = wheel_with(BLOCKS * BLOCK);
        let mut calls = 1;
        while wheel.settle(at(END), BLOCK as usize) == Settled::More {
            assert_eq!(wheel.settle(at(END), 0), Settled::More);
            calls += 1;
        }
        assert!((BLOCKS..=BLOCKS + 1).contains(&calls), "a block at a time, {calls} times, of {BLOCKS}");
        wheel.check().unwrap();
    }

    #[test]
    fn p9_few_timers_wake_nobody_before_they_are_due_and_many_once_when_their_slot_begins() {
        let few = wheel_with(GLANCE);
        assert_eq!(few.next_wakeup(), few.next_deadline());
        let mut many = wheel_with(GLANCE + 1);
        assert_eq!(many.next_wakeup(), Some(at(BEGIN)));
        assert!(many.pop(at(BEGIN)).is_none());
        assert!(many.next_deadline() > Some(at(BEGIN)) && many.next_wakeup() == many.next_deadline());
    }

    #[test]
    fn the_wheel_stays_no_more_than_some_milliseconds_behind_while_nothing_is_due() {
        let mut wheel = Wheel::new();
        wheel.insert(at(0) + Span::from_secs(3600), 0);
        for micros in (0..1_000_000).step_by(100) {
            let now = at(0) + Span::from_nanos(1000 * micros);
            assert!(wheel.pop(now).is_none() && wheel.expire(now, drop) == 0);
            assert!(now.as_nanos() - wheel.raw().elapsed < Span::from_millis(17).as_nanos());
        }
        let now = at(0) + Span::from_secs(60);
        assert!(wheel.pop(now).is_none());
        assert_eq!(wheel.raw().elapsed, now.as_nanos(), "after a long time it is there at once");
    }

    #[test]
    fn f2_levels_are_kept_for_a_while_and_given_back_after_many_looks_in_vain() {
        let mut wheel = Wheel::new();
        // Beyond what counts as quiet, so that each is a look.
        let mut now = 0;
        let mut look = |wheel: &mut Wheel<u32>, times: u32| {
            for _ in 0..times {
                now += QUIET;
                assert!(wheel.pop(at(now)).is_none());
            }
        };
        let keys: Vec<_> = (0..LEVELS as u32).map(|height| wheel.insert(at(1 << (DIGIT * height)), height)).collect();
        keys.into_iter().for_each(|key| assert!(wheel.remove(key).is_some()));
        look(&mut wheel, TRIM + TRIM - 1);
        assert_eq!(wheel.raw().levels.set_up(), LEVELS, "they were in use when it began to count to the first trim");
        look(&mut wheel, 1);
        assert_eq!(wheel.raw().levels.set_up(), 0);
    }

    #[test]
    fn p3_of_equal_deadlines_in_two_runs_the_one_armed_first_comes_first() {
        let mut wheel = Wheel::new();
        wheel.insert(at(BEGIN + 70), 1);
        assert!(wheel.pop(at(BEGIN)).is_none(), "but its slot is open");
        wheel.insert(at(BEGIN + 70), 2);
        let mut fired = Vec::new();
        wheel.expire(at(BEGIN + 70), |timer| fired.push(timer.value));
        assert_eq!(fired, [1, 2]);
    }

    #[test]
    fn p3_d26_a_crowd_in_a_slot_before_one_that_is_being_split_comes_out_first_and_in_order() {
        const CROWD: u64 = CROWDED as u64 + 2 * BLOCK as u64;
        let mut wheel = Wheel::new();
        // Two slots of level 1, filled from their ends.
        let fill = |wheel: &mut Wheel<u64>, slot: u64| {
            for number in 0..CROWD {
                wheel.insert(at(64 * slot + 63 - number % 64), number);
            }
        };
        fill(&mut wheel, 10);
        assert_eq!(wheel.settle(at(64 * 11), 1), Settled::More);
        fill(&mut wheel, 5);
        let mut previous = None;
        let count = wheel.expire(at(64 * 11), |timer| {
            let order = Some((timer.deadline, timer.value));
            assert!(previous < order, "by deadline, equal ones as they were armed");
            previous = order;
        });
        assert_eq!(count as u64, 2 * CROWD);
    }

    #[test]
    fn p3_p5_the_timers_of_one_slot_come_out_in_order_at_every_level() {
        for height in 1..LEVELS as u32 {
            let width = 1u64 << (DIGIT * height);
            let deadlines = [0, 1, width / 3, width / 2, width - 2, width - 1].map(|offset| at(width + offset));
            let mut wheel = Wheel::new();
            for deadline in deadlines.into_iter().rev() {
                wheel.insert(deadline, height);
            }
            let mut fired = Vec::new();
            wheel.expire(at(2 * width), |timer| fired.push(timer.deadline));
            assert_eq!(fired, deadlines);
        }
    }

    #[test]
    fn d26_what_has_been_dealt_out_of_a_crowd_is_not_hidden_when_the_rest_of_it_is_cancelled() {
        let mut wheel = Wheel::new();
        let insert = |number: u32| wheel.insert(at(BEGIN + 1000 * u64::from(number)), number);
        let keys: Vec<_> = (0..CROWDED + 2 * BLOCK).map(insert).collect();
        assert_eq!(wheel.settle(at(END), 1), Settled::More);
        let (dealt, rest) = keys.split_at(BLOCK as usize);
        for key in rest {
            assert!(wheel.remove(*key).is_some());
        }
        wheel.check().unwrap();
        let mut cancelled = wheel.clone();
        assert_eq!(wheel.expire(at(END), |timer| assert!(dealt.contains(&timer.key))), dealt.len());

        for key in dealt {
            assert!(cancelled.remove(*key).is_some());
        }
        cancelled.check().unwrap();
        assert_eq!((cancelled.next_deadline(), cancelled.next_wakeup()), (None, None));
    }

    #[test]
    fn d26_the_next_deadline_is_known_while_a_crowd_within_a_crowd_is_split() {
        let mut wheel = Wheel::new();
        for number in 0..2 * CROWDED {
            wheel.insert(at(BEGIN + 1 + u64::from(number % 60)), number);
        }
        while wheel.settle(at(END), CROWDED as usize / 4) == Settled::More {
            assert_eq!(wheel.next_deadline(), Some(at(BEGIN + 1)));
            assert_eq!(wheel.next_wakeup(), Some(at(BEGIN)), "there is upkeep to do by then");
            wheel.check().unwrap();
        }
        wheel.check().unwrap();
        assert_eq!(wheel.next_deadline(), Some(at(BEGIN + 1)));
    }

    #[test]
    fn p3_d26_what_is_armed_while_a_crowd_within_a_crowd_is_split_comes_after_its_equals() {
        let mut wheel = Wheel::new();
        let mut armed = 0..;
        let mut arm = |wheel: &mut Wheel<u64>| {
            let number = armed.next().unwrap();
            wheel.insert(at(BEGIN + 1 + number % 7), number);
        };
        (0..2 * CROWDED).for_each(|_| arm(&mut wheel));
        for _ in 0..20 {
            let _more = wheel.settle(at(END), CROWDED as usize / 4);
            (0..3).for_each(|_| arm(&mut wheel));
            wheel.check().unwrap();
        }
        let mut fired = Vec::new();
        wheel.expire(at(END), |timer| fired.push((timer.deadline, timer.value)));
        assert!(fired.is_sorted(), "by deadline, equal ones as they were armed");
    }

    #[test]
    fn p1_at_no_level_does_a_timer_come_out_a_nanosecond_early() {
        for height in 1..LEVELS as u32 {
            let width = 1u64 << (DIGIT * height);
            let mut wheel = Wheel::new();
            let offsets = [0, width / 2, width - 1];
            for offset in offsets {
                wheel.insert(at(width + offset), offset);
            }
            for offset in offsets {
                assert!(wheel.pop(at(width + offset - 1)).is_none(), "level {height}, {offset}");
                assert_eq!(wheel.pop(at(width + offset)).map(|timer| timer.value), Some(offset));
            }
        }
    }

    #[test]
    fn p1_when_time_goes_back_what_was_due_and_has_not_come_out_waits_again() {
        let mut wheel = Wheel::new();
        for number in [1, 2] {
            wheel.insert(at(5), number);
        }
        assert_eq!(wheel.pop(at(5)).map(|timer| timer.value), Some(1));
        assert!(wheel.pop(at(4)).is_none());
        assert_eq!(wheel.pop(at(5)).map(|timer| timer.value), Some(2));
    }

    #[test]
    fn p3_a_long_run_comes_out_in_order_at_every_level() {
        const COUNT: u64 = 1000;
        for height in 1..LEVELS as u32 {
            let width = 1u64 << (DIGIT * height);
            let mut wheel = Wheel::new();
            // All over the slot and not in order; on the lower levels many are equal.
            for number in 0..COUNT {
                let part = number * 617 % COUNT;
                wheel.insert(at(width + (u128::from(width) * u128::from(part) / u128::from(COUNT)) as u64), number);
            }
            let mut fired = Vec::new();
            wheel.expire(at(2 * width), |timer| fired.push((timer.deadline, timer.value)));
            assert!(fired.len() as u64 == COUNT && fired.is_sorted(), "level {height}");
        }
    }

    #[test]
    fn while_nothing_is_due_a_look_is_a_comparison_and_the_wheel_stays_where_it_is() {
        let mut wheel = Wheel::new();
        wheel.insert(at(0) + Span::from_secs(3600), 0);
        let start = at(0) + Span::from_secs(1);
        assert!(wheel.pop(start).is_none());
        for millis in [0, 1, 5, 16] {
            let now = start + Span::from_millis(millis);
            assert!(wheel.pop(now).is_none() && wheel.expire(now, drop) == 0);
            assert_eq!(wheel.raw().elapsed, start.as_nanos(), "after {millis} ms");
        }
    }

    /// Entries who do not remember their places but how often they were told of one.
    struct Told(usize);

    impl Entries<u64> for Told {
        fn place(&self, _: &u64) -> Place {
            unreachable!("nobody asks")
        }

        fn set_place(&mut self, _: &u64, _: Place) {
            self.0 += 1;
        }
    }

    #[test]
    fn a_slot_is_opened_without_moving_a_timer_unless_it_is_crowded_or_of_the_highest_levels() {
        // A deadline within a slot and a number share a word of 64 bits.
        let highest = if SMALL { 10 } else { 8 };
        for height in 1..=highest {
            for count in [2, u64::from(CROWDED)] {
                let width = 1u64 << (DIGIT * height);
                let (mut wheel, mut entries) = (RawWheel::new(), Told(0));
                for number in (0..count).rev() {
                    let _place = wheel.insert(&mut entries, number, at(width + number % width));
                }
                assert_eq!(wheel.peek(&mut entries, at(2 * width)), Some(at(width)));
                assert_eq!(entries.0, 0, "level {height}, {count} timers");
            }
        }
    }
}
