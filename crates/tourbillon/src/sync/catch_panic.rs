//! Runs code of the user, and keeps its panics from going further.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// How something of the user's ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallResult {
    Returned,
    Panicked,
}

/// Runs something of the user's. What it throws goes no further; the standard panic hook has reported it.
pub(crate) fn catch_panic(users: impl FnOnce()) -> CallResult {
    match catch_unwind(AssertUnwindSafe(users)) {
        Ok(()) => CallResult::Returned,
        Err(payload) => {
            // Its destructor is the user's, too, and may panic as well. Who panics each time would leak each time, so only what
            // that throws is kept for ever.
            if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                std::mem::forget(again);
            }
            CallResult::Panicked
        }
    }
}
