//! Cooperative yielding: a task whose timers are ready at once still yields its thread now and then.
//!
//! `loop { sleep(7 ns).await }` never has to wait, so it would never return to its executor: it could not be aborted, and a `timeout` or
//! `select!` around it would not be polled (D63). So results that are ready at once are counted:
//!
//! - In the context of a Tokio runtime (feature `tokio`) each result spends a unit of Tokio's own budget, which Tokio refills for each
//!   poll of a task.
//! - Elsewhere a thread counts the results that were ready at once: after `RESULTS` of them the next future returns `Pending` once and
//!   wakes its task. `tourbillon-rt` refills the count when a poll of a task begins; other executors do not.
//! - A program that polls by hand, and returns to its own loop each time, looks the same as a loop that never returns. It may not
//!   expect a `Pending`: for example a test that polls a thousand sleeps of zero. So a thread that has not yielded before yields late:
//!   when results have taken a microsecond of its processor time each, or after 131,072 of them. That is some milliseconds, once
//!   for each thread.
//!
//! A result for which the task has waited does not count on that thread, because the task has returned to its executor meanwhile. And a
//! future that is polled with a waker without data, such as [`Waker::noop`](std::task::Waker::noop), does not yield: there is no task to
//! wake.

use std::cell::Cell;
use std::task::{Context, Poll};

use tourbillon_queue::{Span, Time};

use crate::clock::thread_time;
use crate::sync::unmodelled::thread_local;

/// How many results may be ready at once before a task yields.
pub const RESULTS: u32 = 128;

/// After how many results a thread that has not yielded before checks whether it should.
const CHECK_EVERY: u32 = 512;

/// It should if these results have taken this much processor time.
const WORK: Span = Span::from_nanos(CHECK_EVERY as u64 * 1000);

/// It should in any case after this many checks.
const CHECKS: u32 = 256;

thread_local! {
    /// How many results are left before the thread yields or checks.
    static LEFT: Cell<u32> = const { Cell::new(CHECK_EVERY) };
    /// Whether the thread belongs to an executor: it has yielded before, or its executor has called [`refill`].
    static YIELDS: Cell<bool> = const { Cell::new(false) };
    /// How many checks there have been, and the thread's processor time at the last one.
    static LAST_CHECK: Cell<(u32, Time)> = const { Cell::new((0, Time::ZERO)) };
}

/// Whether a task has waited for a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Result {
    /// The first poll returned it.
    AtOnce,
    /// An earlier poll was pending.
    Awaited,
}

/// A unit of the budget. Dropping it gives it back, unless it was [spent](Unit::spend).
#[must_use]
#[derive(Debug)]
pub struct Unit {
    #[cfg(feature = "tokio")]
    tokio: tokio::task::coop::RestoreOnPending,
}

/// Refills the count. An executor that knows this crate calls it when a poll of a task begins.
#[inline]
pub fn refill() {
    let _ = LEFT.try_with(|left| left.set(RESULTS));
    let _ = YIELDS.try_with(|yields| yields.set(true));
}

/// Takes a unit before an operation that may be ready at once. If none is left, wakes the task and returns `Pending`.
#[inline]
pub fn poll_unit(context: &mut Context<'_>) -> Poll<Unit> {
    #[cfg(feature = "tokio")]
    let tokio = match tokio::task::coop::poll_proceed(context) {
        Poll::Ready(unit) => unit,
        Poll::Pending => return Poll::Pending,
    };
    if left() == 0 && try_yield(context) {
        return Poll::Pending;
    }
    Poll::Ready(Unit {
        #[cfg(feature = "tokio")]
        tokio,
    })
}

/// Spends a unit for a result that will be ready again in the next poll. If none is left, wakes the task and returns `Pending`.
#[inline(never)]
pub(crate) fn poll_result(context: &mut Context<'_>, result: Result) -> Poll<()> {
    #[cfg(feature = "tokio")]
    match tokio::task::coop::poll_proceed(context) {
        Poll::Ready(unit) => unit.made_progress(),
        Poll::Pending => return Poll::Pending,
    }
    if result == Result::AtOnce { spend(context) } else { Poll::Ready(()) }
}

/// Spends one of the thread's own count, for an executor that does not run inside Tokio. If nothing is left, wakes the task and returns
/// `Pending`.
#[inline]
pub fn spend(context: &mut Context<'_>) -> Poll<()> {
    if left() == 0 && try_yield(context) {
        return Poll::Pending;
    }
    take_one();
    Poll::Ready(())
}

/// Gives back one that was [spent](spend), because the operation had no result.
#[inline]
pub fn give_back() {
    let _ = LEFT.try_with(|left| left.set(left.get() + 1));
}

/// Returns whether Tokio's budget has something left. The thread's own count always has, since it is refilled when a future yields.
#[inline]
pub(crate) fn has_budget() -> bool {
    #[cfg(feature = "tokio")]
    return tokio::task::coop::has_budget_remaining();
    #[cfg(not(feature = "tokio"))]
    true
}

impl Unit {
    /// Spends the unit, because the operation has a result.
    #[inline]
    pub fn spend(self, result: Result) {
        #[cfg(feature = "tokio")]
        self.tokio.made_progress();
        if result == Result::AtOnce {
            take_one();
        }
    }
}

/// Returns how many results are left. A thread that is ending has no count, and need not yield.
#[inline(always)]
fn left() -> u32 {
    LEFT.try_with(Cell::get).unwrap_or(RESULTS)
}

#[inline(always)]
fn take_one() {
    let _ = LEFT.try_with(|left| left.set(left.get().saturating_sub(1)));
}

/// Refills the count when nothing is left. Wakes the task and returns `true` if it has to yield.
#[must_use]
#[cold]
#[inline(never)]
fn try_yield(context: &Context<'_>) -> bool {
    let has_yielded = YIELDS.try_with(Cell::get).unwrap_or(false);
    let _ = LEFT.try_with(|left| left.set(if has_yielded { RESULTS } else { CHECK_EVERY }));
    // Inside Tokio only Tokio's budget counts, and with `unconstrained` none does.
    #[cfg(feature = "tokio")]
    if tokio::runtime::Handle::try_current().is_ok() {
        return false;
    }
    if context.waker().data().is_null() || !(has_yielded || record_check()) {
        return false;
    }
    refill();
    context.waker().wake_by_ref();
    true
}

/// Records a check of a thread that has not yielded before, and returns whether the thread should yield now.
#[must_use]
fn record_check() -> bool {
    let now = thread_time();
    let Ok((checks, before)) = LAST_CHECK.try_with(|last| last.replace((last.get().0 + 1, now))) else {
        return false;
    };
    // The first check has nothing to compare with.
    checks + 1 >= CHECKS || (checks > 0 && now - before >= WORK)
}
