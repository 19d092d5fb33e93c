//! One world from its beginning to its end: takes the steps of a plan, one by one, and compares after each.
//!
//! - here: the steps, and what moves time
//! - `look`: takes in what the engine has done, and compares it
//! - `end`: all go, and nothing is left

mod end;
mod look;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;

use tourbillon::Time;

use crate::actors::{self, crowd, delay_queue, interval, named, scheduler, scope, sleep, timeout, timer};
use crate::breakage::Break;
use crate::callbacks::{CallbackThread, Stuck};
use crate::hub::{Id, message_of};
use crate::model::{LAST, Violation};
use crate::plan::{Plan, Step};
use crate::stage::Stage;
use crate::totals::Totals;
use crate::trace::Trace;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Ran {
    /// What happened, in numbers.
    pub totals: Totals,
    /// All that happened, as one number.
    pub hash: u64,
    /// What was wrong, and at which step: its number in the plan, or none if it was at the end.
    pub failure: Option<Failure>,
}

/// What was wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which promise was broken, and how.
    pub violation: Violation,
    /// At which step; `None`: when all was over.
    pub step: Option<usize>,
}

struct World {
    stage: Stage,
    trace: Trace,
    sleeps: Vec<sleep::Actor>,
    timeouts: Vec<timeout::Actor>,
    intervals: Vec<interval::Actor>,
    scopes: Vec<scope::Actor>,
    queues: Vec<delay_queue::Actor>,
    timers: Vec<timer::Actor>,
    named: Vec<named::Actor>,
    schedulers: Vec<scheduler::Actor>,
    crowd: Vec<crowd::Actor>,
    /// All turned until there was nothing more to do, at the end of this step.
    is_swept: bool,
}

/// A turn fires at most so many in each shard.
const BATCH: usize = 256;

/// No cron line that is planned is due a thousand times in this long, nor in sixteen hours if it is due every minute: of more a job
/// counts a thousand each time that its scheduler looks, which may be once or several times.
const LONGEST: u64 = 150 * 24 * 60 * 60 * 1_000_000_000;

/// So often are all turned before a step gives up on there being nothing more to do.
const TURNS: usize = 20_000;

/// After a shutdown the engine runs callbacks on a thread of the system. A callback that has not returned after so long never does.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs a plan from the beginning to the end, or to the first promise that is broken.
#[must_use]
pub fn run(plan: &Plan, broken: Option<Break>) -> Ran {
    let mut world = World::new(plan, broken);
    for (number, step) in &plan.steps {
        world.step(*step);
        if let Some(violation) = world.stage.model.violation().cloned() {
            return world.give_up(Failure { violation, step: Some(*number) });
        }
    }
    world.finish()
}

impl World {
    fn new(plan: &Plan, broken: Option<Break>) -> World {
        World {
            stage: Stage::new(plan.setup, broken),
            trace: Trace::new(),
            sleeps: Vec::new(),
            timeouts: Vec::new(),
            intervals: Vec::new(),
            scopes: Vec::new(),
            queues: Vec::new(),
            timers: Vec::new(),
            named: Vec::new(),
            schedulers: Vec::new(),
            crowd: Vec::new(),
            is_swept: false,
        }
    }

    fn step(&mut self, step: Step) {
        self.stage.totals.steps += 1;
        self.is_swept = false;
        let reentries = self.stage.hub.reentries.load(Ordering::SeqCst);
        let act = catch_unwind(AssertUnwindSafe(|| self.act(step)));
        if let Err(payload) = act
            && let Some(text) = message_of(&*payload)
        {
            self.stage.model.violate("P6", format!("a step panicked: {text}"));
        }
        // Where somebody may have turned the engine from within, jobs may have been looked at.
        let is_turned = reentries != self.stage.hub.reentries.load(Ordering::SeqCst);
        if !self.is_swept && is_turned && scheduler::has_jobs(&self.schedulers) {
            self.sweep();
        }
        self.look();
    }

    fn act(&mut self, step: Step) {
        match step {
            Step::Jump(by) => self.jump(by),
            Step::Back(by) => self.back(by),
            Step::Advance(by) => self.advance(by),
            Step::Turn => self.turn(),
            Step::Work(thread) => {
                if self.stage.threads.work(thread).is_some() {
                    self.turn();
                }
            }
            Step::Sweep => self.sweep(),
            Step::Poll(which) => self.poll_one(which),
            Step::Settle => self.settle(),
            Step::Shutdown => self.shut_down(),
            Step::Sleep(op) => sleep::step(&mut self.sleeps, &mut self.stage, op),
            Step::Timeout(op) => timeout::step(&mut self.timeouts, &mut self.stage, op),
            Step::Interval(op) => interval::step(&mut self.intervals, &mut self.stage, op),
            Step::Scope(op) => scope::step(&mut self.scopes, &mut self.stage, op),
            Step::DelayQueue(op) => delay_queue::step(&mut self.queues, &mut self.stage, op),
            Step::Timer(op) => timer::step(&mut self.timers, &mut self.stage, op),
            Step::Named(op) => named::step(&mut self.named, &mut self.stage, op),
            Step::Scheduler(op) => scheduler::step(&mut self.schedulers, &mut self.stage, op),
            Step::Crowd(op) => crowd::step(&mut self.crowd, &mut self.stage, op),
        }
        self.follow_wall(step);
        match self.stage.broken.filter(|_| self.stage.totals.steps == 100) {
            Some(Break::P6) => panic!("planted"),
            Some(Break::P10) => loop {
                std::thread::park();
            },
            _ => {}
        }
    }

    /// Time that passes for jobs and intervals makes them run; without bound they would run for ever.
    fn bounded(&self, by: u64) -> u64 {
        let repeats = !self.intervals.is_empty() || scheduler::has_jobs(&self.schedulers);
        let most = if repeats { self.stage.setup.scale.saturating_mul(16) } else { u64::MAX };
        let most = if scheduler::has_wall(&self.schedulers) { most.min(LONGEST) } else { most };
        // There the clock stops.
        by.min(most).min(LAST - 1 - self.stage.now())
    }

    fn jump(&mut self, by: u64) {
        let by = self.bounded(by);
        self.stage.totals.fault("stalls", 1);
        self.stage.totals.simulated += u128::from(by);
        let now = self.stage.now() + by;
        self.set_clock(now);
    }

    fn back(&mut self, by: u64) {
        if scheduler::is_deaf(&self.schedulers) {
            return;
        }
        self.stage.totals.fault("clock set back", 1);
        let now = self.stage.now().saturating_sub(by);
        self.set_clock(now);
    }

    /// Where jobs follow the wall clock, they are told at once how it was set, also if that was while they rested: how far is what they
    /// go by.
    fn follow_wall(&mut self, step: Step) {
        let is_time = matches!(step, Step::Jump(_) | Step::Back(_));
        let is_jobs = matches!(step, Step::Scheduler(scheduler::Op::SetWall { .. } | scheduler::Op::Start { .. }));
        if (is_time || is_jobs) && scheduler::has_wall(&self.schedulers) {
            self.sweep();
        }
    }

    fn set_clock(&mut self, now: u64) {
        self.stage.engine.clock().set(Time::from_nanos(now));
        self.stage.model.clock_shows(now);
    }

    fn advance(&mut self, by: u64) {
        let by = self.bounded(by);
        self.stage.totals.simulated += u128::from(by);
        self.stage.threads.drive(|engine| engine.advance(Duration::from_nanos(by)));
        self.absorb();
        self.stage.model.clock_shows(self.stage.now());
        // What callbacks and threads with shards of their own have left.
        self.sweep();
    }

    fn turn(&mut self) {
        if scheduler::has_jobs(&self.schedulers) {
            // A run that stands in line while time moves on is late by the simulation's doing.
            return self.sweep();
        }
        let more = self.turn_once();
        self.is_swept = !more && self.stage.setup.workers == 0;
        self.absorb();
    }

    /// A turn of the engine, which is bounded (D26). Gives whether there is more to do.
    fn turn_once(&mut self) -> bool {
        let turn = self.stage.threads.drive(|engine| engine.turn());
        let most = BATCH * self.stage.setup.shards;
        self.stage.model.same("P4", "a turn fires more than it may", turn.fired > most, false);
        turn.more
    }

    fn sweep(&mut self) {
        for _ in 0..TURNS {
            let mut more = self.stage.turn_wall();
            more |= self.turn_once();
            for thread in 0..self.stage.setup.workers {
                more |= self.stage.threads.work(thread).is_some_and(|turn| turn.more || turn.fired > 0);
            }
            more |= self.run_callbacks();
            if !more {
                self.is_swept = true;
                break;
            }
        }
        self.absorb();
    }

    fn poll_one(&mut self, which: usize) {
        self.absorb();
        let Some(index) = which.checked_rem(self.stage.ready.len()) else { return };
        if index > 0 {
            self.stage.totals.fault("polls delayed", 1);
        }
        let id = self.stage.ready.iter().nth(index).copied();
        id.into_iter().for_each(|id| self.poll(id, which));
    }

    fn poll(&mut self, id: Id, thread: usize) {
        let stage = &mut self.stage;
        stage.ready.remove(&id);
        let _whose = actors::wake(&mut self.sleeps, stage, id, thread)
            || actors::wake(&mut self.timeouts, stage, id, thread)
            || actors::wake(&mut self.intervals, stage, id, thread)
            || actors::wake(&mut self.scopes, stage, id, thread)
            || actors::wake(&mut self.crowd, stage, id, thread)
            || actors::wake(&mut self.queues, stage, id, thread)
            || timer::wake(&mut self.timers, stage, id, thread)
            || named::wake(&mut self.named, stage, id, thread);
    }

    fn settle(&mut self) {
        for round in 0..TURNS {
            self.sweep();
            sleep::observe(&mut self.sleeps, &mut self.stage);
            self.absorb();
            let Some(id) = self.stage.ready.first().copied() else { break };
            self.poll(id, round);
            if self.stage.model.violation().is_some() {
                return;
            }
        }
        if self.stage.ready.is_empty() && self.is_swept {
            self.look();
            self.stage.model.check_settled();
            // A group of timers that a callback has dropped goes with the look, and with it its place. A scheduler that waited for the
            // place is only served in a turn.
            self.sweep();
            if self.stage.ready.is_empty() && self.is_swept {
                self.check_free_places();
            }
        }
    }

    fn shut_down(&mut self) {
        if self.stage.model.closed {
            return;
        }
        self.absorb();
        self.stage.totals.fault("shutdowns", 1);
        scheduler::closing(&mut self.schedulers, &self.stage);
        self.stage.hub.closing.store(true, Ordering::SeqCst);
        self.stage.threads.drive(|engine| engine.shutdown());
        self.stage.model.close();
        match self.stage.threads.drive(|engine| CallbackThread::hold(engine, PATIENCE)) {
            Ok(thread) => self.stage.callbacks = Some(thread),
            Err(Stuck) => _ = self.stuck(),
        }
        self.is_swept = true;
    }
}
