//! Moves a clock of virtual time: a manual clock, or that of a Tokio runtime.
//!
//! Time moves from deadline to deadline, so that each timer fires at its own time. Callbacks and runs of scheduled jobs end before time
//! moves on.

#[cfg(feature = "test-util")]
use std::{
    future::Future,
    pin::pin,
    task::{Context, Waker},
    time::Duration,
};

use tourbillon_queue::Time;

use crate::core::Core;

/// How many turns are made at one time for callbacks that queue further callbacks. Then time moves on: the callbacks may never end.
pub(crate) const MAX_TURNS_AT_ONCE: usize = 1 << 16;

/// Moves a clock to a later time, one deadline at a time.
pub(crate) struct ClockAdvance<'a> {
    core: &'a Core,
    to: Time,
    /// How many steps have been made at the present time.
    steps_at_once: usize,
    fired: usize,
}

impl Core {
    /// Moves a manual clock to `to`, and returns how many timers fired. With another clock, fires the timers that are due now.
    pub(crate) fn advance(&self, to: Time) -> usize {
        if self.is_inherited() {
            self.clock.set(to.max(self.clock.now()));
            return 0;
        }
        let to = if self.clock.is_manual() { to } else { self.clock.now() };
        let mut advance = ClockAdvance::to(self, to);
        self.wait_for_work();
        while advance.step() {
            self.wait_for_work();
        }
        advance.fired
    }

    /// Returns when the engine has to be turned next: now, if callbacks are queued.
    pub(crate) fn next_step(&self) -> Time {
        if self.has_callbacks() { self.clock.now() } else { self.next_round(Time::ZERO) }
    }

    /// Moves the clock to `next`, and returns how many timers fired.
    pub(crate) fn step_to(&self, next: Time) -> usize {
        self.move_clock(next);
        #[cfg(feature = "tokio")]
        if self.clock.as_tokio().is_some() {
            return self.drive();
        }
        self.turn(self.clock.now()).fired
    }

    /// Moves the clock forward.
    fn move_clock(&self, to: Time) {
        let now = self.clock.now();
        #[cfg(feature = "test-util")]
        if let Some(clock) = self.clock.as_tokio() {
            let _context = clock.runtime().enter();
            return move_tokio(Duration::from(to - now));
        }
        self.clock.set(to.max(now));
    }
}

impl ClockAdvance<'_> {
    pub(crate) fn to(core: &Core, to: Time) -> ClockAdvance<'_> {
        core.check_for_clock_jump(core.clock.now());
        ClockAdvance { core, to, steps_at_once: 0, fired: 0 }
    }

    /// Moves time to the next deadline and fires the timers that are due then. Returns `false` if there is no deadline left: time has moved
    /// to the end.
    pub(crate) fn step(&mut self) -> bool {
        #[cfg(feature = "test-util")]
        if self.core.clock.is_pausable() {
            return self.core.step_paused(self.to);
        }
        let (now, mut next) = (self.core.clock.now(), self.core.next_step());
        if next <= now {
            self.steps_at_once += 1;
            if self.steps_at_once > MAX_TURNS_AT_ONCE {
                // The callbacks may never end, so only timers count from here on.
                next = self.core.next_round(Time::ZERO);
            }
        }
        if next > now {
            self.steps_at_once = 0;
        }
        if next > self.to || next.is_never() || self.core.is_closed() {
            self.core.move_clock(self.to);
            self.core.check_for_clock_jump(self.core.clock.now());
            return false;
        }
        self.fired += self.core.step_to(next);
        true
    }
}

/// Moves the clock of the current Tokio runtime, which stands still.
#[cfg(feature = "test-util")]
fn move_tokio(by: Duration) {
    if !by.is_zero() {
        // The first poll moves the clock; the future then only yields.
        let _pending = pin!(tokio::time::advance(by)).poll(&mut Context::from_waker(Waker::noop()));
    }
}
