//! A future with a deadline.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;

use super::error::Elapsed;
use crate::coop;
use crate::core::error::ArmError;
use crate::entry::Entry;
use crate::instant::Instant;
use crate::outcome::Outcome;
use crate::slack::Slack;

/// Waits for a future, but no longer than `duration` from now.
///
/// Returns `Ok` with the future's output, or [`Err(Elapsed)`](Elapsed). The future is polled before the deadline is checked,
/// so a ready future wins over a deadline that has passed. A `duration` that is too long to be represented, such as
/// [`Duration::MAX`], never ends.
///
/// It works under any executor. If the engine is shut down while the future is pending, the result is an `Elapsed` that
/// [says so](Elapsed::is_stopped), so that a timeout never becomes a wait without end.
///
/// # Cancel safety
///
/// Dropping the timeout cancels its timer and drops the future. As cancel safe as the future.
///
/// # Panics
///
/// Never.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::time::timeout;
///
/// # futures_lite::future::block_on(async {
/// assert_eq!(timeout(Duration::from_secs(5), async { "answer" }).await, Ok("answer"));
///
/// let nothing = timeout(Duration::from_millis(5), std::future::pending::<()>()).await;
/// assert_eq!(nothing.unwrap_err().to_string(), "deadline has elapsed");
/// # });
/// ```
pub fn timeout<F: IntoFuture>(duration: Duration, future: F) -> Timeout<F::IntoFuture> {
    Timeout::new(future, Entry::after(duration))
}

/// Waits for a future, but no longer than until `deadline`.
///
/// Like [`timeout`], for a point in time. With a deadline in the past the future is still polled once.
///
/// # Cancel safety
///
/// Dropping the timeout cancels its timer and drops the future. As cancel safe as the future.
///
/// # Panics
///
/// Never.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::time::{Instant, timeout_at};
///
/// # futures_lite::future::block_on(async {
/// let deadline = Instant::now() + Duration::from_millis(5);
/// assert!(timeout_at(deadline, std::future::pending::<()>()).await.is_err());
/// assert!(timeout_at(deadline, async { "ready" }).await.is_ok());
/// # });
/// ```
pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Timeout<F::IntoFuture> {
    Timeout::new(future, Entry::until(deadline))
}

/// Creates a [`timeout`] and arms its timer at once, so that the caller learns if that is not possible.
///
/// # Errors
/// [`ArmError::Full`] if the engine has a capacity and holds that many timers, [`ArmError::Stopped`] if it has been shut
/// down. The error comes with the future.
///
/// # Cancel safety
///
/// As for [`timeout`].
///
/// # Panics
///
/// Never.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::time::try_timeout;
///
/// # futures_lite::future::block_on(async {
/// match try_timeout(Duration::from_secs(5), async { "answer" }) {
///     Ok(request) => assert_eq!(request.await, Ok("answer")),
///     Err((error, _future)) => println!("too many requests: {error}"),
/// }
/// # });
/// ```
pub fn try_timeout<F: IntoFuture>(duration: Duration, future: F) -> Result<Timeout<F::IntoFuture>, (ArmError, F)> {
    try_timeout_on(Entry::after(duration), future)
}

/// Creates a [`timeout_at`] whose timer is armed at once: see [`try_timeout`].
///
/// # Errors
///
/// As for [`try_timeout`].
///
/// # Cancel safety
///
/// As for [`timeout`].
pub fn try_timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Result<Timeout<F::IntoFuture>, (ArmError, F)> {
    try_timeout_on(Entry::until(deadline), future)
}

/// Arms `delay`, and returns a timeout with it.
pub(super) fn try_timeout_on<F: IntoFuture>(delay: Entry, future: F) -> Result<Timeout<F::IntoFuture>, (ArmError, F)> {
    match delay.armed() {
        Ok(delay) => Ok(Timeout::new(future, delay)),
        Err(error) => Err((error, future)),
    }
}

pin_project! {
    /// The future of [`timeout`] and [`timeout_at`].
    ///
    /// Its deadline can be moved while it runs, removed and set again:
    ///
    /// ```
    /// use std::pin::pin;
    /// use std::time::Duration;
    /// use tourbillon::time::{Instant, timeout};
    ///
    /// # futures_lite::future::block_on(async {
    /// let mut request = pin!(timeout(Duration::from_secs(1), async { "answer" }));
    /// request.as_mut().extend(Duration::from_secs(4)); // the peer needs more time
    /// request.as_mut().disarm(); // no limit, for now
    /// request.as_mut().arm(); // the same limit again
    /// request.as_mut().reset(Instant::now() + Duration::from_secs(1)); // enough
    /// assert_eq!(request.await, Ok("answer"));
    /// # });
    /// ```
    ///
    /// After `Err(Elapsed)` the future is still there: [`reset`](Timeout::reset) the timeout and go on polling, or take the future back
    /// with [`into_inner`](Timeout::into_inner). So that this is possible, a timeout is `Unpin` if its future is. (Tokio's never is.)
    ///
    /// # Cancel safety
    ///
    /// Dropping it cancels its timer and drops the future. As cancel safe as the future.
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    pub struct Timeout<F> {
        #[pin]
        value: F,
        delay: Entry,
        is_armed: bool,
    }
}

impl<F> Timeout<F> {
    pub(super) fn new(future: impl IntoFuture<IntoFuture = F>, delay: Entry) -> Timeout<F> {
        Timeout { value: future.into_future(), delay, is_armed: true }
    }

    /// Returns a reference to the future.
    pub fn get_ref(&self) -> &F {
        &self.value
    }

    /// Returns a mutable reference to the future.
    pub fn get_mut(&mut self) -> &mut F {
        &mut self.value
    }

    /// Cancels the timer and returns the future.
    pub fn into_inner(self) -> F {
        self.value
    }

    /// Returns the deadline, also while the timeout is [disarmed](Timeout::disarm).
    ///
    /// A timeout that is too long to be represented has a deadline in the far future.
    pub fn deadline(&self) -> Instant {
        self.delay.deadline()
    }

    /// Returns whether the deadline is in force: `false` while the timeout is [disarmed](Timeout::disarm).
    pub fn is_armed(&self) -> bool {
        self.is_armed
    }

    /// Sets how late the timeout may elapse, instead of the slack of its engine.
    ///
    /// ```
    /// # futures_lite::future::block_on(async {
    /// use std::time::Duration;
    /// use tourbillon::{Slack, time::timeout};
    ///
    /// let answer = timeout(Duration::from_secs(30), async { "answer" }).slack(Slack::up_to(Duration::from_secs(1)));
    /// assert_eq!(answer.await, Ok("answer"));
    /// # });
    /// ```
    pub fn slack(mut self, slack: Slack) -> Timeout<F> {
        self.delay.set_slack(slack.bits());
        self
    }

    /// Sets another deadline, earlier or later, in the future or in the past.
    ///
    /// The task that polled last is woken at the new deadline. Only if the timeout was [disarmed](Timeout::disarm) or had elapsed must
    /// it be polled again for the new deadline to count.
    ///
    /// # Panics
    ///
    /// Never.
    pub fn reset(self: Pin<&mut Self>, deadline: Instant) {
        let this = self.project();
        *this.is_armed = true;
        this.delay.reset(deadline);
    }

    /// Moves the deadline by `duration`, counted from the deadline and not from now.
    ///
    /// A deadline beyond what can be represented is never reached. A [disarmed](Timeout::disarm) timeout stays so.
    ///
    /// # Panics
    ///
    /// Never.
    pub fn extend(self: Pin<&mut Self>, duration: Duration) {
        let delay = self.project().delay;
        delay.reset(delay.deadline() + duration);
    }

    /// Disarms the timeout: only the future can end it until [`arm`](Timeout::arm) or [`reset`](Timeout::reset) is called. The deadline is
    /// kept.
    pub fn disarm(self: Pin<&mut Self>) {
        let this = self.project();
        *this.is_armed = false;
        this.delay.disarm();
    }

    /// Arms a [disarmed](Timeout::disarm) timeout: from the next poll on its deadline is in force again, also if that has passed.
    pub fn arm(self: Pin<&mut Self>) {
        *self.project().is_armed = true;
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let had_budget = coop::has_budget();
        if let Poll::Ready(output) = this.value.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        // Checked in every poll, however often the future wakes its own task.
        if *this.is_armed { poll_delay(this.delay, had_budget, cx).map(Err) } else { Poll::Pending }
    }
}

/// Polls the deadline of a future or stream that was pending. Not generic, so that it is compiled once for all of them.
pub(crate) fn poll_delay(delay: &mut Entry, had_budget: bool, cx: &mut Context<'_>) -> Poll<Elapsed> {
    poll_beside(delay, had_budget, cx).map(|outcome| match outcome {
        Outcome::Stopped => Elapsed::engine_stopped(),
        Outcome::Fired | Outcome::Cancelled => Elapsed::deadline_reached(),
    })
}

/// Polls the timer beside a future or stream that was pending; `had_budget` is what the task had before that was polled.
pub(crate) fn poll_beside(delay: &mut Entry, had_budget: bool, cx: &mut Context<'_>) -> Poll<Outcome> {
    // A future that uses up the budget of its task must not prevent its own timeout (T12).
    let has_used_up_budget = had_budget && !coop::has_budget();
    if has_used_up_budget { delay.poll(cx) } else { delay.poll_cooperatively(cx) }
}

impl<F: fmt::Debug> fmt::Debug for Timeout<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timeout")
            .field("value", &self.value)
            .field("deadline", &self.deadline())
            .field("is_armed", &self.is_armed)
            .finish()
    }
}
