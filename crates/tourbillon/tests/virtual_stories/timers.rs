//! The timers that a story runs on: Tokio's and ours, behind one trait.
//!
//! Both implementations come from one macro: the names and signatures of `tourbillon::time` are those of `tokio::time`.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// A set of timers and its clock.
pub(crate) trait Timers: Send + Sync + 'static {
    const NAME: &'static str;
    type Instant: Copy + Send + Sync;
    type Sleep: Future<Output = ()> + Send + Sync;
    type Interval: Send;
    type Queue: Send;
    type Key: Copy + Send;

    fn now() -> Self::Instant;
    fn after(instant: Self::Instant, duration: Duration) -> Self::Instant;
    /// Returns zero if `later` is the earlier one.
    fn between(earlier: Self::Instant, later: Self::Instant) -> Duration;

    fn sleep(duration: Duration) -> Self::Sleep;
    fn sleep_until(deadline: Self::Instant) -> Self::Sleep;
    fn deadline(sleep: &Self::Sleep) -> Self::Instant;
    fn is_elapsed(sleep: &Self::Sleep) -> bool;
    fn reset(sleep: Pin<&mut Self::Sleep>, deadline: Self::Instant);

    fn timeout<F>(limit: Duration, future: F) -> impl Future<Output = Option<F::Output>> + Send
    where
        F: Future<Output: Send> + Send;
    fn timeout_at<F>(limit: Self::Instant, future: F) -> impl Future<Output = Option<F::Output>> + Send
    where
        F: Future<Output: Send> + Send;

    fn interval_at(start: Self::Instant, period: Duration, missed: Missed) -> Self::Interval;
    fn tick(interval: &mut Self::Interval) -> impl Future<Output = Self::Instant> + Send;
    fn restart(interval: &mut Self::Interval, restart: Restart<Self::Instant>);

    fn queue() -> Self::Queue;
    fn insert(queue: &mut Self::Queue, item: u32, timeout: Duration) -> Self::Key;
    fn insert_at(queue: &mut Self::Queue, item: u32, when: Self::Instant) -> Self::Key;
    fn remove(queue: &mut Self::Queue, key: Self::Key) -> u32;
    fn postpone(queue: &mut Self::Queue, key: Self::Key, timeout: Duration);
    fn poll_expired(queue: &mut Self::Queue, cx: &mut Context<'_>) -> Poll<Option<u32>>;
    fn next(queue: &mut Self::Queue) -> impl Future<Output = Option<u32>> + Send {
        poll_fn(|cx| Self::poll_expired(queue, cx))
    }

    /// Pauses the time of this runtime. It must be running.
    fn pause(control: Control);
    /// Resumes the time of this runtime. It must be paused.
    fn resume(control: Control);
    /// Advances the time of this runtime, which must be paused.
    fn advance(control: Control, duration: Duration) -> impl Future<Output = ()> + Send;
}

/// The module whose `pause`, `resume` and `advance` are called. On Tokio's timers a story always uses Tokio's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Control {
    /// The module of the timers.
    Own,
    /// `tokio::time`.
    Tokio,
}

/// The behaviour of an interval that has missed ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Missed {
    Burst,
    Delay,
    Skip,
}

/// A reset of an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Restart<Instant> {
    FromNow,
    AtOnce,
    After(Duration),
    At(Instant),
}

/// Tokio's timers, and the queue of `tokio-util`.
pub(crate) struct Tokio;

/// `tourbillon::time`.
pub(crate) struct Tourbillon;

mod theirs {
    pub(super) use tokio::time::*;
    pub(super) use tokio_util::time::{DelayQueue, delay_queue};
}

/// Tokio's timers with sleeps that are a millisecond too long: the stories must detect that.
pub(crate) struct Late;

mod late {
    pub(super) use super::theirs::*;

    pub(super) fn sleep(duration: std::time::Duration) -> Sleep {
        super::theirs::sleep(duration + std::time::Duration::from_millis(1))
    }
}

mod ours {
    pub(super) use tourbillon::time::*;
}

macro_rules! timers {
    ($timers:ident, $name:literal, $time:ident) => {
        impl Timers for $timers {
            const NAME: &'static str = $name;
            type Instant = $time::Instant;
            type Sleep = $time::Sleep;
            type Interval = $time::Interval;
            type Queue = $time::DelayQueue<u32>;
            type Key = $time::delay_queue::Key;

            fn now() -> Self::Instant {
                $time::Instant::now()
            }

            fn after(instant: Self::Instant, duration: Duration) -> Self::Instant {
                instant + duration
            }

            fn between(earlier: Self::Instant, later: Self::Instant) -> Duration {
                later.saturating_duration_since(earlier)
            }

            fn sleep(duration: Duration) -> Self::Sleep {
                $time::sleep(duration)
            }

            fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
                $time::sleep_until(deadline)
            }

            fn deadline(sleep: &Self::Sleep) -> Self::Instant {
                sleep.deadline()
            }

            fn is_elapsed(sleep: &Self::Sleep) -> bool {
                sleep.is_elapsed()
            }

            fn reset(sleep: Pin<&mut Self::Sleep>, deadline: Self::Instant) {
                sleep.reset(deadline);
            }

            async fn timeout<F>(limit: Duration, future: F) -> Option<F::Output>
            where
                F: Future<Output: Send> + Send,
            {
                $time::timeout(limit, future).await.ok()
            }

            async fn timeout_at<F>(limit: Self::Instant, future: F) -> Option<F::Output>
            where
                F: Future<Output: Send> + Send,
            {
                $time::timeout_at(limit, future).await.ok()
            }

            fn interval_at(start: Self::Instant, period: Duration, missed: Missed) -> Self::Interval {
                let mut interval = $time::interval_at(start, period);
                interval.set_missed_tick_behavior(match missed {
                    Missed::Burst => $time::MissedTickBehavior::Burst,
                    Missed::Delay => $time::MissedTickBehavior::Delay,
                    Missed::Skip => $time::MissedTickBehavior::Skip,
                });
                interval
            }

            async fn tick(interval: &mut Self::Interval) -> Self::Instant {
                interval.tick().await
            }

            fn restart(interval: &mut Self::Interval, restart: Restart<Self::Instant>) {
                match restart {
                    Restart::FromNow => interval.reset(),
                    Restart::AtOnce => interval.reset_immediately(),
                    Restart::After(after) => interval.reset_after(after),
                    Restart::At(instant) => interval.reset_at(instant),
                }
            }

            fn queue() -> Self::Queue {
                $time::DelayQueue::new()
            }

            fn insert(queue: &mut Self::Queue, item: u32, timeout: Duration) -> Self::Key {
                queue.insert(item, timeout)
            }

            fn insert_at(queue: &mut Self::Queue, item: u32, when: Self::Instant) -> Self::Key {
                queue.insert_at(item, when)
            }

            fn remove(queue: &mut Self::Queue, key: Self::Key) -> u32 {
                queue.remove(&key).into_inner()
            }

            fn postpone(queue: &mut Self::Queue, key: Self::Key, timeout: Duration) {
                queue.reset(&key, timeout);
            }

            fn poll_expired(queue: &mut Self::Queue, cx: &mut Context<'_>) -> Poll<Option<u32>> {
                queue.poll_expired(cx).map(|expired| expired.map(|expired| expired.into_inner()))
            }

            fn pause(control: Control) {
                match control {
                    Control::Own => $time::pause(),
                    Control::Tokio => tokio::time::pause(),
                }
            }

            fn resume(control: Control) {
                match control {
                    Control::Own => $time::resume(),
                    Control::Tokio => tokio::time::resume(),
                }
            }

            async fn advance(control: Control, duration: Duration) {
                match control {
                    Control::Own => $time::advance(duration).await,
                    Control::Tokio => tokio::time::advance(duration).await,
                }
            }
        }
    };
}

timers!(Tokio, "Tokio", theirs);
timers!(Late, "Late", late);
timers!(Tourbillon, "Tourbillon", ours);
