//! A static value that threads publish without a lock, and that lives for ever.
//!
//! Threads that come at the same time may each compute a value; the first to publish it wins. Unlike a `OnceLock` the cell cannot be left
//! locked in the child of a fork that happens in the middle (D69).

use std::ptr::{from_ref, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A cell for a value that is published once, or replaced by a later one. No published value is ever freed.
pub(crate) struct Published<T: 'static>(AtomicPtr<T>);

impl<T: Send + Sync> Published<T> {
    pub(crate) const fn new() -> Published<T> {
        Published(AtomicPtr::new(null_mut()))
    }

    /// Returns the value that was published last.
    pub(crate) fn get(&self) -> Option<&'static T> {
        // SAFETY: the pointer is null, or `replace` stored it with release ordering, and no stored box is ever freed.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the value that was published last; if there is none, publishes the result of `compute`, which should be cheap, and the same
    /// whichever thread computes it.
    pub(crate) fn get_or_init(&self, compute: impl FnOnce() -> T) -> &'static T {
        if let Some(value) = self.get() {
            return value;
        }
        let published = self.replace(None, compute()).ok().or_else(|| self.get());
        published.expect("this thread has published a value, or another one")
    }

    /// Publishes `value` in place of `before`, the value that the caller has got.
    ///
    /// # Errors
    /// Another thread has published a value since then: `value` is returned.
    pub(crate) fn replace(&self, before: Option<&'static T>, value: T) -> Result<&'static T, T> {
        let before = before.map_or(null_mut(), |before| from_ref(before).cast_mut());
        let boxed = Box::into_raw(Box::new(value));
        match self.0.compare_exchange(before, boxed, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: the box is stored now, and no stored box is ever freed.
            Ok(_) => Ok(unsafe { &*boxed }),
            // SAFETY: it came from a box above and was not stored, so no other thread has it.
            Err(_) => Err(*unsafe { Box::from_raw(boxed) }),
        }
    }
}
