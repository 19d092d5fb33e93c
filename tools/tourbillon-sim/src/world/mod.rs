//! One world from its start to its end: runs the steps of a plan one by one, and compares after each.
//!
//! - this file: the steps, and what moves time
//! - `observe`: processes what the engine has done, and compares it
//! - `finish`: drops all actors, and checks that nothing is left

mod finish;
mod observe;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;

use tourbillon::{Span, Time};

use crate::actors::{
    self, bulk_sleeps, delay_queue, expiring_map, interval, named, scheduler, scope, sleep, stream_timeout, timeout,
    timer,
};
use crate::callback_thread::{CallbackThread, Stuck};
use crate::context::SimContext;
use crate::plan::{SimPlan, SimStep};
use crate::planted_fault::PlantedFault;
use crate::recorder::{Id, panic_message};
use crate::run_hash::RunHash;
use crate::timer_model::LAST;
use crate::totals::Totals;
use crate::violation::PromiseViolation;

/// The result of a run.
#[derive(Clone, Debug)]
pub struct WorldResult {
    /// Counts of what happened.
    pub totals: Totals,
    /// Hash of everything that happened.
    pub hash: u64,
    /// The first broken promise, if any.
    pub failure: Option<SimFailure>,
}

/// A broken promise and where it showed.
#[derive(Clone, Debug)]
pub struct SimFailure {
    /// The broken promise.
    pub violation: PromiseViolation,
    /// The step, by its number in the plan; `None` if it showed after the last one.
    pub step: Option<usize>,
}

struct SimWorld {
    sim: SimContext,
    trace: RunHash,
    sleeps: Vec<sleep::SleepActor>,
    timeouts: Vec<timeout::TimeoutActor>,
    intervals: Vec<interval::IntervalActor>,
    scopes: Vec<scope::ScopeActor>,
    queues: Vec<delay_queue::DelayQueueActor>,
    timers: Vec<timer::TimerActor>,
    named: Vec<named::NamedActor>,
    schedulers: Vec<scheduler::SchedulerActor>,
    bulk_sleeps: Vec<bulk_sleeps::BulkSleepActor>,
    streams: Vec<stream_timeout::StreamActor>,
    maps: Vec<expiring_map::ExpiringMapActor>,
    /// Whether this step ended with all threads having turned until nothing was left to do.
    is_swept: bool,
}

/// Most timers of a shard that one turn fires.
const BATCH: usize = 256;

/// Longest step of time while jobs follow the wall clock. No planned cron line is due a thousand times in it, nor in sixteen hours if it is due
/// every minute. A job counts at most a thousand occurrences each time that its scheduler looks, and the model does not know how
/// often the scheduler looks.
const LONGEST: Span = Span::from_secs(150 * 24 * 60 * 60);

/// Most rounds of turns before a step stops waiting for nothing to be left to do.
const TURNS: usize = 20_000;

/// A callback after the shutdown that has not returned after this time never returns.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs a plan to its end, or to the first broken promise.
#[must_use]
pub fn run(plan: &SimPlan, broken: Option<PlantedFault>) -> WorldResult {
    let mut world = SimWorld::new(plan, broken);
    for (number, step) in &plan.steps {
        world.step(*step);
        if let Some(violation) = world.sim.model.violation().cloned() {
            return world.give_up(SimFailure { violation, step: Some(*number) });
        }
    }
    world.finish()
}

impl SimWorld {
    fn new(plan: &SimPlan, broken: Option<PlantedFault>) -> SimWorld {
        SimWorld {
            sim: SimContext::new(plan.setup, broken),
            trace: RunHash::new(),
            sleeps: Vec::new(),
            timeouts: Vec::new(),
            intervals: Vec::new(),
            scopes: Vec::new(),
            queues: Vec::new(),
            timers: Vec::new(),
            named: Vec::new(),
            schedulers: Vec::new(),
            bulk_sleeps: Vec::new(),
            streams: Vec::new(),
            maps: Vec::new(),
            is_swept: false,
        }
    }

    fn step(&mut self, step: SimStep) {
        self.sim.totals.steps += 1;
        self.is_swept = false;
        let reentries = self.sim.recorder.reentries.load(Ordering::SeqCst);
        let act = catch_unwind(AssertUnwindSafe(|| self.act(step)));
        if let Err(payload) = act
            && let Some(text) = panic_message(&*payload)
        {
            self.sim.model.violate("P6", format!("a step panicked: {text}"));
        }
        // If a callback turned the engine, a scheduler may have looked at its jobs.
        let is_turned = reentries != self.sim.recorder.reentries.load(Ordering::SeqCst);
        if !self.is_swept && is_turned && scheduler::has_jobs(&self.schedulers) {
            self.sweep();
        }
        self.observe();
    }

    fn act(&mut self, step: SimStep) {
        match step {
            SimStep::Jump(by) => self.jump(by),
            SimStep::Back(by) => self.back(by),
            SimStep::Advance(by) => self.advance(by),
            SimStep::Turn => self.turn(),
            SimStep::Work(thread) => {
                if self.sim.threads.work(thread).is_some() {
                    self.turn();
                }
            }
            SimStep::Sweep => self.sweep(),
            SimStep::Poll(which) => self.poll_one(which),
            SimStep::Settle => self.settle(),
            SimStep::Shutdown => self.shut_down(),
            SimStep::Sleep(op) => sleep::step(&mut self.sleeps, &mut self.sim, op),
            SimStep::Timeout(op) => timeout::step(&mut self.timeouts, &mut self.sim, op),
            SimStep::Interval(op) => interval::step(&mut self.intervals, &mut self.sim, op),
            SimStep::Scope(op) => scope::step(&mut self.scopes, &mut self.sim, op),
            SimStep::DelayQueue(op) => delay_queue::step(&mut self.queues, &mut self.sim, op),
            SimStep::Timer(op) => timer::step(&mut self.timers, &mut self.sim, op),
            SimStep::Named(op) => named::step(&mut self.named, &mut self.sim, op),
            SimStep::Scheduler(op) => scheduler::step(&mut self.schedulers, &mut self.sim, op),
            SimStep::BulkSleeps(op) => bulk_sleeps::step(&mut self.bulk_sleeps, &mut self.sim, op),
            SimStep::Stream(op) => stream_timeout::step(&mut self.streams, &mut self.sim, op),
            SimStep::ExpiringMap(op) => expiring_map::step(&mut self.maps, &mut self.sim, op),
        }
        self.follow_wall(step);
        match self.sim.planted.filter(|_| self.sim.totals.steps == 100) {
            Some(PlantedFault::P6) => panic!("planted"),
            Some(PlantedFault::P10) => loop {
                std::thread::park();
            },
            _ => {}
        }
    }

    /// Limits a step of time: jobs and intervals would otherwise run without bound.
    fn bounded(&self, by: u64) -> u64 {
        let repeats = !self.intervals.is_empty() || scheduler::has_jobs(&self.schedulers);
        let most = if repeats { self.sim.setup.scale.saturating_mul(16) } else { u64::MAX };
        let most = if scheduler::has_wall(&self.schedulers) { most.min(LONGEST.as_nanos()) } else { most };
        // The clock stops before its last moments.
        by.min(most).min(LAST - 1 - self.sim.now())
    }

    fn jump(&mut self, by: u64) {
        let by = self.bounded(by);
        self.sim.totals.fault("stalls", 1);
        self.sim.totals.simulated += u128::from(by);
        let now = self.sim.now() + by;
        self.set_clock(now);
    }

    fn back(&mut self, by: u64) {
        if scheduler::has_stopped_wall_jobs(&self.schedulers) {
            return;
        }
        self.sim.totals.fault("clock set back", 1);
        let now = self.sim.now().saturating_sub(by);
        self.set_clock(now);
    }

    /// Lets schedulers see at once how the wall clock was set, also while they are stopped: jobs depend on the size of the
    /// change.
    fn follow_wall(&mut self, step: SimStep) {
        let is_time = matches!(step, SimStep::Jump(_) | SimStep::Back(_));
        let is_jobs = matches!(
            step,
            SimStep::Scheduler(scheduler::SchedulerOp::SetWall { .. } | scheduler::SchedulerOp::Start { .. })
        );
        if (is_time || is_jobs) && scheduler::has_wall(&self.schedulers) {
            self.sweep();
        }
    }

    fn set_clock(&mut self, now: u64) {
        self.sim.engine.clock().set(Time::from_nanos(now));
        self.sim.model.set_clock(now);
    }

    fn advance(&mut self, by: u64) {
        let by = self.bounded(by);
        self.sim.totals.simulated += u128::from(by);
        self.sim.threads.drive(|engine| engine.advance(Duration::from_nanos(by)));
        self.process_events();
        self.sim.model.set_clock(self.sim.now());
        // Callbacks, and threads with their own shards, may still have work.
        self.sweep();
    }

    fn turn(&mut self) {
        if scheduler::has_jobs(&self.schedulers) {
            // A run that stayed queued while time moves on would be late because of the simulation.
            return self.sweep();
        }
        let more = self.turn_once();
        self.is_swept = !more && self.sim.setup.workers == 0;
        self.process_events();
    }

    /// Turns the engine once, which fires a bounded batch (D26). Returns whether there is more to do.
    fn turn_once(&mut self) -> bool {
        let turn = self.sim.threads.drive(tourbillon::Engine::turn);
        let most = BATCH * self.sim.setup.shards;
        self.sim.model.expect_eq("P4", "whether a turn fired too many timers", turn.fired > most, false);
        turn.more
    }

    fn sweep(&mut self) {
        for _ in 0..TURNS {
            let mut more = self.sim.turn_wall();
            more |= self.turn_once();
            for thread in 0..self.sim.setup.workers {
                more |= self.sim.threads.work(thread).is_some_and(|turn| turn.more || turn.fired > 0);
            }
            more |= self.run_callbacks();
            if !more {
                self.is_swept = true;
                break;
            }
        }
        self.process_events();
    }

    fn poll_one(&mut self, which: usize) {
        self.process_events();
        let Some(index) = which.checked_rem(self.sim.ready.len()) else { return };
        if index > 0 {
            self.sim.totals.fault("polls delayed", 1);
        }
        let id = self.sim.ready.iter().nth(index).copied();
        id.into_iter().for_each(|id| self.poll(id, which));
    }

    fn poll(&mut self, id: Id, thread: usize) {
        let sim = &mut self.sim;
        sim.ready.remove(&id);
        let _whose = actors::wake(&mut self.sleeps, sim, id, thread)
            || actors::wake(&mut self.timeouts, sim, id, thread)
            || actors::wake(&mut self.intervals, sim, id, thread)
            || actors::wake(&mut self.scopes, sim, id, thread)
            || actors::wake(&mut self.bulk_sleeps, sim, id, thread)
            || actors::wake(&mut self.streams, sim, id, thread)
            || actors::wake(&mut self.queues, sim, id, thread)
            || timer::wake(&mut self.timers, sim, id, thread)
            || named::wake(&mut self.named, sim, id, thread);
    }

    fn settle(&mut self) {
        for round in 0..TURNS {
            self.sweep();
            sleep::observe(&mut self.sleeps, &mut self.sim);
            self.process_events();
            let Some(id) = self.sim.ready.first().copied() else { break };
            self.poll(id, round);
            if self.sim.model.violation().is_some() {
                return;
            }
        }
        if self.sim.ready.is_empty() && self.is_swept {
            self.observe();
            self.sim.model.check_settled();
            // The observation drops a group of timers that a callback has released, which frees its slot. A scheduler that
            // waited for the slot gets it in the next turn.
            self.sweep();
            if self.sim.ready.is_empty() && self.is_swept {
                self.check_free_places();
            }
        }
    }

    fn shut_down(&mut self) {
        if self.sim.model.closed {
            return;
        }
        self.process_events();
        self.sim.totals.fault("shutdowns", 1);
        scheduler::before_shutdown(&mut self.schedulers, &self.sim);
        self.sim.recorder.closing.store(true, Ordering::SeqCst);
        self.sim.threads.drive(tourbillon::Engine::shutdown);
        self.sim.model.close();
        match self.sim.threads.drive(|engine| CallbackThread::hold(engine, PATIENCE)) {
            Ok(thread) => self.sim.callbacks = Some(thread),
            Err(Stuck) => _ = self.stuck(),
        }
        self.is_swept = true;
    }
}
