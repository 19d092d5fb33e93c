//! Time as the queues see it: a point, a distance, and nothing that reads a clock.

use core::fmt;
use core::ops::{Add, Sub};
use core::time::Duration;

/// A point in time: nanoseconds since an origin that the caller chose.
///
/// The queues never read a clock, so the origin is whatever the caller says it is: the start of the process,
/// the boot of the machine, zero in a test. [`Time::NEVER`] is later than every other point; a timer with
/// that deadline waits for ever and can only be removed.
///
/// A `Time` plus a [`Span`] saturates to `NEVER`; it does not wrap and does not panic.
///
/// ```
/// use tourbillon_queue::{Span, Time};
///
/// let start = Time::from_nanos(5);
/// assert_eq!(start + Span::from_nanos(7), Time::from_nanos(12));
/// assert_eq!(start + Span::MAX, Time::NEVER);
/// assert_eq!(Time::from_nanos(12) - start, Span::from_nanos(7));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

/// A distance in time: nanoseconds.
///
/// A [`Duration`] that is longer than 584 years becomes [`Span::MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Time {
    /// The origin.
    pub const ZERO: Time = Time(0);
    /// Later than every point in time: the deadline of a timer that does not expire.
    pub const NEVER: Time = Time(u64::MAX);

    /// The point `nanos` nanoseconds after the origin; `u64::MAX` is [`Time::NEVER`].
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whether this is [`Time::NEVER`].
    #[must_use]
    pub const fn is_never(self) -> bool {
        self.0 == u64::MAX
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);
    /// Longer than any finite span: added to any [`Time`] it gives [`Time::NEVER`].
    pub const MAX: Span = Span(u64::MAX);

    /// A span of `nanos` nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Span {
        Span(nanos)
    }

    /// A span of `millis` milliseconds, [`Span::MAX`] if that is beyond it.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Span {
        Span(millis.saturating_mul(1_000_000))
    }

    /// A span of `secs` seconds, [`Span::MAX`] if that is beyond it.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Span {
        Span(secs.saturating_mul(1_000_000_000))
    }

    /// Its length in nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
}

impl Add<Span> for Time {
    type Output = Time;

    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

/// The span from `earlier` to `self`; zero where `earlier` is in fact later.
impl Sub<Time> for Time {
    type Output = Span;

    fn sub(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Span {
        Span(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Duration {
        Duration::from_nanos(span.0)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_never() { f.write_str("never") } else { write!(f, "{}ns", self.0) }
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&Duration::from(*self), f)
    }
}
