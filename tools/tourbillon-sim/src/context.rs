//! The state that all actors of a world share: the engine, its threads, the clock, the recorder and the model.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};
use std::time::Duration;

use tourbillon::time::Instant;
use tourbillon::time::error::Elapsed;
use tourbillon::{Clock, Driver, Engine, Outcome, Slack, Time};

use crate::callback_thread::CallbackThread;
use crate::capacity_model::{PollEffect, SlotStatus};
use crate::plan::{SimSetup, SimWallClock};
use crate::planted_fault::PlantedFault;
use crate::recorder::{Behavior, Id, Recorder};
use crate::scheduler_model::SimClocks;
use crate::sim_threads::SimThreads;
use crate::timer_model::{LAST, ModelState, NEVER, QueuePosition, TimerModel};
use crate::totals::Totals;

/// The state that all actors of a world share.
pub struct SimContext {
    /// The parameters of the world.
    pub setup: SimSetup,
    /// Records what the engine does.
    pub recorder: Arc<Recorder>,
    /// The engine under test.
    pub engine: Engine,
    /// The thread on which the engine runs callbacks after its shutdown.
    pub callbacks: Option<CallbackThread>,
    /// The simulated threads.
    pub threads: SimThreads,
    /// The model of all observations that the promises allow.
    pub model: TimerModel,
    /// Tasks that were woken and have not been polled since.
    pub ready: BTreeSet<Id>,
    /// Counts of all events so far.
    pub totals: Totals,
    /// The planted fault, if any.
    pub planted: Option<PlantedFault>,
    /// One moment, as an instant and on the clock.
    pub base: (Instant, u64),
    /// The engine that drives the wall clock: `engine`, or a separate one.
    pub wall: Engine,
    /// How many timers of surfaces that the model does not track one by one may hold a reserved slot.
    pub others: u64,
    /// Whether there is a timer object, a group of named timers or a map. The engine calls those within its own wake-up, and they pass
    /// on a slot that they do not need.
    pub has_slot_forwarders: bool,
    numbers: u64,
    reentries: u64,
}

impl SimContext {
    /// Returns the context of a world that is about to begin.
    #[must_use]
    pub fn new(setup: SimSetup, planted: Option<PlantedFault>) -> SimContext {
        let clock = Clock::manual();
        clock.set(Time::from_nanos(setup.start));
        let recorder = Recorder::new(clock.clone());
        let mut builder = Engine::builder().clock(clock).driver(Driver::external()).shards(setup.shards);
        builder = builder.queue(setup.queue).slack(setup.slack.slack());
        if let Some(capacity) = setup.capacity {
            builder = builder.capacity(capacity);
        }
        let engine = builder.build().expect("every setup that is planned can be built");
        recorder.set_engine(Some(engine.clone()));
        let mut threads = SimThreads::new(&engine, setup.threads, setup.workers, setup.shards);
        let base = (threads.on(0, Instant::now), setup.start);
        let wall = match setup.wall {
            SimWallClock::Separate(start) => wall_engine(start),
            _ => engine.clone(),
        };
        SimContext {
            setup,
            recorder,
            engine,
            callbacks: None,
            threads,
            model: TimerModel::new(setup.start, setup.capacity),
            ready: BTreeSet::new(),
            totals: Totals::default(),
            planted,
            base,
            wall,
            others: 0,
            has_slot_forwarders: false,
            numbers: 0,
            reentries: 0,
        }
    }

    /// Returns what the clock shows.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.recorder.now()
    }

    /// Returns what both clocks show; `engine` is a reading of the engine's clock, from now or earlier.
    #[must_use]
    pub fn times(&self, engine: u64) -> SimClocks {
        let is_apart = matches!(self.setup.wall, SimWallClock::Separate(_));
        SimClocks { engine, wall: if is_apart { self.wall.clock().now().as_nanos() } else { engine } }
    }

    /// Turns the engine of a separate wall clock. Its callbacks run in a turn of the main engine.
    pub fn turn_wall(&mut self) -> bool {
        let wall = &self.wall;
        matches!(self.setup.wall, SimWallClock::Separate(_)) && self.threads.drive(|_| wall.turn()).more
    }

    /// Returns the deadline of a timer that is armed now with a duration.
    #[must_use]
    pub fn due_after(&self, after: Duration) -> u64 {
        add(self.now(), after)
    }

    /// Converts an instant to a reading of the clock.
    #[must_use]
    pub fn time_of(&self, instant: Instant) -> u64 {
        time_of(self.base, instant)
    }

    /// Converts a reading of the clock to an instant.
    #[must_use]
    pub fn instant_of(&self, time: u64) -> Instant {
        if time >= LAST {
            self.base.0 + Duration::MAX
        } else if time >= self.base.1 {
            self.base.0 + Duration::from_nanos(time - self.base.1)
        } else {
            self.base.0 - Duration::from_nanos(self.base.1 - time)
        }
    }

    /// Returns a waker for `id`.
    #[must_use]
    pub fn waker(&self, id: Id, behavior: Behavior) -> Waker {
        self.recorder.waker(id, behavior)
    }

    /// Returns the next position in the queue of the thread's shard.
    pub fn next_position(&mut self, thread: usize, strict: bool) -> Option<QueuePosition> {
        self.numbers += 1;
        Some(QueuePosition { shard: self.threads.shard_of(thread), strict, number: Some(self.numbers) })
    }

    /// Notes that a poll on `thread` found a timer pending, and armed it if it was idle `before`. A timer that is past its deadline must not
    /// be armed.
    pub fn found_pending(&mut self, id: Id, thread: usize, before: Option<ModelState>, deadline: u64, what: &str) {
        self.model.still_pending(id);
        if before == Some(ModelState::Idle) {
            if deadline <= self.now() {
                self.model.violate("P4", format!("{what} {id} was past its deadline and was armed"));
            }
            let position = self.next_position(thread, self.setup.slack.is_strict());
            self.model.set_pending(id, position);
        }
    }

    /// Notes that a poll found the limit of a `what` over. If the model knew `before` how it ended, the two must agree.
    pub fn found_elapsed(&mut self, id: Id, before: Option<ModelState>, elapsed: &Elapsed, what: &str) {
        let outcome = if elapsed.is_stopped() { Outcome::Stopped } else { Outcome::Fired };
        match before {
            Some(ModelState::Ended(before)) => self.model.expect_eq("P2", what, outcome, before),
            _ => self.model.ended(id, outcome),
        }
    }

    /// Forgets the timer of an actor that leaves; if it is pending, that cancels it.
    pub fn forget_timer(&mut self, id: Id) {
        self.ready.remove(&id);
        if self.model.is_pending(id) {
            self.model.cancelled(id);
        }
        self.model.forget(id);
    }

    /// Notes that a thread gave a timer another deadline. A timer that is pushed later keeps its entry in the queue. Otherwise
    /// the timer takes a new position: in its own shard if the thread owns that, else in the thread's shard.
    pub fn reset(&mut self, id: Id, thread: usize, deadline: u64, grid: u64) {
        let before = self.model.get(id).map(|item| (item.deadline, item.position));
        self.model.set(id, deadline, grid);
        let Some((before, Some(position))) = before else { return };
        let deadline = self.model.get(id).map_or(NEVER, |item| item.deadline);
        let position = match deadline {
            deadline if deadline >= before => Some(QueuePosition { number: None, ..position }),
            // The timer ends within the call.
            deadline if deadline <= self.now() => None,
            _ => self.next_position(thread, position.strict),
        };
        self.model.set_position(id, position);
    }

    /// Notes that a thread gave an armed timer another waker: the timer migrates to that thread's shard, unless the thread owns
    /// its shard.
    pub fn change_waker(&mut self, id: Id, thread: usize) {
        let position = self.model.get(id).filter(|item| item.deadline > self.now()).and_then(|item| item.position);
        if let Some(position) = position
            && !self.threads.owns(thread, position.shard)
        {
            let position = self.next_position(thread, position.strict);
            self.model.set_position(id, position);
        }
    }

    /// Polls a timer on a thread. In an engine with a capacity, also tells the model whether the poll armed the timer.
    pub fn poll<T>(&mut self, id: Id, thread: usize, poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
        if self.has_exact_wakes() {
            return self.threads.on(thread, poll);
        }
        self.note_wakes();
        let before = self.engine.stats();
        let polled = self.threads.on(thread, poll);
        if polled.is_pending() {
            let is_armed = self.engine.stats().armed > before.armed;
            self.model.polled(id, PollEffect { is_armed, pending: before.pending, others: self.others });
        }
        polled
    }

    /// Creates an armed timer on a thread. Returns also whether the engine counts it as armed; it does not if the timer is due.
    pub fn try_arm<T, E>(&mut self, thread: usize, arm: impl FnOnce() -> Result<T, E>) -> (Result<T, E>, bool) {
        self.note_wakes();
        let before = self.engine.stats();
        let made = self.threads.on(thread, arm);
        if made.is_err() && !self.model.closed {
            self.model.refused(before.pending, self.others);
        }
        (made, self.engine.stats().armed > before.armed)
    }

    /// Returns whether the engine holds this timer armed, as far as the model knows.
    #[must_use]
    pub fn is_armed(&self, id: Id) -> bool {
        let status = self.model.capacity.as_ref().map(|capacity| capacity.status(id));
        self.model.is_pending(id) && status.is_none_or(|status| status == Some(SlotStatus::Armed))
    }

    /// Tells the model which timers were woken. Must run before any change to what the model compares wake-ups with.
    pub fn note_wakes(&mut self) {
        let reentries = self.recorder.reentries.load(Ordering::SeqCst);
        // A waker that turns the engine or arms a timer does so between two wake-ups of one turn. So does a surface that passes a
        // slot on: the timer that gets it is woken before those that were given slots earlier in that turn.
        let is_reentered = std::mem::replace(&mut self.reentries, reentries) != reentries;
        let is_ordered = !is_reentered && !self.has_slot_forwarders;
        for (id, clock) in self.recorder.take_wakes() {
            self.model.woken_at(id, clock, is_ordered);
        }
        self.model.all_woken();
    }

    /// Returns whether a timer is woken only for its end. In an engine with a capacity, it may also be woken for a slot.
    #[must_use]
    pub fn has_exact_wakes(&self) -> bool {
        self.setup.capacity.is_none()
    }
}

fn wall_engine(start: u64) -> Engine {
    let clock = Clock::manual();
    clock.set(Time::from_nanos(start));
    let builder = Engine::builder().clock(clock).driver(Driver::external()).slack(Slack::exact());
    builder.build().expect("an engine with a manual clock can be built")
}

/// Converts an instant to a reading of the clock, given one moment in both forms.
#[must_use]
pub fn time_of((base, time): (Instant, u64), instant: Instant) -> u64 {
    match instant.checked_duration_since(base) {
        Some(after) => add_exact(time, after),
        None => time.saturating_sub(u64::try_from((base - instant).as_nanos()).unwrap_or(u64::MAX)),
    }
}

/// Adds a duration to a reading, as an engine does: its last moments mean never.
#[must_use]
pub fn add(time: u64, after: Duration) -> u64 {
    engine_time(add_exact(time, after))
}

/// Adds a duration to a reading. Returns [`NEVER`] if the clock cannot show the sum.
#[must_use]
pub fn add_exact(time: u64, after: Duration) -> u64 {
    u64::try_from(u128::from(time) + after.as_nanos()).unwrap_or(NEVER)
}

/// Returns a reading as an engine represents it: its last moments mean never.
#[must_use]
pub fn engine_time(time: u64) -> u64 {
    if time < LAST { time } else { NEVER }
}
