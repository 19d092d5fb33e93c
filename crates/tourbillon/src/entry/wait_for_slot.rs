//! An idle entry that found no slot within the engine's capacity waits for one.
//!
//! Meanwhile [`Capacity`](crate::core::capacity::Capacity) has its waker and its deadline, and the entry has the number of its ticket in
//! place of the deadline. The wait ends when a poll takes the granted slot or finds the deadline reached, or when the entry gives it up.

use std::task::{Poll, Waker};

use tourbillon_queue::Time;

use super::{Entry, Target, WAITING};
use crate::core::capacity::{CapacityWait, Claim, Moved, WaitEnd, WaitProgress, WaitTicket};
use crate::outcome::Outcome;

impl Entry {
    /// Polls an idle entry that waits for a slot.
    #[cold]
    pub(super) fn poll_waiting(&mut self, waker: &Waker) -> Poll<Outcome> {
        // Cloned before a slot is reserved, which would be lost if a clone panics.
        let (mine, kept) = (waker.clone(), waker.clone());
        if self.core().is_closed() || self.is_past() {
            return self.end_waiting();
        }
        let Some(capacity) = &self.core().capacity else { return Poll::Pending };
        match capacity.poll(self.ticket(), kept) {
            WaitProgress::Granted(deadline) => {
                self.set_capacity_wait(CapacityWait::None(deadline));
                self.arm_in_slot(mine, waker)
            }
            WaitProgress::Ended(deadline) => {
                self.set_capacity_wait(CapacityWait::None(deadline));
                self.ended(Outcome::Fired)
            }
            // A shutdown may have collected the wakers before this one was stored.
            WaitProgress::Waiting(_) if self.core().is_closed() => self.end_waiting(),
            WaitProgress::Waiting(before) => {
                drop(before);
                Poll::Pending
            }
        }
    }

    /// Polls an idle entry for which there was no slot: reserves a slot, or begins to wait for one.
    #[cold]
    pub(super) fn poll_when_full(&mut self, waker: &Waker) -> Poll<Outcome> {
        // Cloned before a slot is reserved, which would be lost if a clone panics.
        let (mine, kept) = (waker.clone(), waker.clone());
        if self.core().is_closed() {
            return self.ended(Outcome::Stopped);
        }
        let end = self.wait_end(self.deadline);
        let claim = self.core().capacity.as_ref().map_or(Claim::Slot, |capacity| capacity.take_or_wait(end, kept));
        let Claim::Wait(ticket) = claim else { return self.arm_in_slot(mine, waker) };
        self.set_capacity_wait(CapacityWait::Waiting(ticket));
        // A shutdown may have collected the wakers before this one was stored.
        if self.core().is_closed() {
            return self.end_waiting();
        }
        self.core().tell_of_waits();
        Poll::Pending
    }

    /// Arms the entry in the slot that is reserved for it, with `mine`, a clone of `waker`.
    fn arm_in_slot(&mut self, mine: Waker, waker: &Waker) -> Poll<Outcome> {
        self.arm_with_slot(mine).unwrap_or_else(|_| {
            // The shard has as many timers as it can hold. No thread would wake the task when it has fewer, so the task polls again.
            waker.wake_by_ref();
            Poll::Pending
        })
    }

    /// Ends a wait for a slot, because the deadline is past or the engine is closed.
    fn end_waiting(&mut self) -> Poll<Outcome> {
        let (has_ended, waker) = self.leave_wait_queue();
        let ready = if has_ended { self.ended(Outcome::Fired) } else { self.ended_when_idle() };
        drop(waker);
        ready
    }

    /// Sets the deadline of an entry that waits for a slot. If the deadline is past, the entry needs no slot, and ends.
    #[cold]
    pub(super) fn set_waiting_deadline(&mut self, deadline: Time) {
        if self.move_wait(deadline) == Moved::Ended {
            // The wait had ended; the next poll begins another.
            drop(self.leave_wait_queue());
            self.deadline = deadline;
        } else if self.is_past() {
            let (_, waker) = self.leave_wait_queue();
            let _ready = self.ended_when_idle();
            waker.into_iter().for_each(|waker| self.core().wake_one(waker));
        }
    }

    /// Sets the deadline of the wait for a slot, and notifies the driver.
    pub(super) fn move_wait(&mut self, deadline: Time) -> Moved {
        let (ticket, end) = (self.ticket(), self.wait_end(deadline));
        let moved = self.core().capacity_of_process().map_or(Moved::Ended, |capacity| capacity.set_end(ticket, end));
        if moved == Moved::Done {
            self.core().tell_of_waits();
        }
        moved
    }

    /// Returns when a wait for a slot ends, with this deadline.
    fn wait_end(&self, deadline: Time) -> WaitEnd {
        let due = if self.target.is_held() { Time::NEVER } else { deadline };
        WaitEnd { deadline, due, slack: self.slack() }
    }

    #[cold]
    pub(super) fn waiting_deadline(&self) -> Time {
        self.core().capacity_of_process().map_or(Time::NEVER, |capacity| capacity.deadline(self.ticket()))
    }

    #[cold]
    pub(super) fn has_ended_waiting(&self) -> bool {
        self.core().capacity_of_process().is_some_and(|capacity| capacity.has_ended(self.ticket()))
    }

    /// Ends the wait for a slot, if the entry waits; a slot that was reserved for it passes to the next sleep in the queue. Returns whether
    /// the driver had ended the wait at its deadline, and the waker of the wait.
    pub(super) fn leave_wait_queue(&mut self) -> (bool, Option<Waker>) {
        let CapacityWait::Waiting(ticket) = self.capacity_wait() else { return (false, None) };
        let Some(capacity) = self.core().capacity_of_process() else {
            self.set_capacity_wait(CapacityWait::None(Time::NEVER));
            return (false, None);
        };
        let mut wait = capacity.leave(ticket);
        self.set_capacity_wait(CapacityWait::None(wait.deadline));
        self.core().wake(&mut wait.next);
        (wait.has_ended, wait.waker)
    }

    fn capacity_wait(&self) -> CapacityWait {
        if self.is_waiting() { CapacityWait::Waiting(self.ticket()) } else { CapacityWait::None(self.deadline) }
    }

    /// Sets the deadline, or the ticket of a wait, of an idle entry.
    fn set_capacity_wait(&mut self, wait: CapacityWait) {
        let (deadline, bits) = match wait {
            CapacityWait::None(deadline) => (deadline, 0),
            CapacityWait::Waiting(WaitTicket(number)) => (Time::from_nanos(number), WAITING),
        };
        self.deadline = deadline;
        self.target = Target(self.target.0.map_addr(|address| address & !WAITING | bits));
    }

    fn ticket(&self) -> WaitTicket {
        debug_assert!(self.is_waiting());
        WaitTicket(self.deadline.as_nanos())
    }
}
