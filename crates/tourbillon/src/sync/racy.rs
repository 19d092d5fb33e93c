//! A static value that is computed on first use without a lock.
//!
//! Threads that come at the same time may each compute it; the first to store it wins. Unlike a `OnceLock` it cannot be left locked in the
//! child of a fork that happens in the middle (D69). Meant for values that are cheap, and the same whichever thread computes them.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A cell that is initialised once, without a lock.
pub(crate) struct RacyOnce<T: 'static>(AtomicPtr<T>);

impl<T: Send + Sync> RacyOnce<T> {
    pub(crate) const fn new() -> RacyOnce<T> {
        RacyOnce(AtomicPtr::new(null_mut()))
    }

    pub(crate) fn get_or_init(&'static self, compute: impl FnOnce() -> T) -> &'static T {
        // SAFETY: the pointer is null, or its box was leaked and stored below with release ordering, and is never freed.
        if let Some(value) = unsafe { self.0.load(Ordering::Acquire).as_ref() } {
            return value;
        }
        let mine = Box::into_raw(Box::new(compute()));
        match self.0.compare_exchange(null_mut(), mine, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: it is stored now, and stored boxes are never freed.
            Ok(_) => unsafe { &*mine },
            Err(first) => {
                // SAFETY: it came from a box above, and was not stored, so no other thread has it.
                drop(unsafe { Box::from_raw(mine) });
                // SAFETY: it is stored, and stored boxes are never freed.
                unsafe { &*first }
            }
        }
    }
}
