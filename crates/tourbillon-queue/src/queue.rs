//! The interface that all timer queues implement.

use crate::{Key, Settled, Time, Violation};

/// A set of timers, each a value with a deadline, that returns them when they are due.
///
/// A queue reads no clock: the caller passes the time to [`pop`](TimerQueue::pop) and [`expire`](TimerQueue::expire).
/// All implementations return the same results, to the nanosecond; they differ only in the cost of each operation.
///
/// - **Order.** Timers come out in the order of their deadlines, equal deadlines in the order in which they were
///   armed. Rescheduling arms the timer again, even if the deadline stays the same.
/// - **Never early.** A timer comes out only when the `now` that was passed has reached its deadline.
/// - **Any deadline.** From [`Time::ZERO`] to one before [`Time::NEVER`], in the past or in the future, in any
///   order. A timer whose deadline has already passed comes out at the next call, in its order.
///   A timer with the deadline `NEVER` counts in [`len`](TimerQueue::len) but never comes out.
/// - **`now` may go backwards.** Timers that have come out stay out; a call returns only timers that are due by its own
///   `now`.
///
/// ```
/// use tourbillon_queue::{Span, Time, TimerQueue, Wheel};
///
/// let mut queue = Wheel::new();
/// let start = Time::ZERO;
/// let tea = queue.insert(start + Span::from_secs(180), "tea");
/// let eggs = queue.insert(start + Span::from_secs(240), "eggs");
/// queue.insert(start + Span::from_secs(600), "bread");
///
/// assert_eq!(queue.remove(tea), Some("tea"));
/// assert_eq!(queue.remove(tea), None);
/// assert_eq!(queue.next_deadline(), Some(start + Span::from_secs(240)));
///
/// let done = queue.pop(start + Span::from_secs(300)).unwrap();
/// assert_eq!((done.key, done.value), (eggs, "eggs"));
/// assert!(queue.pop(start + Span::from_secs(300)).is_none());
/// ```
///
/// # Panics
/// No method of the implementations in this crate panics on any deadline, `now` or key. [`insert`](TimerQueue::insert)
/// panics at a billion timers, and [`expire`](TimerQueue::expire) passes on a panic of its `sink`.
pub trait TimerQueue<T> {
    /// Arms a timer and returns its key.
    ///
    /// # Panics
    /// Panics if the queue holds a billion (2<sup>30</sup> - 1) timers already.
    fn insert(&mut self, deadline: Time, value: T) -> Key;

    /// Takes a timer out before it expires and returns its value. `None` if the key is stale.
    fn remove(&mut self, key: Key) -> Option<T>;

    /// Gives a timer another deadline and returns the one it had. `None`, and no effect, if the key is stale.
    fn reschedule(&mut self, key: Key, deadline: Time) -> Option<Time>;

    /// Returns the deadline of a timer. `None` if the key is stale.
    fn deadline(&self, key: Key) -> Option<Time>;

    /// Returns the value of a timer. `None` if the key is stale.
    fn get(&self, key: Key) -> Option<&T>;

    /// Returns the value of a timer for change. `None` if the key is stale.
    fn get_mut(&mut self, key: Key) -> Option<&mut T>;

    /// Returns the earliest deadline; `None` if no timer will ever expire.
    fn next_deadline(&self) -> Option<Time>;

    /// Returns when to call [`settle`](TimerQueue::settle) or [`pop`](TimerQueue::pop) next: never after the earliest
    /// deadline, and before it only where the queue has upkeep to do by then.
    ///
    /// Costs little, however many timers there are. A driver that sleeps until then fires every timer on time.
    fn next_wakeup(&self) -> Option<Time>;

    /// Does the upkeep that the next [`pop`](TimerQueue::pop) at `now` would have to do, but moves only about `steps`
    /// timers.
    ///
    /// `pop` does all upkeep itself, however long that takes. A caller that holds a lock calls `settle` first, and
    /// releases the lock whenever there is [`More`](Settled::More) to do.
    ///
    /// Steps are counted roughly: the wheel moves items by the block of 64, does nothing if `steps` is zero, and sorts up to
    /// 16,384 items at once. (More only if so many timers were armed, already overdue, while it was being settled.)
    fn settle(&mut self, now: Time, steps: usize) -> Settled;

    /// Takes out the first timer that is due at `now`.
    fn pop(&mut self, now: Time) -> Option<Expired<T>>;

    /// Takes out all timers that are due at `now`, in order, and returns their number.
    ///
    /// If `sink` panics, the timers that it was not given stay in the queue.
    fn expire(&mut self, now: Time, sink: impl FnMut(Expired<T>)) -> usize
    where
        Self: Sized;

    /// Returns how many timers are armed, those that never expire included.
    fn len(&self) -> usize;

    /// Returns whether no timer is armed.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops all timers. Their keys are stale afterwards.
    fn clear(&mut self);

    /// Verifies every invariant of the queue. Takes time proportional to its size: for tests.
    ///
    /// # Errors
    /// Returns the first [`Violation`] found; there is none unless this crate has a defect.
    fn check(&self) -> Result<(), Violation>;
}

/// A timer that has come due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expired<T> {
    /// Its key, which is stale now.
    pub key: Key,
    /// The deadline that it had.
    pub deadline: Time,
    /// The value that was inserted.
    pub value: T,
}
