//! Times of a store's clock.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

/// A time of a store's clock: whole microseconds since 1970, up to 30 December 9999, 22:00 UTC, where the calendar of the time zones ends.
///
/// Conversions from finer units round up, so that no timer is early (Q4).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct StoreTime(u64);

/// A time that a store cannot hold: before 1970, or after [`StoreTime::MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeOutOfRange;

impl StoreTime {
    /// The beginning of 1970.
    pub const ZERO: StoreTime = StoreTime(0);
    /// The last time: 30 December 9999, 22:00 UTC.
    pub const MAX: StoreTime = StoreTime(253_402_207_200_000_000);

    /// Returns the time that is so many microseconds after 1970 began; [`MAX`](StoreTime::MAX) if that is later.
    #[must_use]
    pub const fn from_micros(micros: u64) -> StoreTime {
        if micros > StoreTime::MAX.0 { StoreTime::MAX } else { StoreTime(micros) }
    }

    /// Returns the microseconds since 1970 began.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the time after `delay`, rounded up to a microsecond; `None` if that is after [`MAX`](StoreTime::MAX).
    #[must_use]
    pub fn checked_add(self, delay: Duration) -> Option<StoreTime> {
        let micros = self.0.checked_add(micros_up(delay)?)?;
        (micros <= StoreTime::MAX.0).then_some(StoreTime(micros))
    }

    /// Returns the time after `delay`, rounded up to a microsecond; [`MAX`](StoreTime::MAX) if that is later.
    #[must_use]
    pub fn saturating_add(self, delay: Duration) -> StoreTime {
        self.checked_add(delay).unwrap_or(StoreTime::MAX)
    }

    /// Returns the time before `delay`; [`ZERO`](StoreTime::ZERO) if that is earlier.
    #[must_use]
    pub fn saturating_sub(self, delay: Duration) -> StoreTime {
        StoreTime(micros_up(delay).map_or(0, |micros| self.0.saturating_sub(micros)))
    }

    /// Returns how long after `earlier` this time is; zero if it is before.
    #[must_use]
    pub const fn since(self, earlier: StoreTime) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// Returns the same time for the standard library.
    #[must_use]
    pub fn to_system(self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_micros(self.0)
    }
}

impl TryFrom<SystemTime> for StoreTime {
    type Error = TimeOutOfRange;

    fn try_from(time: SystemTime) -> Result<StoreTime, TimeOutOfRange> {
        let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH).map_err(|_| TimeOutOfRange)?;
        StoreTime::ZERO.checked_add(since_1970).ok_or(TimeOutOfRange)
    }
}

/// Returns the whole microseconds of a duration, rounded up.
fn micros_up(duration: Duration) -> Option<u64> {
    u64::try_from(duration.as_nanos().div_ceil(1_000)).ok()
}

/// Shows the time as RFC 3339 has it: `2026-11-17T10:00:00.25Z`.
impl fmt::Display for StoreTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match i64::try_from(self.0).ok().and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok()) {
            Some(time) => time.fmt(f),
            None => write!(f, "{} us after 1970", self.0),
        }
    }
}

impl fmt::Debug for StoreTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreTime({self})")
    }
}

impl fmt::Display for TimeOutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the times of a durable timer are from {} to {}", StoreTime::ZERO, StoreTime::MAX)
    }
}

impl std::error::Error for TimeOutOfRange {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q4_times_are_rounded_up_and_end_with_the_year_9999() {
        assert_eq!(StoreTime::ZERO.saturating_add(Duration::from_nanos(1)), StoreTime::from_micros(1));
        assert_eq!(StoreTime::MAX.checked_add(Duration::from_nanos(1)), None);
        assert_eq!(StoreTime::ZERO.checked_add(Duration::MAX), None);
        assert_eq!(StoreTime::MAX.saturating_sub(Duration::MAX), StoreTime::ZERO);
        assert_eq!(StoreTime::MAX.to_string(), "9999-12-30T22:00:00Z");
        assert_eq!(StoreTime::try_from(StoreTime::MAX.to_system()), Ok(StoreTime::MAX));
        let too_late = StoreTime::MAX.to_system() + Duration::from_micros(1);
        assert_eq!(StoreTime::try_from(too_late), Err(TimeOutOfRange));
        let message = "the times of a durable timer are from 1970-01-01T00:00:00Z to 9999-12-30T22:00:00Z";
        assert_eq!(TimeOutOfRange.to_string(), message);
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(StoreTime::try_from(before), Err(TimeOutOfRange));
        let time = StoreTime::from_micros(1_794_000_000_000_001);
        assert_eq!(StoreTime::try_from(time.to_system()), Ok(time));
    }
}
