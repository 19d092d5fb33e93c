//! Ticks at a fixed period.

use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tourbillon_queue::{Span, Time};

use super::error::ZeroPeriod;
use crate::entry::Entry;
use crate::instant::Instant;
use crate::outcome::Outcome;
use crate::slack::Slack;

/// Creates an interval that ticks every `period`, for the first time at once.
///
/// [`interval_at`] sets another time for the first tick. The interval's [`MissedTickBehavior`] says what happens when ticks come too
/// late.
///
/// # Panics
///
/// If `period` is zero. [`try_interval`] returns an error instead.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::time::interval;
///
/// # futures_lite::future::block_on(async {
/// let mut interval = interval(Duration::from_millis(2));
/// let first = interval.tick().await; // at once
/// let second = interval.tick().await;
/// assert_eq!(second - first, Duration::from_millis(2));
/// # });
/// ```
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    expect_period(try_interval(period))
}

/// Creates an interval that ticks every `period`, for the first time at `start`.
///
/// # Panics
///
/// If `period` is zero. [`try_interval_at`] returns an error instead.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::time::{Instant, interval_at};
///
/// # futures_lite::future::block_on(async {
/// let start = Instant::now() + Duration::from_millis(2);
/// let mut interval = interval_at(start, Duration::from_secs(60));
/// assert_eq!(interval.tick().await, start);
/// # });
/// ```
#[track_caller]
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    expect_period(try_interval_at(start, period))
}

/// Creates an interval as [`interval`] does, with an error instead of the panic.
///
/// # Errors
///
/// [`ZeroPeriod`] if `period` is zero.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::time::{error::ZeroPeriod, try_interval};
///
/// assert!(matches!(try_interval(Duration::ZERO), Err(ZeroPeriod { .. })));
/// assert!(try_interval(Duration::from_nanos(1)).is_ok());
/// ```
pub fn try_interval(period: Duration) -> Result<Interval, ZeroPeriod> {
    Interval::new(Entry::after(Duration::ZERO), period)
}

/// Creates an interval as [`interval_at`] does, with an error instead of the panic.
///
/// # Errors
///
/// [`ZeroPeriod`] if `period` is zero.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::time::{Instant, try_interval_at};
///
/// let midnight = Instant::now() + Duration::from_secs(3600);
/// assert!(try_interval_at(midnight, Duration::ZERO).is_err());
/// assert!(try_interval_at(midnight, Duration::from_secs(86_400)).is_ok());
/// ```
pub fn try_interval_at(start: Instant, period: Duration) -> Result<Interval, ZeroPeriod> {
    Interval::new(Entry::until(start), period)
}

/// A tick that is later than this counts as missed.
pub(crate) const TOLERANCE: Duration = Duration::from_millis(5);

/// A source of ticks at a fixed period, created by [`interval`], [`interval_at`] and their `try_` forms.
///
/// With the feature `futures` it is also a `Stream` of instants, which ends only if its engine is shut down.
///
/// ```
/// # #[cfg(feature = "futures")]
/// # futures_lite::future::block_on(async {
/// use futures_lite::StreamExt;
/// use std::time::Duration;
/// use tourbillon::time::interval;
///
/// assert_eq!(interval(Duration::from_millis(1)).take(3).count().await, 3);
/// # });
/// ```
///
/// # Cancel safety
///
/// No tick is lost if a [`tick`](Interval::tick) is dropped before it is ready.
///
/// # After a shutdown
///
/// After a shutdown of its engine nothing can be waited for, and waiting for ever would be a hang. So the pending
/// tick is ready at once, whatever its time, and so is every later one; each returns the instant for which it was
/// scheduled, one period after the other. [`is_stopped`](Interval::is_stopped) is then `true`, and a loop that may outlive
/// its engine checks it:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Engine;
/// use tourbillon::time::interval;
///
/// # futures_lite::future::block_on(async {
/// let engine = Engine::builder().build().unwrap();
/// let _entered = engine.enter();
/// let mut keep_alive = interval(Duration::from_secs(60));
/// keep_alive.tick().await;
/// engine.shutdown();
///
/// loop {
///     keep_alive.tick().await;
///     if keep_alive.is_stopped() {
///         break;
///     }
///     // send it
/// }
/// # });
/// ```
///
/// From the second such tick on, the task yields to its executor before each, so that a loop that does not check is busy
/// but lets other tasks run.
pub struct Interval {
    delay: Entry,
    period: Duration,
    missed_tick_behavior: MissedTickBehavior,
    engine: EngineSeen,
}

/// Whether the interval has seen the shutdown of its engine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EngineSeen {
    Running,
    /// Shut down. The next tick yields first.
    Stopped,
    /// Shut down. The task has yielded and the tick is ready.
    StoppedYielded,
}

/// The rule of an [`Interval`] for a tick that comes more than five milliseconds late.
///
/// In the drawings an interval ticks at 0 and at 1 of its periods. Then its task is busy and awaits the next tick only at
/// 3.2. A mark shows when a tick is taken, and the number below it the time that the tick returns.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MissedTickBehavior {
    /// Makes up for missed ticks: ticks at once until it has caught up with the schedule. The default.
    ///
    /// ```text
    ///     time     0         1         2         3         4         5
    ///     taken    |         |                     ||      |         |
    ///     returns  0         1                     2,3     4         5
    /// ```
    #[default]
    Burst,

    /// Starts a new schedule at the late tick: the next one is a whole period after it.
    ///
    /// ```text
    ///     time     0         1         2         3         4         5
    ///     taken    |         |                     |         |         |
    ///     returns  0         1                     2         4.2       5.2
    /// ```
    Delay,

    /// Drops missed ticks and returns to the schedule: the next tick is at the next multiple of the period.
    ///
    /// ```text
    ///     time     0         1         2         3         4         5
    ///     taken    |         |                     |       |         |
    ///     returns  0         1                     2       4         5
    /// ```
    Skip,
}

impl Interval {
    pub(super) fn new(delay: Entry, period: Duration) -> Result<Interval, ZeroPeriod> {
        if period.is_zero() {
            return Err(ZeroPeriod);
        }
        let missed_tick_behavior = MissedTickBehavior::default();
        Ok(Interval { delay, period, missed_tick_behavior, engine: EngineSeen::Running })
    }

    /// Waits for the next tick and returns the instant for which it was scheduled, which may be in the past.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no tick is lost if the future is dropped before it is ready.
    ///
    /// # Panics
    ///
    /// Never.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// Polls for the next tick.
    ///
    /// - `Pending`: the tick is not due. The task of `cx`, and of no earlier poll, is woken when it is.
    /// - `Ready`: the instant for which the tick was scheduled. No task is woken for the next tick before this method is called
    ///   again.
    ///
    /// # Panics
    ///
    /// Never.
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        let ended = self.delay.poll_cooperatively(cx);
        self.take_tick(ended, cx)
    }

    /// Polls for the next tick beside a stream that was pending; `had_budget` is what the task had before that was polled.
    #[cfg(feature = "futures")]
    pub(super) fn poll_tick_beside(&mut self, had_budget: bool, cx: &mut Context<'_>) -> Poll<Instant> {
        let ended = super::timeout::poll_beside(&mut self.delay, had_budget, cx);
        self.take_tick(ended, cx)
    }

    /// Plans the next tick if the timer has ended, and returns the one that is due.
    fn take_tick(&mut self, ended: Poll<Outcome>, cx: &mut Context<'_>) -> Poll<Instant> {
        let outcome = ready!(ended);
        // On the engine's own clock, because each conversion to an `Instant` and back rounds up a little.
        let scheduled = self.delay.deadline_on_clock();
        let next = if outcome == Outcome::Stopped {
            ready!(self.poll_stopped(cx));
            scheduled + Span::from(self.period)
        } else {
            self.next_after(scheduled, self.delay.core().clock.now())
        };
        let tick = self.delay.deadline();
        // The entry has ended, so this does not arm it: the next poll does.
        self.delay.reset_on_clock(next);
        Poll::Ready(tick)
    }

    /// Restarts the schedule: the next tick is one period from now.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::time::{Instant, interval};
    ///
    /// # futures_lite::future::block_on(async {
    /// let mut interval = interval(Duration::from_millis(2));
    /// interval.tick().await;
    /// let now = Instant::now();
    /// interval.reset();
    /// assert!(interval.tick().await >= now + Duration::from_millis(2));
    /// # });
    /// ```
    pub fn reset(&mut self) {
        self.reset_after(self.period);
    }

    /// Restarts the schedule: the next tick is now.
    pub fn reset_immediately(&mut self) {
        self.reset_after(Duration::ZERO);
    }

    /// Restarts the schedule: the next tick is `after` from now, whatever the period.
    ///
    /// If `after` is too long to be represented, the next tick never comes.
    pub fn reset_after(&mut self, after: Duration) {
        self.reset_at(self.delay.now() + after);
    }

    /// Restarts the schedule: the next tick is at `deadline`, in the future or in the past.
    pub fn reset_at(&mut self, deadline: Instant) {
        self.delay.reset(deadline);
    }

    /// Disarms the interval: no tick comes until [`arm`](Interval::arm) or [`reset`](Interval::reset) is called. The time of the next tick
    /// is kept.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::time::{MissedTickBehavior, interval, timeout};
    ///
    /// # futures_lite::future::block_on(async {
    /// let mut keep_alive = interval(Duration::from_millis(1));
    /// keep_alive.set_missed_tick_behavior(MissedTickBehavior::Skip);
    /// keep_alive.disarm(); // while there is traffic
    /// assert!(timeout(Duration::from_millis(5), keep_alive.tick()).await.is_err());
    /// keep_alive.arm();
    /// keep_alive.tick().await;
    /// # });
    /// ```
    pub fn disarm(&mut self) {
        self.delay.hold();
    }

    /// Arms a [disarmed](Interval::disarm) interval: its next tick comes at the time that was kept. Ticks that have passed meanwhile are
    /// late, for which there is a [behavior](Interval::set_missed_tick_behavior).
    pub fn arm(&mut self) {
        self.delay.let_go();
    }

    /// Returns whether ticks come: `true` unless the interval is [disarmed](Interval::disarm).
    #[must_use]
    pub fn is_armed(&self) -> bool {
        !self.delay.is_held()
    }

    /// Sets how late the ticks may come, instead of the slack of the engine. The schedule does not change: a late tick does not delay later
    /// ones.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Slack, time::interval};
    ///
    /// let statistics = interval(Duration::from_secs(10)).slack(Slack::up_to(Duration::from_millis(4)));
    /// # drop(statistics);
    /// ```
    #[must_use]
    pub fn slack(mut self, slack: Slack) -> Interval {
        self.delay.set_slack(slack.bits());
        self
    }

    /// Returns the behavior for ticks that come late.
    #[must_use]
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.missed_tick_behavior
    }

    /// Sets the behavior for ticks that come late.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::time::{MissedTickBehavior, interval};
    ///
    /// let mut poll = interval(Duration::from_secs(1));
    /// poll.set_missed_tick_behavior(MissedTickBehavior::Skip); // after a pause, one tick and no burst
    /// ```
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        self.missed_tick_behavior = behavior;
    }

    /// Returns the period.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Returns whether the last tick did not wait for its time because the engine was shut down: see
    /// [above](Interval#after-a-shutdown).
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.engine != EngineSeen::Running
    }

    /// Returns the time of the tick after the one that was scheduled for `scheduled` and is taken at `now`.
    fn next_after(&self, scheduled: Time, now: Time) -> Time {
        let period = Span::from(self.period);
        if now <= scheduled + Span::from(TOLERANCE) {
            return scheduled + period;
        }
        match self.missed_tick_behavior {
            MissedTickBehavior::Burst => scheduled + period,
            MissedTickBehavior::Delay => now + period,
            MissedTickBehavior::Skip => now + remaining(now - scheduled, period),
        }
    }

    /// Is ready the first time, and from then on every second time.
    fn poll_stopped(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.engine == EngineSeen::Stopped {
            self.engine = EngineSeen::StoppedYielded;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.engine = EngineSeen::Stopped;
        Poll::Ready(())
    }
}

/// Returns how much `span` is short of the next multiple of `period`.
fn remaining(span: Span, period: Span) -> Span {
    Span::from_nanos(period.as_nanos() - span.as_nanos() % period.as_nanos())
}

/// Returns the interval, or panics if its period is zero.
#[track_caller]
pub(super) fn expect_period(interval: Result<Interval, ZeroPeriod>) -> Interval {
    match interval {
        Ok(interval) => interval,
        Err(zero) => panic!("{zero}"),
    }
}

/// Yields the instant for which each tick was scheduled. After a shutdown of the engine the stream ends, because a program that has
/// wrapped it in other streams cannot check [`is_stopped`](Interval::is_stopped).
#[cfg(feature = "futures")]
impl futures_core::Stream for Interval {
    type Item = Instant;

    fn poll_next(self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Instant>> {
        let this = self.get_mut();
        this.poll_tick(cx).map(|tick| (!this.is_stopped()).then_some(tick))
    }
}

impl fmt::Debug for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interval")
            .field("next", &self.delay.deadline())
            .field("period", &self.period)
            .field("missed_tick_behavior", &self.missed_tick_behavior)
            .finish_non_exhaustive()
    }
}
