//! A clock of the user's own making.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, Weak};
use std::time::Duration;

use tourbillon_queue::{Span, Time};

use super::anchor::{ClockAnchor, PairedReading};
use super::{CLOSE_TOGETHER, LAST, RECHECK_EVERY};
use crate::sync::catch_panic::catch_panic;

/// The source of a [custom clock](crate::Clock::custom): a PTP clock, a recording that is replayed, the clock of a simulator.
///
/// # What the engine expects
/// - `now` counts from an origin of its own that does not change, and can be called on any thread, at any rate. It returns soon, does not
///   block, and uses neither timers nor engines: it may be called under locks of the engine.
/// - The clock may stand still, run at any pace, be set forward and be set back. A timer is due when the clock shows its deadline, and never
///   fires before that, whatever the clock showed in between. If the clock is set back, the timers that have not fired fire later.
/// - A time of more than five centuries counts as the last moment of five centuries.
/// - A source that panics does not harm the engine: the clock then shows what it showed last. The panic hook sees the panic.
///
/// # How late a timer can be
/// The driver waits in real time. It asks [`real_time`](ClockSource::real_time) how long the clock needs to the next deadline, and reads the
/// clock again then, and after one second at the latest. So a timer is late
///
/// - by the wake-up of the operating system, if `real_time` is right. The driver does not spin for such a clock, so each wait lasts 50
///   microseconds at least, or a millisecond if the clock has not moved since the last;
/// - by up to a second of real time, if the clock runs faster than `real_time` says, or is set forward and nothing tells the engine;
///   [`Clock::notify_set`](crate::Clock::notify_set) tells it.
///
/// ```
/// use std::time::{Duration, Instant};
/// use tourbillon::{Clock, ClockSource, Engine};
///
/// /// Runs at double speed.
/// struct Double(Instant);
///
/// impl ClockSource for Double {
///     fn now(&self) -> Duration {
///         2 * self.0.elapsed()
///     }
///
///     fn real_time(&self, left: Duration) -> Duration {
///         left / 2
///     }
/// }
///
/// let start = Instant::now();
/// let engine = Engine::builder().clock(Clock::custom(Double(start))).build()?;
/// futures_lite::future::block_on(engine.sleep(Duration::from_millis(20)));
/// assert!(engine.clock().elapsed() >= Duration::from_millis(20) && start.elapsed() >= Duration::from_millis(10));
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
pub trait ClockSource: Send + Sync + 'static {
    /// Returns the time that the clock shows, counted from its origin.
    fn now(&self) -> Duration;

    /// Returns how long it takes, in real time, until the clock has moved on by `left`. By default as long, as for a clock that runs with
    /// the real one. [`Duration::MAX`] if the clock stands still.
    fn real_time(&self, left: Duration) -> Duration {
        left
    }
}

/// An engine that has to read its clock again after that was set.
pub(crate) trait FollowsClock: Send + Sync {
    /// Makes the driver read the clock. Called outside all locks of the clock.
    fn clock_was_set(&self);
}

pub(super) struct CustomClock {
    source: Box<dyn ClockSource>,
    /// What the source returned last.
    last: AtomicU64,
    /// What the clock showed when a driver last asked how long to wait.
    waited_at: AtomicU64,
    /// Fixed when the clock was made, so that differences between instants are differences on this clock.
    pub(super) anchor: ClockAnchor,
    followers: Mutex<Vec<Weak<dyn FollowsClock>>>,
}

/// The shortest wait for such a clock: the driver must not spin until a clock moves that may stand still.
const SHORTEST: Duration = Duration::from_micros(50);
/// The shortest wait after the clock was found where it was before.
const SHORTEST_IF_STILL: Duration = Duration::from_millis(1);

impl CustomClock {
    pub(super) fn new(source: Box<dyn ClockSource>) -> CustomClock {
        let last = AtomicU64::new(0);
        let anchor = PairedReading::closest(|| read(&*source, &last), CLOSE_TOGETHER).later();
        CustomClock { source, last, waited_at: AtomicU64::new(u64::MAX), anchor, followers: Mutex::default() }
    }

    pub(super) fn now(&self) -> Time {
        read(&*self.source, &self.last)
    }

    /// See [`Clock::wait_for`](super::Clock::wait_for). `at` is not `NEVER`.
    pub(super) fn wait_for(&self, at: Time) -> Duration {
        let now = self.now();
        let left = Duration::from(at - now);
        if left.is_zero() {
            return left;
        }
        let mut wait = left;
        let _ignored = catch_panic(|| wait = self.source.real_time(left));
        let stands_still = self.waited_at.swap(now.as_nanos(), Ordering::Relaxed) == now.as_nanos();
        wait.clamp(if stands_still { SHORTEST_IF_STILL } else { SHORTEST }, RECHECK_EVERY)
    }

    /// Adds an engine, which is told until it is dropped when the clock was set.
    pub(super) fn add_follower(&self, follower: Weak<dyn FollowsClock>) {
        let mut followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        followers.retain(|follower| follower.strong_count() > 0);
        followers.push(follower);
    }

    /// Tells the engines that the clock was set.
    pub(super) fn notify_set(&self) {
        let followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // An engine whose last handle was dropped meanwhile is shut down here.
        followers.iter().filter_map(Weak::upgrade).for_each(|follower| follower.clock_was_set());
    }
}

/// Reads the source. If it panics, returns what it returned before.
fn read(source: &dyn ClockSource, last: &AtomicU64) -> Time {
    let mut now = None;
    let _ignored = catch_panic(|| now = Some(source.now()));
    let Some(now) = now else { return Time::from_nanos(last.load(Ordering::Relaxed)) };
    let now = (Time::ZERO + Span::from(now)).min(LAST);
    last.store(now.as_nanos(), Ordering::Relaxed);
    now
}
