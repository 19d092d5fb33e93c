//! Cooperative yielding: a task cannot keep its thread by timers that are ready at once.
//!
//! `loop { sleep(7 ns).await }` never has to wait, so it would never return to its executor: it could not be aborted, and a `timeout` or
//! `select!` around it would not get its turn (D63). So results that are ready at once are counted:
//!
//! - In a task of Tokio (feature `tokio`) each result spends a unit of Tokio's own budget, which Tokio refills for each poll of a task.
//! - Elsewhere nothing tells us where a poll begins. Each thread counts the results that were ready at once, and after [`RESULTS`] of
//!   them the next future returns `Pending` once and wakes its task. The number is large, because a program that polls by hand, and
//!   returns to its own loop each time, is counted as well; a loop without an end is there within a millisecond.
//! - An executor that knows of us, as `tourbillon-rt` does, calls [`refill`] when a poll begins: then it is [`RESULTS_OF_A_POLL`].
//!
//! A result for which the task has waited spends nothing of our own count: the task has been away meanwhile. And a future that is
//! polled with a waker that has no data, as [`Waker::noop`](std::task::Waker::noop), does not yield: there is no task to be woken.

use std::cell::Cell;
use std::task::{Context, Poll};

use crate::sync::aside::thread_local;

/// So many results may be ready at once before a task yields, in an executor that does not tell where a poll begins.
pub const RESULTS: u32 = 4096;

/// So many results may be ready at once in one poll.
pub const RESULTS_OF_A_POLL: u32 = 128;

thread_local! {
    static LEFT: Cell<u32> = const { Cell::new(RESULTS) };
}

/// Whether the task has waited for a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Result {
    /// The first poll has given it.
    AtOnce,
    /// A poll was pending before.
    Awaited,
}

/// A unit of the budget, which is given back if it is dropped without having been [spent](Unit::spend).
#[must_use]
#[derive(Debug)]
pub struct Unit {
    #[cfg(feature = "tokio")]
    tokio: tokio::task::coop::RestoreOnPending,
}

/// By an executor that knows of us: a poll of a task begins.
#[inline]
pub fn refill() {
    let _ = LEFT.try_with(|left| left.set(RESULTS_OF_A_POLL));
}

/// Before an operation that may be ready at once: a unit, or `Pending` if there is none left. Then the task is woken.
#[inline]
pub fn poll_unit(context: &mut Context<'_>) -> Poll<Unit> {
    #[cfg(feature = "tokio")]
    let tokio = match tokio::task::coop::poll_proceed(context) {
        Poll::Ready(unit) => unit,
        Poll::Pending => return Poll::Pending,
    };
    if left() == 0 && yields(context) {
        return Poll::Pending;
    }
    Poll::Ready(Unit {
        #[cfg(feature = "tokio")]
        tokio,
    })
}

/// With a result in hand that will be ready again in the next poll: `Pending` if it has to wait for that. Then the task is woken.
#[inline]
pub(crate) fn poll_result(context: &mut Context<'_>, result: Result) -> Poll<()> {
    #[cfg(feature = "tokio")]
    match tokio::task::coop::poll_proceed(context) {
        Poll::Ready(unit) => unit.made_progress(),
        Poll::Pending => return Poll::Pending,
    }
    if result == Result::AtOnce { spend(context) } else { Poll::Ready(()) }
}

/// Spends one of our own count, for an executor that does not run inside Tokio's: `Pending` if nothing is left. Then the task is woken.
#[inline]
pub fn spend(context: &mut Context<'_>) -> Poll<()> {
    if left() == 0 && yields(context) {
        return Poll::Pending;
    }
    take_one();
    Poll::Ready(())
}

/// What was [spent](spend) last has brought no result.
#[inline]
pub fn give_back() {
    let _ = LEFT.try_with(|left| left.set(left.get() + 1));
}

/// Whether Tokio's budget has something left. Ours always has, since it is refilled where a future yields.
#[inline]
pub(crate) fn has_budget() -> bool {
    #[cfg(feature = "tokio")]
    return tokio::task::coop::has_budget_remaining();
    #[cfg(not(feature = "tokio"))]
    true
}

impl Unit {
    /// The operation has given a result.
    #[inline]
    pub fn spend(self, result: Result) {
        #[cfg(feature = "tokio")]
        self.tokio.made_progress();
        if result == Result::AtOnce {
            take_one();
        }
    }
}

/// A thread that is ending has no count, and need not yield.
#[inline(always)]
fn left() -> u32 {
    LEFT.try_with(Cell::get).unwrap_or(RESULTS)
}

#[inline(always)]
fn take_one() {
    let _ = LEFT.try_with(|left| left.set(left.get().saturating_sub(1)));
}

/// Nothing is left: begins anew, and wakes the task unless it need not yield.
#[cold]
#[inline(never)]
fn yields(context: &Context<'_>) -> bool {
    let _ = LEFT.try_with(|left| left.set(RESULTS));
    // There Tokio's budget is what counts, and `unconstrained` means that nothing does.
    #[cfg(feature = "tokio")]
    if tokio::task::try_id().is_some() {
        return false;
    }
    if context.waker().data().is_null() {
        return false;
    }
    context.waker().wake_by_ref();
    true
}
