//! A point in time whose arithmetic saturates.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::time::{Duration, Instant as StdInstant};

use crate::clock::earliest;
use crate::sync::published::Published;

/// A point in time on the clock of the current engine.
///
/// It wraps [`std::time::Instant`] and converts to and from it at no cost. [`Instant::now`] reads the clock of the
/// current engine, so it follows the virtual time of a test.
///
/// # Arithmetic does not panic
///
/// Where the operators of the standard library panic, these saturate. A sum that is too late to be represented, or later
/// than the far future, is the *far future*: an instant some centuries ahead, which timers treat as "never". A
/// difference that is too early is the earliest instant that the platform has. [`checked_add`](Instant::checked_add) and
/// [`checked_sub`](Instant::checked_sub) are exact, and return `None` instead.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::time::Instant;
///
/// let now = Instant::now();
/// assert_eq!((now + Duration::from_secs(5)) - now, Duration::from_secs(5));
/// assert_eq!(now - (now + Duration::from_secs(5)), Duration::ZERO);
///
/// let never = now + Duration::MAX;
/// assert!(never > now + Duration::from_secs(100 * 365 * 24 * 60 * 60));
/// assert_eq!(never + Duration::MAX, never);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant {
    std: StdInstant,
}

impl Instant {
    /// Converts an instant of the standard library.
    #[must_use]
    pub fn from_std(std: StdInstant) -> Instant {
        Instant { std }
    }

    /// Converts into an instant of the standard library.
    #[must_use]
    pub fn into_std(self) -> StdInstant {
        self.std
    }

    /// Returns how long ago this instant was; zero if it is in the future.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Instant::now().saturating_duration_since(*self)
    }

    /// Returns how long after `earlier` this instant is; zero if it is before it.
    #[must_use]
    pub fn duration_since(&self, earlier: Instant) -> Duration {
        self.saturating_duration_since(earlier)
    }

    /// Returns how long after `earlier` this instant is; `None` if it is before it.
    #[must_use]
    pub fn checked_duration_since(&self, earlier: Instant) -> Option<Duration> {
        self.std.checked_duration_since(earlier.std)
    }

    /// Returns how long after `earlier` this instant is; zero if it is before it.
    #[must_use]
    pub fn saturating_duration_since(&self, earlier: Instant) -> Duration {
        self.std.saturating_duration_since(earlier.std)
    }

    /// Returns the instant that is `duration` later; `None` if the platform cannot represent it.
    #[must_use]
    pub fn checked_add(&self, duration: Duration) -> Option<Instant> {
        self.std.checked_add(duration).map(Instant::from_std)
    }

    /// Returns the instant that is `duration` earlier; `None` if the platform cannot represent it.
    #[must_use]
    pub fn checked_sub(&self, duration: Duration) -> Option<Instant> {
        self.std.checked_sub(duration).map(Instant::from_std)
    }
}

/// Returns the instant that stands for "never": a thousand years after the first call.
///
/// That is beyond the last nanosecond that a `u64` can count from the origin of any engine, and yet far enough from the
/// end of the standard library's type that a user can add to it. On a platform that cannot represent it, it is the longest of
/// some shorter terms.
pub(crate) fn far_future() -> Instant {
    static FAR_FUTURE: Published<StdInstant> = Published::new();
    Instant::from_std(*FAR_FUTURE.get_or_init(|| {
        let start = StdInstant::now();
        let terms = FAR_YEARS.iter().map(|years| Duration::from_secs(years * SECONDS_A_YEAR));
        terms.into_iter().find_map(|term| start.checked_add(term)).unwrap_or(start)
    }))
}

const FAR_YEARS: [u64; 4] = [1000, 500, 200, 30];
const SECONDS_A_YEAR: u64 = 365 * 24 * 60 * 60;

const _: () = assert!(FAR_YEARS[0] * SECONDS_A_YEAR > u64::MAX / 1_000_000_000, "an engine must see it as never");

/// Saturates to the far future: see [`Instant`].
impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, duration: Duration) -> Instant {
        // An instant of the standard library may be beyond the far future. Adding to it must not make it earlier.
        let latest = far_future().max(self);
        self.checked_add(duration).map_or(latest, |sum| sum.min(latest))
    }
}

/// Saturates to the far future: see [`Instant`].
impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

/// Saturates to the earliest instant: see [`Instant`].
impl Sub<Duration> for Instant {
    type Output = Instant;

    fn sub(self, duration: Duration) -> Instant {
        self.checked_sub(duration).unwrap_or_else(|| Instant::from_std(earliest(self.std)))
    }
}

/// Saturates to the earliest instant: see [`Instant`].
impl SubAssign<Duration> for Instant {
    fn sub_assign(&mut self, duration: Duration) {
        *self = *self - duration;
    }
}

/// Returns how long after `earlier` this instant is; zero if it is before it.
impl Sub<Instant> for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

impl From<StdInstant> for Instant {
    fn from(std: StdInstant) -> Instant {
        Instant::from_std(std)
    }
}

impl From<Instant> for StdInstant {
    fn from(instant: Instant) -> StdInstant {
        instant.into_std()
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.std.fmt(f)
    }
}
