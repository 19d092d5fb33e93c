//! How much a task may do before others get a turn.
//!
//! A socket that always has data would otherwise keep its task running for ever, and everything else on its worker waiting: also
//! the timer that is to end it (T12). Each poll of a task has a budget; an operation that succeeds spends one of it. When it is
//! used up, operations are pending, and the task is woken at once.

use std::cell::Cell;
use std::task::{Context, Poll};

/// So many operations for each poll of a task.
const OPERATIONS: u32 = 128;

thread_local! {
    static LEFT: Cell<u32> = const { Cell::new(OPERATIONS) };
}

/// A task begins to be polled.
pub(crate) fn refill() {
    LEFT.set(OPERATIONS);
}

/// Before an operation: pending if there is nothing left.
pub(crate) fn spend(context: &mut Context<'_>) -> Poll<()> {
    let left = LEFT.get();
    if left == 0 {
        // Outside a runtime nobody else refills it.
        LEFT.set(OPERATIONS);
        context.waker().wake_by_ref();
        return Poll::Pending;
    }
    LEFT.set(left - 1);
    Poll::Ready(())
}

/// It has not succeeded after all.
pub(crate) fn give_back() {
    LEFT.set(LEFT.get() + 1);
}
