//! The independent clocks: those of the kernel, read directly and never through the engine under test.

use std::sync::OnceLock;
use std::time::{Duration, Instant as StdInstant};

use tourbillon::time::Instant;

/// A clock of the kernel. Readings are in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CheckClock {
    Monotonic,
    /// As far as the standard library knows, the monotonic clock, except on Linux.
    Boot,
    Wall,
}

/// One moment as a standard `Instant` and as a reading of the monotonic clock. The standard library does not expose its number,
/// so the moment is only known to lie between two readings; the anchor keeps the earlier one, so that no punctual timer seems
/// early.
struct InstantAnchor {
    std: StdInstant,
    /// The reading just before.
    floor: u64,
}

impl CheckClock {
    #[cfg(target_os = "linux")]
    #[inline(always)]
    pub(crate) fn now(self) -> u64 {
        use rustix::time::{ClockId, clock_gettime};
        let time = clock_gettime(match self {
            CheckClock::Monotonic => ClockId::Monotonic,
            CheckClock::Boot => ClockId::Boottime,
            CheckClock::Wall => ClockId::Realtime,
        });
        // A reading is negative only if the clock was set to before 1970.
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    /// Other systems have only the standard library's clocks.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn now(self) -> u64 {
        static ORIGIN: OnceLock<StdInstant> = OnceLock::new();
        match self {
            CheckClock::Wall => nanos(std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()),
            CheckClock::Monotonic | CheckClock::Boot => {
                (1 << 60) + nanos(ORIGIN.get_or_init(StdInstant::now).elapsed())
            }
        }
    }

    /// Returns whether the number that it shows is the one that an engine's clock shows. Except on Linux, the standard library does not
    /// tell what its monotonic clock counts from.
    pub(crate) fn is_comparable(self) -> bool {
        cfg!(target_os = "linux") || self == CheckClock::Wall
    }
}

impl InstantAnchor {
    /// Returns the closest pair of a hundred attempts.
    fn get() -> &'static InstantAnchor {
        static ANCHOR: OnceLock<InstantAnchor> = OnceLock::new();
        ANCHOR.get_or_init(|| {
            let attempt = |_| {
                let (floor, std) = (monotonic(), StdInstant::now());
                (monotonic() - floor, InstantAnchor { std, floor })
            };
            let closest = (0..100).map(attempt).min_by_key(|(gap, _)| *gap);
            closest.map_or_else(|| InstantAnchor { std: StdInstant::now(), floor: 0 }, |(_, anchor)| anchor)
        })
    }
}

/// Returns a reading of the monotonic clock.
#[inline(always)]
pub(crate) fn monotonic() -> u64 {
    CheckClock::Monotonic.now()
}

/// Returns the instant of a reading of the monotonic clock, or up to some ten nanoseconds later: a timer that is due then must
/// not fire before the reading.
pub(crate) fn instant_of(reading: u64) -> Instant {
    let anchor = InstantAnchor::get();
    let std = if reading >= anchor.floor {
        anchor.std + Duration::from_nanos(reading - anchor.floor)
    } else {
        anchor.std.checked_sub(Duration::from_nanos(anchor.floor - reading)).unwrap_or(anchor.std)
    };
    Instant::from_std(std)
}

/// Returns the nanoseconds of a duration, `u64::MAX` at most.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p1_the_instant_of_a_reading_is_not_before_it_and_hardly_after() {
        let reading = monotonic() + 50_000_000;
        let wait = instant_of(reading).into_std().saturating_duration_since(StdInstant::now());
        std::thread::sleep(wait);
        assert!(monotonic() >= reading);
        let (earlier, later) = (instant_of(reading), instant_of(reading + 1_000));
        assert_eq!(later - earlier, Duration::from_micros(1));
    }

    #[test]
    fn very_long_durations_are_as_long_as_can_be() {
        assert_eq!(nanos(Duration::MAX), u64::MAX);
    }
}
