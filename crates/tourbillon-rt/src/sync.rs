//! Locks that a panic does not poison, and panics that go no further.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Nothing of the user's runs under a lock of ours, so a panic under one is none that left it half done.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs something of the user's. What it throws goes no further; the standard panic hook has reported it.
pub(crate) fn contain(users: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(users)) {
        dispose(payload);
    }
}

/// Drops what a panic threw. Its destructor is the user's, too; what that throws is kept for ever.
pub(crate) fn dispose(payload: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}
