//! One world from its beginning to its end: takes the steps of a plan, one by one, and compares after each.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tourbillon::Time;

use crate::actors::{delay_queue, interval, named, scheduler, scope, sleep, timeout, timer};
use crate::breakage::Break;
use crate::hub::{Id, What, message_of};
use crate::model::{NEVER, SeenBy, State, Violation};
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
    /// All turned until there was nothing more to do, at the end of this step.
    is_swept: bool,
}

/// So often are all turned before a step gives up on there being nothing more to do.
const TURNS: usize = 20_000;

/// What comes after a shutdown is called on a thread of the system's; longer than this is lost.
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
            is_swept: false,
        }
    }

    fn step(&mut self, step: Step) {
        self.stage.totals.steps += 1;
        self.is_swept = false;
        let act = catch_unwind(AssertUnwindSafe(|| self.act(step)));
        if let Err(payload) = act
            && let Some(text) = message_of(&*payload)
        {
            self.stage.model.violate("P6", format!("a step panicked: {text}"));
        }
        self.look(matches!(step, Step::Shutdown));
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
        }
        if self.stage.broken == Some(Break::P6) && self.stage.totals.steps == 100 {
            panic!("planted");
        }
    }

    /// Time that passes for jobs and intervals makes them run; without bound they would run for ever.
    fn bounded(&self, by: u64) -> u64 {
        let repeats = !self.intervals.is_empty() || scheduler::has_jobs(&self.schedulers);
        let most = if repeats { self.stage.setup.scale.saturating_mul(16) } else { u64::MAX };
        // A clock that shows never is not one.
        by.min(most).min(NEVER - 1 - self.stage.now())
    }

    fn jump(&mut self, by: u64) {
        let by = self.bounded(by);
        self.stage.totals.fault("stalls", 1);
        self.stage.totals.simulated += u128::from(by);
        let now = self.stage.now() + by;
        self.set_clock(now);
    }

    fn back(&mut self, by: u64) {
        self.stage.totals.fault("clock set back", 1);
        let now = self.stage.now().saturating_sub(by);
        self.set_clock(now);
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
        let turn = self.stage.threads.drive(|engine| engine.turn());
        self.is_swept = !turn.more && self.stage.setup.workers == 0;
        self.absorb();
    }

    fn sweep(&mut self) {
        for _ in 0..TURNS {
            let mut more = self.stage.threads.drive(|engine| engine.turn()).more;
            for thread in 0..self.stage.setup.workers {
                more |= self.stage.threads.work(thread).is_some_and(|turn| turn.more || turn.fired > 0);
            }
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
        let _whose = sleep::wake(&mut self.sleeps, stage, id, thread)
            || timeout::wake(&mut self.timeouts, stage, id, thread)
            || interval::wake(&mut self.intervals, stage, id, thread)
            || scope::wake(&mut self.scopes, stage, id, thread)
            || delay_queue::wake(&mut self.queues, stage, id, thread)
            || timer::wake(&mut self.timers, stage, id, thread)
            || named::wake(&mut self.named, stage, id, thread);
    }

    fn settle(&mut self) {
        for round in 0..TURNS {
            self.sweep();
            sleep::observe(&mut self.sleeps, &mut self.stage);
            sleep::reap(&mut self.sleeps, &mut self.stage);
            self.absorb();
            let Some(id) = self.stage.ready.first().copied() else { break };
            self.poll(id, round);
            if self.stage.model.violation().is_some() {
                return;
            }
        }
        let has_room = self.stage.setup.capacity.is_none_or(|most| self.stage.engine.stats().pending < most as u64);
        if has_room && self.stage.ready.is_empty() && self.is_swept {
            self.look(false);
            self.stage.model.check_with_room();
        }
    }

    fn shut_down(&mut self) {
        if self.stage.model.closed {
            return;
        }
        self.absorb();
        self.stage.totals.fault("shutdowns", 1);
        scheduler::closing(&mut self.schedulers, &self.stage);
        self.stage.threads.drive(|engine| engine.shutdown());
        self.stage.model.close();
        self.is_swept = true;
    }

    /// Takes in what the engine has done.
    fn absorb(&mut self) {
        let mut events = self.stage.hub.take();
        if let Some(broken) = self.stage.broken {
            broken.distort(&mut events);
        }
        let mut woken = Vec::new();
        for event in events {
            self.trace.event(event);
            if event.clock > self.stage.model.clock {
                self.stage.model.clock_shows(event.clock);
            }
            match event.what {
                What::Woken => {
                    let surface = self.stage.model.get(event.id).map_or("", |item| item.surface);
                    let is_exact = match surface {
                        "wait" | "named wait" => true,
                        "scope" | "delay queue" => false,
                        _ => self.stage.is_exact(),
                    };
                    self.stage.model.woken(event.id, event.clock, is_exact);
                    self.stage.ready.insert(event.id);
                    woken.push(event.id);
                }
                What::Told(outcome) => self.stage.model.told(event.id, outcome, event.clock),
                What::Ran(number, due) => {
                    let run = (number, due);
                    scheduler::ran(&mut self.schedulers, &mut self.stage, event.id, run, event.clock);
                }
            }
        }
        if self.stage.is_exact() && !self.stage.model.closed {
            self.stage.model.check_order(&woken);
        }
    }

    /// Takes in what has happened, and compares all that can be seen.
    fn look(&mut self, is_shutdown: bool) {
        self.absorb();
        if self.stage.model.closed {
            self.wait_for_calls();
        }
        let now = self.stage.now();
        self.trace.number(now);
        self.stage.model.clock_shows(now);
        if self.is_swept && self.stage.is_exact() {
            self.stage.model.swept(now);
        }
        sleep::observe(&mut self.sleeps, &mut self.stage);
        timer::observe(&mut self.timers, &mut self.stage);
        named::observe(&mut self.named, &mut self.stage);
        let is_swept = self.is_swept && (self.stage.is_exact() || is_shutdown);
        scheduler::observe(&mut self.schedulers, &mut self.stage, is_swept);
        self.stage.model.check(self.is_swept);
        self.check_stats();
    }

    /// After a shutdown callbacks are called on a thread that is started for them: it is waited for, so that a run stays the same.
    fn wait_for_calls(&mut self) {
        let is_untold = |world: &World| {
            world.stage.model.items().any(|(_, item)| {
                let is_over = item.must || matches!(item.state, State::Ended(_));
                item.seen_by == SeenBy::Calling && is_over && item.signals == 0
            })
        };
        // A panic is counted once it has been caught.
        let is_uncounted = |world: &World| {
            world.stage.engine.stats().callback_panics < world.stage.hub.callback_panics.load(Ordering::SeqCst)
        };
        // With a fault planted, what is lost is lost.
        let patience = if self.stage.broken.is_some() { PATIENCE / 500 } else { PATIENCE };
        let start = Instant::now();
        while (is_untold(self) || is_uncounted(self)) && start.elapsed() < patience {
            std::thread::sleep(Duration::from_micros(20));
            self.absorb();
        }
        self.is_swept = true;
    }

    fn check_stats(&mut self) {
        let stats = self.stage.engine.stats();
        let sum = stats.fired + stats.cancelled + stats.stopped + stats.pending;
        self.stage.model.same("P2", "armed, and what became of it", stats.armed, sum);
        self.stage.model.same("P4", "fires and their lateness", stats.lateness.count(), stats.fired);
        let hub = &self.stage.hub;
        let (wakers, callbacks) = (hub.waker_panics.load(Ordering::SeqCst), hub.callback_panics.load(Ordering::SeqCst));
        self.stage.model.same("P6", "wakers that panicked", stats.waker_panics, wakers);
        self.stage.model.same("P6", "callbacks that panicked", stats.callback_panics, callbacks);
        if let Some(most) = self.stage.setup.capacity {
            self.stage.model.same("P7", "more timers than there is room for", stats.pending > most as u64, false);
        }
        if self.stage.is_exact() {
            let least = sleep::armed(&self.sleeps, &self.stage) as u64;
            let others = self.timeouts.len() + self.intervals.len() + 2 * self.scopes.len() + self.queues.len();
            let others = (others + self.timers.len() + self.named.len() + self.schedulers.len()) as u64;
            let is_so = (least..=least + others).contains(&stats.pending);
            if !is_so {
                let what =
                    format!("{} timers are pending, and should be {least} and at most {others} others", stats.pending);
                self.stage.model.violate("P7", what);
            }
        }
        if !self.stage.model.closed {
            self.trace.number(stats.armed);
            self.trace.number(stats.fired);
        }
    }

    /// All go, and nothing is left of them.
    fn finish(mut self) -> Ran {
        self.is_swept = false;
        // Room that one leaves may be what another has waited for, so it is looked in between.
        sleep::finish(&mut self.sleeps, &mut self.stage);
        timeout::finish(&mut self.timeouts, &mut self.stage);
        interval::finish(&mut self.intervals, &mut self.stage);
        scope::finish(&mut self.scopes, &mut self.stage);
        delay_queue::finish(&mut self.queues, &mut self.stage);
        self.look(false);
        timer::finish(&mut self.timers, &mut self.stage);
        self.look(false);
        named::finish(&mut self.named, &mut self.stage);
        self.look(false);
        scheduler::finish(&mut self.schedulers, &mut self.stage);
        self.sweep();
        self.look(false);
        self.check_room();
        self.shut_down();
        self.look(true);
        let failure = self.stage.model.violation().cloned().map(|violation| Failure { violation, step: None });
        match failure {
            Some(failure) => self.give_up(failure),
            None => self.end(),
        }
    }

    /// With nobody there, all the room there is can be had.
    fn check_room(&mut self) {
        let pending = self.stage.engine.stats().pending;
        self.stage.model.same("P7", "timers that are pending when all are gone", pending, 0);
        if let Some(most) = self.stage.setup.capacity.filter(|_| !self.stage.model.closed) {
            let engine = self.stage.engine.clone();
            let all = self.stage.threads.on(0, || {
                let all: Vec<_> = (0..=most).map_while(|_| engine.try_sleep(Duration::MAX).ok()).collect();
                all.len()
            });
            self.stage.model.same("P7", "timers for which there is room", all, most);
        }
    }

    fn end(self) -> Ran {
        let World { stage, trace, .. } = self;
        let hub = std::sync::Arc::clone(&stage.hub);
        let mut totals = stage.totals.clone();
        (totals.runs, totals.checks) = (1, stage.model.checks);
        (totals.fires, totals.cancels, totals.stops) = (stage.model.fired, stage.model.cancelled, stage.model.stopped);
        totals.fault("panics in wakers", hub.waker_panics.load(Ordering::SeqCst));
        totals.fault("panics in callbacks", hub.callback_panics.load(Ordering::SeqCst));
        totals.fault("panics in destructors", hub.drop_panics.load(Ordering::SeqCst));
        totals.fault("calls from within", hub.reentries.load(Ordering::SeqCst));
        hub.set_engine(None);
        drop(stage);
        // What the last call of a thread of the engine's owned goes with that call.
        let start = Instant::now();
        while hub.live() != 0 && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_micros(20));
        }
        let failure = (hub.live() != 0).then(|| Failure {
            violation: Violation {
                promise: "P7",
                what: format!("{} wakers, callbacks or jobs were never dropped", hub.live()),
            },
            step: None,
        });
        Ran { totals, hash: trace.hash(), failure }
    }

    /// The rest is dropped as it is.
    fn give_up(self, failure: Failure) -> Ran {
        let mut totals = self.stage.totals.clone();
        totals.runs = 1;
        self.stage.hub.set_engine(None);
        let hash = self.trace.hash();
        let World { stage, sleeps, timeouts, intervals, scopes, queues, timers, named, schedulers, .. } = self;
        let _its_own_affair = catch_unwind(AssertUnwindSafe(|| {
            drop((sleeps, timeouts, intervals, scopes, queues, timers, named, schedulers));
            drop(stage);
        }));
        Ran { totals, hash, failure: Some(failure) }
    }
}
