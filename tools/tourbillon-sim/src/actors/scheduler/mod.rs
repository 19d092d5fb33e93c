//! Keyed jobs. The scheduler has no threads: the engine calls it, so that everything happens in order and a [`SchedulerModel`]
//! can predict all of it.

mod job_runs;
mod run_actions;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use tourbillon::scheduler::{Backoff, Overlap, Plan, Requested, Scheduler, SchedulerStats, Shutdown, Upserted};
use tourbillon::time::{Instant, MissedTickBehavior};
use tourbillon::{Cron, Span, Time};

use self::job_runs::{JobBehavior, JobContext, RunGates};
use self::run_actions::SchedulerAction;
use crate::context::{SimContext, add_exact};
use crate::cron_reference::{CronReference, ReferenceLine};
use crate::plan::{SimSetup, SimWallClock};
use crate::random_source::RandomSource;
use crate::recorder::{EventKind, Id, RecordedEvent};
use crate::scheduler_model::{JobPolicy, ModelPhase, ModelRules, ModelTiming, SchedulerModel, SimClocks};
use crate::timer_model::{LAST, NEVER, ObservedBy, round_up};
use crate::violation::Mismatch;

/// An operation on a scheduler.
#[derive(Clone, Copy, Debug)]
pub enum SchedulerOp {
    /// Schedules a job, at an interval or by a cron line.
    Schedule {
        thread: usize,
        key: u32,
        terms: JobTerms,
        line: Option<ReferenceLine>,
        times: Option<u64>,
        behavior: JobBehavior,
        /// Whether a job under the same key is replaced.
        is_upsert: bool,
    },
    /// Removes a job.
    Remove { thread: usize, key: u32 },
    /// Pauses a job.
    Pause { thread: usize, key: u32 },
    /// Resumes a job.
    Resume { thread: usize, key: u32 },
    /// Replaces the plan of a job.
    Reschedule { thread: usize, key: u32, terms: JobTerms, line: Option<ReferenceLine>, times: Option<u64> },
    /// Asks for a run of a job.
    RunNow { thread: usize, key: u32 },
    /// Opens the gate of a waiting run.
    OpenGate { which: usize },
    /// Stops the scheduler.
    Stop,
    /// Starts the scheduler.
    Start { thread: usize },
    /// Shuts the scheduler down, with or without what is due.
    Shutdown { thread: usize, how: Shutdown },
    /// Drops the handle.
    Drop { thread: usize },
    /// Sets a separate wall clock forward or back, also to a whole minute, at which cron lines are due.
    SetWall { by: u64, is_back: bool, is_whole: bool },
}

/// The interval of a job, and what happens to runs that cannot be made on time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobTerms {
    pub interval: u64,
    pub overlap: Overlap,
    pub missed: MissedTickBehavior,
    /// Most retries of a run that failed, and the delay before each.
    pub retry: Option<(u32, u64)>,
    /// How long the plan lasts, if it ends.
    pub lasts: Option<u64>,
}

/// A scheduler and its model.
pub struct SchedulerActor {
    /// `None` after the handle was dropped.
    scheduler: Option<Scheduler<u32>>,
    model: SchedulerModel,
    gates: RunGates,
    /// All jobs that it has or had, with the action of their runs.
    actions: BTreeMap<Id, Option<SchedulerAction>>,
    /// Number of failures that were reported to the user.
    reported_failures: Arc<AtomicU64>,
}

/// Most jobs of the scheduler.
const CAPACITY: usize = 6;
const KEYS: u32 = 8;
const MINUTE: Span = Span::from_secs(60);

impl SchedulerOp {
    /// Returns a random operation.
    pub fn random(random: &mut RandomSource<'_>, setup: &SimSetup) -> SchedulerOp {
        let (thread, key) = (random.index(setup.threads), random.below(u64::from(KEYS)) as u32);
        let (terms, line) = JobTerms::random(random, setup);
        let times = random.one_in(3).then(|| 1 + random.below(4));
        match random.below(32) {
            0..12 => {
                let behavior = JobBehavior::random(random, setup);
                let is_upsert = terms.variety(3).is_multiple_of(4);
                SchedulerOp::Schedule { thread, key, terms, line, times, behavior, is_upsert }
            }
            12..14 => SchedulerOp::Remove { thread, key },
            14..16 => SchedulerOp::Pause { thread, key },
            16..18 => SchedulerOp::Resume { thread, key },
            18..20 => SchedulerOp::Reschedule { thread, key, terms, line, times },
            20..25 => match random.index(16) {
                // Where the queue is narrow, it is not known when a paused run gives its place in it back.
                which if which % 3 == 0 && setup.has_roomy_queue() => SchedulerOp::RunNow { thread, key },
                which => SchedulerOp::OpenGate { which },
            },
            25 => SchedulerOp::Stop,
            26..28 => SchedulerOp::Start { thread },
            28 => SchedulerOp::Shutdown { thread, how: random.one_of(&[Shutdown::Drain, Shutdown::Abort]) },
            29 => SchedulerOp::Drop { thread },
            _ => {
                let most = random.one_of(&[90, 45 * 60, 5 * 60 * 60, 40 * 24 * 60 * 60]);
                let (by, is_back) = (1 + random.below(most * 1_000_000_000), random.one_in(3));
                SchedulerOp::SetWall { by, is_back, is_whole: random.one_in(3) }
            }
        }
    }
}

impl JobTerms {
    fn random(random: &mut RandomSource<'_>, setup: &SimSetup) -> (JobTerms, Option<ReferenceLine>) {
        let line = setup.cron_line(random);
        let interval = setup.scale / 4 + 1 + random.below(setup.scale) / 8 * random.below(9);
        let missed = random.one_of(&[MissedTickBehavior::Burst, MissedTickBehavior::Delay, MissedTickBehavior::Skip]);
        // A line that is due often would have to catch up on a thousand runs.
        let is_much = missed == MissedTickBehavior::Burst && line.is_some_and(|line| !line.is_rare());
        let missed = if is_much { MissedTickBehavior::Skip } else { missed };
        let overlap = random.one_of(&[Overlap::Skip, Overlap::QueueOne, Overlap::Parallel]);
        // Where both clocks move together, it is not known how many runs by one clock come before those by the other.
        let is_both = setup.wall == SimWallClock::EngineClock && line.is_some() && missed == MissedTickBehavior::Burst;
        let overlap = if is_both && overlap == Overlap::Parallel { Overlap::QueueOne } else { overlap };
        let terms = JobTerms { interval, overlap, missed, retry: None, lasts: None };
        let retries = 1 + (terms.variety(1) >> 8) % 3;
        // Where a retry by one clock and a regular run by the other have both become due, it is not known which comes first.
        let may_retry = line.is_none() && interval > 8;
        let retry = (terms.variety(1).is_multiple_of(3) && may_retry).then_some((retries as u32, interval / 8));
        let lasts =
            terms.variety(2).is_multiple_of(4).then_some(interval.saturating_mul(1 + (terms.variety(2) >> 8) % 6));
        (JobTerms { retry, lasts, ..terms }, line)
    }

    /// Returns a number that varies with the interval. It takes nothing from the source of random numbers, so that the worlds of
    /// seeds that are known stay as they are.
    fn variety(self, which: u64) -> u64 {
        (self.interval ^ which << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24
    }

    /// Returns the rules of a plan that is made now.
    fn policy(self, line: Option<ReferenceLine>, now: SimClocks) -> JobPolicy {
        let end = self.end(line, now).unwrap_or(NEVER);
        JobPolicy { overlap: self.overlap, missed: self.missed, retry: self.retry, end }
    }

    /// Returns the end of a plan that is made now, on its clock.
    fn end(self, line: Option<ReferenceLine>, now: SimClocks) -> Option<u64> {
        let end = now.on(line.is_some()).checked_add(self.lasts?)?;
        (end < LAST).then_some(end)
    }

    /// Returns a plan, with its end if it has one. `base` is one moment, as an instant and on the clock.
    fn plan_until(self, line: Option<ReferenceLine>, times: Option<u64>, now: SimClocks, base: (Instant, u64)) -> Plan {
        let plan = self.plan(line, times);
        match (self.end(line, now), line) {
            (None, _) => plan,
            (Some(end), Some(_)) => plan.until_wall(SystemTime::UNIX_EPOCH + Duration::from_nanos(end)),
            // A clock may have been set back to before that moment.
            (Some(end), None) if end < base.1 => plan.until(base.0 - Duration::from_nanos(base.1 - end)),
            (Some(end), None) => plan.until(base.0 + Duration::from_nanos(end - base.1)),
        }
    }

    fn plan(self, line: Option<ReferenceLine>, times: Option<u64>) -> Plan {
        let plan = match line {
            Some(line) => {
                let cron = Cron::parse(&line.text()).and_then(|cron| cron.in_zone(line.zone));
                Plan::cron(cron.expect("the lines that are planned can be read"))
            }
            None => Plan::every(Duration::from_nanos(self.interval)),
        };
        let plan = plan.overlap(self.overlap).missed(self.missed);
        let retry = |(most, delay)| plan.clone().retry(most, Backoff::fixed(Duration::from_nanos(delay)));
        let plan = self.retry.map_or_else(|| plan.clone(), retry);
        if let Some(times) = times { plan.times(times) } else { plan }
    }

    /// Returns the timing in the model's terms, with the first occurrence.
    fn timing(self, line: Option<ReferenceLine>, now: SimClocks) -> (ModelTiming, u64) {
        match line {
            Some(line) => {
                let timing = ModelTiming::Cron(Rc::new(RefCell::new(CronReference::new(line))));
                let due = timing.after(now.wall);
                (timing, due)
            }
            None => (ModelTiming::Every(self.interval), add_exact(now.engine, Duration::from_nanos(self.interval))),
        }
    }
}

/// Performs an operation.
pub fn step(actors: &mut Vec<SchedulerActor>, sim: &mut SimContext, op: SchedulerOp) {
    if let SchedulerOp::SetWall { by, is_back, is_whole } = op {
        if !(is_back && has_stopped_wall_jobs(actors)) {
            set_wall(sim, by, is_back, is_whole);
        }
        return;
    }
    if actors.last().is_none_or(|actor| actor.scheduler.is_none() || actor.model.phase == ModelPhase::Over) {
        if sim.model.closed {
            return;
        }
        actors.extend(build(sim));
    }
    let Some(actor) = actors.last_mut() else { return };
    let SchedulerActor { scheduler: Some(scheduler), model, gates, .. } = actor else { return };
    let now = sim.times(sim.now());
    let (what, seen, expected) = match op {
        SchedulerOp::Schedule { .. } => return schedule(actor, sim, op),
        SchedulerOp::Drop { thread } => return drop_one(actor, sim, thread),
        SchedulerOp::SetWall { .. } => return,
        SchedulerOp::OpenGate { which } => return gates.open(which),
        SchedulerOp::RunNow { thread, key } => {
            let seen = sim.threads.on(thread, || scheduler.run_now(&key));
            let seen = seen.map(|requested| matches!(requested, Requested::AfterActive(_)));
            let expected = model.run_now(key, now);
            return sim.model.expect_eq("P2", "whether a run that was asked for is made", seen, expected);
        }
        SchedulerOp::Stop => {
            scheduler.stop();
            return model.stop();
        }
        SchedulerOp::Start { thread } => {
            sim.threads.on(thread, || scheduler.start());
            return model.start(now);
        }
        SchedulerOp::Shutdown { thread, how } => {
            sim.threads.on(thread, || drop(scheduler.shutdown(how)));
            return model.shut_down(how, now);
        }
        SchedulerOp::Remove { thread, key } => {
            ("removed", sim.threads.on(thread, || scheduler.remove(&key)), model.remove(key))
        }
        SchedulerOp::Pause { thread, key } => {
            ("found and paused", sim.threads.on(thread, || scheduler.pause(&key)), model.pause(key))
        }
        SchedulerOp::Resume { thread, key } => {
            ("found and resumed", sim.threads.on(thread, || scheduler.resume(&key)), model.resume(key, now))
        }
        SchedulerOp::Reschedule { thread, key, terms, line, times } => {
            let (timing, due) = terms.timing(line, now);
            let plan = terms.plan_until(line, times, now, sim.base);
            let done = sim.threads.on(thread, || scheduler.reschedule(&key, plan).is_ok());
            ("rescheduled", done, model.reschedule(key, (timing, terms.policy(line, now)), (due, times), now))
        }
    };
    sim.model.expect_eq("P2", &format!("whether a job was {what}"), seen, expected);
}

/// Compares an event of a run.
pub fn on_event(actors: &mut [SchedulerActor], sim: &mut SimContext, event: RecordedEvent) {
    let id = event.id;
    let Some(actor) = actors.iter_mut().find(|actor| actor.actions.contains_key(&id)) else {
        // The callback of a timer that is dropped at the end of the world has no actor left that could compare its action.
        if !matches!(event.what, EventKind::ActionDone(_)) {
            sim.model.violate("P2", format!("job {id} was run after its scheduler was gone"));
        }
        return;
    };
    let now = sim.times(event.clock);
    let model = &mut actor.model;
    sim.model.checks += 1;
    let wrong: Result<(), Mismatch> = match event.what {
        EventKind::RunStarted(number, due) => {
            sim.totals.jobs += 1;
            sim.model.fires += 1;
            model.ran(id, number, due, now)
        }
        EventKind::RunPolled(_) => {
            model.polled(now);
            Ok(())
        }
        EventKind::RunEnded(number, is_failed) => model.done(id, number, is_failed, now),
        EventKind::RunDropped(number) => model.dropped(id, number, now),
        EventKind::ActionDone(result) => {
            sim.totals.fault("jobs that change their scheduler", 1);
            let expected = actor.actions.get(&id).copied().flatten().map(|action| action.note(model, now));
            let is_same = expected.is_none_or(|expected| u64::from(expected) == result);
            if is_same { Ok(()) } else { Err(("P2", format!("the action of job {id} returned {result}"))) }
        }
        EventKind::Woken | EventKind::CallbackCalled(_) => Ok(()),
    };
    wrong.err().into_iter().for_each(|(promise, what)| sim.model.violate(promise, what));
}

/// Compares what a scheduler reports. With `is_swept`, everything that is due has been run.
pub fn observe(actors: &mut Vec<SchedulerActor>, sim: &mut SimContext, is_swept: bool) {
    let now = sim.times(sim.now());
    for SchedulerActor { scheduler, model, reported_failures, .. } in actors.iter_mut() {
        if is_swept && let Err((promise, what)) = model.check_settled(now) {
            sim.model.violate(promise, what);
        }
        let Some(scheduler) = scheduler else { continue };
        let jobs = if model.is_open() { model.jobs.len() } else { 0 };
        sim.model.expect_eq("P7", "jobs", scheduler.len(), jobs);
        sim.model.expect_eq(
            "P2",
            "whether a scheduler runs",
            scheduler.is_running(),
            model.phase == ModelPhase::Running,
        );
        if is_swept {
            check_counts(scheduler, model, sim);
            sim.model.expect_eq(
                "P6",
                "failures that were reported",
                reported_failures.load(Ordering::SeqCst),
                model.counts.failed,
            );
            check_jobs(scheduler, model, sim);
        }
    }
    // A queued callback of the engine may own the rest of a scheduler until it is called.
    let is_gone =
        |actor: &SchedulerActor| is_swept && actor.scheduler.is_none() && actor.model.phase == ModelPhase::Over;
    let gone: Vec<SchedulerActor> = actors.extract_if(.., |actor| is_gone(actor)).collect();
    sim.threads.on(0, || drop(gone));
}

/// Returns whether a scheduler must be prompted, so that it is known when it looks at its jobs: it may look between two known
/// times, or at a time that depends on a clock that is set.
#[must_use]
pub fn needs_prompt(actors: &[SchedulerActor], sim: &SimContext) -> bool {
    let is_known = sim.has_exact_wakes() && sim.setup.slack.grid() == 1 && sim.now() < LAST;
    let is_running = |actor: &SchedulerActor| actor.model.phase == ModelPhase::Running && actor.scheduler.is_some();
    actors.iter().any(|actor| is_running(actor) && (!is_known || actor.model.has_wall()))
}

/// Prompts all schedulers to look at their jobs, after checking that none should have looked before.
pub fn prompt(actors: &[SchedulerActor], sim: &mut SimContext) {
    let now = sim.times(sim.now());
    for SchedulerActor { scheduler, model, .. } in actors {
        let Some(scheduler) = scheduler.as_ref().filter(|_| model.phase == ModelPhase::Running) else { continue };
        for job in &model.jobs {
            let next = scheduler.next_run(&job.key).map_or(NEVER, |instant| sim.time_of(instant));
            let due = round_up(next, sim.setup.slack.grid());
            if due <= now.on(job.timing.is_wall()) && due < LAST {
                sim.model.violate(
                    "P4",
                    format!("job {} was due at {next}, and the scheduler did not look by {now:?}", job.id),
                );
            }
        }
        sim.threads.on(0, || scheduler.start());
    }
}

/// Notes that the engine is about to be shut down, which runs what is due.
pub fn before_shutdown(actors: &mut [SchedulerActor], sim: &SimContext) {
    let now = sim.times(sim.now());
    actors.iter_mut().for_each(|actor| actor.model.shut_down(Shutdown::Drain, now));
}

/// Returns whether there are jobs, which run for as long as time passes.
#[must_use]
pub fn has_jobs(actors: &[SchedulerActor]) -> bool {
    actors.iter().any(|actor| !actor.model.jobs.is_empty())
}

/// Returns whether there are jobs that follow the wall clock.
#[must_use]
pub fn has_wall(actors: &[SchedulerActor]) -> bool {
    actors.iter().any(|actor| actor.model.has_wall())
}

/// Returns whether a stopped scheduler has jobs by the wall clock. It notices a clock that is set back only in rounds of its own,
/// which the model does not predict.
#[must_use]
pub fn has_stopped_wall_jobs(actors: &[SchedulerActor]) -> bool {
    actors.iter().any(|actor| actor.model.has_wall() && actor.model.phase == ModelPhase::Stopped)
}

/// Drops all schedulers.
pub fn finish(actors: &mut [SchedulerActor], sim: &mut SimContext) {
    actors.iter_mut().enumerate().for_each(|(thread, actor)| drop_one(actor, sim, thread));
}

fn build(sim: &mut SimContext) -> Option<SchedulerActor> {
    let SimSetup { overflow, queue_capacity: queue, .. } = sim.setup;
    let reported_failures = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&reported_failures);
    let builder = Scheduler::builder().engine(&sim.engine).wall_engine(&sim.wall).threads(0);
    let builder = builder.capacity(CAPACITY).queue(queue).overflow(overflow).on_failure(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let scheduler = sim.threads.on(0, || builder.build()).ok()?;
    let model = SchedulerModel::new(ModelRules { overflow, queue_capacity: queue, capacity: CAPACITY });
    Some(SchedulerActor {
        scheduler: Some(scheduler),
        model,
        gates: RunGates::default(),
        actions: BTreeMap::new(),
        reported_failures,
    })
}

fn schedule(actor: &mut SchedulerActor, sim: &mut SimContext, op: SchedulerOp) {
    let SchedulerOp::Schedule { thread, key, terms, line, times, behavior, is_upsert } = op else { return };
    let Some(scheduler) = &actor.scheduler else { return };
    let id = sim.model.add("job", ObservedBy::Asking);
    let now = sim.times(sim.now());
    let (timing, due) = terms.timing(line, now);
    let plan = terms.plan_until(line, times, now, sim.base);
    let live = Arc::new(sim.recorder.drop_counter(behavior.in_callbacks));
    let context = JobContext {
        id,
        recorder: Arc::clone(&sim.recorder),
        gates: actor.gates.clone(),
        behavior,
        base: sim.base,
        live,
    };
    let done = sim.threads.on(thread, || {
        // A refused job comes back with the error, and is dropped here, where its destructor may panic.
        let result = catch_unwind(AssertUnwindSafe(|| match (behavior.course, is_upsert) {
            (None, false) => scheduler.schedule(key, plan, move |run| context.call(run)).ok().map(|_| false),
            (Some(_), false) => {
                let job = move |run| context.start_async(&run);
                scheduler.schedule_async(key, plan, job).ok().map(|_| false)
            }
            (None, true) => scheduler.upsert(key, plan, move |run| context.call(run)).ok().map(Upserted::is_replaced),
            (Some(_), true) => {
                let job = move |run| context.start_async(&run);
                scheduler.upsert_async(key, plan, job).ok().map(Upserted::is_replaced)
            }
        }));
        result.unwrap_or(None)
    });
    let (plan, first) = ((timing, terms.policy(line, now)), (due, times));
    let expected = match is_upsert {
        true => actor.model.upsert((id, key), plan, first, now),
        false => actor.model.schedule((id, key), plan, first, now).then_some(false),
    };
    sim.model.expect_eq("P7", "whether a job was accepted, and replaced another", done, expected);
    sim.model.forget(id);
    if done.is_some() {
        actor.actions.insert(id, behavior.action);
    }
}

fn drop_one(actor: &mut SchedulerActor, sim: &mut SimContext, thread: usize) {
    let now = sim.times(sim.now());
    let scheduler = actor.scheduler.take();
    sim.threads.on(thread, || drop(scheduler));
    actor.model.shut_down(Shutdown::Abort, now);
}

fn set_wall(sim: &mut SimContext, by: u64, is_back: bool, is_whole: bool) {
    if !matches!(sim.setup.wall, SimWallClock::Separate(_)) {
        return;
    }
    let now = sim.wall.clock().now().as_nanos();
    let to = if is_back { now.saturating_sub(by) } else { now.saturating_add(by).min(LAST - 1) };
    let to = match to % MINUTE.as_nanos() {
        past if is_whole && is_back => to - past,
        past @ 1.. if is_whole => to.checked_add(MINUTE.as_nanos() - past).unwrap_or(to),
        _ => to,
    };
    sim.wall.clock().set(Time::from_nanos(to));
    sim.totals.fault("wall clock set", 1);
}

fn check_counts(scheduler: &Scheduler<u32>, model: &mut SchedulerModel, sim: &mut SimContext) {
    let SchedulerStats {
        waiting, running, runs, failed, retried, overlapped, overflowed, late, missed, aborted, ..
    } = scheduler.stats();
    model.reconcile_queue(waiting);
    let counts = &model.counts;
    sim.model.expect_eq("P2", "runs", runs, counts.runs);
    sim.model.expect_eq("P6", "runs that failed", failed, counts.failed);
    sim.model.expect_eq("P2", "runs that were retries", retried, counts.retried);
    sim.model.expect_eq("P2", "runs that overlapped", overlapped, counts.overlapped);
    sim.model.expect_eq("P7", "runs that found the queue full", overflowed, counts.overflowed);
    sim.model.expect_eq("P7", "runs that were queued late", late, counts.late);
    sim.model.expect_eq("P4", "runs that were missed", missed, counts.missed);
    sim.model.expect_eq("P2", "runs that were aborted", aborted, counts.aborted);
    sim.model.expect_eq("P2", "runs in line", waiting, model.waiting());
    sim.model.expect_eq("P2", "running runs", running, model.running.len());
}

fn check_jobs(scheduler: &Scheduler<u32>, model: &SchedulerModel, sim: &mut SimContext) {
    let now = sim.times(sim.now());
    for job in model.jobs.iter().filter(|_| model.is_open()) {
        let next = scheduler.next_run(&job.key).map_or(NEVER, |instant| sim.time_of(instant));
        sim.model.expect_eq("P1", "when a job is due next", next, model.next_of(job, now));
        let (left, expected) = (scheduler.remaining(&job.key), Some(SchedulerModel::remaining(job)));
        sim.model.expect_eq("P2", "runs that are left", left, expected);
        let Some(report) = scheduler.report(&job.key) else {
            sim.model.violate("P2", format!("the scheduler has no report of job {}", job.id));
            continue;
        };
        let seen = [report.runs, report.failed, report.retried, report.overlapped, report.overflowed, report.missed];
        let expected = [job.runs, job.failed, job.retried, job.overlapped, job.overflowed, job.missed_runs];
        let retry = report.next_retry.map_or(NEVER, |instant| sim.time_of(instant));
        sim.model.expect_eq("P1", "when a retry is due", retry, job.next_retry());
        sim.model.expect_eq("P2", "the counts of a job", seen, expected);
    }
}
