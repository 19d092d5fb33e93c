//! Keyed jobs. The scheduler has no threads of its own: the engine calls it, so that all is in order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tourbillon::scheduler::{Plan, Remaining, Scheduler, Shutdown};
use tourbillon::time::MissedTickBehavior;

use super::manner_of_callback;
use crate::hub::{Id, Manner, What};
use crate::model::{LAST, NEVER, SeenBy, round_up};
use crate::plan::Setup;
use crate::random::Random;
use crate::stage::{Stage, add_as_is};

/// What can be done with a scheduler.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// A job; it may be one that pauses another, or itself, whenever it runs.
    Schedule {
        thread: usize,
        key: u32,
        interval: u64,
        times: Option<u64>,
        missed: MissedTickBehavior,
        manner: Manner,
        pauses: Option<u32>,
    },
    /// It is gone.
    Remove { thread: usize, key: u32 },
    /// It rests.
    Pause { thread: usize, key: u32 },
    /// It goes on.
    Resume { thread: usize, key: u32 },
    /// It has another interval.
    Reschedule { thread: usize, key: u32, interval: u64 },
    /// No run begins.
    Stop,
    /// Runs begin again.
    Start { thread: usize },
    /// The end: with what is due, or without.
    Shutdown { thread: usize, how: Shutdown },
}

/// One scheduler.
pub struct Actor {
    scheduler: Scheduler<u32>,
    jobs: Vec<Job>,
    phase: Phase,
    /// When it was last started. Times before that are passed over.
    since: u64,
    runs: u64,
    failed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Running,
    Stopped,
    /// What was due by then is still run.
    Draining(u64),
    Over,
}

struct Job {
    id: Id,
    key: u32,
    interval: u64,
    /// When it is due next, but for what is passed over.
    next: u64,
    /// When it was seen to be due next. What was passed over once may stay so, also if the clock is set back after that.
    announced: u64,
    /// It was planned since the last start, for a time before that: nothing is passed over.
    is_past: bool,
    /// How many runs are left.
    times: Option<u64>,
    runs: u64,
    missed: MissedTickBehavior,
    manner: Manner,
    pauses: Option<u32>,
    is_paused: bool,
}

/// At most so many jobs, by the scheduler's own limit.
const CAPACITY: usize = 6;
/// A run that is no later than this is in time: so it is documented.
const TOLERANCE: u64 = 5_000_000;

impl Op {
    /// Any.
    pub fn random(random: &mut Random, setup: &Setup) -> Op {
        let (thread, key) = (random.index(setup.threads), random.below(8) as u32);
        let interval = setup.scale / 4 + 1 + random.below(setup.scale) / 8 * random.below(9);
        let missed = random.one_of(&[MissedTickBehavior::Burst, MissedTickBehavior::Delay, MissedTickBehavior::Skip]);
        match random.below(24) {
            0..10 => Op::Schedule {
                thread,
                key,
                interval,
                times: random.one_in(3).then(|| 1 + random.below(4)),
                missed,
                manner: manner_of_callback(random),
                pauses: random.one_in(6).then(|| random.below(8) as u32),
            },
            10..13 => Op::Remove { thread, key },
            13..15 => Op::Pause { thread, key },
            15..17 => Op::Resume { thread, key },
            17..20 => Op::Reschedule { thread, key, interval },
            20 => Op::Stop,
            21..23 => Op::Start { thread },
            _ => Op::Shutdown { thread, how: random.one_of(&[Shutdown::Drain, Shutdown::Abort]) },
        }
    }
}

/// Does it.
pub fn step(actors: &mut Vec<Actor>, stage: &mut Stage, op: Op) {
    if actors.first().is_none_or(|actor| actor.phase == Phase::Over) {
        if stage.model.closed {
            return;
        }
        let builder = Scheduler::builder().engine(&stage.engine).threads(0).capacity(CAPACITY);
        let built = stage.threads.on(0, || builder.build());
        let Ok(scheduler) = built else { return };
        finish(actors, stage);
        actors.push(Actor { scheduler, jobs: Vec::new(), phase: Phase::Running, since: 0, runs: 0, failed: 0 });
    }
    let actor = &mut actors[0];
    let found = |key| actor.jobs.iter().position(|job| job.key == key);
    let is_open = matches!(actor.phase, Phase::Running | Phase::Stopped) && !stage.model.closed;
    match op {
        Op::Schedule { .. } => schedule(actor, stage, op, is_open),
        Op::Remove { thread, key } => {
            let found = found(key).filter(|_| is_open);
            let removed = stage.threads.on(thread, || actor.scheduler.remove(&key));
            stage.model.same("P2", "whether a job was removed", removed, found.is_some());
            found.map(|index| actor.jobs.remove(index)).into_iter().for_each(|job| stage.model.forget(job.id));
        }
        Op::Pause { thread, key } => {
            let found = found(key).filter(|_| is_open);
            let is_there = stage.threads.on(thread, || actor.scheduler.pause(&key));
            stage.model.same("P2", "whether a job was there to be paused", is_there, found.is_some());
            found.into_iter().for_each(|index| actor.jobs[index].is_paused = true);
        }
        Op::Resume { thread, key } => {
            let found = found(key).filter(|_| is_open);
            let is_there = stage.threads.on(thread, || actor.scheduler.resume(&key));
            stage.model.same("P2", "whether a job was there to go on", is_there, found.is_some());
            if let Some(job) = found.map(|index| &mut actor.jobs[index])
                && std::mem::take(&mut job.is_paused)
            {
                job.come_back(stage.now());
            }
        }
        Op::Reschedule { thread, key, interval } => {
            let found = found(key).filter(|_| is_open);
            let plan = Plan::every(Duration::from_nanos(interval));
            let done = stage.threads.on(thread, || actor.scheduler.reschedule(&key, plan).is_ok());
            stage.model.same("P2", "whether a job was rescheduled", done, found.is_some());
            if let Some(job) = found.map(|index| &mut actor.jobs[index]) {
                (job.interval, job.times, job.missed) = (interval, None, MissedTickBehavior::Skip);
                job.next = add_as_is(stage.now(), Duration::from_nanos(interval));
                job.announced = job.next;
                job.is_past = actor.phase == Phase::Running && job.next < actor.since;
            }
        }
        Op::Stop => {
            actor.scheduler.stop();
            actor.phase = if actor.phase == Phase::Running { Phase::Stopped } else { actor.phase };
        }
        Op::Start { thread } => {
            stage.threads.on(thread, || actor.scheduler.start());
            if actor.phase == Phase::Stopped && is_open {
                actor.phase = Phase::Running;
                actor.since = stage.now();
                actor.jobs.iter_mut().for_each(|job| job.is_past = false);
            }
        }
        Op::Shutdown { thread, how } => {
            // A shut down engine has drained it already.
            if is_open {
                let is_due = actor.phase == Phase::Running && how == Shutdown::Drain;
                actor.phase = Phase::Draining(if is_due { stage.now() } else { 0 });
            }
            stage.threads.on(thread, || drop(actor.scheduler.shutdown(how)));
        }
    }
}

/// A job was run.
pub fn ran(actors: &mut [Actor], stage: &mut Stage, id: Id, (number, due): (u64, u64), clock: u64) {
    stage.totals.jobs += 1;
    let found = actors.iter_mut().find_map(|actor| {
        let index = actor.jobs.iter().position(|job| job.id == id)?;
        Some((actor, index))
    });
    let Some((actor, index)) = found else {
        return stage.model.violate("P2", format!("job {id} was run after it was gone"));
    };
    actor.runs += 1;
    let (phase, since) = (actor.phase, actor.since);
    let job = &mut actor.jobs[index];
    job.runs += 1;
    job.adopt(due, since);
    stage.model.same("P2", "the number of a run", number, job.runs);
    stage.model.same("P1", "when a run was due", due, job.expected(since));
    let may_run = match phase {
        Phase::Running => !job.is_paused,
        Phase::Draining(until) => !job.is_paused && due <= until,
        Phase::Stopped | Phase::Over => false,
    };
    stage.model.same("P2", "a run while nothing may run", may_run, true);
    // What was due when the end began is run, also if the clock was set back meanwhile.
    let is_drained = matches!(phase, Phase::Draining(until) if due <= until);
    if due > clock && !is_drained {
        stage.model.violate("P1", format!("job {id} was run {} ns early", due - clock));
    }
    stage.model.fired += 1;
    actor.failed += u64::from(job.manner == Manner::Panics);
    job.next = job.after(due, clock);
    job.announced = job.next;
    job.times = job.times.map(|times| times.saturating_sub(1));
    let pauses = job.pauses;
    if job.times == Some(0) {
        stage.model.forget(id);
        actor.jobs.remove(index);
    }
    // A scheduler that is coming to its end knows no jobs any more.
    let paused = pauses.filter(|_| phase == Phase::Running);
    let paused = actor.jobs.iter_mut().find(|job| Some(job.key) == paused);
    paused.into_iter().for_each(|job| job.pause_in_line(clock, since));
}

/// Compares what can be asked. With `is_swept`, what is due has been run.
pub fn observe(actors: &mut [Actor], stage: &mut Stage, is_swept: bool) {
    let Some(actor) = actors.first_mut() else { return };
    let Actor { scheduler, jobs, phase, since, .. } = actor;
    if stage.model.closed && *phase != Phase::Over {
        *phase = Phase::Draining(0);
    }
    let is_open = matches!(*phase, Phase::Running | Phase::Stopped);
    stage.model.same("P7", "jobs", scheduler.len(), if is_open { jobs.len() } else { 0 });
    stage.model.same("P2", "whether a scheduler runs", scheduler.is_running(), *phase == Phase::Running);
    let stats = scheduler.stats();
    stage.model.same("P2", "runs", stats.runs, actor.runs);
    stage.model.same("P6", "runs that failed", stats.failed, actor.failed);
    if let Phase::Draining(_) = *phase {
        if is_swept {
            *phase = Phase::Over;
            jobs.drain(..).for_each(|job| stage.model.forget(job.id));
        }
        return;
    }
    if *phase != Phase::Running {
        return;
    }
    let now = stage.now();
    for job in jobs.iter_mut() {
        let next = scheduler.next_run(&job.key).map_or(NEVER, |instant| stage.time_of(instant));
        if !job.is_paused {
            job.adopt(next, *since);
        }
        let expected = job.expected(*since);
        job.announced = if job.is_paused { job.announced } else { expected };
        stage.model.same("P1", "when a job is due next", next, if job.is_paused { NEVER } else { expected });
        let left = job.times.map_or(Remaining::ForEver, Remaining::Runs);
        stage.model.same("P2", "runs that are left", scheduler.remaining(&job.key), Some(left));
        let due = round_up(expected, stage.setup.slack.grid());
        if is_swept && !job.is_paused && due <= now && due < LAST {
            stage.model.violate("P4", format!("job {} was due at {} and not run at {now}", job.id, job.next));
        }
    }
}

/// The engine is about to be shut down: what is due is run.
pub fn closing(actors: &mut [Actor], stage: &Stage) {
    for actor in actors {
        actor.phase = match actor.phase {
            Phase::Running => Phase::Draining(stage.now()),
            Phase::Stopped => Phase::Draining(0),
            other => other,
        };
    }
}

/// Whether there are jobs, which run for as long as time goes on.
#[must_use]
pub fn has_jobs(actors: &[Actor]) -> bool {
    actors.iter().any(|actor| !actor.jobs.is_empty())
}

/// Ends all of them.
pub fn finish(actors: &mut Vec<Actor>, stage: &mut Stage) {
    for actor in actors.drain(..) {
        actor.jobs.iter().for_each(|job| stage.model.forget(job.id));
        stage.threads.on(0, || drop(actor.scheduler));
    }
}

fn schedule(actor: &mut Actor, stage: &mut Stage, op: Op, is_open: bool) {
    let Op::Schedule { thread, key, interval, times, missed, manner, pauses } = op else { return };
    let id = stage.model.add("job", SeenBy::Asking);
    let plan = Plan::every(Duration::from_nanos(interval)).missed(missed);
    let plan = if let Some(times) = times { plan.times(times) } else { plan };
    let (hub, live) = (Arc::clone(&stage.hub), stage.hub.alive(manner));
    let (base, start) = stage.base;
    let job = move |run: &tourbillon::scheduler::Run<u32>| {
        let _owned = &live;
        let after = run.due().checked_duration_since(base).map(|after| add_as_is(start, after));
        let due = after.unwrap_or_else(|| start.saturating_sub((base - run.due()).as_nanos() as u64));
        hub.write(id, What::Ran(run.number(), due));
        if let (Some(key), Some(scheduler)) = (pauses, run.scheduler()) {
            scheduler.pause(&key);
        }
        hub.behave(manner);
    };
    let done = stage.threads.on(thread, || {
        // What is refused comes back with the error, and is dropped with all that it may do then.
        catch_unwind(AssertUnwindSafe(|| actor.scheduler.schedule(key, plan, job).is_ok())).unwrap_or(false)
    });
    let is_new = actor.jobs.iter().all(|job| job.key != key) && actor.jobs.len() < CAPACITY;
    stage.model.same("P7", "whether a job was taken", done, is_new && is_open);
    if !done {
        return stage.model.forget(id);
    }
    let next = add_as_is(stage.now(), Duration::from_nanos(interval));
    let is_past = actor.phase == Phase::Running && next < actor.since;
    actor.jobs.push(Job {
        id,
        key,
        interval,
        next,
        announced: next,
        is_past,
        times,
        runs: 0,
        missed,
        manner,
        pauses,
        is_paused: false,
    });
}

impl Job {
    /// When it is due after a run that was due then and is made now.
    fn after(&self, due: u64, now: u64) -> u64 {
        let is_late = now.saturating_sub(due) > TOLERANCE;
        match self.missed {
            MissedTickBehavior::Burst => add_as_is(due, Duration::from_nanos(self.interval)),
            MissedTickBehavior::Delay if is_late => add_as_is(now, Duration::from_nanos(self.interval)),
            _ => self.first_after(due, now),
        }
    }

    /// The first of its times that is after this.
    fn first_after(&self, due: u64, now: u64) -> u64 {
        let (due, now, interval) = (u128::from(due), u128::from(now), u128::from(self.interval));
        let next = due + (now.saturating_sub(due) / interval + 1) * interval;
        u64::try_from(next).unwrap_or(NEVER)
    }

    /// When it is due next in a scheduler that was started then.
    fn expected(&self, since: u64) -> u64 {
        if self.next < since && !self.is_past { self.first_after(self.next, since - 1) } else { self.next }
    }

    /// If it is seen to be due when it was said to be before, then what was passed over stays so.
    fn adopt(&mut self, seen: u64, since: u64) {
        let announced =
            if self.announced < since { self.first_after(self.announced, since - 1) } else { self.announced };
        if seen != self.expected(since) && seen == announced {
            self.next = announced;
        }
    }

    /// It is paused while all that is due stands in line: its run is not made, and what was due by now is over.
    fn pause_in_line(&mut self, now: u64, since: u64) {
        if std::mem::replace(&mut self.is_paused, true) {
            return;
        }
        let due = self.expected(since);
        let delayed = add_as_is(now, Duration::from_nanos(self.interval));
        self.next = match self.missed {
            _ if due > now => due,
            MissedTickBehavior::Delay if now - due > TOLERANCE => delayed,
            _ => self.first_after(due, now),
        };
        self.announced = self.next;
    }

    /// It rested: times before now are passed over.
    fn come_back(&mut self, now: u64) {
        if self.next < now {
            self.next = self.first_after(self.next, now - 1);
        }
        if self.announced < now {
            self.announced = self.first_after(self.announced, now - 1);
        }
    }
}
