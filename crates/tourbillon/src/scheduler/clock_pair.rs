//! The two clocks that a scheduler follows: that of its engine, and the wall clock for jobs with a cron line.

use tourbillon_queue::Time;

use crate::clock::WallShift;
use crate::core::CoreRef;
use crate::instant::Instant;
use crate::multi::wakeup_timer::WakeupTimer;

/// Names one of the two clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ClockId {
    Engine,
    Wall,
}

/// A time on each of the two clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ClockPair {
    pub(super) engine: Time,
    /// `ZERO` in a reading that was taken while no job follows the wall clock.
    pub(super) wall: Time,
}

/// A time at which a run is due, on the clock that its job follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DueTime {
    pub(super) time: Time,
    pub(super) clock: ClockId,
}

/// One of the clocks that a scheduler follows, with the timer that wakes the scheduler at a time on it.
pub(super) struct JobClock {
    pub(super) core: CoreRef,
    pub(super) wakeup: WakeupTimer,
    /// How far this clock is ahead of the clock of its engine; `None` if it is the clock of its engine.
    shift: Option<WallShift>,
}

impl ClockId {
    pub(super) fn other(self) -> ClockId {
        match self {
            ClockId::Engine => ClockId::Wall,
            ClockId::Wall => ClockId::Engine,
        }
    }
}

impl ClockPair {
    pub(super) const ZERO: ClockPair = ClockPair { engine: Time::ZERO, wall: Time::ZERO };
    pub(super) const NEVER: ClockPair = ClockPair { engine: Time::NEVER, wall: Time::NEVER };

    /// Returns `time` on one clock, and never on the other.
    #[inline]
    pub(super) fn only(DueTime { time, clock }: DueTime) -> ClockPair {
        match clock {
            ClockId::Engine => ClockPair { engine: time, ..ClockPair::NEVER },
            ClockId::Wall => ClockPair { wall: time, ..ClockPair::NEVER },
        }
    }

    /// Returns the time on one of the clocks.
    #[inline]
    pub(super) fn on(self, clock: ClockId) -> Time {
        match clock {
            ClockId::Engine => self.engine,
            ClockId::Wall => self.wall,
        }
    }

    /// Returns whether `now` has reached this time, on either clock.
    #[inline]
    pub(super) fn is_reached_by(self, now: ClockPair) -> bool {
        self.engine <= now.engine || self.wall <= now.wall
    }

    /// Returns whether this is earlier than `other`, on either clock.
    #[inline]
    pub(super) fn is_before(self, other: ClockPair) -> bool {
        self.engine < other.engine || self.wall < other.wall
    }

    /// Returns the earlier of both times, on each clock.
    #[inline]
    pub(super) fn min(self, other: ClockPair) -> ClockPair {
        ClockPair { engine: self.engine.min(other.engine), wall: self.wall.min(other.wall) }
    }

    /// Returns the later time on each clock.
    pub(super) fn max(self, other: ClockPair) -> ClockPair {
        ClockPair { engine: self.engine.max(other.engine), wall: self.wall.max(other.wall) }
    }
}

impl JobClock {
    pub(super) fn new(core: CoreRef, wakeup: WakeupTimer, shift: Option<WallShift>) -> JobClock {
        JobClock { core, wakeup, shift }
    }

    /// Returns what this clock shows.
    pub(super) fn now(&self) -> Time {
        self.of_engine(self.core.clock.now())
    }

    /// Returns what this clock shows at an instant.
    pub(super) fn time_of(&self, instant: Instant) -> Time {
        self.of_engine(self.core.clock.time_of(instant.into_std()))
    }

    /// Returns the instant at which this clock shows `time`.
    pub(super) fn instant_of(&self, time: Time) -> Instant {
        Instant::from_std(self.core.clock.std_of(self.on_engine(time)))
    }

    /// Wakes the scheduler when this clock shows `time`, or before.
    pub(super) fn set_wakeup(&self, time: Time) {
        self.wakeup.set(self.on_engine(time));
    }

    /// Postpones the wake-up to the time that `next` gives: see [`WakeupTimer::postpone_to`].
    pub(super) fn postpone_wakeup(&self, mut next: impl FnMut() -> Time) {
        self.wakeup.postpone_to(|| self.on_engine(next()));
    }

    /// Returns what this clock shows when the clock of its engine shows `time`.
    fn of_engine(&self, time: Time) -> Time {
        self.shift.map_or(time, |shift| shift.to_wall(time))
    }

    /// Returns what the clock of its engine shows when this clock shows `time`.
    fn on_engine(&self, time: Time) -> Time {
        self.shift.map_or(time, |shift| shift.to_engine(time))
    }
}
