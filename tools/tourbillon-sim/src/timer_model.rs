//! The reference: a list of timers with deadlines and states, and what the promises allow to be seen of each.
//!
//! It is naive on purpose. It has no queue, no shards and no locks; it looks at every timer whenever anything happens. It
//! does not foretell what the engine does. It knows what the engine *may* do (a timer may fire once the clock has shown its
//! deadline) and what it *must* have done (what was due when the engine was turned has fired), and says which promise an
//! observation breaks.

use std::collections::BTreeMap;
use std::fmt;

use tourbillon::Outcome;

use crate::capacity_model::{CapacityModel, DeadlineStatus, PollEffect};
use crate::recorder::Id;
use crate::violation::{Mismatch, PromiseViolation};

/// Deadlines from here on are never: the engine keeps the last 2^36 nanoseconds for itself.
pub const LAST: u64 = u64::MAX << 36;

/// The deadline that never comes.
pub const NEVER: u64 = u64::MAX;

/// All that the model knows.
#[derive(Debug)]
pub struct TimerModel {
    /// What the clock shows.
    pub clock: u64,
    /// Whether the engine was shut down.
    pub closed: bool,
    /// Which timers wait for a place; `None` in an engine without a capacity.
    pub capacity: Option<CapacityModel>,
    items: BTreeMap<Id, ModelTimer>,
    next: Id,
    violations: Vec<PromiseViolation>,
    /// How many observations were compared.
    pub checks: u64,
    /// How many timers ended, by outcome.
    pub fires: u64,
    /// See `fired`.
    pub cancels: u64,
    /// See `fired`.
    pub stops: u64,
}

/// One timer.
#[derive(Clone, Debug)]
pub struct ModelTimer {
    /// What it is a timer of.
    pub surface: &'static str,
    /// Not before this.
    pub deadline: u64,
    /// A turn at this time or later fires it: the deadline and the slack.
    pub due: u64,
    /// The clock has shown the deadline since it was set.
    pub reached: bool,
    /// The engine was turned when it was due, or shut down: it has to have ended.
    pub must_have_ended: bool,
    /// Where it is in its life.
    pub state: ModelState,
    /// How it is observed.
    pub observed_by: ObservedBy,
    /// How often it was told or woken since it was armed.
    pub signals: u32,
    /// Where it stands in the order; `None` where nobody knows.
    pub position: Option<QueuePosition>,
}

/// Where a timer stands in the order of its shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuePosition {
    /// Which shard.
    pub shard: usize,
    /// Which line of it: timers that share wake-ups are in one, all others in the second. Equal deadlines are in order
    /// within a line.
    pub strict: bool,
    /// The how-manieth it was; `None` if it was pushed later since: then it is anywhere among equals.
    pub number: Option<u64>,
}

/// The life of a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModelState {
    /// Not armed.
    Idle,
    /// Armed, as far as is known.
    Pending,
    /// It is over, as its handle or a cancel has said.
    Ended(Outcome),
}

/// How the end of a timer shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObservedBy {
    /// It can be asked.
    Asking,
    /// Its waker is woken.
    Waking,
    /// Its callback is called.
    Calling,
}

impl TimerModel {
    /// Without timers.
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

    /// A timer that is not armed.
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

    /// It is gone, and nobody will hear of it again.
    pub fn forget(&mut self, id: Id) {
        self.items.remove(&id);
        self.leave(id);
    }

    /// What is known of it.
    #[must_use]
    pub fn get(&self, id: Id) -> Option<&ModelTimer> {
        self.items.get(&id)
    }

    /// Whether it is armed and has not ended.
    #[must_use]
    pub fn is_pending(&self, id: Id) -> bool {
        self.items.get(&id).is_some_and(|item| item.state == ModelState::Pending)
    }

    /// Gives a timer a deadline, and says how late it may be. Whatever it was told before is of the past.
    pub fn set(&mut self, id: Id, deadline: u64, grid: u64) {
        let clock = self.clock;
        if let Some(item) = self.items.get_mut(&id) {
            item.deadline = if deadline < LAST { deadline } else { NEVER };
            item.due = round_up(item.deadline, grid);
            item.reached = item.deadline <= clock;
            item.must_have_ended = false;
        }
    }

    /// The same for a deadline that is kept as it is, also if the engine has no word for it.
    pub fn set_as_is(&mut self, id: Id, deadline: u64) {
        let clock = self.clock;
        if let Some(item) = self.items.get_mut(&id) {
            (item.deadline, item.due, item.must_have_ended) = (deadline, deadline, false);
            item.reached = deadline <= clock && deadline != NEVER;
        }
    }

    /// It is armed, or waits for room.
    pub fn set_pending(&mut self, id: Id, position: Option<QueuePosition>) {
        let closed = self.closed;
        if let Some(item) = self.items.get_mut(&id) {
            (item.state, item.signals, item.position, item.must_have_ended) =
                (ModelState::Pending, 0, position, closed);
        }
    }

    /// It stands there in the order from now on.
    pub fn set_position(&mut self, id: Id, position: Option<QueuePosition>) {
        if let Some(item) = self.items.get_mut(&id) {
            item.position = position;
        }
    }

    /// It is not armed any more, and nobody is told.
    pub fn set_idle(&mut self, id: Id) {
        self.leave(id);
        if let Some(item) = self.items.get_mut(&id) {
            (item.state, item.must_have_ended, item.position, item.signals) = (ModelState::Idle, false, None, 0);
        }
    }

    /// The clock shows this.
    pub fn clock_shows(&mut self, clock: u64) {
        self.clock = clock;
        for item in self.items.values_mut() {
            item.reached |= item.deadline <= clock;
        }
    }

    /// The engine was turned at this time until there was nothing more to do.
    pub fn swept(&mut self, clock: u64) {
        for item in self.items.values_mut().filter(|item| item.state == ModelState::Pending) {
            item.must_have_ended |= item.due <= clock && clock != NEVER;
        }
    }

    /// The engine was shut down.
    pub fn close(&mut self) {
        self.closed = true;
        self.capacity.iter_mut().for_each(CapacityModel::close);
        for item in self.items.values_mut().filter(|item| item.state == ModelState::Pending) {
            item.must_have_ended = true;
        }
    }

    /// Somebody cancelled it, and was told so.
    pub fn cancelled(&mut self, id: Id) {
        self.ended(id, Outcome::Cancelled);
    }

    /// Somebody stopped it, and not with the engine.
    pub fn stopped_by_user(&mut self, id: Id) {
        if let Some(item) = self.items.get_mut(&id) {
            item.state = ModelState::Ended(Outcome::Stopped);
            self.stops += 1;
        }
    }

    /// It was seen to have ended like this.
    pub fn ended(&mut self, id: Id, outcome: Outcome) {
        self.checks += 1;
        self.leave(id);
        let (closed, clock) = (self.closed, self.clock);
        let Some(item) = self.items.get_mut(&id) else {
            return self.violate("P2", format!("timer {id} is gone, and ended as {outcome:?}"));
        };
        let before = std::mem::replace(&mut item.state, ModelState::Ended(outcome));
        let item = item.clone();
        match outcome {
            Outcome::Fired => self.fires += 1,
            Outcome::Cancelled => self.cancels += 1,
            _ => self.stops += 1,
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
                self.violate("P2", format!("{name} was stopped, and the engine was not"));
            }
            _ => {}
        }
    }

    /// It was seen not to have ended.
    pub fn still_pending(&mut self, id: Id) {
        self.checks += 1;
        let Some(item) = self.items.get(&id).cloned() else { return };
        let name = format!("{} {id}", item.surface);
        match item.state {
            ModelState::Ended(outcome) => {
                self.violate("P2", format!("{name} is pending, and had ended as {outcome:?}"))
            }
            _ if item.must_have_ended && self.closed => {
                self.violate("P6", format!("{name} is pending after the shutdown"))
            }
            _ if item.must_have_ended => {
                self.violate("P4", format!("{name} was due at {} and turned, and is pending", item.due));
            }
            _ => {}
        }
    }

    /// Its waker was woken. With `is_exact` a timer is woken for its end only.
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

    /// A poll left a timer pending, with what the engine's counts say of it. What it was woken for before is of the past.
    pub fn polled(&mut self, id: Id, polled: PollEffect) {
        self.waits_anew(id);
        self.compare(|waiters, due| waiters.polled(id, polled, due));
    }

    /// It is pending after a poll: what it was woken for before is of the past.
    pub fn waits_anew(&mut self, id: Id) {
        if let Some(item) = self.items.get_mut(&id) {
            item.signals = 0;
        }
    }

    /// A timer was armed without a poll.
    pub fn armed(&mut self, id: Id) {
        self.compare(|waiters, due| waiters.arm(id, due));
    }

    /// A timer was refused, with so many pending, and so many of other surfaces that may hold a reserved place.
    pub fn refused(&mut self, pending: u64, others: u64) {
        self.compare(|waiters, _| waiters.refuse(pending, others));
    }

    /// A timer was woken when the clock showed this: for its end, or for a place that is reserved for it.
    pub fn woken_at(&mut self, id: Id, clock: u64, is_ordered: bool) {
        let is_due = self.items.get(&id).is_some_and(|item| item.deadline <= clock);
        let at = if is_due { DeadlineStatus::Reached } else { DeadlineStatus::NotYet };
        self.compare(|waiters, due| waiters.woken(id, at, is_ordered, due));
    }

    /// All wake-ups of a call into the engine have been noted.
    pub fn all_woken(&mut self) {
        self.compare(|waiters, due| waiters.all_woken(due));
    }

    /// So many timers are pending, and so many of other surfaces may hold a reserved place.
    pub fn check_waiters(&mut self, pending: u64, others: u64) {
        self.compare(|waiters, due| waiters.check(pending, others, due));
    }

    /// Whether a timer was woken since it was last polled, in an engine with a capacity.
    #[must_use]
    pub fn is_woken(&self, id: Id) -> bool {
        self.capacity.as_ref().is_some_and(|waiters| waiters.is_woken(id))
    }

    fn leave(&mut self, id: Id) {
        self.capacity.iter_mut().for_each(|waiters| waiters.leave(id));
    }

    fn compare(
        &mut self,
        compare: impl FnOnce(&mut CapacityModel, &dyn Fn(Id) -> DeadlineStatus) -> Result<(), Mismatch>,
    ) {
        let Some(waiters) = &mut self.capacity else { return };
        self.checks += 1;
        let items = &self.items;
        let due = |id: Id| match items.get(&id) {
            Some(item) if item.must_have_ended => DeadlineStatus::Passed,
            Some(item) if item.reached => DeadlineStatus::Reached,
            _ => DeadlineStatus::NotYet,
        };
        if let Err((promise, what)) = compare(waiters, &due) {
            self.violate(promise, what);
        }
    }

    /// Its callback was called.
    pub fn callback_called(&mut self, id: Id, outcome: Outcome, clock: u64) {
        self.checks += 1;
        let Some(item) = self.items.get_mut(&id) else {
            return self.violate("P2", format!("callback {id} was called, and nobody waits with it"));
        };
        item.signals += 1;
        let item = item.clone();
        let name = format!("{} {id}", item.surface);
        if item.signals > 1 {
            return self.violate("P2", format!("{name} was told {} times, now {outcome:?}", item.signals));
        }
        match item.state {
            ModelState::Ended(before) if before == outcome => {}
            ModelState::Ended(before) => {
                self.violate("P2", format!("{name} was told {outcome:?} and had ended as {before:?}"))
            }
            _ => {
                if outcome == Outcome::Fired && clock < item.deadline {
                    self.violate("P1", format!("{name} was told {} ns before its deadline", item.deadline - clock));
                }
                if outcome == Outcome::Cancelled {
                    self.violate("P2", format!("{name} was told that it was cancelled, and nobody did that"));
                }
                self.ended(id, outcome);
            }
        }
    }

    /// After a step: whoever must have heard by now has. With `calls_made` also those whose callbacks had waited.
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
            .map(|(id, item)| format!("{} {id} was due at {} and heard nothing: {item:?}", item.surface, item.due))
            .collect();
        self.checks += self.items.len() as u64;
        let promise = if self.closed { "P6" } else { "P4" };
        lost.into_iter().for_each(|what| self.violate(promise, what));
    }

    /// After the engine was turned and all tasks were polled that were woken: nothing that is due is pending.
    pub fn check_settled(&mut self) {
        let clock = self.clock;
        // An item of a queue comes out when the queue is polled, which may be never.
        let late = |item: &&ModelTimer| {
            item.state == ModelState::Pending && item.due <= clock && item.due != NEVER && item.surface != "item"
        };
        let late: Vec<String> = self.items.values().filter(late).map(|item| format!("{item:?}")).collect();
        self.checks += self.items.len() as u64;
        for item in late {
            self.violate("P4", format!("at {clock} all were polled, and this is late: {item}"));
        }
    }

    /// The order in which timers of one shard were woken in one sweep.
    pub fn check_order(&mut self, woken: &[Id]) {
        let mut last: BTreeMap<usize, (Id, u64, QueuePosition)> = BTreeMap::new();
        for id in woken {
            // One that ended in its own poll was found to be past there, whoever is before it in the queue.
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

    /// A promise is broken.
    pub fn violate(&mut self, promise: &'static str, what: String) {
        self.violations.push(PromiseViolation { promise, what });
    }

    /// Compares, and says which promise is broken if the two differ.
    pub fn expect_eq<T: PartialEq + fmt::Debug>(&mut self, promise: &'static str, what: &str, seen: T, expected: T) {
        self.checks += 1;
        if seen != expected {
            self.violate(promise, format!("{what}: {seen:?}, and should be {expected:?}"));
        }
    }

    /// The first promise that was broken.
    #[must_use]
    pub fn violation(&self) -> Option<&PromiseViolation> {
        self.violations.first()
    }
}

/// Slack rounds up to a multiple of the grid, but not beyond the end of the clock.
#[must_use]
pub fn round_up(deadline: u64, grid: u64) -> u64 {
    deadline.checked_next_multiple_of(grid.max(1)).map_or(LAST - 1, |up| up.min(LAST - 1)).max(deadline)
}

/// The grid of a slack: the largest power of two that is not more.
#[must_use]
pub fn grid_of(most: u64) -> u64 {
    if most == 0 { 1 } else { 1 << most.ilog2().min(62) }
}
