//! Deadlines that a caller hands down to everything it calls.

use std::cell::Cell;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;

use super::error::Elapsed;
use super::timeout::{Timeout, timeout_at};
use crate::instant::{Instant, far_future};
use crate::slack::Slack;
use crate::sync::unmodelled::thread_local;

/// The time by which some work must be done.
///
/// Unlike a duration, a deadline can be passed through any number of calls without growing: a request that may take a
/// second may take a second in all, not a second for each of its steps. Deadlines are compared with the usual operators;
/// `min` returns the stricter of two.
///
/// # Scopes
///
/// [`scope`](Deadline::scope) runs a future under a deadline, which everything that the future calls can read:
/// [`Deadline::current`] is the deadline of the scope that is being polled. Scopes nest, and an inner scope never outlives
/// the outer one, whatever its own deadline.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::time::Deadline;
///
/// async fn query() -> &'static str {
///     // A query may take 30 s, but no longer than its caller has.
///     let limit = Deadline::after(Duration::from_secs(30));
///     let limit = Deadline::current().map_or(limit, |callers| callers.min(limit));
///     assert!(limit.remaining() <= Duration::from_secs(1));
///     limit.timeout(async { "row" }).await.unwrap_or("too late")
/// }
///
/// # futures_lite::future::block_on(async {
/// let answer = Deadline::after(Duration::from_secs(1)).scope(query()).await;
/// assert_eq!(answer, Ok("row"));
/// assert_eq!(Deadline::current(), None);
/// # });
/// ```
///
/// A scope is part of the future, not of the thread or the task: it works under any executor, and a future that moves
/// between threads takes its scope along. A task that is *spawned* from within a scope is not part of it; pass
/// `Deadline::current()` to it. A scope does not change the timeouts that are created in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
// Never is the far future, and no deadline is later, so the order of the instants is the order of the deadlines.
pub struct Deadline(Instant);

thread_local! {
    /// The deadline of the innermost scope that is being polled on this thread.
    static CURRENT: Cell<Option<Deadline>> = const { Cell::new(None) };
}

impl Deadline {
    /// Creates a deadline `duration` from now. A duration that is too long to be represented is [never](Deadline::never).
    #[must_use]
    pub fn after(duration: Duration) -> Deadline {
        Deadline::at(Instant::now() + duration)
    }

    /// Creates a deadline at an instant.
    #[must_use]
    pub fn at(instant: Instant) -> Deadline {
        Deadline(instant.min(far_future()))
    }

    /// Creates a deadline that never comes, later than every other.
    #[must_use]
    pub fn never() -> Deadline {
        Deadline(far_future())
    }

    /// Returns the deadline of the scope that is being polled, which is the earliest of all scopes around the caller; `None` outside
    /// any scope.
    #[must_use]
    pub fn current() -> Option<Deadline> {
        CURRENT.with(Cell::get)
    }

    /// Returns the instant; `None` if the deadline is [never](Deadline::never).
    #[must_use]
    pub fn instant(self) -> Option<Instant> {
        (self != Deadline::never()).then_some(self.0)
    }

    /// Returns how much time is left: zero when the deadline has passed, [`Duration::MAX`] if it is [never](Deadline::never).
    ///
    /// Some code cannot take so long a time, for example tonic's `Request::set_timeout`, which panics: ask [`instant`](Deadline::instant) first.
    #[must_use]
    pub fn remaining(self) -> Duration {
        self.instant().map_or(Duration::MAX, |instant| instant - Instant::now())
    }

    /// Returns whether there is no time left.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::time::Deadline;
    ///
    /// assert!(Deadline::after(Duration::ZERO).is_past());
    /// assert!(!Deadline::never().is_past());
    /// ```
    #[must_use]
    pub fn is_past(self) -> bool {
        self.remaining().is_zero()
    }

    /// Waits for a future, but no longer than until this deadline: see [`timeout_at`].
    ///
    /// It neither creates a scope, nor considers the scope around it.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as the future.
    pub fn timeout<F: IntoFuture>(self, future: F) -> Timeout<F::IntoFuture> {
        timeout_at(self.0, future)
    }

    /// Runs a future under this deadline, or under the one of the surrounding scope if that is earlier.
    ///
    /// While the future is polled, [`Deadline::current`] is the earliest of this deadline, the one of the scope around this
    /// call, and the one of the scope around the poll. At the earlier of the first two the result is
    /// [`Err(Elapsed)`](Elapsed); at the third the outer scope ends. As with [`timeout`](super::timeout()), the
    /// future is polled first.
    ///
    /// # Cancel safety
    ///
    /// Dropping the scope drops the future. As cancel safe as the future.
    ///
    /// # Panics
    ///
    /// Only if the future panics; the scope around it is then in force again.
    pub fn scope<F: IntoFuture>(self, future: F) -> Scope<F::IntoFuture> {
        let deadline = self.within(Deadline::current());
        Scope { deadline, timeout: deadline.timeout(future) }
    }

    /// Runs a closure with this deadline, or the current one if that is earlier, as the current deadline. It does not end it.
    pub(crate) fn enter<T>(self, closure: impl FnOnce() -> T) -> T {
        let outer = Deadline::current();
        let _restore = RestoreScope(outer);
        CURRENT.with(|current| current.set(Some(self.within(outer))));
        closure()
    }

    fn within(self, outer: Option<Deadline>) -> Deadline {
        outer.map_or(self, |outer| outer.min(self))
    }
}

impl fmt::Debug for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.instant() {
            Some(instant) => f.debug_tuple("Deadline").field(&instant).finish(),
            None => f.write_str("Deadline(never)"),
        }
    }
}

pin_project! {
    /// The future of [`Deadline::scope`].
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the future inside. As cancel safe as that future.
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    pub struct Scope<F> {
        deadline: Deadline,
        #[pin]
        timeout: Timeout<F>,
    }
}

impl<F> Scope<F> {
    /// Returns when the scope ends: its own deadline, or that of the scope in which it was created if that is earlier.
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// Sets how late the scope may end, instead of the slack of its engine.
    pub fn slack(mut self, slack: Slack) -> Scope<F> {
        self.timeout = self.timeout.slack(slack);
        self
    }
}

impl<F: Future> Future for Scope<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        this.deadline.enter(|| this.timeout.poll(cx))
    }
}

impl<F: fmt::Debug> fmt::Debug for Scope<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("deadline", &self.deadline).field("value", self.timeout.get_ref()).finish()
    }
}

/// Restores the surrounding scope, also when a poll panics.
struct RestoreScope(Option<Deadline>);

impl Drop for RestoreScope {
    fn drop(&mut self) {
        CURRENT.with(|current| current.set(self.0));
    }
}
