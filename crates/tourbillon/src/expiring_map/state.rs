//! The entries of a map, behind one lock. This module reads no clock, and of the user's code it calls only what hashes, compares and clones.
//!
//! ```text
//!     index: key -> DeadlineKey ---> deadlines: entries, by their deadlines ---> expired, if a stream takes them
//! ```

use std::borrow::Borrow;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::task::Waker;

use tourbillon_queue::Time;

use crate::core::error::ArmError;
use crate::multi::deadline_map::{self, DeadlineKey, DeadlineMap, Popped};
use crate::multi::due_items::Firing;

/// All entries of a map.
pub(super) struct MapState<K, V> {
    index: HashMap<K, DeadlineKey>,
    deadlines: DeadlineMap<MapEntry<K, V>>,
    /// The most entries that there can be, with those that wait for the stream.
    most: usize,
    /// Entries that have expired, for the stream.
    expired: VecDeque<RemovedEntry<K, V>>,
    /// Whether there is a stream.
    keeps_expired: bool,
    /// The waker of the task that waits for the stream.
    pub(super) reader: Option<Waker>,
    /// Whether the last handle of the map was dropped.
    pub(super) is_over: bool,
    /// Whether the engine was shut down.
    pub(super) is_stopped: bool,
    pub(super) firing: Firing,
}

/// One entry.
pub(super) struct MapEntry<K, V> {
    key: K,
    pub(super) value: V,
    pub(super) due: Time,
}

/// An entry that has left the map. Its keys are dropped outside the lock.
pub(super) struct RemovedEntry<K, V> {
    pub(super) key: K,
    pub(super) value: V,
    /// The key of the index.
    pub(super) spare: Option<K>,
}

/// An entry that is not in the map yet.
pub(super) struct NewEntry<K, V> {
    pub(super) key: K,
    pub(super) value: V,
    /// The key for the index.
    pub(super) spare: K,
}

/// What an insert does if the key has an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WhenPresent {
    Replace,
    Keep,
}

/// The result of an insert.
pub(super) enum InsertResult<K, V> {
    Inserted,
    /// The key has an entry: with the value that is not in the map now.
    Present(NewEntry<K, V>),
    /// With the entry, which is dropped outside the lock.
    Refused(ArmError, NewEntry<K, V>),
}

/// How many entries expire before the lock is released (D26).
const BATCH: usize = 256;

/// How many steps of the wheel's upkeep are done before the lock is released.
const STEPS: usize = 1024;

impl<K, V> MapState<K, V> {
    pub(super) fn new(most: usize, keeps_expired: bool) -> MapState<K, V> {
        MapState {
            index: HashMap::new(),
            deadlines: DeadlineMap::new(),
            most: most.min(deadline_map::MOST),
            expired: VecDeque::new(),
            keeps_expired,
            reader: None,
            is_over: false,
            is_stopped: false,
            firing: Firing::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.deadlines.len()
    }

    pub(super) fn has_expired(&self) -> bool {
        !self.expired.is_empty()
    }

    /// Returns when entries may expire next; `None` if there is no entry, or no engine to wait for it.
    pub(super) fn next_wakeup(&self) -> Option<Time> {
        (self.deadlines.len() > 0 && !self.is_stopped).then(|| self.deadlines.next_wakeup())
    }

    /// Returns the next expired entry for the stream.
    pub(super) fn pop_expired(&mut self) -> Option<RemovedEntry<K, V>> {
        self.expired.pop_front()
    }

    /// Notes that the stream was dropped, and returns what it has not taken.
    pub(super) fn end_stream(&mut self) -> impl Sized + use<K, V> {
        self.keeps_expired = false;
        (std::mem::take(&mut self.expired), self.reader.take())
    }

    /// Returns all entries, for the caller to drop.
    pub(super) fn take_entries(&mut self) -> impl Sized + use<K, V> {
        (std::mem::take(&mut self.index), std::mem::take(&mut self.deadlines))
    }
}

impl<K: Hash + Eq, V> MapState<K, V> {
    /// Returns the entry of a key, if it has not expired.
    pub(super) fn find<Q>(&self, key: &Q, now: Time) -> Option<(DeadlineKey, &MapEntry<K, V>)>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let at = *self.index.get(key)?;
        self.deadlines.get(at).filter(|entry| entry.due > now).map(|entry| (at, entry))
    }

    /// Inserts an entry. An old one of the same key that has expired is ended as such.
    pub(super) fn insert(
        &mut self,
        mut new: NewEntry<K, V>,
        due: Time,
        now: Time,
        when_present: WhenPresent,
        expired: &mut Vec<RemovedEntry<K, V>>,
    ) -> InsertResult<K, V> {
        if let Some((at, _)) = self.find(&new.key, now) {
            if when_present == WhenPresent::Replace
                && let Some(entry) = self.deadlines.get_mut(at)
            {
                entry.due = due;
                std::mem::swap(&mut entry.value, &mut new.value);
                self.deadlines.set_deadline(at, due);
            }
            return InsertResult::Present(new);
        }
        if let Some(at) = self.index.get(&new.key).copied() {
            self.expire(at, expired);
        }
        if self.deadlines.len() + self.expired.len() >= self.most || self.deadlines.is_full() {
            return InsertResult::Refused(ArmError::Full { capacity: self.most }, new);
        }
        let NewEntry { key, value, spare } = new;
        // A key whose hash panics does so here, before anything has changed.
        let place = self.index.entry(spare);
        let at = self.deadlines.insert(due, MapEntry { key, value, due });
        place.insert_entry(at);
        InsertResult::Inserted
    }

    /// Gives an entry another deadline, and returns what `read` returns of its value.
    pub(super) fn renew<Q, R>(&mut self, key: &Q, due: Time, now: Time, read: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let (at, entry) = self.find(key, now)?;
        let read = read(&entry.value);
        if let Some(entry) = self.deadlines.get_mut(at) {
            entry.due = due;
        }
        self.deadlines.set_deadline(at, due);
        Some(read)
    }

    /// Removes the entry of a key, if it has not expired.
    pub(super) fn remove<Q>(&mut self, key: &Q, now: Time) -> Option<RemovedEntry<K, V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let (at, _) = self.find(key, now)?;
        self.take(at)
    }

    /// Expires entries that are due, in order. Returns whether there may be more.
    #[must_use]
    pub(super) fn take_due(&mut self, now: Time, expired: &mut Vec<RemovedEntry<K, V>>) -> bool {
        for _ in 0..BATCH {
            match self.deadlines.pop(now, STEPS) {
                Popped::Due(at, _) => self.expire(at, expired),
                Popped::NotYet => return true,
                Popped::Nothing => return false,
            }
        }
        true
    }

    /// Takes an entry out of the map, for the stream if there is one.
    fn expire(&mut self, at: DeadlineKey, expired: &mut Vec<RemovedEntry<K, V>>) {
        let Some(removed) = self.take(at) else { return };
        if self.keeps_expired {
            self.expired.push_back(removed);
        } else {
            expired.push(removed);
        }
    }

    fn take(&mut self, at: DeadlineKey) -> Option<RemovedEntry<K, V>> {
        // First, because the hash of a key may panic. Then the entry stays, without a deadline, until its key is inserted again.
        let spare = self.index.remove_entry(&self.deadlines.get(at)?.key).map(|(spare, _)| spare);
        self.deadlines.remove(at).map(|MapEntry { key, value, .. }| RemovedEntry { key, value, spare })
    }
}
