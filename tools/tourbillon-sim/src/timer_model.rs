//! The model of timers: a list of timers with deadlines and states, and what the promises allow to be observed of each.
//!
//! It is naive on purpose: it has no queue, no shards and no locks, and visits every timer at every event. It does not predict
//! what the engine does. It knows what the engine *may* do (a timer may fire once the clock has shown its deadline) and what the
//! engine *must* have done (a timer that was due in a turn has fired), and reports which promise an observation breaks.

use std::collections::BTreeMap;
use std::fmt;

use tourbillon::Outcome;

use crate::capacity_model::{CapacityModel, DeadlineStatus, PollEffect};
use crate::recorder::Id;
use crate::violation::{Mismatch, PromiseViolation};

/// Deadlines from here on mean never: the engine reserves the last 2^36 nanoseconds.
pub const LAST: u64 = u64::MAX << 36;

/// The deadline that is never reached.
pub const NEVER: u64 = u64::MAX;

/// The known state of all timers.
#[derive(Debug)]
pub struct TimerModel {
    /// The time that the clock shows.
    pub clock: u64,
    /// Whether the engine was shut down.
    pub closed: bool,
    /// Which timers wait for a slot; `None` in an engine without a capacity.
    pub capacity: Option<CapacityModel>,
    items: BTreeMap<Id, ModelTimer>,
    next: Id,
    violations: Vec<PromiseViolation>,
    /// Number of observations that were compared.
    pub checks: u64,
    /// Number of timers that fired.
    pub fires: u64,
    /// Number of timers that were cancelled.
    pub cancels: u64,
    /// Number of timers that were stopped.
    pub stops: u64,
}

/// The known state of one timer.
#[derive(Clone, Debug)]
pub struct ModelTimer {
    /// The surface that it belongs to.
    pub surface: &'static str,
    /// It must not fire before this time.
    pub deadline: u64,
    /// A turn at this time or later fires it: the deadline plus the slack.
    pub due: u64,
    /// Whether the clock has shown the deadline since it was set.
    pub reached: bool,
    /// Whether the engine was turned when the timer was due, or shut down.
    pub must_have_ended: bool,
    /// State in its life cycle.
    pub state: ModelState,
    /// How its end is observed.
    pub observed_by: ObservedBy,
    /// Number of wake-ups and callbacks since it was armed.
    pub signals: u32,
    /// Position in the queue of its shard; `None` if that is not known.
    pub position: Option<QueuePosition>,
}

/// The position of a timer in the queue of its shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuePosition {
    /// The shard.
    pub shard: usize,
    /// Whether the timer has its own wake-up. Equal deadlines fire in order only among timers that do, or among those that do
    /// not.
    pub strict: bool,
    /// Number in the order of arming; `None` if the timer was pushed later since, which leaves it anywhere among its equals.
    pub number: Option<u64>,
}

/// State of a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModelState {
    /// Not armed.
    Idle,
    /// Armed, as far as the model knows.
    Pending,
    /// Ended, as its handle or a cancel has reported.
    Ended(Outcome),
}

/// How the end of a timer is observed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObservedBy {
    /// Its handle reports it.
    Asking,
    /// Its waker is woken.
    Waking,
    /// Its callback is called.
    Calling,
}

impl TimerModel {
    /// Returns a model without timers.
    #[must_use]
    pub fn new(clock: u64, capacity: Option<usize>) -> TimerModel {
        TimerModel {
            clock,
            closed: false,
            capacity: capacity.map(CapacityModel::new),
            items: BTreeMap::new(),
            next: 0,
            violations: Vec::new(),
            checks: 0,
            fires: 0,
            cancels: 0,
            stops: 0,
        }
    }

    /// Adds a timer that is not armed.
    pub fn add(&mut self, surface: &'static str, observed_by: ObservedBy) -> Id {
        self.next += 1;
        let item = ModelTimer {
            surface,
            deadline: NEVER,
            due: NEVER,
            reached: false,
            must_have_ended: false,
            state: ModelState::Idle,
            observed_by,
            signals: 0,
            position: None,
        };
        self.items.insert(self.next, item);
        self.next
    }

    /// Removes a timer that was dropped.
    pub fn forget(&mut self, id: Id) {
        self.items.remove(&id);
        self.leave(id);
    }

    /// Returns what is known of a timer.
    #[must_use]
    pub fn get(&self, id: Id) -> Option<&ModelTimer> {
        self.items.get(&id)
    }

    /// Returns whether a timer is armed and has not ended.
    #[must_use]
    pub fn is_pending(&self, id: Id) -> bool {
        self.items.get(&id).is_some_and(|item| item.state == ModelState::Pending)
    }

    /// Sets the deadline of a timer, and the grid that its slack rounds up to.
    pub fn set(&mut self, id: Id, deadline: u64, grid: u64) {
        let clock = self.clock;
        if let Some(item) = self.items.get_mut(&id) {
            item.deadline = if deadline < LAST { deadline } else { NEVER };
            item.due = round_up(item.deadline, grid);
            item.reached = item.deadline <= clock;
            item.must_have_ended = false;
        }
    }

    /// Sets a deadline without slack, even one that the engine does not represent.
    pub fn set_exact(&mut self, id: Id, deadline: u64) {
        let clock = self.clock;
        if let Some(item) = self.items.get_mut(&id) {
            (item.deadline, item.due, item.must_have_ended) = (deadline, deadline, false);
            item.reached = deadline <= clock && deadline != NEVER;
        }
    }

    /// Notes that a timer is armed or waits for a slot.
    pub fn set_pending(&mut self, id: Id, position: Option<QueuePosition>) {
        let closed = self.closed;
        if let Some(item) = self.items.get_mut(&id) {
            (item.state, item.signals, item.position, item.must_have_ended) =
                (ModelState::Pending, 0, position, closed);
        }
    }

    /// Sets the position of a timer in its shard's queue.
    pub fn set_position(&mut self, id: Id, position: Option<QueuePosition>) {
        if let Some(item) = self.items.get_mut(&id) {
            item.position = position;
        }
    }

    /// Notes that a timer is no longer armed, without an outcome.
    pub fn set_idle(&mut self, id: Id) {
        self.leave(id);
        if let Some(item) = self.items.get_mut(&id) {
            (item.state, item.must_have_ended, item.position, item.signals) = (ModelState::Idle, false, None, 0);
        }
    }

    /// Notes what the clock shows.
    pub fn set_clock(&mut self, clock: u64) {
        self.clock = clock;
        for item in self.items.values_mut() {
            item.reached |= item.deadline <= clock;
        }
    }

    /// Notes that the engine was turned at this time until nothing was left to do.
    pub fn note_sweep(&mut self, clock: u64) {
        for item in self.items.values_mut().filter(|item| item.state == ModelState::Pending) {
            item.must_have_ended |= item.due <= clock && clock != NEVER;
        }
    }

    /// Notes that the engine was shut down.
    pub fn close(&mut self) {
        self.closed = true;
        self.capacity.iter_mut().for_each(CapacityModel::close);
        for item in self.items.values_mut().filter(|item| item.state == ModelState::Pending) {
            item.must_have_ended = true;
        }
    }

    /// Notes that a cancel reported success.
    pub fn cancelled(&mut self, id: Id) {
        self.ended(id, Outcome::Cancelled);
    }

    /// Notes that the user stopped a timer without shutting down the engine.
    pub fn stopped_by_user(&mut self, id: Id) {
        if let Some(item) = self.items.get_mut(&id) {
            item.state = ModelState::Ended(Outcome::Stopped);
            self.stops += 1;
        }
    }

    /// Compares an observed outcome.
    pub fn ended(&mut self, id: Id, outcome: Outcome) {
        self.checks += 1;
        self.leave(id);
        let (closed, clock) = (self.closed, self.clock);
        let Some(item) = self.items.get_mut(&id) else {
            return self.violate("P2", format!("timer {id} ended as {outcome:?} after it was dropped"));
        };
        let before = std::mem::replace(&mut item.state, ModelState::Ended(outcome));
        let item = item.clone();
        match outcome {
            Outcome::Fired => self.fires += 1,
            Outcome::Cancelled => self.cancels += 1,
            Outcome::Stopped => self.stops += 1,
        }
        let name = format!("{} {id}", item.surface);
        match (before, outcome) {
            (ModelState::Ended(before), _) => {
                self.violate("P2", format!("{name} ended as {outcome:?} after it had ended as {before:?}"));
            }
            (_, Outcome::Fired) if !item.reached => {
                let (deadline, early) = (item.deadline, item.deadline.saturating_sub(clock));
                self.violate("P1", format!("{name} fired {early} ns before its deadline {deadline}"));
            }
            (_, Outcome::Stopped) if !closed => {
                self.violate("P2", format!("{name} was stopped without a shutdown"));
            }
            _ => {}
        }
    }

    /// Compares the observation that a timer has not ended.
    pub fn still_pending(&mut self, id: Id) {
        self.checks += 1;
        let Some(item) = self.items.get(&id).cloned() else { return };
        let name = format!("{} {id}", item.surface);
        match item.state {
            ModelState::Ended(outcome) => {
                self.violate("P2", format!("{name} is pending, and had ended as {outcome:?}"));
            }
            _ if item.must_have_ended && self.closed => {
                self.violate("P6", format!("{name} is pending after the shutdown"));
            }
            _ if item.must_have_ended => {
                self.violate("P4", format!("{name} was due at {}, and is pending after a turn", item.due));
            }
            _ => {}
        }
    }

    /// Compares a wake-up. With `is_exact`, the timer may be woken only for its end.
    pub fn woken(&mut self, id: Id, clock: u64, is_exact: bool) {
        self.checks += 1;
        let closed = self.closed;
        let Some(item) = self.items.get_mut(&id) else { return };
        item.signals += 1;
        let item = item.clone();
        if !is_exact {
            return;
        }
        let name = format!("{} {id}", item.surface);
        if item.signals > 1 {
            self.violate("P2", format!("{name} was woken {} times", item.signals));
        }
        if item.state == ModelState::Pending && clock < item.deadline && !closed {
            self.violate("P1", format!("{name} was woken {} ns before its deadline", item.deadline - clock));
        }
    }

    /// Compares a poll that left a timer pending with the engine's counts, and resets the count of wake-ups.
    pub fn polled(&mut self, id: Id, polled: PollEffect) {
        self.reset_wakes(id);
        self.compare(|capacity, due| capacity.polled(id, polled, due));
    }

    /// Resets the count of wake-ups of a timer that is pending after a poll.
    pub fn reset_wakes(&mut self, id: Id) {
        if let Some(item) = self.items.get_mut(&id) {
            item.signals = 0;
        }
    }

    /// Notes that a timer was armed without a poll.
    pub fn armed(&mut self, id: Id) {
        self.compare(|capacity, due| capacity.arm(id, due));
    }

    /// Compares the refusal to arm a timer while `pending` timers are pending and up to `others` of other surfaces hold a
    /// reserved slot.
    pub fn refused(&mut self, pending: u64, others: u64) {
        self.compare(|capacity, _| capacity.refuse(pending, others));
    }

    /// Compares a wake-up at this time, which is for the timer's end or for a slot that is reserved for it.
    pub fn woken_at(&mut self, id: Id, clock: u64, is_ordered: bool) {
        let is_due = self.items.get(&id).is_some_and(|item| item.deadline <= clock);
        let at = if is_due { DeadlineStatus::Reached } else { DeadlineStatus::NotYet };
        self.compare(|capacity, due| capacity.woken(id, at, is_ordered, due));
    }

    /// Compares the order of slots when all wake-ups of a call into the engine have been noted.
    pub fn all_woken(&mut self) {
        self.compare(|capacity, due| capacity.all_woken(due));
    }

    /// Compares the slots in use, when `pending` timers are pending and up to `others` of other surfaces hold a reserved slot.
    pub fn check_slots(&mut self, pending: u64, others: u64) {
        self.compare(|capacity, due| capacity.check(pending, others, due));
    }

    /// Returns whether a timer was woken since its last poll, in an engine with a capacity.
    #[must_use]
    pub fn is_woken(&self, id: Id) -> bool {
        self.capacity.as_ref().is_some_and(|capacity| capacity.is_woken(id))
    }

    fn leave(&mut self, id: Id) {
        self.capacity.iter_mut().for_each(|capacity| capacity.leave(id));
    }

    fn compare(
        &mut self,
        compare: impl FnOnce(&mut CapacityModel, &dyn Fn(Id) -> DeadlineStatus) -> Result<(), Mismatch>,
    ) {
        let Some(capacity) = &mut self.capacity else { return };
        self.checks += 1;
        let items = &self.items;
        let due = |id: Id| match items.get(&id) {
            Some(item) if item.must_have_ended => DeadlineStatus::Passed,
            Some(item) if item.reached => DeadlineStatus::Reached,
            _ => DeadlineStatus::NotYet,
        };
        if let Err((promise, what)) = compare(capacity, &due) {
            self.violate(promise, what);
        }
    }

    /// Compares the call of a callback.
    pub fn callback_called(&mut self, id: Id, outcome: Outcome, clock: u64) {
        self.checks += 1;
        let Some(item) = self.items.get_mut(&id) else {
            return self.violate("P2", format!("callback {id} was called after it was dropped"));
        };
        item.signals += 1;
        let item = item.clone();
        let name = format!("{} {id}", item.surface);
        if item.signals > 1 {
            return self.violate("P2", format!("{name} was called {} times, now with {outcome:?}", item.signals));
        }
        match item.state {
            ModelState::Ended(before) if before == outcome => {}
            ModelState::Ended(before) => {
                self.violate("P2", format!("{name} was called with {outcome:?}, and had ended as {before:?}"));
            }
            _ => {
                if outcome == Outcome::Fired && clock < item.deadline {
                    self.violate("P1", format!("{name} was called {} ns before its deadline", item.deadline - clock));
                }
                if outcome == Outcome::Cancelled {
                    self.violate(
                        "P2",
                        format!("{name} was called with Cancelled, and the simulation did not cancel it"),
                    );
                }
                self.ended(id, outcome);
            }
        }
    }

    /// Checks after a step that every timer that must have ended was reported. With `calls_made`, also those whose callbacks were
    /// queued.
    pub fn check(&mut self, calls_made: bool) {
        let lost: Vec<String> = self
            .items
            .iter()
            .filter(|(_, item)| match (item.observed_by, item.state) {
                (ObservedBy::Waking, ModelState::Pending) => item.must_have_ended && item.signals == 0,
                (ObservedBy::Calling, ModelState::Pending) => item.must_have_ended && calls_made,
                (ObservedBy::Calling, ModelState::Ended(_)) => item.signals == 0 && calls_made,
                _ => false,
            })
            .map(|(id, item)| {
                format!("{} {id} was due at {}, and was neither woken nor called: {item:?}", item.surface, item.due)
            })
            .collect();
        self.checks += self.items.len() as u64;
        let promise = if self.closed { "P6" } else { "P4" };
        lost.into_iter().for_each(|what| self.violate(promise, what));
    }

    /// Checks that no timer that is due is pending, after the engine was turned and all woken tasks were polled.
    pub fn check_settled(&mut self) {
        let clock = self.clock;
        // An item of a queue comes out when the queue is polled, which may be never.
        let late = |item: &&ModelTimer| {
            item.state == ModelState::Pending && item.due <= clock && item.due != NEVER && item.surface != "item"
        };
        let late: Vec<String> = self.items.values().filter(late).map(|item| format!("{item:?}")).collect();
        self.checks += self.items.len() as u64;
        for item in late {
            self.violate("P4", format!("still pending at {clock} after all tasks were polled: {item}"));
        }
    }

    /// Compares the order in which timers of one shard were woken in one sweep.
    pub fn check_order(&mut self, woken: &[Id]) {
        let mut last: BTreeMap<usize, (Id, u64, QueuePosition)> = BTreeMap::new();
        for id in woken {
            // A timer that ended in its own poll did not wait for those before it in the queue.
            let found = self.items.get(id).filter(|item| item.state == ModelState::Pending);
            let Some((due, position)) = found.and_then(|item| Some((item.due, item.position?))) else { continue };
            if let Some((before, its_due, its)) = last.insert(position.shard, (*id, due, position)) {
                self.checks += 1;
                let has_numbers = its.number.is_some() && position.number.is_some();
                let is_tie = due == its_due && its.strict == position.strict && has_numbers;
                let is_tie_broken = is_tie && its.number > position.number;
                if its_due > due || is_tie_broken {
                    self.violate("P3", format!("{before} (due {its_due}) was woken before {id} (due {due})"));
                }
            }
        }
    }

    /// Reports a broken promise.
    pub fn violate(&mut self, promise: &'static str, what: String) {
        self.violations.push(PromiseViolation { promise, what });
    }

    /// Reports a broken promise unless the two values are equal.
    pub fn expect_eq<T: PartialEq + fmt::Debug>(&mut self, promise: &'static str, what: &str, seen: T, expected: T) {
        self.checks += 1;
        if seen != expected {
            self.violate(promise, format!("{what}: {seen:?}, expected {expected:?}"));
        }
    }

    /// Returns the first broken promise.
    #[must_use]
    pub fn violation(&self) -> Option<&PromiseViolation> {
        self.violations.first()
    }
}

/// Rounds a deadline up to the grid of its slack, but not beyond the end of the clock.
#[must_use]
pub fn round_up(deadline: u64, grid: u64) -> u64 {
    deadline.checked_next_multiple_of(grid.max(1)).map_or(LAST - 1, |up| up.min(LAST - 1)).max(deadline)
}

/// Returns the grid of a slack: the largest power of two that is not greater.
#[must_use]
pub fn grid_of(most: u64) -> u64 {
    if most == 0 { 1 } else { 1 << most.ilog2().min(62) }
}
