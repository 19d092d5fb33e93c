//! The functions of `time` as methods of `Engine`.

use std::future::IntoFuture;
use std::time::{Duration, SystemTime};

use super::error::ZeroPeriod;
use super::interval::{Interval, expect_period};
use super::sleep::Sleep;
use super::timeout::{Timeout, try_timeout_on};
use crate::core::error::ArmError;
use crate::core::thread_shard;
use crate::engine::Engine;
use crate::entry::Entry;
use crate::instant::Instant;

/// The functions of [`tourbillon::time`](crate::time), on this engine instead of the current one.
impl Engine {
    /// Returns a [`Sleep`] on this engine: see [`time::sleep`](crate::time::sleep).
    ///
    /// # Cancel safety
    /// Dropping the sleep on any thread cancels it at once.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        Sleep::from_entry(self.entry_after(duration))
    }

    /// Returns a [`Sleep`] on this engine: see [`time::sleep_until`](crate::time::sleep_until).
    ///
    /// # Cancel safety
    /// Dropping the sleep on any thread cancels it at once.
    pub fn sleep_until(&self, deadline: Instant) -> Sleep {
        Sleep::from_entry(self.entry_until(deadline))
    }

    /// Returns a [`Sleep`] that is armed already, or an error if the engine refuses it.
    ///
    /// # Errors
    /// [`ArmError::Full`] at the engine's capacity, [`ArmError::Stopped`] after its shutdown.
    pub fn try_sleep(&self, duration: Duration) -> Result<Sleep, ArmError> {
        self.entry_after(duration).armed().map(Sleep::from_entry)
    }

    /// Returns a [`Sleep`] until `deadline` that is armed already, or an error if the engine refuses it.
    ///
    /// # Errors
    /// As for [`try_sleep`](Engine::try_sleep).
    pub fn try_sleep_until(&self, deadline: Instant) -> Result<Sleep, ArmError> {
        self.entry_until(deadline).armed().map(Sleep::from_entry)
    }

    /// Returns a [`Sleep`] on this engine until the wall clock shows `when`. On an engine with [`Clock::wall`](crate::Clock::wall) the sleep
    /// follows the wall clock when that is set; on any other engine it ends when the time that is left now has passed.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tourbillon::{Clock, Engine};
    ///
    /// let calendar = Engine::builder().clock(Clock::wall()).build()?;
    /// futures_lite::future::block_on(calendar.sleep_until_wall(SystemTime::now() + Duration::from_millis(1)));
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    ///
    /// # Cancel safety
    /// Dropping the sleep on any thread cancels it at once.
    pub fn sleep_until_wall(&self, when: SystemTime) -> Sleep {
        Sleep::from_entry(thread_shard::with(self.core().as_ptr(), |local| {
            Entry::idle(local, local.core().clock.time_of_wall(when))
        }))
    }

    /// Waits for a future, but no longer than `duration` from now on this engine: see [`time::timeout`](crate::time::timeout()).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Engine, Slack};
    ///
    /// # futures_lite::future::block_on(async {
    /// let requests = Engine::builder().slack(Slack::exact()).capacity(10_000).build()?;
    /// assert_eq!(requests.timeout(Duration::from_secs(5), async { "answer" }).await, Ok("answer"));
    /// # Ok::<(), tourbillon::BuildError>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// Dropping the timeout cancels its timer and drops the future. As cancel safe as the future.
    pub fn timeout<F: IntoFuture>(&self, duration: Duration, future: F) -> Timeout<F::IntoFuture> {
        Timeout::new(future, self.entry_after(duration))
    }

    /// Waits for a future, but no longer than until `deadline` on this engine: see [`time::timeout_at`](crate::time::timeout_at).
    ///
    /// # Cancel safety
    /// Dropping the timeout cancels its timer and drops the future. As cancel safe as the future.
    pub fn timeout_at<F: IntoFuture>(&self, deadline: Instant, future: F) -> Timeout<F::IntoFuture> {
        Timeout::new(future, self.entry_until(deadline))
    }

    /// Returns a [`Timeout`] whose timer is armed already: see [`time::try_timeout`](crate::time::try_timeout).
    ///
    /// # Errors
    /// [`ArmError::Full`] at the engine's capacity, [`ArmError::Stopped`] after its shutdown. The error comes with the future.
    ///
    /// # Cancel safety
    /// Dropping the timeout cancels its timer and drops the future. As cancel safe as the future.
    pub fn try_timeout<F: IntoFuture>(
        &self,
        duration: Duration,
        future: F,
    ) -> Result<Timeout<F::IntoFuture>, (ArmError, F)> {
        try_timeout_on(self.entry_after(duration), future)
    }

    /// Returns a [`Timeout`] at `deadline` whose timer is armed already: see [`time::try_timeout_at`](crate::time::try_timeout_at).
    ///
    /// # Errors
    /// As for [`try_timeout`](Engine::try_timeout).
    ///
    /// # Cancel safety
    /// Dropping the timeout cancels its timer and drops the future. As cancel safe as the future.
    pub fn try_timeout_at<F: IntoFuture>(
        &self,
        deadline: Instant,
        future: F,
    ) -> Result<Timeout<F::IntoFuture>, (ArmError, F)> {
        try_timeout_on(self.entry_until(deadline), future)
    }

    /// Returns an [`Interval`] on this engine that ticks every `period`, for the first time at once: see
    /// [`time::interval`](crate::time::interval()).
    ///
    /// # Panics
    /// If `period` is zero. [`try_interval`](Engine::try_interval) returns an error instead.
    #[track_caller]
    pub fn interval(&self, period: Duration) -> Interval {
        expect_period(self.try_interval(period))
    }

    /// Returns an [`Interval`] on this engine that ticks every `period`, for the first time at `start`: see
    /// [`time::interval_at`](crate::time::interval_at).
    ///
    /// # Panics
    /// If `period` is zero. [`try_interval_at`](Engine::try_interval_at) returns an error instead.
    #[track_caller]
    pub fn interval_at(&self, start: Instant, period: Duration) -> Interval {
        expect_period(self.try_interval_at(start, period))
    }

    /// Returns an [`interval`](Engine::interval) on this engine, or an error instead of the panic.
    ///
    /// # Errors
    /// [`ZeroPeriod`] if `period` is zero.
    pub fn try_interval(&self, period: Duration) -> Result<Interval, ZeroPeriod> {
        Interval::new(self.entry_after(Duration::ZERO), period)
    }

    /// Returns an [`interval_at`](Engine::interval_at) on this engine, or an error instead of the panic.
    ///
    /// # Errors
    /// [`ZeroPeriod`] if `period` is zero.
    pub fn try_interval_at(&self, start: Instant, period: Duration) -> Result<Interval, ZeroPeriod> {
        Interval::new(self.entry_until(start), period)
    }

    #[inline]
    fn entry_after(&self, duration: Duration) -> Entry {
        thread_shard::with(self.core().as_ptr(), |local| Entry::idle(local, local.deadline(duration)))
    }

    fn entry_until(&self, deadline: Instant) -> Entry {
        let core = self.core().as_ptr();
        thread_shard::with(core, |local| Entry::idle(local, local.core().clock.time_of(deadline.into_std())))
    }
}
