//! A queue that owns its values: a slab of keys, and a raw queue that orders the values.

use alloc::vec::Vec;
use core::fmt;

use crate::place::{Place, PlaceKind};
use crate::raw::{Entries, RawQueue, Settled};
use crate::slab::{Key, KeySlab};
use crate::violation::{Violation, ensure};
use crate::{Expired, Time, TimerQueue};

/// A timer queue made of a [`RawQueue`] of values and a slab that stores the place of each of them.
///
/// [`Wheel`](crate::Wheel), [`Heap`](crate::Heap), [`ListTree`](crate::ListTree) and
/// [`Rounds`](crate::Rounds) are this type with the raw queue of that name; the methods are those of
/// [`TimerQueue`].
#[derive(Clone)]
pub struct Keyed<T, R> {
    slab: KeySlab,
    raw: R,
    /// Timers that never expire. The raw queue does not hold them.
    never: Vec<Timer<T>>,
}

/// A value and its key, as a raw queue holds them.
#[derive(Clone, Debug)]
pub struct Timer<T> {
    key: Key,
    value: T,
}

impl<T> Timer<T> {
    pub(crate) fn key(&self) -> Key {
        self.key
    }
}

impl<T, R: RawQueue<Timer<T>>> Keyed<T, R> {
    /// Bytes that one timer takes: its key and its item in the raw queue, spare capacity not counted.
    pub const BYTES_PER_TIMER: usize = KeySlab::BYTES + R::BYTES_PER_ENTRY;

    /// Returns an empty queue.
    #[must_use]
    pub fn new() -> Keyed<T, R>
    where
        R: Default,
    {
        Keyed::with_raw(R::default())
    }

    pub(crate) const fn with_raw(raw: R) -> Keyed<T, R> {
        Keyed { slab: KeySlab::new(), raw, never: Vec::new() }
    }

    pub(crate) fn raw(&self) -> &R {
        &self.raw
    }

    #[inline(always)]
    fn arm(&mut self, timer: Timer<T>, deadline: Time) {
        let key = timer.key;
        let place =
            if deadline.is_never() { self.arm_never(timer) } else { self.raw.insert(&mut self.slab, timer, deadline) };
        self.slab.set_place(key, place);
    }

    #[cold]
    fn arm_never(&mut self, timer: Timer<T>) -> Place {
        self.never.push(timer);
        Place::never(self.never.len() as u32 - 1)
    }

    #[inline(always)]
    fn disarm(&mut self, place: Place) -> (Timer<T>, Time) {
        match place.kind() {
            PlaceKind::Never(index) => (self.disarm_never(index), Time::NEVER),
            _ => self.raw.remove(&mut self.slab, place),
        }
    }

    #[cold]
    fn disarm_never(&mut self, index: u32) -> Timer<T> {
        let timer = self.never.swap_remove(index as usize);
        if let Some(moved) = self.never.get(index as usize) {
            self.slab.set_place(moved.key, Place::never(index));
        }
        timer
    }
}

impl<T, R: RawQueue<Timer<T>>> TimerQueue<T> for Keyed<T, R> {
    #[inline(always)]
    fn insert(&mut self, deadline: Time, value: T) -> Key {
        let key = self.slab.acquire();
        self.arm(Timer { key, value }, deadline);
        key
    }

    #[inline(always)]
    fn remove(&mut self, key: Key) -> Option<T> {
        let place = self.slab.take(key)?;
        Some(self.disarm(place).0.value)
    }

    #[inline]
    fn reschedule(&mut self, key: Key, deadline: Time) -> Option<Time> {
        let place = self.slab.place(key)?;
        let (timer, old) = self.disarm(place);
        self.arm(timer, deadline);
        Some(old)
    }

    fn deadline(&self, key: Key) -> Option<Time> {
        let place = self.slab.place(key)?;
        match place.kind() {
            PlaceKind::Never(_) => Some(Time::NEVER),
            _ => self.raw.get(place).map(|(_, deadline)| deadline),
        }
    }

    fn get(&self, key: Key) -> Option<&T> {
        let place = self.slab.place(key)?;
        let timer = match place.kind() {
            PlaceKind::Never(index) => self.never.get(index as usize),
            _ => self.raw.get(place).map(|(timer, _)| timer),
        };
        timer.map(|timer| &timer.value)
    }

    fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let place = self.slab.place(key)?;
        let timer = match place.kind() {
            PlaceKind::Never(index) => self.never.get_mut(index as usize),
            _ => self.raw.get_mut(place),
        };
        timer.map(|timer| &mut timer.value)
    }

    fn next_deadline(&self) -> Option<Time> {
        self.raw.next_deadline()
    }

    fn next_wakeup(&self) -> Option<Time> {
        self.raw.next_wakeup()
    }

    fn settle(&mut self, now: Time, steps: usize) -> Settled {
        self.raw.settle(&mut self.slab, now, steps)
    }

    #[inline]
    fn pop(&mut self, now: Time) -> Option<Expired<T>> {
        let (Timer { key, value }, deadline) = self.raw.pop(&mut self.slab, now)?;
        self.slab.release(key);
        Some(Expired { key, deadline, value })
    }

    #[inline]
    fn expire(&mut self, now: Time, mut sink: impl FnMut(Expired<T>)) -> usize {
        self.raw.expire(&mut self.slab, now, |slab, Timer { key, value }, deadline| {
            slab.release(key);
            sink(Expired { key, deadline, value });
        })
    }

    fn len(&self) -> usize {
        self.slab.len()
    }

    fn clear(&mut self) {
        // Keys first, values last: a destructor that panics leaves an empty queue that is in order.
        let slab = &mut self.slab;
        self.raw.for_each(|timer| slab.release(timer.key));
        self.never.iter().for_each(|timer| slab.release(timer.key));
        let never = core::mem::take(&mut self.never);
        self.raw.clear();
        drop(never);
    }

    fn check(&self) -> Result<(), Violation> {
        self.slab.check()?;
        for (index, timer) in self.never.iter().enumerate() {
            let place = Some(Place::never(index as u32));
            ensure!(self.slab.place(timer.key) == place, "queue: a timer that never expires has another place");
        }
        let armed = self.raw.check(&self.slab)? + self.never.len();
        ensure!(armed == self.slab.len(), "queue: some key has no timer, or some timer no key");
        Ok(())
    }
}

impl<T> Entries<Timer<T>> for KeySlab {
    #[inline]
    fn place(&self, timer: &Timer<T>) -> Place {
        self.place(timer.key).unwrap_or(Place::NOWHERE)
    }

    #[inline]
    fn set_place(&mut self, timer: &Timer<T>, place: Place) {
        self.set_place(timer.key, place);
    }
}

impl<T, R: RawQueue<Timer<T>> + Default> Default for Keyed<T, R> {
    fn default() -> Keyed<T, R> {
        Keyed::new()
    }
}

impl<T, R: RawQueue<Timer<T>>> fmt::Debug for Keyed<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerQueue")
            .field("len", &self.len())
            .field("next_deadline", &self.next_deadline())
            .finish_non_exhaustive()
    }
}
