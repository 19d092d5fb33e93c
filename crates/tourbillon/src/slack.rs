//! How late a timer may be, so that wake-ups can be shared.

use std::fmt;
use std::time::Duration;

use tourbillon_queue::Time;

use crate::clock::LAST;

/// How far after its deadline a timer may fire, on purpose. (Never before it.)
///
/// A wake-up of the driver costs far more than a timer; slack lets timers share one. It is set for an engine
/// ([`Builder::slack`](crate::Builder::slack)) and can be set for one sleep ([`Sleep::slack`](crate::time::Sleep::slack)).
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Engine, Slack};
///
/// // Timers that may be up to a tenth of a second late, and share their wake-ups.
/// let lazy = Engine::builder().slack(Slack::upto(Duration::from_millis(100))).build()?;
/// // One among them that may not.
/// let sharp = lazy.sleep(Duration::from_secs(1)).slack(Slack::exact());
/// # drop(sharp);
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Slack(SlackBits);

/// Slack as entries and nodes keep it, in a byte: the [`SlackClass`] in the upper two bits. In the others the grid: deadlines are
/// rounded up to a multiple of two to this power.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SlackBits(u8);

/// Which wake-ups a timer can ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub(crate) enum SlackClass {
    /// Those that the driver's budget has room for.
    #[default]
    Adaptive = 0,
    /// One at its own time.
    Exact = 1,
    /// One before its time: the driver waits for the rest in a loop.
    Precise = 2,
}

const GRID_BITS: u32 = 6;
const GRID: u8 = (1 << GRID_BITS) - 1;

/// So long before a precise timer is due does the driver wake up: longer than a wake-up usually takes.
pub(crate) const LEAD: Duration = Duration::from_micros(200);

impl Slack {
    /// The default. Exact while the driver is quiet. When wake-ups come thick, more than some six hundred a second, they are
    /// spaced so that the driver's CPU time stays bounded, and a timer can be late by that space: 1.75 ms.
    #[must_use]
    pub const fn adaptive() -> Slack {
        Slack(SlackBits::new(SlackClass::Adaptive, 0))
    }

    /// A wake-up for each deadline, at that deadline.
    #[must_use]
    pub const fn exact() -> Slack {
        Slack(SlackBits::new(SlackClass::Exact, 0))
    }

    /// Up to `most` late: deadlines are rounded up to a grid that is shared by all timers, so that those that are close to
    /// each other share a wake-up. Less than two nanoseconds is [`exact`](Slack::exact).
    #[must_use]
    pub const fn upto(most: Duration) -> Slack {
        let nanos = most.as_nanos();
        let grid = if nanos == 0 {
            0
        } else if nanos >= 1 << 62 {
            62
        } else {
            nanos.ilog2() as u8
        };
        Slack(SlackBits::new(SlackClass::Exact, grid))
    }

    /// For those who pay CPU for microseconds: the driver wakes up 0.2 ms before the deadline and spins until it comes. It does not spin
    /// before other timers.
    ///
    /// Where an engine is turned from outside, it is for who turns it to spin: a runtime's [`Worker`](crate::Worker) is
    /// told [so](crate::Worker::too_short_to_sleep).
    #[must_use]
    pub const fn precise() -> Slack {
        Slack(SlackBits::new(SlackClass::Precise, 0))
    }

    pub(crate) const fn slack(self) -> SlackBits {
        self.0
    }
}

impl fmt::Debug for SlackBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlackBits").field("class", &self.class()).field("grid", &(self.0 & GRID)).finish()
    }
}

impl SlackBits {
    /// The only one of its class.
    pub(crate) const ADAPTIVE: SlackBits = SlackBits::new(SlackClass::Adaptive, 0);

    const fn new(class: SlackClass, grid: u8) -> SlackBits {
        SlackBits((class as u8) << GRID_BITS | grid)
    }

    pub(crate) const fn to_bits(self) -> u8 {
        self.0
    }

    /// What [`to_bits`](SlackBits::to_bits) gave.
    pub(crate) const fn from_bits(bits: u8) -> SlackBits {
        SlackBits(bits)
    }

    #[inline(always)]
    pub(crate) fn class(self) -> SlackClass {
        match self.0 >> GRID_BITS {
            0 => SlackClass::Adaptive,
            1 => SlackClass::Exact,
            _ => SlackClass::Precise,
        }
    }

    /// When a timer with this deadline is placed in the queue: up, so that it is never early; but not beyond the end of the clock.
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
            let slack = Slack::upto(Duration::from_nanos(most)).slack();
            for deadline in [0, 1, 2, 1023, 1024, 1025, 123_456_789, u64::MAX / 2, u64::MAX - 1] {
                let rounded = slack.round_up(Time::from_nanos(deadline)).as_nanos();
                assert!(rounded >= deadline, "early");
                assert!(rounded - deadline <= most.max(1), "more than was allowed");
            }
        }
    }

    #[test]
    fn b3_close_deadlines_share_a_point_of_the_grid() {
        let slack = Slack::upto(Duration::from_millis(1)).slack();
        let grid = 1 << 19;
        assert_eq!(slack.round_up(Time::from_nanos(grid + 1)), slack.round_up(Time::from_nanos(2 * grid)));
        assert_ne!(slack.round_up(Time::from_nanos(grid)), slack.round_up(Time::from_nanos(grid + 1)));
    }
}
