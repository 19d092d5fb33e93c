//! A value of the process that is computed on first use without a lock.
//!
//! Threads that come at the same time may compute it each; the first to store it wins. Unlike a `OnceLock` it cannot be left locked in
//! the child of a fork that happens in the middle (D69). Meant for values that are cheap and the same whichever thread computes them.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

pub(crate) struct RacyOnce<T: 'static>(AtomicPtr<T>);

impl<T: Send + Sync> RacyOnce<T> {
    pub(crate) const fn new() -> RacyOnce<T> {
        RacyOnce(AtomicPtr::new(null_mut()))
    }

    pub(crate) fn get_or_init(&'static self, compute: impl FnOnce() -> T) -> &'static T {
        // SAFETY: it is null, or was leaked and released below, and is never freed.
        if let Some(value) = unsafe { self.0.load(Ordering::Acquire).as_ref() } {
            return value;
        }
        let mine = Box::into_raw(Box::new(compute()));
        match self.0.compare_exchange(null_mut(), mine, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: it is stored, and so is never freed.
            Ok(_) => unsafe { &*mine },
            Err(first) => {
                // SAFETY: it came from a box just now, and was not stored.
                drop(unsafe { Box::from_raw(mine) });
                // SAFETY: as above: what is stored is never freed.
                unsafe { &*first }
            }
        }
    }
}
