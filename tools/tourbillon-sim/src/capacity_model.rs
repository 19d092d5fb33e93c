//! The model of an engine at its capacity: which timers wait for a slot, for which of them a slot is reserved, and how often
//! each is woken.
//!
//! ```text
//!     idle --- poll, a slot is free -------------------------------> Armed
//!       \----- poll, no slot is free ----> Waiting --- woken ---> Reserved --- poll ---> Armed
//!                                             |                      |
//!                                             +-- deadline, dropped -+--> gone; a reserved slot passes on
//! ```
//!
//! The simulation reports after each poll whether it armed the timer, by the engine's own count, and reports wake-ups in the
//! order in which the engine made them. Timers of other surfaces (a timer object, a scheduler) are not listed here; the
//! comparison with the engine's count of pending timers allows for as many of them as there may be.

use std::collections::BTreeMap;

use crate::recorder::Id;
use crate::violation::Mismatch;

/// Timers that have been polled and have not ended, as far as the simulation knows.
#[derive(Debug)]
pub struct CapacityModel {
    capacity: u64,
    all: BTreeMap<Id, CapacityTimer>,
    arrivals: u64,
    /// Of the timers that were given slots since the last comparison: the one that began to wait last, with its number.
    last_given: Option<(u64, Id)>,
    /// Whether the engine is shut down; then no timer waits.
    is_closed: bool,
}

#[derive(Clone, Copy, Debug)]
struct CapacityTimer {
    status: SlotStatus,
    /// Wake-ups since it took this status, or since its last poll.
    wakes: u32,
}

/// Whether a timer holds a slot of the engine, or waits for one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotStatus {
    /// It holds a slot.
    Armed,
    /// It waits for a slot. The number is its rank in the order of arrival.
    Waiting(u64),
    /// It was woken, and a slot is reserved for it until it is polled.
    Reserved,
    /// It was woken after its deadline: for its end, or for a slot before the driver had passed the deadline.
    Woken,
}

/// The progress of the clock and the driver towards a timer's deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeadlineStatus {
    /// The clock has not shown it.
    NotYet,
    /// The clock has shown it.
    Reached,
    /// The driver has passed it, and the timer has ended.
    Passed,
}

/// The effect of a poll that left a timer pending, by the engine's counts.
#[derive(Clone, Copy, Debug)]
pub struct PollEffect {
    /// Whether it armed the timer.
    pub is_armed: bool,
    /// Number of pending timers before the poll.
    pub pending: u64,
    /// Number of timers of other surfaces that may hold a reserved slot.
    pub others: u64,
}

impl CapacityModel {
    /// Returns the model of an engine with this capacity and no timers.
    #[must_use]
    pub fn new(capacity: usize) -> CapacityModel {
        CapacityModel {
            capacity: capacity as u64,
            all: BTreeMap::new(),
            arrivals: 0,
            last_given: None,
            is_closed: false,
        }
    }

    /// Returns the status of a timer; `None` if it is idle or has ended.
    #[must_use]
    pub fn status(&self, id: Id) -> Option<SlotStatus> {
        self.all.get(&id).map(|waiter| waiter.status)
    }

    /// Returns whether a timer was woken since its last poll.
    #[must_use]
    pub fn is_woken(&self, id: Id) -> bool {
        self.all.get(&id).is_some_and(|waiter| waiter.wakes > 0)
    }

    /// Returns whether any timer waits without a reserved slot.
    #[must_use]
    pub fn has_waiting(&self, due: impl Fn(Id) -> DeadlineStatus) -> bool {
        self.first(due).is_some()
    }

    /// Notes that the engine is shut down, which wakes and ends all timers.
    pub fn close(&mut self) {
        self.is_closed = true;
        self.all.clear();
    }

    /// Notes that a timer has ended, is idle or was dropped.
    pub fn leave(&mut self, id: Id) {
        self.all.remove(&id);
    }

    /// Notes that a timer was armed without a poll.
    ///
    /// # Errors
    /// Returns a mismatch if the timer overtook one that waits.
    pub fn arm(&mut self, id: Id, due: impl Fn(Id) -> DeadlineStatus) -> Result<(), Mismatch> {
        let first = self.first(due);
        self.set_status(id, SlotStatus::Armed);
        match first {
            Some(first) if !self.is_closed => {
                Err(("P7", format!("{id} was armed, and {first} had waited for a slot before it")))
            }
            _ => Ok(()),
        }
    }

    /// Compares the refusal to arm a timer.
    ///
    /// # Errors
    /// Returns a mismatch if a slot was free and no timer waited for one.
    pub fn refuse(&self, pending: u64, others: u64) -> Result<(), Mismatch> {
        let is_free = pending + others < self.capacity && self.all.values().all(|it| it.status == SlotStatus::Armed);
        let what = || ("P7", format!("a timer was refused with {pending} pending and a capacity of {}", self.capacity));
        if is_free && !self.is_closed { Err(what()) } else { Ok(()) }
    }

    /// Notes a poll that left a timer pending.
    ///
    /// # Errors
    /// Returns a mismatch if the timer got a slot that was not its own, or got none and should have.
    pub fn polled(&mut self, id: Id, polled: PollEffect, due: impl Fn(Id) -> DeadlineStatus) -> Result<(), Mismatch> {
        if self.is_closed {
            return Ok(());
        }
        let PollEffect { is_armed, pending, others } = polled;
        let before = self.all.get(&id).copied();
        match before.map(|waiter| (waiter.status, waiter.wakes)) {
            None if is_armed => self.arm(id, due),
            None => {
                let taken = pending + others + self.reserved(&due).1;
                let is_free = taken < self.capacity && !self.has_waiting(due);
                self.arrivals += 1;
                self.set_status(id, SlotStatus::Waiting(self.arrivals));
                let what = || ("P7", format!("{id} waits for a slot, and {pending} of {} are taken", self.capacity));
                if is_free { Err(what()) } else { Ok(()) }
            }
            Some((SlotStatus::Armed, 0)) => Ok(()),
            Some((SlotStatus::Armed, wakes)) => Err(("P2", format!("{id} was woken {wakes} times without a reason"))),
            Some((SlotStatus::Waiting(_), _)) if is_armed => {
                Err(("P7", format!("{id} was armed, and no slot had been reserved for it")))
            }
            Some((SlotStatus::Waiting(_), _)) => Ok(()),
            Some((SlotStatus::Reserved | SlotStatus::Woken, _)) if is_armed => {
                self.set_status(id, SlotStatus::Armed);
                Ok(())
            }
            Some((SlotStatus::Reserved | SlotStatus::Woken, _)) => {
                Err(("P7", format!("{id} was woken, and has neither a slot nor ended")))
            }
        }
    }

    /// Notes that a timer was woken. With `is_ordered`, the wake-ups come in the order in which the engine reserved slots.
    /// Otherwise their order is compared when all wake-ups of a call have been noted: see [`CapacityModel::all_woken`].
    ///
    /// # Errors
    /// Returns a mismatch if the engine had no reason to wake that timer, or should have woken another one first.
    pub fn woken(
        &mut self,
        id: Id,
        at: DeadlineStatus,
        is_ordered: bool,
        due: impl Fn(Id) -> DeadlineStatus,
    ) -> Result<(), Mismatch> {
        let first = self.first_waiting(due);
        let Some(waiter) = self.all.get_mut(&id) else { return Ok(()) };
        waiter.wakes += 1;
        let (is_due, before) = (at != DeadlineStatus::NotYet, *waiter);
        match waiter.status {
            SlotStatus::Armed if !is_due => Err(("P1", format!("{id} holds a slot and was woken before its deadline"))),
            SlotStatus::Armed if before.wakes > 1 => Err(("P2", format!("{id} was woken {} times", before.wakes))),
            SlotStatus::Armed => Ok(()),
            SlotStatus::Waiting(_) if is_due => {
                waiter.status = SlotStatus::Woken;
                Ok(())
            }
            SlotStatus::Waiting(number) => {
                waiter.status = SlotStatus::Reserved;
                self.last_given = self.last_given.max(Some((number, id)));
                match first.filter(|(before, _)| is_ordered && *before < number) {
                    Some((_, first)) => Err(("P7", format!("{id} was given a slot, and {first} had waited before it"))),
                    None => Ok(()),
                }
            }
            SlotStatus::Reserved if !is_due => Err(("P7", format!("{id} was woken twice for one slot"))),
            SlotStatus::Reserved | SlotStatus::Woken if before.wakes > 2 => {
                Err(("P7", format!("{id} was woken {} times while it waited", before.wakes)))
            }
            SlotStatus::Reserved | SlotStatus::Woken => {
                waiter.status = SlotStatus::Woken;
                Ok(())
            }
        }
    }

    /// Compares the order of slots when all wake-ups of a call into the engine have been noted. The engine reserves slots in
    /// the order in which timers began to wait, and wakes each timer that it gave a slot to before that call returns. So
    /// whatever the order of the wake-ups was, no timer may still wait that began before one that has a slot.
    ///
    /// # Errors
    /// Returns a mismatch if such a timer still waits.
    pub fn all_woken(&mut self, due: impl Fn(Id) -> DeadlineStatus) -> Result<(), Mismatch> {
        let Some((number, given)) = self.last_given.take() else { return Ok(()) };
        match self.first_waiting(due).filter(|(before, _)| *before < number) {
            Some((_, first)) if !self.is_closed => {
                Err(("P7", format!("{given} was given a slot, and {first}, which had waited before it, was not")))
            }
            _ => Ok(()),
        }
    }

    /// Compares with the engine's count of pending timers: pending timers and reserved slots together never exceed the capacity,
    /// and reach it while a timer waits.
    ///
    /// # Errors
    /// Returns a mismatch if that does not hold.
    pub fn check(&self, pending: u64, others: u64, due: impl Fn(Id) -> DeadlineStatus) -> Result<(), Mismatch> {
        if self.is_closed {
            return Ok(());
        }
        let (least, most) = self.reserved(&due);
        if pending + least > self.capacity {
            let what = format!("{pending} timers are pending and {least} slots reserved, of {}", self.capacity);
            return Err(("P7", what));
        }
        match self.first(due) {
            Some(first) if pending + most + others < self.capacity => {
                let what = format!("{first} waits for a slot: {pending} timers are pending, {most} slots reserved");
                Err(("P7", format!("{what}, of {}", self.capacity)))
            }
            _ => Ok(()),
        }
    }

    /// Returns the least and the most slots that may be reserved for timers of this list.
    fn reserved(&self, due: &impl Fn(Id) -> DeadlineStatus) -> (u64, u64) {
        let (mut least, mut most) = (0, 0);
        for (id, waiter) in &self.all {
            match (waiter.status, due(*id)) {
                (SlotStatus::Reserved, DeadlineStatus::NotYet) => (least, most) = (least + 1, most + 1),
                (SlotStatus::Reserved | SlotStatus::Woken, DeadlineStatus::NotYet | DeadlineStatus::Reached) => {
                    most += 1;
                }
                _ => {}
            }
        }
        (least, most)
    }

    /// Returns the timer that has waited longest, of those whose deadlines the clock has not shown.
    fn first(&self, due: impl Fn(Id) -> DeadlineStatus) -> Option<Id> {
        self.first_waiting(due).map(|(_, id)| id)
    }

    /// Returns the same timer with its rank.
    fn first_waiting(&self, due: impl Fn(Id) -> DeadlineStatus) -> Option<(u64, Id)> {
        let number = |(id, waiter): (&Id, &CapacityTimer)| match waiter.status {
            SlotStatus::Waiting(number) if due(*id) == DeadlineStatus::NotYet => Some((number, *id)),
            _ => None,
        };
        self.all.iter().filter_map(number).min()
    }

    fn set_status(&mut self, id: Id, status: SlotStatus) {
        self.all.insert(id, CapacityTimer { status, wakes: 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARMS: PollEffect = PollEffect { is_armed: true, pending: 0, others: 0 };
    const WAITS: PollEffect = PollEffect { is_armed: false, pending: 1, others: 0 };

    fn not_yet(_: Id) -> DeadlineStatus {
        DeadlineStatus::NotYet
    }

    /// Returns a model with one slot, which timer 1 holds, and timers 2 and 3 waiting for it.
    fn full() -> CapacityModel {
        let mut model = CapacityModel::new(1);
        model.polled(1, ARMS, not_yet).unwrap();
        model.polled(2, WAITS, not_yet).unwrap();
        model.polled(3, WAITS, not_yet).unwrap();
        model.check(1, 0, not_yet).unwrap();
        model
    }

    #[test]
    fn d64_a_slot_that_is_free_while_a_timer_waits_is_noticed() {
        let model = full();
        assert!(model.check(0, 0, not_yet).is_err());
        assert!(model.check(0, 1, not_yet).is_ok(), "it may be reserved for a timer of another surface");
    }

    #[test]
    fn d65_two_wake_ups_for_one_slot_are_noticed() {
        let mut model = full();
        model.leave(1);
        model.woken(2, DeadlineStatus::NotYet, true, not_yet).unwrap();
        model.check(0, 0, not_yet).unwrap();
        model.woken(3, DeadlineStatus::NotYet, true, not_yet).unwrap();
        assert!(model.check(0, 0, not_yet).is_err());
    }

    #[test]
    fn d65_a_wake_up_in_vain_one_out_of_order_and_a_newcomer_that_overtakes_are_noticed() {
        let mut model = full();
        model.leave(1);
        model.woken(2, DeadlineStatus::NotYet, true, not_yet).unwrap();
        assert!(model.polled(2, WAITS, not_yet).is_err());
        let mut model = full();
        assert!(model.woken(3, DeadlineStatus::NotYet, true, not_yet).is_err());
        let mut model = full();
        model.leave(1);
        assert!(model.polled(4, ARMS, not_yet).is_err());
    }

    #[test]
    fn d65_wake_ups_in_another_order_than_slots_are_no_fault_and_a_timer_that_is_passed_over_is() {
        // Two slots become free. The first goes to timer 2, the second to timer 3, which is woken first.
        let mut model = full();
        model.leave(1);
        model.woken(3, DeadlineStatus::NotYet, false, not_yet).unwrap();
        model.woken(2, DeadlineStatus::NotYet, false, not_yet).unwrap();
        model.all_woken(not_yet).unwrap();
        // One slot becomes free, and goes to timer 3.
        let mut model = full();
        model.leave(1);
        model.woken(3, DeadlineStatus::NotYet, false, not_yet).unwrap();
        assert!(model.all_woken(not_yet).is_err());
        // Timer 2 had ended.
        let mut model = full();
        model.leave(1);
        model.woken(3, DeadlineStatus::NotYet, false, not_yet).unwrap();
        model.all_woken(|id| if id == 2 { DeadlineStatus::Passed } else { DeadlineStatus::NotYet }).unwrap();
    }

    #[test]
    fn d65_a_reserved_slot_passes_on_with_the_end_of_its_timer() {
        let mut model = full();
        model.leave(1);
        model.woken(2, DeadlineStatus::NotYet, true, not_yet).unwrap();
        // The driver has passed the deadline of timer 2.
        let due = |id| if id == 2 { DeadlineStatus::Passed } else { DeadlineStatus::NotYet };
        assert!(model.check(0, 0, due).is_err(), "the slot is lost");
        model.woken(3, DeadlineStatus::NotYet, true, due).unwrap();
        model.check(0, 0, due).unwrap();
        model.polled(3, ARMS, due).unwrap();
        model.check(1, 0, due).unwrap();
    }
}
