//! Cooperative yielding: a task cannot keep its thread by timers that are ready at once.
//!
//! `loop { sleep(7 ns).await }` never has to wait, so it would never return to its executor: it could not be aborted, and a `timeout` or
//! `select!` around it would not get its turn (D63). So results that are ready at once are counted:
//!
//! - In the context of a Tokio runtime (feature `tokio`) each result spends a unit of Tokio's own budget, which Tokio refills for each
//!   poll of a task.
//! - Elsewhere a thread counts the results that were ready at once: after `RESULTS` of them the next future returns `Pending` once and
//!   wakes its task. `tourbillon-rt` refills the count where a poll of a task begins; other executors do not tell.
//! - A program that polls by hand, and returns to its own loop each time, cannot be told from a loop that never returns. It may not
//!   expect a `Pending`, as a test that polls a thousand sleeps of zero. So a thread that has not yielded before yields late: when it
//!   finds that results have taken a microsecond of its processor's time each, or after 131,072 of them. That is some
//!   milliseconds, once for each thread.
//!
//! A result for which the task has waited spends nothing of our own count: the task has been away meanwhile. And a future that is
//! polled with a waker that has no data, as [`Waker::noop`](std::task::Waker::noop), does not yield: there is no task to be woken.

use std::cell::Cell;
use std::task::{Context, Poll};

use tourbillon_queue::{Span, Time};

use crate::clock::thread_time;
use crate::sync::aside::thread_local;

/// So many results may be ready at once before a task yields.
pub const RESULTS: u32 = 128;

/// After so many results a thread that has not yielded before looks whether it should.
const LOOK: u32 = 512;

/// It should if they have taken so long.
const WORK: Span = Span::from_nanos(LOOK as u64 * 1000);

/// And in any case after so many looks.
const LOOKS: u32 = 256;

thread_local! {
    static LEFT: Cell<u32> = const { Cell::new(LOOK) };
    /// Whether the thread belongs to an executor: it has yielded before, or was told of a poll.
    static YIELDS: Cell<bool> = const { Cell::new(false) };
    /// How many looks there have been, and the processor's time at the last one.
    static LOOKED: Cell<(u32, Time)> = const { Cell::new((0, Time::ZERO)) };
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
    let _ = LEFT.try_with(|left| left.set(RESULTS));
    let _ = YIELDS.try_with(|yields| yields.set(true));
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
#[inline(never)]
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
    let has_yielded = YIELDS.try_with(Cell::get).unwrap_or(false);
    let _ = LEFT.try_with(|left| left.set(if has_yielded { RESULTS } else { LOOK }));
    // There Tokio's budget is what counts, and `unconstrained` means that nothing does.
    #[cfg(feature = "tokio")]
    if tokio::runtime::Handle::try_current().is_ok() {
        return false;
    }
    if context.waker().data().is_null() || !(has_yielded || is_due()) {
        return false;
    }
    refill();
    context.waker().wake_by_ref();
    true
}

/// Whether a thread that has not yielded before should.
fn is_due() -> bool {
    let now = thread_time();
    let Ok((looks, before)) = LOOKED.try_with(|looked| looked.replace((looked.get().0 + 1, now))) else { return false };
    // The first look has nothing to compare with.
    looks + 1 >= LOOKS || (looks > 0 && now - before >= WORK)
}
