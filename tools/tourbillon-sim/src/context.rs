//! What all actors of a world play on: the engine, its threads, the clock, the hub and the model.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};
use std::time::Duration;

use tourbillon::time::Instant;
use tourbillon::{Clock, Driver, Engine, Slack, Time};

use crate::callback_thread::CallbackThread;
use crate::capacity_model::{PlaceStatus, PollEffect};
use crate::plan::{SimSetup, SimWallClock};
use crate::planted_fault::PlantedFault;
use crate::recorder::{Behavior, Id, Recorder};
use crate::scheduler_model::SimClocks;
use crate::sim_threads::SimThreads;
use crate::timer_model::{LAST, NEVER, QueuePosition, TimerModel};
use crate::totals::Totals;

/// See the module.
pub struct SimContext {
    /// What the world is made of.
    pub setup: SimSetup,
    /// Where the engine's doings are written down.
    pub recorder: Arc<Recorder>,
    /// What it is all about.
    pub engine: Engine,
    /// After the shutdown of the engine: the thread on which the engine runs callbacks.
    pub callbacks: Option<CallbackThread>,
    /// Who acts.
    pub threads: SimThreads,
    /// What may be seen.
    pub model: TimerModel,
    /// Who was woken and was not polled yet.
    pub ready: BTreeSet<Id>,
    /// What happened so far.
    pub totals: Totals,
    /// The fault that is planted, if any.
    pub broken: Option<PlantedFault>,
    /// The same moment on the clock and as an instant.
    pub base: (Instant, u64),
    /// The engine whose clock is the wall clock: the same, or one apart.
    pub wall: Engine,
    /// How many timers of the surfaces that the model does not follow one by one may hold a reserved place.
    pub others: u64,
    /// Whether there is a timer object or a group of named timers, which the engine calls within its own wake-up. Without a use for the
    /// place that it was given, it passes the place on there.
    pub has_place_forwarders: bool,
    numbers: u64,
    reentries: u64,
}

impl SimContext {
    /// An empty one.
    #[must_use]
    pub fn new(setup: SimSetup, broken: Option<PlantedFault>) -> SimContext {
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
            broken,
            base,
            wall,
            others: 0,
            has_place_forwarders: false,
            numbers: 0,
            reentries: 0,
        }
    }

    /// What the clock shows.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.recorder.now()
    }

    /// What both clocks show, the engine's at a moment that is past or now.
    #[must_use]
    pub fn times(&self, engine: u64) -> SimClocks {
        let is_apart = matches!(self.setup.wall, SimWallClock::Separate(_));
        SimClocks { engine, wall: if is_apart { self.wall.clock().now().as_nanos() } else { engine } }
    }

    /// Turns the engine of a wall clock that is apart. What that has to say is said in a turn of the other.
    pub fn turn_wall(&mut self) -> bool {
        let wall = &self.wall;
        matches!(self.setup.wall, SimWallClock::Separate(_)) && self.threads.drive(|_| wall.turn()).more
    }

    /// When something is due that is due after so long.
    #[must_use]
    pub fn due_after(&self, after: Duration) -> u64 {
        add(self.now(), after)
    }

    /// As the clock says it.
    #[must_use]
    pub fn time_of(&self, instant: Instant) -> u64 {
        time_of(self.base, instant)
    }

    /// As an instant.
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

    /// A waker for this item.
    #[must_use]
    pub fn waker(&self, id: Id, behavior: Behavior) -> Waker {
        self.recorder.waker(id, behavior)
    }

    /// The next place in the order of this thread's shard.
    pub fn next_position(&mut self, thread: usize, strict: bool) -> Option<QueuePosition> {
        self.numbers += 1;
        Some(QueuePosition { shard: self.threads.shard_of(thread), strict, number: Some(self.numbers) })
    }

    /// A timer is given another deadline on this thread. Pushed later it stays where it is; else it takes a new place, at home if the
    /// thread is its shard's owner, or with that thread.
    pub fn reset(&mut self, id: Id, thread: usize, deadline: u64, grid: u64) {
        let before = self.model.get(id).map(|item| (item.deadline, item.position));
        self.model.set(id, deadline, grid);
        let Some((before, Some(position))) = before else { return };
        let deadline = self.model.get(id).map_or(NEVER, |item| item.deadline);
        let position = match deadline {
            deadline if deadline >= before => Some(QueuePosition { number: None, ..position }),
            // It ends within the call.
            deadline if deadline <= self.now() => None,
            _ => self.next_position(thread, position.strict),
        };
        self.model.set_position(id, position);
    }

    /// A timer that is armed is given another waker on this thread: it comes there, unless the thread owns its shard.
    pub fn change_waker(&mut self, id: Id, thread: usize) {
        let position = self.model.get(id).filter(|item| item.deadline > self.now()).and_then(|item| item.position);
        if let Some(position) = position
            && !self.threads.owns(thread, position.shard)
        {
            let position = self.next_position(thread, position.strict);
            self.model.set_position(id, position);
        }
    }

    /// Polls a timer on this thread. In an engine with a capacity the model learns whether that armed it.
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

    /// Makes a timer that is armed at once, on this thread. Says whether the engine counts it as armed: not, if it was due.
    pub fn try_arm<T, E>(&mut self, thread: usize, arm: impl FnOnce() -> Result<T, E>) -> (Result<T, E>, bool) {
        self.note_wakes();
        let before = self.engine.stats();
        let made = self.threads.on(thread, arm);
        if made.is_err() && !self.model.closed {
            self.model.refused(before.pending, self.others);
        }
        (made, self.engine.stats().armed > before.armed)
    }

    /// Whether the engine holds this timer, as far as the model knows.
    #[must_use]
    pub fn is_armed(&self, id: Id) -> bool {
        let status = self.model.capacity.as_ref().map(|capacity| capacity.status(id));
        self.model.is_pending(id) && status.is_none_or(|status| status == Some(PlaceStatus::Armed))
    }

    /// Tells the model which timers were woken. To be called before anything is changed that says what they were woken for.
    pub fn note_wakes(&mut self) {
        let reentries = self.recorder.reentries.load(Ordering::SeqCst);
        // A waker that turns the engine or arms a timer does so between two wake-ups of the same turn. So does a surface that passes a
        // place on: the timer that is next in the queue is woken before those that were given places earlier in that turn.
        let is_reentered = std::mem::replace(&mut self.reentries, reentries) != reentries;
        let is_ordered = !is_reentered && !self.has_place_forwarders;
        for (id, clock) in self.recorder.take_wakes() {
            self.model.woken_at(id, clock, is_ordered);
        }
        self.model.all_woken();
    }

    /// Whether a timer of the engine is woken for its end alone: not, if it may be woken because there is room for it.
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

/// An instant as the clock says it, which has said the one when it was the other.
#[must_use]
pub fn time_of((base, time): (Instant, u64), instant: Instant) -> u64 {
    match instant.checked_duration_since(base) {
        Some(after) => add_as_is(time, after),
        None => time.saturating_sub(u64::try_from((base - instant).as_nanos()).unwrap_or(u64::MAX)),
    }
}

/// A moment so long after another, as an engine knows it: its last moments are never.
#[must_use]
pub fn add(time: u64, after: Duration) -> u64 {
    known(add_as_is(time, after))
}

/// A moment so long after another; never, if the clock has no number for it.
#[must_use]
pub fn add_as_is(time: u64, after: Duration) -> u64 {
    u64::try_from(u128::from(time) + after.as_nanos()).unwrap_or(NEVER)
}

/// A moment as an engine knows it.
#[must_use]
pub fn known(time: u64) -> u64 {
    if time < LAST { time } else { NEVER }
}
