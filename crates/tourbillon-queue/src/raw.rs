//! The interface between a structure that orders timers and the memory in which the timers live.
//!
//! A [`RawQueue`] orders *ids* by deadline. The user of a raw queue chooses the type of the ids: a value with its key, a
//! pointer to an entry in a pinned future, an index into an arena. The user also implements [`Entries`], through which the
//! queue stores with each entry the one word that it needs to find the entry again.
//!
//! ```text
//!     Keyed<T, R>                      an engine                        raw queue R
//!     +---------------------+          +---------------------+          +----------------------------+
//!     | slab: key -> Place  |   or     | its own entries,    |  <---->  | ids in deadline order      |
//!     | ids: keys, values T |          | each with a Place   |          | Place -> position of an id |
//!     +---------------------+          +---------------------+          +----------------------------+
//! ```
//!
//! So one implementation of each structure serves the queues of this crate, which own their values, and also
//! entries that live elsewhere.

use crate::Time;
use crate::place::Place;
use crate::violation::Violation;

/// The timers of a [`RawQueue`], wherever they live: it stores a place with each of them.
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
    /// Returns the place last set for `id`.
    fn place(&self, id: &Id) -> Place;

    /// Stores `place` for `id`.
    fn set_place(&mut self, id: &Id, place: Place);
}

/// A structure that keeps ids in the order of their deadlines, equal deadlines in the order of their insertion.
///
/// The contract between the caller and the queue:
///
/// 1. An id is in the queue from [`insert`](RawQueue::insert) until [`remove`](RawQueue::remove),
///    [`pop`](RawQueue::pop) or [`clear`](RawQueue::clear) takes it out, and at most once.
/// 2. While it is in the queue, its place is the one that `insert` returned, or the one that the queue has passed to
///    [`Entries::set_place`] since.
/// 3. The deadline is not [`Time::NEVER`]: an entry that does not expire needs no place.
///
/// A caller that breaks the contract gets wrong answers or a panic, never undefined behaviour.
///
/// # Panics
/// [`insert`](RawQueue::insert) panics if there are about a billion (2<sup>30</sup>) entries already. No other method panics
/// as long as the caller keeps the contract.
pub trait RawQueue<Id> {
    /// Bytes that one entry takes in the queue, spare capacity not counted.
    const BYTES_PER_ENTRY: usize;

    /// Inserts `id`, due at `deadline`, behind all entries with the same deadline. Returns its place, which
    /// the caller stores with the entry; places of other entries may change.
    #[must_use]
    fn insert<E: Entries<Id>>(&mut self, entries: &mut E, id: Id, deadline: Time) -> Place;

    /// Takes out the entry at `place`.
    fn remove<E: Entries<Id>>(&mut self, entries: &mut E, place: Place) -> (Id, Time);

    /// Returns the entry at `place` and its deadline.
    fn get(&self, place: Place) -> Option<(&Id, Time)>;

    /// Returns the entry at `place` for change.
    fn get_mut(&mut self, place: Place) -> Option<&mut Id>;

    /// Returns the earliest deadline in the queue.
    fn next_deadline(&self) -> Option<Time>;

    /// Takes out the first entry whose deadline is not after `now`.
    fn pop<E: Entries<Id>>(&mut self, entries: &mut E, now: Time) -> Option<(Id, Time)>;

    /// Returns the deadline of the entry that [`pop`](RawQueue::pop) at `now` would take out, and does the upkeep for that.
    ///
    /// After [`settle`](RawQueue::settle) it costs little, unlike [`next_deadline`](RawQueue::next_deadline), which may have to
    /// read entries that are not due.
    fn peek<E: Entries<Id>>(&mut self, entries: &mut E, now: Time) -> Option<Time> {
        let _ = entries;
        self.next_deadline().filter(|deadline| *deadline <= now)
    }

    /// Takes out all entries whose deadlines are not after `now`, in order, and returns their number.
    ///
    /// The same as calling [`pop`](RawQueue::pop) until it returns `None`, and quicker. If `sink` panics, the entries that it
    /// was not given stay in the queue.
    fn expire<E: Entries<Id>>(&mut self, entries: &mut E, now: Time, mut sink: impl FnMut(&mut E, Id, Time)) -> usize {
        let mut count = 0;
        while let Some((id, deadline)) = self.pop(entries, now) {
            count += 1;
            sink(entries, id, deadline);
        }
        count
    }

    /// Returns when to call [`settle`](RawQueue::settle) or [`pop`](RawQueue::pop) next: never after the earliest deadline,
    /// and before it only where the queue has upkeep to do by then. Costs little, however many entries there are.
    fn next_wakeup(&self) -> Option<Time> {
        self.next_deadline()
    }

    /// Does the upkeep that the next [`pop`](RawQueue::pop) at `now` would have to do, but moves only about `steps`
    /// entries.
    ///
    /// `pop` does all upkeep itself, however long that takes. A caller that holds a lock calls `settle` first, and
    /// releases the lock whenever there is [`More`](Settled::More) to do.
    ///
    /// Steps are counted roughly: the wheel moves items by the block of 64, does nothing if `steps` is zero, and sorts up to
    /// 16,384 items at once. (More only if so many timers were armed, already overdue, while it was being settled.)
    fn settle<E: Entries<Id>>(&mut self, entries: &mut E, now: Time, steps: usize) -> Settled {
        let _ = (entries, now, steps);
        Settled::Done
    }

    /// Takes out the first due entry, as [`pop`](RawQueue::pop) does, but only if that needs no upkeep: after `None` there may
    /// be due entries that [`settle`](RawQueue::settle) has to make ready.
    fn pop_ready<E: Entries<Id>>(&mut self, entries: &mut E, now: Time) -> Option<(Id, Time)> {
        self.pop(entries, now)
    }

    /// Calls `visit` with every id, in no particular order.
    fn for_each(&self, visit: impl FnMut(&Id));

    /// Drops all ids. The places of their entries stay as they are.
    fn clear(&mut self);

    /// Verifies every invariant of the structure and that each entry's place leads back to it.
    ///
    /// Returns the number of entries. Takes time proportional to the whole queue: for tests.
    ///
    /// # Errors
    /// Returns the first [`Violation`] found.
    fn check<E: Entries<Id>>(&self, entries: &E) -> Result<usize, Violation>;
}

/// The result of `settle`: whether a queue has done its upkeep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Settled {
    /// All upkeep is done: the next [`pop`](RawQueue::pop) at the same `now` takes a short, bounded time.
    Done,
    /// The queue has done as many steps as were allowed, and more are needed.
    More,
}
