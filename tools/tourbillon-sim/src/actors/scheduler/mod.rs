//! Keyed jobs. The scheduler has no threads of its own: the engine calls it, so that all is in order, and a [`Ledger`] can foretell
//! all of it.

mod deeds;
mod runs;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tourbillon::scheduler::{Overlap, Plan, Scheduler, SchedulerStats, Shutdown};
use tourbillon::time::MissedTickBehavior;
use tourbillon::{Cron, Time};

use self::deeds::Deed;
use self::runs::{Gates, Habit, Part};
use crate::almanac::{Almanac, Line};
use crate::hub::{Event, Id, What};
use crate::ledger::{Ledger, Phase, Policy, Rules, Times, Timing, Wrong};
use crate::model::{LAST, NEVER, SeenBy, round_up};
use crate::plan::{Setup, WallOf};
use crate::random::Random;
use crate::stage::{Stage, add_as_is};

/// What can be done with a scheduler.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// A job, every so often or by a cron line.
    Schedule { thread: usize, key: u32, terms: Terms, line: Option<Line>, times: Option<u64>, habit: Habit },
    /// It is gone.
    Remove { thread: usize, key: u32 },
    /// It rests.
    Pause { thread: usize, key: u32 },
    /// It goes on.
    Resume { thread: usize, key: u32 },
    /// It has another plan.
    Reschedule { thread: usize, key: u32, terms: Terms, line: Option<Line>, times: Option<u64> },
    /// One of the runs that wait goes on.
    LetGo { which: usize },
    /// No run begins.
    Stop,
    /// Runs begin again.
    Start { thread: usize },
    /// The end: with what is due, or without.
    Shutdown { thread: usize, how: Shutdown },
    /// The handle is dropped.
    Drop { thread: usize },
    /// A wall clock that is apart is set, forward or back; also to a whole minute, at which lines are due.
    SetWall { by: u64, is_back: bool, is_whole: bool },
}

/// How often a job is due, and what becomes of runs that cannot be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    pub interval: u64,
    pub overlap: Overlap,
    pub missed: MissedTickBehavior,
}

/// One scheduler.
pub struct Actor {
    /// `None`: it was dropped, and comes to its end.
    scheduler: Option<Scheduler<u32>>,
    ledger: Ledger,
    gates: Gates,
    /// The jobs that it has or had, and what their runs do to it.
    deeds: BTreeMap<Id, Option<Deed>>,
    /// How many failures were told.
    told: Arc<AtomicU64>,
}

/// At most so many jobs, by the scheduler's own limit.
const CAPACITY: usize = 6;
const KEYS: u32 = 8;
const MINUTE: u64 = 60 * 1_000_000_000;

impl Op {
    /// Any.
    pub fn random(random: &mut Random, setup: &Setup) -> Op {
        let (thread, key) = (random.index(setup.threads), random.below(u64::from(KEYS)) as u32);
        let (terms, line) = Terms::random(random, setup);
        let times = random.one_in(3).then(|| 1 + random.below(4));
        match random.below(32) {
            0..12 => {
                let habit = Habit::random(random, setup);
                Op::Schedule { thread, key, terms, line, times, habit }
            }
            12..14 => Op::Remove { thread, key },
            14..16 => Op::Pause { thread, key },
            16..18 => Op::Resume { thread, key },
            18..20 => Op::Reschedule { thread, key, terms, line, times },
            20..25 => Op::LetGo { which: random.index(16) },
            25 => Op::Stop,
            26..28 => Op::Start { thread },
            28 => Op::Shutdown { thread, how: random.one_of(&[Shutdown::Drain, Shutdown::Abort]) },
            29 => Op::Drop { thread },
            _ => {
                let most = random.one_of(&[90, 45 * 60, 5 * 60 * 60, 40 * 24 * 60 * 60]);
                let (by, is_back) = (1 + random.below(most * 1_000_000_000), random.one_in(3));
                Op::SetWall { by, is_back, is_whole: random.one_in(3) }
            }
        }
    }
}

impl Terms {
    fn random(random: &mut Random, setup: &Setup) -> (Terms, Option<Line>) {
        let line = setup.cron_line(random);
        let interval = setup.scale / 4 + 1 + random.below(setup.scale) / 8 * random.below(9);
        let missed = random.one_of(&[MissedTickBehavior::Burst, MissedTickBehavior::Delay, MissedTickBehavior::Skip]);
        // A line that is due often is not made up for a thousand times.
        let is_much = missed == MissedTickBehavior::Burst && line.is_some_and(|line| !line.is_rare());
        let missed = if is_much { MissedTickBehavior::Skip } else { missed };
        let overlap = random.one_of(&[Overlap::Skip, Overlap::QueueOne, Overlap::Parallel]);
        // Where both clocks go on together, it is not known how many a scheduler makes of the one before those of the other.
        let is_both = setup.wall == WallOf::Same && line.is_some() && missed == MissedTickBehavior::Burst;
        let overlap = if is_both && overlap == Overlap::Parallel { Overlap::QueueOne } else { overlap };
        (Terms { interval, overlap, missed }, line)
    }

    fn policy(self) -> Policy {
        Policy { overlap: self.overlap, missed: self.missed }
    }

    fn plan(self, line: Option<Line>, times: Option<u64>) -> Plan {
        let plan = match line {
            Some(line) => {
                let cron = Cron::parse(&line.text()).and_then(|cron| cron.in_zone(line.zone));
                Plan::cron(cron.expect("the lines that are planned can be read"))
            }
            None => Plan::every(Duration::from_nanos(self.interval)),
        };
        let plan = plan.overlap(self.overlap).missed(self.missed);
        if let Some(times) = times { plan.times(times) } else { plan }
    }

    /// As the ledger has it, with when it is due first.
    fn timing(self, line: Option<Line>, now: Times) -> (Timing, u64) {
        match line {
            Some(line) => {
                let timing = Timing::Cron(Rc::new(RefCell::new(Almanac::new(line))));
                let due = timing.after(now.wall);
                (timing, due)
            }
            None => (Timing::Every(self.interval), add_as_is(now.engine, Duration::from_nanos(self.interval))),
        }
    }
}

/// Does it.
pub fn step(actors: &mut Vec<Actor>, stage: &mut Stage, op: Op) {
    if let Op::SetWall { by, is_back, is_whole } = op {
        if !(is_back && is_deaf(actors)) {
            set_wall(stage, by, is_back, is_whole);
        }
        return;
    }
    if actors.last().is_none_or(|actor| actor.scheduler.is_none() || actor.ledger.phase == Phase::Over) {
        if stage.model.closed {
            return;
        }
        actors.extend(build(stage));
    }
    let Some(actor) = actors.last_mut() else { return };
    let Actor { scheduler: Some(scheduler), ledger, gates, .. } = actor else { return };
    let now = stage.times(stage.now());
    let (what, seen, expected) = match op {
        Op::Schedule { .. } => return schedule(actor, stage, op),
        Op::Drop { thread } => return drop_one(actor, stage, thread),
        Op::SetWall { .. } => return,
        Op::LetGo { which } => return gates.open(which),
        Op::Stop => {
            scheduler.stop();
            return ledger.stop();
        }
        Op::Start { thread } => {
            stage.threads.on(thread, || scheduler.start());
            return ledger.start(now);
        }
        Op::Shutdown { thread, how } => {
            stage.threads.on(thread, || drop(scheduler.shutdown(how)));
            return ledger.shut_down(how, now);
        }
        Op::Remove { thread, key } => {
            ("removed", stage.threads.on(thread, || scheduler.remove(&key)), ledger.remove(key))
        }
        Op::Pause { thread, key } => {
            ("there to be paused", stage.threads.on(thread, || scheduler.pause(&key)), ledger.pause(key))
        }
        Op::Resume { thread, key } => {
            ("there to go on", stage.threads.on(thread, || scheduler.resume(&key)), ledger.resume(key, now))
        }
        Op::Reschedule { thread, key, terms, line, times } => {
            let (timing, due) = terms.timing(line, now);
            let plan = terms.plan(line, times);
            let done = stage.threads.on(thread, || scheduler.reschedule(&key, plan).is_ok());
            ("rescheduled", done, ledger.reschedule(key, (timing, terms.policy()), (due, times), now))
        }
    };
    stage.model.same("P2", &format!("whether a job was {what}"), seen, expected);
}

/// Something was heard of a run.
pub fn heard(actors: &mut [Actor], stage: &mut Stage, event: Event) {
    let id = event.id;
    let Some(actor) = actors.iter_mut().find(|actor| actor.deeds.contains_key(&id)) else {
        // A callback of a timer that goes at the end of the world has nobody any more to compare what it did.
        if !matches!(event.what, What::Did(_)) {
            stage.model.violate("P2", format!("job {id} was run after its scheduler was gone"));
        }
        return;
    };
    let now = stage.times(event.clock);
    let ledger = &mut actor.ledger;
    stage.model.checks += 1;
    let wrong: Result<(), Wrong> = match event.what {
        What::Ran(number, due) => {
            stage.totals.jobs += 1;
            stage.model.fired += 1;
            ledger.ran(id, number, due, now)
        }
        What::Polled(_) => {
            ledger.polled(now);
            Ok(())
        }
        What::Done(number, is_failed) => ledger.done(id, number, is_failed),
        What::Dropped(number) => ledger.dropped(id, number, now),
        What::Did(result) => {
            stage.totals.fault("jobs that change their scheduler", 1);
            let expected = actor.deeds.get(&id).copied().flatten().map(|deed| deed.note(ledger, now));
            let is_same = expected.is_none_or(|expected| u64::from(expected) == result);
            if is_same { Ok(()) } else { Err(("P2", format!("what job {id} did from within: {result}"))) }
        }
        What::Woken | What::Told(_) => Ok(()),
    };
    wrong.err().into_iter().for_each(|(promise, what)| stage.model.violate(promise, what));
}

/// Compares what can be asked. With `is_swept`, what is due has been run.
pub fn observe(actors: &mut Vec<Actor>, stage: &mut Stage, is_swept: bool) {
    let now = stage.times(stage.now());
    for Actor { scheduler, ledger, told, .. } in actors.iter_mut() {
        if is_swept && let Err((promise, what)) = ledger.settled(now) {
            stage.model.violate(promise, what);
        }
        let Some(scheduler) = scheduler else { continue };
        let jobs = if ledger.is_open() { ledger.jobs.len() } else { 0 };
        stage.model.same("P7", "jobs", scheduler.len(), jobs);
        stage.model.same("P2", "whether a scheduler runs", scheduler.is_running(), ledger.phase == Phase::Running);
        if is_swept {
            check_counts(scheduler, ledger, stage);
            stage.model.same("P6", "failures that were told", told.load(Ordering::SeqCst), ledger.counts.failed);
            check_jobs(scheduler, ledger, stage);
        }
    }
    // A call of the engine's may keep what is left of one, until it is made.
    let is_gone = |actor: &Actor| is_swept && actor.scheduler.is_none() && actor.ledger.phase == Phase::Over;
    let gone: Vec<Actor> = actors.extract_if(.., |actor| is_gone(actor)).collect();
    stage.threads.on(0, || drop(gone));
}

/// Whether somebody has to ask a scheduler to look, so that it is known when it did: where it may look between two times that are
/// known, or where that depends on a clock that is set.
#[must_use]
pub fn is_to_be_asked(actors: &[Actor], stage: &Stage) -> bool {
    let is_known = stage.is_exact() && stage.setup.slack.grid() == 1 && stage.now() < LAST;
    let is_running = |actor: &Actor| actor.ledger.phase == Phase::Running && actor.scheduler.is_some();
    actors.iter().any(|actor| is_running(actor) && (!is_known || actor.ledger.has_wall()))
}

/// Asks all schedulers to look: what they should have seen by themselves, they have.
pub fn ask(actors: &[Actor], stage: &mut Stage) {
    let now = stage.times(stage.now());
    for Actor { scheduler, ledger, .. } in actors {
        let Some(scheduler) = scheduler.as_ref().filter(|_| ledger.phase == Phase::Running) else { continue };
        for job in &ledger.jobs {
            let next = scheduler.next_run(&job.key).map_or(NEVER, |instant| stage.time_of(instant));
            let due = round_up(next, stage.setup.slack.grid());
            if due <= now.on(job.timing.is_wall()) && due < LAST {
                stage.model.violate("P4", format!("job {} was due at {next} and nobody looked at {now:?}", job.id));
            }
        }
        stage.threads.on(0, || scheduler.start());
    }
}

/// The engine is about to be shut down: what is due is run.
pub fn closing(actors: &mut [Actor], stage: &Stage) {
    let now = stage.times(stage.now());
    actors.iter_mut().for_each(|actor| actor.ledger.shut_down(Shutdown::Drain, now));
}

/// Whether there are jobs, which run for as long as time goes on.
#[must_use]
pub fn has_jobs(actors: &[Actor]) -> bool {
    actors.iter().any(|actor| !actor.ledger.jobs.is_empty())
}

/// Whether there are jobs that follow the wall clock.
#[must_use]
pub fn has_wall(actors: &[Actor]) -> bool {
    actors.iter().any(|actor| actor.ledger.has_wall())
}

/// Whether a scheduler has jobs by the wall clock and is stopped. It hears of a clock that was set back by rounds alone, and those are not
/// foretold.
#[must_use]
pub fn is_deaf(actors: &[Actor]) -> bool {
    actors.iter().any(|actor| actor.ledger.has_wall() && actor.ledger.phase == Phase::Stopped)
}

/// Ends all of them.
pub fn finish(actors: &mut [Actor], stage: &mut Stage) {
    actors.iter_mut().enumerate().for_each(|(thread, actor)| drop_one(actor, stage, thread));
}

fn build(stage: &mut Stage) -> Option<Actor> {
    let Setup { overflow, room: queue, .. } = stage.setup;
    let told = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&told);
    let builder = Scheduler::builder().engine(&stage.engine).wall_engine(&stage.wall).threads(0);
    let builder = builder.capacity(CAPACITY).queue(queue).overflow(overflow).on_failure(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let scheduler = stage.threads.on(0, || builder.build()).ok()?;
    let ledger = Ledger::new(Rules { overflow, queue, capacity: CAPACITY });
    Some(Actor { scheduler: Some(scheduler), ledger, gates: Gates::default(), deeds: BTreeMap::new(), told })
}

fn schedule(actor: &mut Actor, stage: &mut Stage, op: Op) {
    let Op::Schedule { thread, key, terms, line, times, habit } = op else { return };
    let Some(scheduler) = &actor.scheduler else { return };
    let id = stage.model.add("job", SeenBy::Asking);
    let now = stage.times(stage.now());
    let (timing, due) = terms.timing(line, now);
    let plan = terms.plan(line, times);
    let live = Arc::new(stage.hub.alive(habit.manner));
    let part = Part { id, hub: Arc::clone(&stage.hub), gates: actor.gates.clone(), habit, base: stage.base, live };
    let done = stage.threads.on(thread, || {
        // What is refused comes back with the error, and is dropped with all that it may do then.
        let result = catch_unwind(AssertUnwindSafe(|| match habit.course {
            None => scheduler.schedule(key, plan, move |run| part.call(run)).is_ok(),
            Some(_) => scheduler.schedule_async(key, plan, move |run| part.fly(&run)).is_ok(),
        }));
        result.unwrap_or(false)
    });
    let expected = actor.ledger.schedule((id, key), (timing, terms.policy()), (due, times), now);
    stage.model.same("P7", "whether a job was taken", done, expected);
    stage.model.forget(id);
    if done {
        actor.deeds.insert(id, habit.deed);
    }
}

fn drop_one(actor: &mut Actor, stage: &mut Stage, thread: usize) {
    let now = stage.times(stage.now());
    let scheduler = actor.scheduler.take();
    stage.threads.on(thread, || drop(scheduler));
    actor.ledger.shut_down(Shutdown::Abort, now);
}

fn set_wall(stage: &mut Stage, by: u64, is_back: bool, is_whole: bool) {
    if !matches!(stage.setup.wall, WallOf::Apart(_)) {
        return;
    }
    let now = stage.wall.clock().now().as_nanos();
    let to = if is_back { now.saturating_sub(by) } else { now.saturating_add(by).min(LAST - 1) };
    let to = match to % MINUTE {
        past if is_whole && is_back => to - past,
        past @ 1.. if is_whole => to.checked_add(MINUTE - past).unwrap_or(to),
        _ => to,
    };
    stage.wall.clock().set(Time::from_nanos(to));
    stage.totals.fault("wall clock set", 1);
}

fn check_counts(scheduler: &Scheduler<u32>, ledger: &mut Ledger, stage: &mut Stage) {
    let SchedulerStats { waiting, running, runs, failed, overlapped, overflowed, late, missed, aborted, .. } =
        scheduler.stats();
    ledger.count_line(waiting);
    let counts = &ledger.counts;
    stage.model.same("P2", "runs", runs, counts.runs);
    stage.model.same("P6", "runs that failed", failed, counts.failed);
    stage.model.same("P2", "runs that overlapped", overlapped, counts.overlapped);
    stage.model.same("P7", "runs for which there was no room", overflowed, counts.overflowed);
    stage.model.same("P7", "runs that stood in line without room", late, counts.late);
    stage.model.same("P4", "runs that were missed", missed, counts.missed);
    stage.model.same("P2", "runs that were aborted", aborted, counts.aborted);
    stage.model.same("P2", "runs in line", waiting, ledger.waiting());
    stage.model.same("P2", "runs under way", running, ledger.running.len());
}

fn check_jobs(scheduler: &Scheduler<u32>, ledger: &Ledger, stage: &mut Stage) {
    let now = stage.times(stage.now());
    for job in ledger.jobs.iter().filter(|_| ledger.is_open()) {
        let next = scheduler.next_run(&job.key).map_or(NEVER, |instant| stage.time_of(instant));
        stage.model.same("P1", "when a job is due next", next, ledger.next_of(job, now));
        let (left, expected) = (scheduler.remaining(&job.key), Some(Ledger::remaining(job)));
        stage.model.same("P2", "runs that are left", left, expected);
        let Some(report) = scheduler.report(&job.key) else {
            stage.model.violate("P2", format!("there is no report of job {}", job.id));
            continue;
        };
        let seen = [report.runs, report.failed, report.overlapped, report.overflowed, report.missed];
        let expected = [job.runs, job.failed, job.overlapped, job.overflowed, job.missed_runs];
        stage.model.same("P2", "how a job has fared", seen, expected);
    }
}
