//! A scheduler has two clocks: the engine's, and the wall clock for those jobs that follow it.

use tourbillon_queue::Time;

/// A time on each clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Times {
    pub(super) engine: Time,
    /// `ZERO`, if it is what the clock shows and no job asks for it.
    pub(super) wall: Time,
}

/// When a run was due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Due {
    pub(super) time: Time,
    pub(super) is_wall: bool,
}

impl Times {
    pub(super) const ZERO: Times = Times { engine: Time::ZERO, wall: Time::ZERO };
    pub(super) const NEVER: Times = Times { engine: Time::NEVER, wall: Time::NEVER };

    /// This on the one clock, and never on the other.
    #[inline]
    pub(super) fn only(time: Time, is_wall: bool) -> Times {
        if is_wall { Times { wall: time, ..Times::NEVER } } else { Times { engine: time, ..Times::NEVER } }
    }

    /// What it is on one of the clocks.
    #[inline]
    pub(super) fn on(self, is_wall: bool) -> Time {
        if is_wall { self.wall } else { self.engine }
    }

    /// Whether it has come, on either clock.
    #[inline]
    pub(super) fn is_by(self, now: Times) -> bool {
        self.engine <= now.engine || self.wall <= now.wall
    }

    /// The earlier of both, on each clock.
    #[inline]
    pub(super) fn or(self, other: Times) -> Times {
        Times { engine: self.engine.min(other.engine), wall: self.wall.min(other.wall) }
    }
}
