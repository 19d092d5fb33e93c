//! A hierarchical timing wheel over all of time.
//!
//! # The picture
//!
//! A deadline is 64 bits, read as eleven digits of six bits. The wheel's position in time is `elapsed`. A timer belongs
//! to the *level* of the highest digit in which its deadline differs from `elapsed`, and there to the *slot* that
//! the deadline's digit selects:
//!
//! ```text
//!                      digit 10     ...     3      2      1      0
//!     elapsed             0         ...    17     41      5     63
//!     deadline            0         ...    17     44     20      1      first difference: level 2, slot 44
//!
//!     level 2   slots 0 ..... 41 ..... 44 ..... 63       64 slots of 4096 ns each
//!                             ^         |
//!                        elapsed is     +--> a list of items (deadline, id), in the order of arming
//!                        inside here
//! ```
//!
//! All slots of a level lie within the slot of the level above that `elapsed` is inside, so the first occupied slot
//! of the lowest occupied level is the earliest: two bitmaps and two counts of trailing zeros find it. There is no
//! largest deadline, and nothing wraps.
//!
//! # Opening a slot
//!
//! When time reaches a slot, the wheel *opens* it: it sorts the items, once, into a *run*, and fires them from the
//! front of that run. Items do not cascade level by level. `elapsed` is then inside the opened slot, so a timer that
//! is armed later for the same stretch of time goes to a lower level, whose slots are opened in turn:
//!
//! ```text
//!     time  ------------------------------------------------------------>
//!     run 4     [ a        b                c                  d     ]       one run a level at most
//!     run 2                   [ e  f ]
//!     level 1                            | slot |  | slot |                  not yet opened
//! ```
//!
//! The next timer to fire is the first of at most eleven fronts. On a tie the item of the higher level was armed
//! earlier, because a run takes no new items. (A slot of level 0 is a nanosecond wide, holds equal deadlines in arming
//! order, and needs no sorting.)
//!
//! # Splitting a crowded slot
//!
//! A slot with more than [`CROWDED`] items is first *split*: its items are distributed, front to back, to a level of
//! their own, one digit finer, whose slots (the *parts*) then replace it. That is a cascade as in other wheels, with two
//! differences: only crowded slots pay for it, and it can be done in steps ([`RawQueue::settle`]), between
//! which timers can be armed and cancelled. A timer that is armed for the slot meanwhile joins the end of the items that
//! are not yet distributed, so that the order of arming is kept.
//!
//! A slot is not split before it comes due: that would make many short lists, whose ends no cache can hold.
//!
//! # Overdue timers
//!
//! A deadline at or before `elapsed` has no slot. Its timer waits in a heap beside the wheel, in the same order.
//!
//! # Cost
//!
//! - Arm, cancel: O(1), one write into a list and one word stored with the entry; a cancel touches no other timer.
//! - Expire: a sort among up to some thousand neighbours, and one move for each split that the timer took part in.
//! - Memory: a timer's id and 8 bytes in a full block, or in a [`CompactWheel`] its id alone, and 12 bytes more while its slot is open. A slot with any timer takes at least one block of 64 items, so few
//!   timers far apart take some 1.6 kB each. A level takes 800 bytes, and is freed some thousand idle polls after its
//!   last timer has gone. A timer cancelled in an opened slot leaves a hole until the last timer of that slot has gone.

mod check;
mod compact;
mod deadlines;
mod first;
mod front;
mod levels;
mod run;
mod sort;
mod split;
#[cfg(test)]
mod tests;

pub use self::compact::CompactWheel;
pub use self::deadlines::EntryDeadlines;
use self::deadlines::{ItemDeadline, NoEntries, WheelEntries};
use self::front::Front;
use self::levels::Levels;
use self::run::SortedRun;
use self::sort::Sorter;
use crate::blocks::{BLOCK, Blocks, ListOwner, SMALL};
use crate::place::{Place, PlaceKind};
use crate::raw::{Entries, RawQueue, Settled};
use crate::violation::Violation;
use crate::{Key, Keyed, RawHeap, Time, Timer};

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

/// A hierarchical wheel of ids, for entries that live anywhere.
///
/// Eleven levels of 64 slots cover every nanosecond of a `u64`; a level takes memory only while it is in use.
///
/// The wheel's time is the latest `now` that it was given. After a [`pop`](RawQueue::pop) in the far future, a timer armed for
/// an earlier time counts as overdue, and costs O(log n), until `now` reaches that future or [`clear`](RawQueue::clear) is called.
#[derive(Clone)]
pub struct RawWheel<Id>(WheelCore<Id, u64>);

/// The wheel, with all of a deadline in each item (`D` is `u64`), or nothing of it (`D` is `WithEntry`).
#[derive(Clone)]
struct WheelCore<Id, D> {
    /// A time that `now` has reached, and not long ago. All slots that begin at or before it have been opened.
    elapsed: u64,
    levels: Levels,
    /// The slot of each height that is being split. Its list holds the items that are not yet distributed; it stays
    /// marked occupied to the end. It is in a root, or it is the first part of a slot that is being split itself.
    splits: [Option<ListOwner>; LEVELS],
    /// Bitmap of the heights with a split in progress.
    splitting: u16,
    /// The opened slot of each level.
    runs: [SortedRun; LEVELS],
    /// Bitmap of the runs that are not empty.
    live_runs: u16,
    /// The level of the run that holds the next timer, if that timer is due before `bound`.
    front: u8,
    /// Every item due before this time is in the run `front`.
    bound: u64,
    /// Polls that found nothing due since the last trim.
    idle_polls: u32,
    /// Timers whose deadline had passed when they were armed.
    overdue: RawHeap<Id>,
    blocks: Blocks<D, Id>,
    sorter: Sorter,
}

/// Bits of a deadline that select a slot of a level.
const DIGIT: u32 = 6;
const SLOTS: usize = 1 << DIGIT;
const LEVELS: usize = u64::BITS.div_ceil(DIGIT) as usize;

/// A slot with more items than this is split before it is sorted. (Counted in blocks: one with more blocks than they fill.)
const CROWDED: u32 = if SMALL { 8 } else { 16_384 };

/// The most items that `next_wakeup` scans to find the exact deadline. For a slot with more, it returns the slot's start:
/// one early wake-up costs little beside firing so many.
const SCAN_LIMIT: u32 = if SMALL { 4 } else { 1024 };

/// The most that `elapsed` may lag behind `now`: a slot of level 4, or 17 ms.
const MAX_LAG: u64 = 1 << (4 * DIGIT);

/// Idle polls between two trims.
const TRIM_EVERY: u32 = if SMALL { 4 } else { 1024 };

/// Bits that number the items of a slot that is not crowded.
const ITEM_BITS: u32 = CROWDED.ilog2();
/// The highest level where the deadline within the slot and the item's number fit one word to sort by.
const SORTABLE: usize = ((u64::BITS - ITEM_BITS) / DIGIT) as usize;

const _: () = assert!(LEVELS == 11 && LEVELS <= u16::BITS as usize);
const _: () = assert!(CROWDED.is_power_of_two(), "an item's number must fit its bits");
const _: () = assert!(CROWDED <= u16::MAX as u32, "the sorter counts in sixteen bits");

impl<T> Wheel<T> {
    /// Returns the key of the timer that will expire first, whether it is due or not; `None` if no timer ever will.
    ///
    /// Reads all timers of a slot.
    #[must_use]
    pub fn first(&self) -> Option<Key> {
        self.raw().first().map(|(timer, _)| timer.key())
    }
}

impl<Id> RawWheel<Id> {
    /// Returns an empty wheel at [`Time::ZERO`]. Allocates nothing.
    #[must_use]
    pub const fn new() -> RawWheel<Id> {
        RawWheel(WheelCore::new())
    }

    /// Returns the first entry to fire, whether it is due or not, and its deadline. Reads all items of a slot.
    #[must_use]
    pub fn first(&self) -> Option<(&Id, Time)> {
        self.0.first()
    }
}

impl<Id, D: ItemDeadline> WheelCore<Id, D> {
    const fn new() -> WheelCore<Id, D> {
        WheelCore {
            elapsed: 0,
            levels: Levels::new(),
            splits: [None; LEVELS],
            splitting: 0,
            runs: [SortedRun::EMPTY; LEVELS],
            live_runs: 0,
            front: 0,
            bound: 0,
            idle_polls: 0,
            overdue: RawHeap::new(),
            blocks: Blocks::new(),
            sorter: Sorter::new(),
        }
    }

    /// Takes out the first item of a run if it is due before `bound`.
    #[inline(always)]
    fn pop_run(&mut self, level: usize, bound: u64) -> Option<(Id, Time)> {
        let run = &mut self.runs[level];
        let (deadline, id) = run.pop(&mut self.blocks, bound)?;
        if run.is_empty() {
            run.close(&mut self.sorter);
            self.live_runs &= !(1 << level);
        }
        Some((id, Time::from_nanos(deadline)))
    }

    /// Returns whether nothing outside the front run is due at `now`, and `elapsed` may stay where it is. It may not lag
    /// far behind, or timers would be armed into slots that are too wide.
    #[inline]
    fn is_quiet(&self, now: Time) -> bool {
        now.as_nanos() < self.bound && now.as_nanos().saturating_sub(self.elapsed) < MAX_LAG
    }

    /// Takes out the next item that is due, wherever it is; opens slots as needed.
    #[inline(never)]
    fn pop_next<E: WheelEntries<Id, D>>(&mut self, entries: &mut E, now: Time) -> Option<(Id, Time)> {
        match self.find_front(entries, now.as_nanos(), usize::MAX) {
            Front::Run(level) => self.pop_run(level, u64::MAX),
            Front::Overdue => self.overdue.pop(entries, now),
            Front::Idle | Front::Unsettled => None,
        }
    }

    #[inline(always)]
    fn insert<E: Entries<Id>>(&mut self, entries: &mut E, id: Id, deadline: Time) -> Place {
        let nanos = deadline.as_nanos();
        if nanos < self.bound {
            self.bound = nanos;
        }
        if nanos <= self.elapsed {
            return self.overdue.insert(entries, id, deadline);
        }
        let (slot, list) = self.levels.find(self.elapsed, nanos);
        Place::main(self.blocks.push(list, slot, D::new(nanos), id))
    }

    /// Takes out the item at a position of the blocks.
    #[inline(always)]
    fn remove<E: Entries<Id>>(&mut self, entries: &mut E, position: u32) -> (D, Id) {
        let owner = self.blocks.owner(position);
        if let Some(level) = run_level(owner) {
            let run = &mut self.runs[level];
            let removed = run.remove(&mut self.blocks, position, entries);
            if run.is_empty() {
                run.close(&mut self.sorter);
                self.live_runs &= !(1 << level);
            }
            removed
        } else if let Some(list) = self.levels.list_mut(owner) {
            let removed = self.blocks.remove(list, position, entries);
            if list.is_empty() {
                if self.splitting == 0 {
                    self.levels.mark_vacated(owner);
                } else {
                    self.note_emptied_while_splitting(owner);
                }
            }
            removed
        } else {
            unreachable!("an item is in a slot of a level that does not exist")
        }
    }

    /// Returns when the wheel has to be settled next. Reads at most `scan_limit` items.
    fn next_wakeup<E: WheelEntries<Id, D>>(&self, entries: &E, scan_limit: u32) -> Option<Time> {
        let first = self.levels.first(self.elapsed);
        self.earliest(first.and_then(|slot| {
            let many = self.levels.list(slot.owner).blocks() > scan_limit / BLOCK || self.is_split(slot);
            if many { Some(slot.start) } else { self.first_deadline(slot, entries) }
        }))
    }

    fn settle<E: WheelEntries<Id, D>>(&mut self, entries: &mut E, now: Time, steps: usize) -> Settled {
        match self.find_front(entries, now.as_nanos(), steps) {
            Front::Unsettled => Settled::More,
            Front::Run(_) | Front::Overdue | Front::Idle => Settled::Done,
        }
    }

    fn peek<E: WheelEntries<Id, D>>(&mut self, entries: &mut E, now: Time) -> Option<Time> {
        match self.find_front(entries, now.as_nanos(), usize::MAX) {
            Front::Run(level) => self.runs[level].deadline(&self.blocks).map(Time::from_nanos),
            Front::Overdue => self.overdue.next_deadline(),
            Front::Idle | Front::Unsettled => None,
        }
    }

    #[inline]
    fn pop<E: WheelEntries<Id, D>>(&mut self, entries: &mut E, now: Time) -> Option<(Id, Time)> {
        match self.pop_ready(now) {
            None if !self.is_quiet(now) => self.pop_next(entries, now),
            popped => popped,
        }
    }

    /// Takes out the first due item if it is in the front run.
    #[inline]
    fn pop_ready(&mut self, now: Time) -> Option<(Id, Time)> {
        self.pop_run(self.front as usize, self.bound.min(after(now)))
    }
}

/// Returns the nanosecond after `now`, saturating: nothing is due at the last one, which is [`Time::NEVER`].
fn after(now: Time) -> u64 {
    now.as_nanos().saturating_add(1)
}

/// Returns the owner of the blocks of a level's run.
fn run_owner(level: usize) -> ListOwner {
    ListOwner(u32::MAX - level as u32)
}

/// Returns the level of the run that `owner` stands for, if it stands for a run.
fn run_level(owner: ListOwner) -> Option<usize> {
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
        self.0.insert(entries, id, deadline)
    }

    #[inline(always)]
    fn remove<E: Entries<Id>>(&mut self, entries: &mut E, place: Place) -> (Id, Time) {
        let PlaceKind::Main(position) = place.kind() else { return self.0.overdue.remove(entries, place) };
        let (deadline, id) = self.0.remove(entries, position);
        (id, Time::from_nanos(deadline))
    }

    fn get(&self, place: Place) -> Option<(&Id, Time)> {
        let PlaceKind::Main(position) = place.kind() else { return self.0.overdue.get(place) };
        self.0.blocks.id(position).map(|id| (id, Time::from_nanos(self.0.blocks.key(position))))
    }

    fn get_mut(&mut self, place: Place) -> Option<&mut Id> {
        let PlaceKind::Main(position) = place.kind() else { return self.0.overdue.get_mut(place) };
        self.0.blocks.id_mut(position)
    }

    fn next_deadline(&self) -> Option<Time> {
        let first = self.0.levels.first(self.0.elapsed);
        self.0.earliest(first.and_then(|slot| self.0.first_deadline(slot, &NoEntries)))
    }

    fn next_wakeup(&self) -> Option<Time> {
        self.0.next_wakeup(&NoEntries, SCAN_LIMIT)
    }

    fn settle<E: Entries<Id>>(&mut self, entries: &mut E, now: Time, steps: usize) -> Settled {
        self.0.settle(entries, now, steps)
    }

    fn peek<E: Entries<Id>>(&mut self, entries: &mut E, now: Time) -> Option<Time> {
        self.0.peek(entries, now)
    }

    #[inline]
    fn pop<E: Entries<Id>>(&mut self, entries: &mut E, now: Time) -> Option<(Id, Time)> {
        self.0.pop(entries, now)
    }

    #[inline]
    fn pop_ready<E: Entries<Id>>(&mut self, _: &mut E, now: Time) -> Option<(Id, Time)> {
        self.0.pop_ready(now)
    }

    #[inline]
    fn expire<E: Entries<Id>>(&mut self, entries: &mut E, now: Time, mut sink: impl FnMut(&mut E, Id, Time)) -> usize {
        let wheel = &mut self.0;
        let mut count = 0;
        loop {
            let (level, bound) = (wheel.front as usize, wheel.bound.min(after(now)));
            while let Some((id, deadline)) = wheel.pop_run(level, bound) {
                count += 1;
                sink(entries, id, deadline);
            }
            if wheel.is_quiet(now) {
                return count;
            }
            let Some((id, deadline)) = wheel.pop_next(entries, now) else { return count };
            count += 1;
            sink(entries, id, deadline);
        }
    }

    fn for_each(&self, mut visit: impl FnMut(&Id)) {
        self.0.blocks.ids().for_each(&mut visit);
        self.0.overdue.for_each(visit);
    }

    fn clear(&mut self) {
        *self = RawWheel::new();
    }

    fn check<E: Entries<Id>>(&self, entries: &E) -> Result<usize, Violation> {
        self.0.check_invariants(entries)
    }
}

impl<Id> core::fmt::Debug for RawWheel<Id> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RawWheel").field("elapsed", &Time::from_nanos(self.0.elapsed)).finish_non_exhaustive()
    }
}
