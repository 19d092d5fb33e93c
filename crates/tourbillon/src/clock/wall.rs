//! Conversion between the wall clock and the clock of an engine.

use std::time::SystemTime;

use tourbillon_queue::{Span, Time};

use super::LAST;

/// How far the wall clock is ahead of a clock that tests move. The difference is fixed when that clock is made, so in virtual time noon
/// comes when the virtual clock has moved to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WallShift(i128);

impl WallShift {
    /// Returns the shift of a clock that shows `time` now.
    pub(crate) fn at(time: Time) -> WallShift {
        WallShift(i128::from(since_1970(SystemTime::now()).as_nanos()) - i128::from(time.as_nanos()))
    }

    /// Returns the time of the wall clock at which the other clock shows `time`.
    pub(crate) fn to_wall(self, time: Time) -> Time {
        shifted(time, self.0)
    }

    /// Returns the time of the other clock at which the wall clock shows `time`.
    pub(crate) fn to_engine(self, time: Time) -> Time {
        shifted(time, -self.0)
    }
}

/// Shifts a time within the range of the clock. `NEVER` stays `NEVER`, and a time before the clock's origin becomes the origin.
fn shifted(time: Time, by: i128) -> Time {
    let nanos = (i128::from(time.as_nanos()) + by).clamp(0, i128::from(LAST.as_nanos()));
    if time.is_never() { time } else { Time::from_nanos(nanos as u64) }
}

/// Returns the time of a wall clock that counts from 1970. A time before 1970 becomes zero.
pub(crate) fn since_1970(when: SystemTime) -> Time {
    Time::ZERO + Span::from(when.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

/// Returns the time on another clock at which the rest of the way to `when` will have passed. `now` is read last: a delay between the two
/// readings makes the result late, not early.
pub(super) fn time_when(when: SystemTime, wall: impl FnOnce() -> SystemTime, now: impl FnOnce() -> Time) -> Time {
    let left = when.duration_since(wall()).unwrap_or_default();
    now() + Span::from(left)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;

    /// A thread that reads two clocks may lose its processor in between.
    #[test]
    fn p1_a_time_of_the_wall_clock_is_not_early_on_another_however_long_it_takes_to_read_both() {
        let passed = Cell::new(0);
        let reads = || Duration::from_secs(passed.replace(passed.get() + 5));
        let (wall, own) = (SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000), Time::from_nanos(1 << 40));
        let at = time_when(wall + Duration::from_secs(60), || wall + reads(), || own + Span::from(reads()));
        assert!(at >= own + Span::from_secs(60), "{:?} early", own + Span::from_secs(60) - at);
        let past = time_when(wall, || wall + reads(), || own + Span::from(reads()));
        assert_eq!(past, own + Span::from_secs(15), "a time in the past is due at once");
    }
}
