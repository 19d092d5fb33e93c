//! Disturbance: a thread whose own timers fire also cancels, moves, and hands over other sleeps, and arms some only to cancel
//! them.

use std::pin::{Pin, pin};
use std::task::{Context, Waker};
use std::time::Duration;

use tourbillon::time::Sleep;

use super::sleep_thread::SleepThread;
use crate::clock::{instant_of, nanos};

impl SleepThread<'_> {
    /// Sometimes does something to another timer.
    pub(super) fn disturb(&mut self) {
        let other = self.random.below(self.slots.len() as u64) as usize;
        match self.random.below(64) {
            0..6 => self.cancel(other),
            6..10 if self.plan.moves => self.move_deadline(other),
            10..12 => self.hand_over(other),
            12 => (0..64).for_each(|_| self.churn()),
            _ => {}
        }
    }

    fn cancel(&mut self, index: usize) {
        if self.release(index) {
            self.arm(index);
        }
    }

    /// Counts a sleep that is about to be dropped. Only the engine knows whether it has just fired.
    fn release(&mut self, index: usize) -> bool {
        let slot = &mut self.slots[index];
        if !slot.is_armed {
            return false;
        }
        if slot.sleep.is_elapsed() {
            self.count_ended(index);
        } else {
            slot.clear();
            self.tally.cancelled += 1;
        }
        true
    }

    /// Moves a deadline earlier or later.
    fn move_deadline(&mut self, index: usize) {
        let duration = self.pace.duration(&mut self.random) + Duration::from_millis(1);
        let slot = &mut self.slots[index];
        if !slot.is_armed || slot.sleep.is_elapsed() {
            return;
        }
        self.moves += 1;
        slot.due = self.plan.clock.now() + nanos(duration);
        slot.was_moved = true;
        slot.sleep.as_mut().reset(instant_of(slot.due));
        // If it had just fired, it waits again from the next poll on.
        if slot.poll().is_ready() {
            self.count_ended(index);
            self.arm(index);
        }
    }

    /// Hands a sleep to another thread, which drops it.
    fn hand_over(&mut self, index: usize) {
        if self.release(index) {
            let fresh = Box::pin(self.plan.engine.sleep(Duration::ZERO));
            let armed = std::mem::replace(&mut self.slots[index].sleep, fresh);
            // The neighbour receives sleeps until it ends; after that they are dropped here.
            let _ = self.neighbour.send(armed);
            self.arm(index);
        }
    }

    /// Arms a sleep and cancels it at once, as most timers in servers are.
    fn churn(&mut self) {
        let mut sleep = pin!(self.plan.engine.sleep(Duration::from_secs(30)));
        if sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            self.tally.armed += 1;
            self.tally.cancelled += 1;
        }
    }
}

/// Drops a sleep on this thread; every second one migrates here first.
pub(super) fn drop_elsewhere(place: usize, mut sleep: Pin<Box<Sleep>>) {
    if place.is_multiple_of(2) {
        let _ = sleep.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
}
