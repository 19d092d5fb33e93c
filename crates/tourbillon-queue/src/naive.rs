//! The specification of a timer queue, as code.

use alloc::vec::Vec;

use crate::slab::KeySlab;
use crate::violation::{Violation, ensure};
use crate::{Expired, Key, Settled, Time, TimerQueue};

/// A timer queue that is simple and slow: a vector in arming order, searched from end to end.
///
/// The tests compare every other queue with it.
#[derive(Clone, Debug, Default)]
pub struct Naive<T> {
    timers: Vec<Expired<T>>,
    keys: NaiveKeys,
}

#[derive(Clone)]
struct NaiveKeys(KeySlab);

impl<T> Naive<T> {
    /// Returns an empty queue.
    #[must_use]
    pub fn new() -> Naive<T> {
        Naive { timers: Vec::new(), keys: NaiveKeys::default() }
    }

    fn position(&self, key: Key) -> Option<usize> {
        self.timers.iter().position(|timer| timer.key == key)
    }

    fn first(&self) -> Option<usize> {
        let expiring = self.timers.iter().enumerate().filter(|(_, timer)| !timer.deadline.is_never());
        // `min_by_key` takes the first of equal ones, which was armed first.
        expiring.min_by_key(|(_, timer)| timer.deadline).map(|(position, _)| position)
    }
}

impl<T> TimerQueue<T> for Naive<T> {
    fn insert(&mut self, deadline: Time, value: T) -> Key {
        let key = self.keys.0.acquire();
        self.timers.push(Expired { key, deadline, value });
        key
    }

    fn remove(&mut self, key: Key) -> Option<T> {
        let position = self.position(key)?;
        self.keys.0.release(key);
        Some(self.timers.remove(position).value)
    }

    fn reschedule(&mut self, key: Key, deadline: Time) -> Option<Time> {
        let mut timer = self.timers.remove(self.position(key)?);
        let old = core::mem::replace(&mut timer.deadline, deadline);
        self.timers.push(timer);
        Some(old)
    }

    fn deadline(&self, key: Key) -> Option<Time> {
        self.position(key).map(|position| self.timers[position].deadline)
    }

    fn get(&self, key: Key) -> Option<&T> {
        self.position(key).map(|position| &self.timers[position].value)
    }

    fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.position(key).map(|position| &mut self.timers[position].value)
    }

    fn next_deadline(&self) -> Option<Time> {
        self.first().map(|position| self.timers[position].deadline)
    }

    fn next_wakeup(&self) -> Option<Time> {
        self.next_deadline()
    }

    fn settle(&mut self, _: Time, _: usize) -> Settled {
        Settled::Done
    }

    fn pop(&mut self, now: Time) -> Option<Expired<T>> {
        let position = self.first().filter(|&position| self.timers[position].deadline <= now)?;
        let timer = self.timers.remove(position);
        self.keys.0.release(timer.key);
        Some(timer)
    }

    fn expire(&mut self, now: Time, sink: impl FnMut(Expired<T>)) -> usize {
        core::iter::from_fn(|| self.pop(now)).map(sink).count()
    }

    fn len(&self) -> usize {
        self.timers.len()
    }

    fn clear(&mut self) {
        self.timers.iter().for_each(|timer| self.keys.0.release(timer.key));
        self.timers.clear();
    }

    fn check(&self) -> Result<(), Violation> {
        ensure!(self.keys.0.len() == self.timers.len(), "naive: some key has no timer, or some timer no key");
        self.keys.0.check()
    }
}

impl Default for NaiveKeys {
    fn default() -> NaiveKeys {
        NaiveKeys(KeySlab::new())
    }
}

impl core::fmt::Debug for NaiveKeys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("NaiveKeys").field(&self.0.len()).finish()
    }
}
