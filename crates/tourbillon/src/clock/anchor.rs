//! Conversion between the time of a clock and the standard library's `Instant`.

use std::time::{Duration, Instant as StdInstant};

use tourbillon_queue::{Span, Time};

use super::LAST;
use super::sys::{monotonic, std_origin};
use crate::sync::published::Published;

/// One moment, as the standard library and as a clock show it.
///
/// One anchor serves both ways, so there and back again gives the same `Instant`, and the same [`Time`].
///
/// For the monotonic clock the anchor is exact. The standard library reads the same clock; it does not tell the number behind an `Instant`,
/// but [the earliest `Instant`](PairedReading::exact) gives it away, or the clock is [derived](std_origin) from an `Instant`. On a platform
/// where neither is so, the two clocks are read one after the other and the anchor takes the later reading of the clock: an `Instant` then becomes a time that is late by the nanoseconds between
/// the readings, never early (P1), and a time becomes an `Instant` that is early by as much.
#[derive(Clone, Copy)]
pub(super) struct ClockAnchor {
    std: StdInstant,
    time: Time,
}

/// The `Instant` at which a clock shows zero. By it an `Instant` becomes a time with one subtraction.
#[derive(Clone, Copy)]
pub(crate) struct ClockOrigin(StdInstant);

/// A reading of the standard library's clock, between two readings of another clock.
pub(super) struct PairedReading {
    before: Time,
    std: StdInstant,
    after: Time,
}

/// How often the clocks are read at the most, to find two readings that lie close together.
const READINGS: usize = 8;

impl ClockAnchor {
    /// Returns the anchor of the monotonic clock, which all conversions of this process use.
    pub(super) fn of_process() -> &'static ClockAnchor {
        static ANCHOR: Published<ClockAnchor> = Published::new();
        ANCHOR.get_or_init(|| {
            if let Some((std, time)) = std_origin() {
                return ClockAnchor { std, time };
            }
            let reading = PairedReading::closest(monotonic, Span::ZERO);
            reading.exact().unwrap_or_else(|| reading.later())
        })
    }

    pub(super) fn to_std(self, time: Time) -> StdInstant {
        if time >= self.time {
            let after = Duration::from(time - self.time);
            self.std.checked_add(after).unwrap_or(self.std)
        } else {
            self.std.checked_sub(Duration::from(self.time - time)).unwrap_or(self.std)
        }
    }

    pub(super) fn to_time(self, std: StdInstant) -> Time {
        match std.checked_duration_since(self.std) {
            Some(after) => self.time + Span::from(after),
            None => self.time - Span::from(self.std - std),
        }
    }
}

impl ClockOrigin {
    /// Returns the origin of the monotonic clock, if the platform can represent it.
    pub(super) fn of_process() -> Option<ClockOrigin> {
        let anchor = ClockAnchor::of_process();
        anchor.std.checked_sub(Duration::from(anchor.time - Time::ZERO)).map(ClockOrigin)
    }

    /// Converts an `Instant` as [`ClockAnchor::to_time`] does; `None` if it is before the origin, or too late for a timer.
    #[inline(always)]
    pub(crate) fn to_time(self, std: StdInstant) -> Option<Time> {
        let since = std.checked_duration_since(self.0)?;
        // So late a time is the far future, which the caller treats as never.
        if since.as_secs() >= LAST.as_nanos() / NANOS_PER_SECOND {
            return None;
        }
        Some(Time::from_nanos(since.as_secs() * NANOS_PER_SECOND + u64::from(since.subsec_nanos())))
    }
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;

impl PairedReading {
    /// Reads both clocks until the two readings of `clock` lie less than `enough` apart, [`READINGS`] times at the most. Returns the
    /// closest: a thread that loses its processor between two readings makes them useless.
    pub(super) fn closest(clock: impl Fn() -> Time, enough: Span) -> PairedReading {
        let read = || PairedReading { before: clock(), std: StdInstant::now(), after: clock() };
        let mut closest = read();
        for _ in 1..READINGS {
            if closest.width() < enough {
                break;
            }
            let next = read();
            if next.width() < closest.width() {
                closest = next;
            }
        }
        closest
    }

    /// Returns the exact anchor, if the standard library counts the seconds of the same clock in an `i64`: its earliest `Instant` is then
    /// `i64::MIN` seconds. A number that does not lie between the two readings of the clock is not the clock's.
    fn exact(&self) -> Option<ClockAnchor> {
        let since_earliest = self.std.duration_since(earliest(self.std));
        let nanos = since_earliest.checked_sub(Duration::from_secs(i64::MIN.unsigned_abs()))?.as_nanos();
        let time = Time::from_nanos(u64::try_from(nanos).ok()?);
        (self.before..=self.after).contains(&time).then_some(ClockAnchor { std: self.std, time })
    }

    /// Returns the anchor that makes an `Instant` come out as a late time.
    pub(super) fn later(&self) -> ClockAnchor {
        ClockAnchor { std: self.std, time: self.after }
    }

    /// Returns the anchor that makes a time come out as a late `Instant`.
    pub(super) fn earlier(&self) -> ClockAnchor {
        ClockAnchor { std: self.std, time: self.before }
    }

    fn width(&self) -> Span {
        self.after - self.before
    }
}

/// Returns the earliest instant that the platform can represent, from any other.
pub(crate) fn earliest(mut instant: StdInstant) -> StdInstant {
    let mut step = Duration::MAX;
    while !step.is_zero() {
        match instant.checked_sub(step) {
            Some(earlier) => instant = earlier,
            None => step /= 2,
        }
    }
    instant
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn p1_an_instant_becomes_a_time_that_is_not_early_and_comes_back_unchanged() {
        let anchor = *ClockAnchor::of_process();
        for _ in 0..1000 {
            let (before, std, after) = (monotonic(), StdInstant::now(), monotonic());
            let time = anchor.to_time(std);
            assert!(time >= before, "{:?} early", before - time);
            assert_eq!(anchor.to_std(time), std);
            assert!(anchor.to_std(before) <= std, "a timer that was due before seems to be due later");
            assert_eq!(anchor.to_time(anchor.to_std(after)), after);
        }
    }

    #[test]
    fn p1_the_origin_converts_as_the_anchor_does() {
        let (anchor, origin) = (*ClockAnchor::of_process(), ClockOrigin::of_process().expect("it can be represented"));
        for nanos in [0, 1, 999_999_999, 1_000_000_000, 12_345_678_901_234, LAST.as_nanos() - NANOS_PER_SECOND] {
            let std = anchor.to_std(Time::from_nanos(nanos));
            assert_eq!(origin.to_time(std), Some(Time::from_nanos(nanos)));
        }
        assert_eq!(origin.to_time(anchor.to_std(LAST) + Duration::from_secs(1)), None);
        // On Windows the origin is the earliest instant.
        let before = origin.0.checked_sub(Duration::from_nanos(1));
        assert_eq!(before.and_then(|before| origin.to_time(before)), None);
    }

    #[cfg(tourbillon_exact_instant)]
    #[test]
    fn p1_the_anchor_of_the_monotonic_clock_is_exact() {
        let reading = PairedReading::closest(monotonic, Span::ZERO);
        let exact = reading.exact().expect("the standard library counts seconds in an i64");
        assert_eq!(exact.to_std(ClockAnchor::of_process().time), ClockAnchor::of_process().std);
    }

    #[test]
    fn p1_of_several_readings_the_closest_is_taken() {
        let (time, reads) = (std::cell::Cell::new(Time::from_nanos(1 << 40)), std::cell::Cell::new(0_u64));
        // The third pair lies 1 ns apart, all others 100 ns.
        let clock = || {
            reads.set(reads.get() + 1);
            time.set(time.get() + Span::from_nanos(if reads.get() == 6 { 1 } else { 100 }));
            time.get()
        };
        let closest = PairedReading::closest(clock, Span::ZERO);
        assert_eq!((closest.width(), reads.get()), (Span::from_nanos(1), 2 * READINGS as u64));
        reads.set(0);
        let enough = PairedReading::closest(clock, Span::from_nanos(101));
        assert_eq!((enough.width(), reads.get()), (Span::from_nanos(100), 2));
    }
}
