//! Moving a clock that takes orders: a manual one, or that of a Tokio runtime.
//!
//! Time moves from deadline to deadline, so that each timer fires at its own time. Callbacks are called, and runs of scheduled jobs made,
//! before it moves on.

#[cfg(feature = "test-util")]
use std::{
    future::Future,
    pin::pin,
    task::{Context, Waker},
    time::Duration,
};

use tourbillon_queue::Time;

use crate::core::Core;

/// So many turns in one moment are for callbacks that come of callbacks. Then time moves on all the same: it may be that they
/// never end.
pub(crate) const AT_ONCE: usize = 1 << 16;

/// The way from what a clock shows to a later time.
pub(crate) struct Way<'a> {
    core: &'a Core,
    to: Time,
    /// So many steps were made at one and the same time.
    at_once: usize,
    fired: usize,
}

impl Core {
    /// Moves a manual clock to `to`, and gives how many timers fired. A clock that takes no orders is left to run: what is due is fired.
    pub(crate) fn advance(&self, to: Time) -> usize {
        if self.is_inherited() {
            self.clock.set(to.max(self.clock.now()));
            return 0;
        }
        let to = if self.clock.is_manual() { to } else { self.clock.now() };
        let mut way = Way::to(self, to);
        self.wait_for_work();
        while way.step() {
            self.wait_for_work();
        }
        way.fired
    }

    /// When there is something to do: now, if callbacks wait to be called.
    pub(crate) fn next_step(&self) -> Time {
        if self.has_callbacks() { self.clock.now() } else { self.next_round(Time::ZERO) }
    }

    /// Moves the clock to `next`, and gives how many timers fired.
    pub(crate) fn step_to(&self, next: Time) -> usize {
        self.move_clock(next);
        #[cfg(feature = "tokio")]
        if self.clock.runtime().is_some() {
            return self.drive();
        }
        self.turn(self.clock.now()).fired
    }

    /// Moves the clock forward.
    fn move_clock(&self, to: Time) {
        let now = self.clock.now();
        #[cfg(feature = "test-util")]
        if let Some(clock) = self.clock.runtime() {
            let _context = clock.runtime().enter();
            return move_tokio(Duration::from(to - now));
        }
        self.clock.set(to.max(now));
    }
}

impl Way<'_> {
    pub(crate) fn to(core: &Core, to: Time) -> Way<'_> {
        core.check_for_clock_jump(core.clock.now());
        Way { core, to, at_once: 0, fired: 0 }
    }

    /// Moves time to the next deadline and fires what is due. `false`: there is none before the end, and time has come there.
    pub(crate) fn step(&mut self) -> bool {
        #[cfg(feature = "test-util")]
        if self.core.clock.is_pausable() {
            return self.core.step_paused(self.to);
        }
        let (now, mut next) = (self.core.clock.now(), self.core.next_step());
        if next <= now {
            self.at_once += 1;
            if self.at_once > AT_ONCE {
                // CallbackQueue that never end. Timers are due at a later time.
                next = self.core.next_round(Time::ZERO);
            }
        }
        if next > now {
            self.at_once = 0;
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
        // Its first poll moves the clock. The second would be that of a task that has yielded.
        let _pending = pin!(tokio::time::advance(by)).poll(&mut Context::from_waker(Waker::noop()));
    }
}
