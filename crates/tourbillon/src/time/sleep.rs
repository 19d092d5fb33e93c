//! A future that is ready at its deadline.

use std::fmt;
use std::future::Future;
use std::marker::PhantomPinned;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;

use crate::core::error::ArmError;
use crate::entry::Entry;
use crate::instant::Instant;
use crate::outcome::Outcome;
use crate::slack::Slack;

/// Waits for `duration`, counted from this call.
///
/// ```
/// # futures_lite::future::block_on(async {
/// use std::time::Duration;
/// use tourbillon::time::{Instant, sleep};
///
/// let start = Instant::now();
/// sleep(Duration::from_millis(5)).await;
/// assert!(start.elapsed() >= Duration::from_millis(5));
/// # });
/// ```
///
/// Creating it touches nothing shared; the first poll arms it. Every duration is valid: zero is ready at once, and a duration that is
/// too long to be represented waits for ever. A task that awaits many sleeps that are ready at once yields now and then: under Tokio
/// by Tokio's [budget](https://docs.rs/tokio/latest/tokio/task/coop/index.html), elsewhere after each 128. (A thread that has never
/// yielded does so later, within milliseconds.)
///
/// # Cancel safety
/// Dropping it cancels it, at once, from any thread.
///
/// # Panics
/// Never, not even outside a runtime or after a shutdown.
#[inline]
pub fn sleep(duration: Duration) -> Sleep {
    Sleep::from_entry(Entry::after(duration))
}

/// Waits until `deadline`. A deadline in the past is ready at once. See [`sleep`].
///
/// ```
/// # futures_lite::future::block_on(async {
/// use std::time::Duration;
/// use tourbillon::time::{Instant, sleep_until};
///
/// let deadline = Instant::now() + Duration::from_millis(5);
/// sleep_until(deadline).await;
/// assert!(Instant::now() >= deadline);
/// # });
/// ```
///
/// # Cancel safety
/// Dropping it cancels it, at once, from any thread.
#[inline]
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep::from_entry(Entry::until(deadline))
}

/// Creates a [`sleep`] and arms it at once, so that the caller learns if that is not possible.
///
/// # Errors
/// [`ArmError::Full`] if the engine has a capacity and holds that many timers, [`ArmError::Stopped`] if it has been shut
/// down. (A plain `sleep` waits for capacity, and is ready at once after a shutdown.)
///
/// # Cancel safety
/// As for [`sleep`].
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{ArmError, Engine};
/// use tourbillon::time::try_sleep;
///
/// let engine = Engine::builder().capacity(1).build()?;
/// let _entered = engine.enter();
/// let first = try_sleep(Duration::from_secs(60));
/// assert!(first.is_ok());
/// assert_eq!(try_sleep(Duration::from_secs(60)).unwrap_err(), ArmError::Full { capacity: 1 });
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
pub fn try_sleep(duration: Duration) -> Result<Sleep, ArmError> {
    Entry::after(duration).armed().map(Sleep::from_entry)
}

/// Creates a [`sleep_until`] and arms it at once: see [`try_sleep`].
///
/// # Errors
/// As for [`try_sleep`].
///
/// # Cancel safety
/// As for [`sleep`].
pub fn try_sleep_until(deadline: Instant) -> Result<Sleep, ArmError> {
    Entry::until(deadline).armed().map(Sleep::from_entry)
}

pin_project! {
    /// The future of [`sleep`] and [`sleep_until`].
    ///
    /// It works with any executor and without one. It takes 16 bytes, and another 48 in the engine while it is armed.
    ///
    /// If its engine is shut down, it is ready at once, whatever the time; [`outcome`](Sleep::outcome) then is
    /// [`Stopped`](Outcome::Stopped). Polled after it was ready, it is ready again, until it is [reset](Sleep::reset).
    ///
    /// # Cancel safety
    /// Dropping it cancels it, at once, from any thread. Awaited by reference (`sleep.as_mut().await`, in a `select!` for
    /// instance), it keeps its deadline.
    ///
    /// # Moving its deadline
    /// ```
    /// use std::pin::pin;
    /// use std::time::Duration;
    /// use tourbillon::time::{Instant, sleep};
    ///
    /// # futures_lite::future::block_on(async {
    /// let mut idle = pin!(sleep(Duration::from_secs(30)));
    /// idle.as_mut().reset(Instant::now() + Duration::from_secs(60)); // something came in
    /// idle.as_mut().disarm(); // while we are busy ourselves
    /// idle.as_mut().reset(Instant::now() + Duration::from_millis(1));
    /// idle.as_mut().await;
    /// assert!(idle.is_elapsed());
    /// # });
    /// ```
    #[must_use = "futures do nothing unless they are awaited or polled"]
    pub struct Sleep {
        entry: Entry,
        // `Sleep` is not `Unpin`, as with Tokio, although its entry need not be pinned.
        #[pin]
        pinned: PhantomPinned,
    }
}

impl Sleep {
    #[inline(always)]
    pub(crate) fn from_entry(entry: Entry) -> Sleep {
        Sleep { entry, pinned: PhantomPinned }
    }

    /// Creates a [`sleep`] and polls it for the first time, which together is cheaper. For runtimes.
    #[doc(hidden)]
    #[inline(always)]
    pub fn polled(duration: Duration, context: &mut Context<'_>) -> (Sleep, Poll<()>) {
        let (entry, poll) = Entry::polled(duration, context);
        (Sleep::from_entry(entry), poll.map(|_| ()))
    }

    /// Returns the deadline.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.entry.deadline()
    }

    /// Returns whether the sleep has ended: the driver has fired it, or the engine was shut down.
    #[must_use]
    pub fn is_elapsed(&self) -> bool {
        self.entry.outcome().is_some()
    }

    /// Returns how the sleep ended; `None` if it has not. It is never [`Outcome::Cancelled`], since a sleep is cancelled by dropping it.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.entry.outcome()
    }

    /// Sets another deadline, earlier or later than the old one, also after the sleep has ended.
    ///
    /// The task that waits is woken at the new deadline, without another poll. A sleep that had ended waits again from the next poll
    /// on. Moving a deadline later takes no lock. A deadline in the past ends the sleep at once, and the task is woken within this call.
    #[inline]
    pub fn reset(self: Pin<&mut Self>, deadline: Instant) {
        self.entry().reset(deadline);
    }

    /// Disarms the sleep: it waits until [`arm`](Sleep::arm) or [`reset`](Sleep::reset) is called. The deadline is kept.
    pub fn disarm(self: Pin<&mut Self>) {
        self.entry().hold();
    }

    /// Arms a [disarmed](Sleep::disarm) sleep: it is due at its deadline again, at once if that is in the past.
    pub fn arm(self: Pin<&mut Self>) {
        self.entry().let_go();
    }

    /// Returns whether the deadline is in force: `true` unless the sleep is [disarmed](Sleep::disarm).
    #[must_use]
    pub fn is_armed(&self) -> bool {
        !self.entry.is_held()
    }

    /// Sets how late the sleep may end, instead of the slack of its engine.
    ///
    /// ```
    /// # futures_lite::future::block_on(async {
    /// use std::time::Duration;
    /// use tourbillon::{Slack, time::sleep};
    ///
    /// sleep(Duration::from_millis(1)).slack(Slack::exact()).await;
    /// # });
    /// ```
    pub fn slack(mut self, slack: Slack) -> Sleep {
        self.entry.set_slack(slack.bits());
        self
    }

    /// Returns whether the engine holds the sleep.
    #[cfg(all(test, shuttle))]
    pub(crate) fn is_in_engine(&self) -> bool {
        self.entry.is_armed()
    }

    fn entry(self: Pin<&mut Self>) -> &mut Entry {
        self.project().entry
    }
}

impl Future for Sleep {
    type Output = ();

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.entry().poll_cooperatively(context).map(|_| ())
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.deadline()).field("outcome", &self.outcome()).finish()
    }
}
