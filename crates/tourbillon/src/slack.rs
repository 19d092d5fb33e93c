//! Slack: how late a timer may fire, so that timers can share wake-ups.

use std::fmt;
use std::time::Duration;

use tourbillon_queue::Time;

use crate::clock::LAST;

/// How long after its deadline a timer may fire. (It never fires before.)
///
/// A wake-up of the driver costs far more than a timer, and slack lets timers share wake-ups. It is set for an engine
/// ([`Builder::slack`](crate::Builder::slack)) and can be set for one sleep ([`Sleep::slack`](crate::time::Sleep::slack)).
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Engine, Slack};
///
/// // Timers that may be up to a tenth of a second late, and share their wake-ups.
/// let lazy = Engine::builder().slack(Slack::up_to(Duration::from_millis(100))).build()?;
/// // One among them that may not.
/// let sharp = lazy.sleep(Duration::from_secs(1)).slack(Slack::exact());
/// # drop(sharp);
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Slack(SlackBits);

/// Slack in one byte, as entries and nodes store it: the [`SlackClass`] in the upper two bits, the grid in the others. Deadlines are rounded up
/// to a multiple of two to the power of the grid.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SlackBits(u8);

/// Which wake-ups of the driver a timer gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub(crate) enum SlackClass {
    /// One that the driver's [budget](crate::driver) allows.
    #[default]
    Adaptive = 0,
    /// One at its own time, rounded up to the grid: exact slack has a grid of one nanosecond.
    Grid = 1,
    /// One before its time: the driver spins until then.
    Precise = 2,
}

// A new class does not compile here, so that its author gives it an arm in `SlackBits::class` as well.
const _: () = match SlackClass::Precise {
    SlackClass::Adaptive | SlackClass::Grid | SlackClass::Precise => assert!(SlackClass::Precise as u8 == 2),
};

const GRID_BITS: u32 = 6;
const GRID: u8 = (1 << GRID_BITS) - 1;

/// How long before a precise timer is due the driver wakes up: longer than a wake-up usually takes.
pub(crate) const PRECISE_LEAD: Duration = Duration::from_micros(200);

impl Slack {
    /// Returns the default: exact while the driver is quiet, and with bounded CPU time when it is not.
    ///
    /// When there are more than some 670 wake-ups a second, the driver spaces them 1.5 ms apart, and a timer can be late by that
    /// time.
    #[must_use]
    pub const fn adaptive() -> Slack {
        Slack(SlackBits::new(SlackClass::Adaptive, 0))
    }

    /// Returns a slack with a wake-up for each deadline, at that deadline.
    #[must_use]
    pub const fn exact() -> Slack {
        Slack(SlackBits::new(SlackClass::Grid, 0))
    }

    /// Returns a slack that makes a timer late by up to `most`: deadlines are rounded up to a grid that all timers share, so that timers that
    /// are close to each other share a wake-up. Less than two nanoseconds is the same as [`exact`](Slack::exact).
    #[must_use]
    pub const fn up_to(most: Duration) -> Slack {
        let nanos = most.as_nanos();
        let grid = if nanos == 0 {
            0
        } else if nanos >= 1 << 62 {
            62
        } else {
            nanos.ilog2() as u8
        };
        Slack(SlackBits::new(SlackClass::Grid, grid))
    }

    /// Returns a slack that saves microseconds of lateness at the cost of CPU time: the driver wakes up 0.2 ms before the deadline and spins
    /// until it comes. It does not spin before other timers.
    ///
    /// In an engine without a driver of its own, the thread that turns the engine has to spin. A runtime's [`Worker`](crate::Worker) tells
    /// [when](crate::Worker::too_short_to_sleep).
    #[must_use]
    pub const fn precise() -> Slack {
        Slack(SlackBits::new(SlackClass::Precise, 0))
    }

    pub(crate) const fn bits(self) -> SlackBits {
        self.0
    }
}

impl fmt::Debug for SlackBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlackBits").field("class", &self.class()).field("grid", &(self.0 & GRID)).finish()
    }
}

impl SlackBits {
    /// Adaptive slack has no grid, so this is its only encoding.
    pub(crate) const ADAPTIVE: SlackBits = SlackBits::new(SlackClass::Adaptive, 0);

    const fn new(class: SlackClass, grid: u8) -> SlackBits {
        SlackBits((class as u8) << GRID_BITS | grid)
    }

    pub(crate) const fn to_bits(self) -> u8 {
        self.0
    }

    /// Returns the slack from which [`to_bits`](SlackBits::to_bits) has made `bits`.
    pub(crate) const fn from_bits(bits: u8) -> SlackBits {
        SlackBits(bits)
    }

    #[inline(always)]
    pub(crate) fn class(self) -> SlackClass {
        match self.0 >> GRID_BITS {
            0 => SlackClass::Adaptive,
            1 => SlackClass::Grid,
            // There is no class above 2; a new class needs an arm here.
            2.. => SlackClass::Precise,
        }
    }

    /// Rounds a deadline up to the grid, so that the timer is never early, but not beyond the last time of a clock.
    #[inline(always)]
    pub(crate) fn round_up(self, deadline: Time) -> Time {
        let below = (1 << (self.0 & GRID)) - 1;
        let up = deadline.as_nanos().checked_add(below).map_or(LAST, |nanos| Time::from_nanos(nanos & !below));
        up.min(LAST).max(deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p1_slack_rounds_up_and_by_no_more_than_was_allowed() {
        for most in [0, 1, 2, 3, 999, 1 << 20, u64::MAX] {
            let slack = Slack::up_to(Duration::from_nanos(most)).bits();
            for deadline in [0, 1, 2, 1023, 1024, 1025, 123_456_789, u64::MAX / 2, u64::MAX - 1] {
                let rounded = slack.round_up(Time::from_nanos(deadline)).as_nanos();
                assert!(rounded >= deadline, "early");
                assert!(rounded - deadline <= most.max(1), "more than was allowed");
            }
        }
    }

    #[test]
    fn b3_close_deadlines_share_a_point_of_the_grid() {
        let slack = Slack::up_to(Duration::from_millis(1)).bits();
        let grid = 1 << 19;
        assert_eq!(slack.round_up(Time::from_nanos(grid + 1)), slack.round_up(Time::from_nanos(2 * grid)));
        assert_ne!(slack.round_up(Time::from_nanos(grid)), slack.round_up(Time::from_nanos(grid + 1)));
    }
}
