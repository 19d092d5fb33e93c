//! Runs code of the user and catches its panics.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// How a call of the user's code ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallResult {
    Returned,
    Panicked,
}

/// Runs code of the user and catches its panic, which the standard panic hook has reported.
pub(crate) fn catch_panic(users: impl FnOnce()) -> CallResult {
    match catch_unwind(AssertUnwindSafe(users)) {
        Ok(()) => CallResult::Returned,
        Err(payload) => {
            // The payload's destructor is code of the user, too, and may panic. Only the payload of that second panic is leaked, so that
            // ordinary panics leak nothing.
            if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                std::mem::forget(again);
            }
            CallResult::Panicked
        }
    }
}
