//! The seam between a structure that orders timers and the place where the timers live.
//!
//! A [`RawQueue`] orders *ids* by deadline. Whoever uses it says what an id is: a value with its key, a pointer to an
//! entry in a pinned future, an index into an arena. And implements [`Entries`], by which the structure leaves with
//! each entry the one word that it needs to find it again.
//!
//! ```text
//!     Keyed<T, R>                      an engine                        raw queue R
//!     +---------------------+          +---------------------+          +----------------------------+
//!     | slab: key -> Place  |   or     | its own entries,    |  <---->  | ids in deadline order      |
//!     | ids: keys, values T |          | each with a Place   |          | Place -> where this one is |
//!     +---------------------+          +---------------------+          +----------------------------+
//! ```
//!
//! So one implementation of each structure serves both the queues of this crate, which own their values, and
//! entries that live anywhere else.

use core::fmt;

use crate::Time;

/// Where an entry is inside a raw queue: one word that the queue leaves with the entry and reads back to find it.
///
/// Opaque to everyone but the queue that gave it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place(u32);

/// The timers, wherever they live: what a [`RawQueue`] must be able to ask of them.
///
/// An entry outside any slab needs one field, its place:
///
/// ```
/// use std::cell::Cell;
/// use tourbillon_queue::{Entries, Place, RawQueue, RawWheel, Time};
///
/// struct Timer {
///     name: &'static str,
///     place: Cell<Place>,
/// }
///
/// struct Borrowed;
///
/// impl<'a> Entries<&'a Timer> for Borrowed {
///     fn place(&self, timer: &&'a Timer) -> Place {
///         timer.place.get()
///     }
///     fn set_place(&mut self, timer: &&'a Timer, place: Place) {
///         timer.place.set(place);
///     }
/// }
///
/// let tea = Timer { name: "tea", place: Cell::new(Place::NOWHERE) };
/// let eggs = Timer { name: "eggs", place: Cell::new(Place::NOWHERE) };
///
/// let mut wheel = RawWheel::new();
/// tea.place.set(wheel.insert(&mut Borrowed, &tea, Time::from_nanos(300)));
/// eggs.place.set(wheel.insert(&mut Borrowed, &eggs, Time::from_nanos(200)));
/// wheel.remove(&mut Borrowed, tea.place.get());
///
/// let (first, deadline) = wheel.pop(&mut Borrowed, Time::from_nanos(500)).unwrap();
/// assert_eq!((first.name, deadline), ("eggs", Time::from_nanos(200)));
/// assert!(wheel.pop(&mut Borrowed, Time::from_nanos(500)).is_none());
/// ```
pub trait Entries<Id> {
    /// The place last set for `id`.
    fn place(&self, id: &Id) -> Place;

    /// Remembers `place` for `id`.
    fn set_place(&mut self, id: &Id, place: Place);
}

/// A structure that keeps ids in the order of their deadlines, equal deadlines in the order of their insertion.
///
/// The contract between the caller and the queue:
///
/// 1. An id is in the queue from [`insert`](RawQueue::insert) until [`remove`](RawQueue::remove),
///    [`pop`](RawQueue::pop) or [`clear`](RawQueue::clear) takes it out, and at most once.
/// 2. While it is in the queue, its place is the one that `insert` returned, or what [`Entries::set_place`] has been
///    given since.
/// 3. The deadline is not [`Time::NEVER`]: what does not expire needs no place.
///
/// A caller who breaks the contract gets wrong answers or a panic, never undefined behaviour.
///
/// # Panics
/// [`insert`](RawQueue::insert) if there are about a billion (2<sup>30</sup>) entries already; nothing else, as long as the
/// contract is kept.
pub trait RawQueue<Id> {
    /// Bytes that one entry takes in the queue. (Not counting room to grow.)
    const BYTES_PER_ENTRY: usize;

    /// Puts `id` in, due at `deadline`, behind all that are already in with the same deadline. Returns its place, which
    /// the caller keeps with the entry; places of other entries may change.
    #[must_use]
    fn insert<E: Entries<Id>>(&mut self, entries: &mut E, id: Id, deadline: Time) -> Place;

    /// Takes out the entry at `place`.
    fn remove<E: Entries<Id>>(&mut self, entries: &mut E, place: Place) -> (Id, Time);

    /// The entry at `place` and its deadline.
    fn get(&self, place: Place) -> Option<(&Id, Time)>;

    /// The entry at `place`, to change it.
    fn get_mut(&mut self, place: Place) -> Option<&mut Id>;

    /// The earliest deadline in the queue.
    fn next_deadline(&self) -> Option<Time>;

    /// Takes out the first entry whose deadline is not after `now`.
    fn pop<E: Entries<Id>>(&mut self, entries: &mut E, now: Time) -> Option<(Id, Time)>;

    /// The deadline of what [`pop`](RawQueue::pop) at `now` would take out. Does the upkeep for that; after
    /// [`settle`](RawQueue::settle) it costs little, unlike [`next_deadline`](RawQueue::next_deadline), which may have to look through
    /// entries that are not due.
    fn peek<E: Entries<Id>>(&mut self, entries: &mut E, now: Time) -> Option<Time> {
        let _ = entries;
        self.next_deadline().filter(|deadline| *deadline <= now)
    }

    /// Takes out all entries whose deadlines are not after `now`, in order, and returns how many they were.
    ///
    /// The same as calling [`pop`](RawQueue::pop) until there is none, and quicker. Should `sink` panic, what it has not
    /// been given stays in the queue.
    fn expire<E: Entries<Id>>(&mut self, entries: &mut E, now: Time, mut sink: impl FnMut(&mut E, Id, Time)) -> usize {
        let mut count = 0;
        while let Some((id, deadline)) = self.pop(entries, now) {
            count += 1;
            sink(entries, id, deadline);
        }
        count
    }

    /// When to call [`settle`](RawQueue::settle) or [`pop`](RawQueue::pop) next: never after the earliest deadline,
    /// and before it only where the queue has upkeep to do by then. Costs little, however many entries there are.
    fn next_wakeup(&self) -> Option<Time> {
        self.next_deadline()
    }

    /// Does the upkeep that the next [`pop`](RawQueue::pop) at `now` would have to do, but moves about `steps`
    /// entries.
    ///
    /// `pop` alone is always right; it takes as long as it takes. A caller who holds a lock calls this first, and
    /// lets go of the lock whenever there is [`More`](Settled::More) to do.
    ///
    /// Steps are counted roughly: the wheel moves items by the block of 64, does nothing if `steps` is zero, and sorts up to
    /// 16,384 items in one go. (More than that only if so many were armed, already overdue, while it was being settled.)
    fn settle<E: Entries<Id>>(&mut self, entries: &mut E, now: Time, steps: usize) -> Settled {
        let _ = (entries, now, steps);
        Settled::Done
    }

    /// Like [`pop`](RawQueue::pop), but gives only what can be had without upkeep: after `None` there may be more for
    /// [`settle`](RawQueue::settle) to bring up.
    fn pop_ready<E: Entries<Id>>(&mut self, entries: &mut E, now: Time) -> Option<(Id, Time)> {
        self.pop(entries, now)
    }

    /// Shows every id, in no particular order.
    fn for_each(&self, show: impl FnMut(&Id));

    /// Drops all ids, without a word to their entries.
    fn clear(&mut self);

    /// Verifies every invariant of the structure and that each entry's place leads back to it.
    ///
    /// Returns how many entries it found. Takes time proportional to the whole queue: for tests.
    ///
    /// # Errors
    /// The first [`Violation`] found.
    fn check<E: Entries<Id>>(&self, entries: &E) -> Result<usize, Violation>;
}

/// Whether a queue has done its upkeep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Settled {
    /// All of it: the next [`pop`](RawQueue::pop) at the same `now` takes a short, bounded time.
    Done,
    /// As many steps as were allowed, and more are needed.
    More,
}

/// An invariant that does not hold: a defect of this crate, or of an [`Entries`] implementation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Violation(&'static str);

impl Place {
    /// The place of an entry that is in no queue.
    pub const NOWHERE: Place = Place(u32::MAX);

    /// How many indices there are of each [kind](Kind).
    pub(crate) const INDICES: u32 = 1 << 30;

    /// The least bits of a place that is nowhere.
    pub(crate) const FIRST_NOWHERE: u32 = 3 * Self::INDICES;

    pub(crate) const fn to_bits(self) -> u32 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u32) -> Place {
        Place(bits)
    }

    pub(crate) fn main(index: u32) -> Place {
        debug_assert!(index < Self::INDICES);
        Place(index)
    }

    pub(crate) fn side(index: u32) -> Place {
        debug_assert!(index < Self::INDICES);
        Place(Self::INDICES | index)
    }

    pub(crate) fn never(index: u32) -> Place {
        debug_assert!(index < Self::INDICES);
        Place((2 * Self::INDICES) | index)
    }

    #[inline]
    pub(crate) fn kind(self) -> Kind {
        let index = self.0 % Self::INDICES;
        match self.0 / Self::INDICES {
            0 => Kind::Main(index),
            1 => Kind::Side(index),
            2 => Kind::Never(index),
            _ => Kind::Nowhere,
        }
    }
}

/// What a place says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// In the main store of a structure.
    Main(u32),
    /// In what the structure keeps beside that.
    Side(u32),
    /// Among those that never expire, outside the structure.
    Never(u32),
    Nowhere,
}

impl Violation {
    pub(crate) const fn new(what: &'static str) -> Violation {
        Violation(what)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.kind(), f)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "timer queue invariant broken: {}", self.0)
    }
}

impl core::error::Error for Violation {}

/// Returns a [`Violation`] from the surrounding function unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $what:expr) => {
        if !$condition {
            return Err($crate::raw::Violation::new($what));
        }
    };
}
pub(crate) use ensure;
