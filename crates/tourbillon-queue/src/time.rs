//! Points in time and distances between them, without a clock.

use core::fmt;
use core::ops::{Add, Sub};
use core::time::Duration;

/// A point in time: nanoseconds since an origin that the caller chose.
///
/// The queues never read a clock, so the caller chooses the origin: the start of the process,
/// the boot of the machine, zero in a test. [`Time::NEVER`] is later than every other point; a timer with
/// that deadline never expires and can only be removed.
///
/// The operators saturate; they do not wrap and do not panic. A `Time` plus a [`Span`] is `NEVER` at the latest, and a `Time`
/// minus a [`Span`] is the origin at the earliest, so the caller need not know how long ago the origin was. `NEVER` plus or minus
/// a span is `NEVER`. [`checked_add`](Time::checked_add) and [`checked_sub`](Time::checked_sub) are exact instead.
///
/// ```
/// use tourbillon_queue::{Span, Time};
///
/// let start = Time::from_nanos(5);
/// assert_eq!(start + Span::from_nanos(7), Time::from_nanos(12));
/// assert_eq!(start + Span::MAX, Time::NEVER);
/// assert_eq!(start - Span::from_nanos(2), Time::from_nanos(3));
/// assert_eq!(start - Span::from_secs(3600), Time::ZERO);
/// assert_eq!(start.checked_sub(Span::from_secs(3600)), None);
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

    /// Returns the point `nanos` nanoseconds after the origin; `u64::MAX` is [`Time::NEVER`].
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Returns the nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns whether this is [`Time::NEVER`].
    #[must_use]
    pub const fn is_never(self) -> bool {
        self.0 == u64::MAX
    }

    /// Returns the point exactly `span` later, or `None` if that is not before [`Time::NEVER`].
    #[must_use]
    pub const fn checked_add(self, span: Span) -> Option<Time> {
        match self.0.checked_add(span.0) {
            Some(u64::MAX) | None => None,
            Some(nanos) => Some(Time(nanos)),
        }
    }

    /// Returns the point exactly `span` earlier, or `None` if that is before the origin or if this is [`Time::NEVER`].
    #[must_use]
    pub const fn checked_sub(self, span: Span) -> Option<Time> {
        if self.is_never() {
            return None;
        }
        match self.0.checked_sub(span.0) {
            Some(nanos) => Some(Time(nanos)),
            None => None,
        }
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);
    /// Longer than any finite span: added to any [`Time`] it gives [`Time::NEVER`].
    pub const MAX: Span = Span(u64::MAX);

    /// Returns a span of `nanos` nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Span {
        Span(nanos)
    }

    /// Returns a span of `millis` milliseconds, at most [`Span::MAX`].
    #[must_use]
    pub const fn from_millis(millis: u64) -> Span {
        Span(millis.saturating_mul(1_000_000))
    }

    /// Returns a span of `secs` seconds, at most [`Span::MAX`].
    #[must_use]
    pub const fn from_secs(secs: u64) -> Span {
        Span(secs.saturating_mul(1_000_000_000))
    }

    /// Returns the length in nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
}

/// Returns the point `span` later; [`Time::NEVER`] where no finite point is so late.
impl Add<Span> for Time {
    type Output = Time;

    #[inline]
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

/// Returns the point `span` earlier, at the earliest the origin. [`Time::NEVER`] stays `NEVER`.
impl Sub<Span> for Time {
    type Output = Time;

    #[inline]
    fn sub(self, span: Span) -> Time {
        if self.is_never() { self } else { Time(self.0.saturating_sub(span.0)) }
    }
}

/// Returns the span from `earlier` to `self`; zero if `earlier` is later.
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

#[cfg(test)]
mod tests {
    use super::*;

    const LAST: Time = Time::from_nanos(u64::MAX - 1);
    const NANO: Span = Span::from_nanos(1);

    #[test]
    fn d59_a_time_minus_a_span_is_the_origin_at_the_earliest() {
        let hour = Span::from_secs(3600);
        for up in [Span::ZERO, NANO, Span::from_secs(5), Span::from_secs(3599)] {
            assert_eq!(Time::ZERO + up - hour, Time::ZERO);
        }
        assert_eq!(Time::ZERO + hour - hour, Time::ZERO);
        assert_eq!(Time::ZERO + hour + NANO - hour, Time::from_nanos(1));
        assert_eq!(LAST - Span::MAX, Time::ZERO);
        assert_eq!(LAST - Span::ZERO, LAST);
    }

    #[test]
    fn d59_never_plus_or_minus_a_span_is_never() {
        for span in [Span::ZERO, NANO, Span::from_secs(3600), Span::MAX] {
            assert_eq!((Time::NEVER + span, Time::NEVER - span), (Time::NEVER, Time::NEVER));
            assert_eq!((Time::NEVER.checked_add(span), Time::NEVER.checked_sub(span)), (None, None));
        }
    }

    #[test]
    fn d59_the_checked_forms_give_exact_finite_points_or_none() {
        let at = Time::from_nanos;
        assert_eq!(at(5).checked_add(Span::from_nanos(7)), Some(at(12)));
        assert_eq!(at(5).checked_sub(Span::from_nanos(5)), Some(Time::ZERO));
        assert_eq!(at(5).checked_sub(Span::from_nanos(6)), None);
        assert_eq!(Time::ZERO.checked_sub(NANO), None);
        assert_eq!(LAST.checked_add(Span::ZERO), Some(LAST));
        assert_eq!(LAST.checked_add(NANO), None, "that would be never");
        assert_eq!(LAST.checked_add(Span::MAX), None);
        assert_eq!(Time::ZERO.checked_add(Span::MAX), None);
        assert_eq!(LAST.checked_sub(Span::MAX), None);
        assert_eq!(LAST.checked_sub(LAST - Time::ZERO), Some(Time::ZERO));
    }

    #[test]
    fn the_operators_agree_with_the_checked_forms_where_those_give_a_point() {
        let ends = [0, 1, 2, 3_600_000_000_000, u64::MAX / 2, u64::MAX - 2, u64::MAX - 1, u64::MAX];
        for (time, span) in ends.iter().flat_map(|time| ends.map(|span| (Time(*time), Span(span)))) {
            assert!(time.checked_add(span).is_none_or(|later| later == time + span && later - time == span));
            assert!(time.checked_sub(span).is_none_or(|earlier| earlier == time - span && time - earlier == span));
            assert!(time.checked_add(span).is_some() || time + span == Time::NEVER, "{time:?} + {span:?}");
            assert!(time.checked_sub(span).is_some() || [Time::ZERO, Time::NEVER].contains(&(time - span)));
        }
    }
}
