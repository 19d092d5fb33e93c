//! The items of a delay queue as they leave it, and their keys.

use crate::instant::Instant;

/// The key of one item of a [`DelayQueue`](super::DelayQueue).
///
/// When the item has expired or been removed, its key is stale, and stays so for ever: no later item gets the same key. A key is
/// valid only in the queue that returned it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key(pub(super) tourbillon_queue::Key);

/// An item that has expired in a [`DelayQueue`](super::DelayQueue), or was removed from it.
#[derive(Debug)]
pub struct Expired<T> {
    pub(super) value: T,
    pub(super) deadline: Instant,
    pub(super) key: Key,
}

impl<T> Expired<T> {
    /// Returns a reference to the item.
    pub fn get_ref(&self) -> &T {
        &self.value
    }

    /// Returns a mutable reference to the item.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.value
    }

    /// Returns the item.
    pub fn into_inner(self) -> T {
        self.value
    }

    /// Returns the deadline that the item had.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns the key that the item had, which is stale now.
    pub fn key(&self) -> Key {
        self.key
    }
}
