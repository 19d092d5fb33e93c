//! Runs code of the user on threads of the crate, and catches its panics (P6).
//!
//! Wakers, handlers and the functions that spawn them are the user's. A panic of one of them must not end a thread that others need, and must
//! not keep the crate from waking the next caller. None of them runs under a lock of the crate (P10).

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Runs code of the user and drops its panic, which the standard panic hook has reported.
pub(crate) fn catch_panic(users: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(users)) {
        dispose(payload);
    }
}

/// Wakes a task, and catches the panic of its waker.
pub(crate) fn wake(waker: Waker) {
    catch_panic(|| waker.wake());
}

/// Drops the payload of a panic. If its destructor panics, too, that second payload is leaked.
pub(crate) fn dispose(payload: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}
