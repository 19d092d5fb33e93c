//! The model of a scheduler: a list of jobs, a queue of runs, and counts.
//!
//! The [timer model](crate::timer_model) knows what may happen to a timer. This model predicts what a scheduler without threads
//! does: which run comes next, its number, when it was due, and what happens to runs that are not made. It visits every job at
//! every event, as of the time of the event, and receives the events of runs in the order in which they were recorded:
//!
//! ```text
//!     ran --> [polled --> polled -->] done            or dropped, if the run is aborted
//! ```
//!
//! The scheduler looks at its jobs before each of these except `done`.

mod job;
mod operations;

use std::collections::{BTreeMap, VecDeque};

use tourbillon::Span;
use tourbillon::scheduler::{Overflow, Overlap, Remaining, Shutdown};

pub use self::job::{JobPolicy, ModelJob, ModelTiming};
use crate::recorder::Id;
use crate::timer_model::NEVER;
use crate::violation::Mismatch;

/// The modelled state of a scheduler.
#[derive(Debug)]
pub struct SchedulerModel {
    rules: ModelRules,
    /// All jobs.
    pub jobs: Vec<ModelJob>,
    queue: VecDeque<ModelRun>,
    /// Runs that have begun and have not ended.
    pub running: Vec<(Id, u64)>,
    /// Phase in its life cycle.
    pub phase: ModelPhase,
    /// Occurrences before this are skipped.
    since: SimClocks,
    /// The times that the clocks showed when the scheduler last looked at its jobs.
    seen: SimClocks,
    /// While the scheduler drains: occurrences up to this time still run.
    until: Option<SimClocks>,
    /// Counts of what has happened.
    pub counts: RunCounts,
    /// Whether a job by the wall clock was ever asked for, even if it was refused.
    has_read_wall: bool,
    /// Whether the last run since the queue was last reconciled follows the wall clock.
    last_ran: Option<bool>,
    order: u64,
    /// The jobs of closures that replaced others.
    replaced: BTreeMap<Id, Id>,
    /// The attempt and the plan of each running run.
    attempts: BTreeMap<(Id, u64), (u32, u32)>,
}

/// The options that a scheduler was built with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModelRules {
    /// The rule for a run that finds the queue of runs full.
    pub overflow: Overflow,
    /// Capacity of the queue of runs.
    pub queue_capacity: usize,
    /// Most jobs that it may have.
    pub capacity: usize,
}

/// Phase in the life cycle of a scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModelPhase {
    /// It runs jobs.
    Running,
    /// It begins no runs.
    Stopped,
    /// Its shutdown has begun.
    Ending(Shutdown),
    /// Its shutdown is complete.
    Over,
}

/// The times that the engine's clock and the wall clock show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SimClocks {
    /// The engine's clock.
    pub engine: u64,
    /// The wall clock.
    pub wall: u64,
}

/// Counts with the names of [`SchedulerStats`](tourbillon::scheduler::SchedulerStats).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "the names are those of `SchedulerStats`")]
pub struct RunCounts {
    pub runs: u64,
    pub failed: u64,
    pub retried: u64,
    pub overlapped: u64,
    pub overflowed: u64,
    pub late: u64,
    pub missed: u64,
    pub aborted: u64,
}

/// A queued run.
#[derive(Clone, Copy, Debug)]
struct ModelRun {
    job: Id,
    due: u64,
    is_wall: bool,
    /// Number of the job's plan that it belongs to.
    plan: u32,
    /// Whether it uses up one of the plan's runs.
    is_planned: bool,
    attempt: u32,
}

impl ModelRun {
    /// Returns a run of the plan, without its job.
    fn planned(due: u64, is_wall: bool) -> ModelRun {
        ModelRun { job: 0, due, is_wall, plan: 0, is_planned: true, attempt: 1 }
    }

    /// Returns a run that a user asked for, without its job.
    fn requested(due: u64, is_wall: bool) -> ModelRun {
        ModelRun { is_planned: false, ..ModelRun::planned(due, is_wall) }
    }
}

/// Number of jobs that a scheduler looks at before it makes a run.
const AT_A_TIME: usize = 64;
/// A wall clock that is set back by more than this is taken to have been wrong before.
const SET_BACK: Span = Span::from_secs(3 * 60 * 60);

impl SchedulerModel {
    /// Returns a model without jobs.
    #[must_use]
    pub fn new(rules: ModelRules) -> SchedulerModel {
        let zero = SimClocks { engine: 0, wall: 0 };
        SchedulerModel {
            rules,
            jobs: Vec::new(),
            queue: VecDeque::new(),
            running: Vec::new(),
            phase: ModelPhase::Running,
            since: zero,
            seen: zero,
            until: None,
            counts: RunCounts::default(),
            has_read_wall: false,
            last_ran: None,
            order: 0,
            replaced: BTreeMap::new(),
            attempts: BTreeMap::new(),
        }
    }

    /// Returns whether the scheduler has not been shut down.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.phase, ModelPhase::Running | ModelPhase::Stopped)
    }

    /// Returns whether any job follows the wall clock.
    #[must_use]
    pub fn has_wall(&self) -> bool {
        self.jobs.iter().any(|job| job.timing.is_wall())
    }

    /// Returns how many runs are queued.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.iter().filter(|ready| self.job(ready.job).is_some()).count()
    }

    /// Compares the number of queued runs after the engine has been turned until nothing was left to do.
    ///
    /// A scheduler removes a paused run when it reaches the head of the queue, and the order of runs by different clocks is not
    /// fixed. So if the last run stopped the scheduler, the model does not know which paused runs by the other clock were ahead
    /// of it. It removes as many of them as the scheduler did, up to the first that is not paused.
    pub fn reconcile_queue(&mut self, waiting: usize) {
        let Some(of_wall) = self.last_ran.take() else { return };
        while self.waiting() > waiting {
            let Some(first) = self.queue.iter().position(|ready| ready.is_wall != of_wall) else { return };
            let run = self.queue[first];
            match self.job_mut(run.job) {
                Some(job) if job.is_paused => job.unqueue_run(run.is_planned),
                Some(_) => return,
                None => {}
            }
            self.queue.remove(first);
        }
    }

    /// Compares the start of a run with the one that is next.
    ///
    /// # Errors
    /// Returns a mismatch if another run is next.
    pub fn ran(&mut self, closure: Id, number: u64, due: u64, now: SimClocks) -> Result<(), Mismatch> {
        let id = self.job_of(closure);
        self.enqueue_due(now);
        if matches!(self.phase, ModelPhase::Stopped | ModelPhase::Over) {
            return Err(("P2", format!("job {id} was run while its scheduler was stopped")));
        }
        let is_wall = self.job(id).is_some_and(|job| job.timing.is_wall());
        let ready = match self.take_next(id) {
            Some(ready) if ready.job == id => ready,
            // A queued run is made even if the clock was set back meanwhile.
            _ if due > now.on(is_wall) => {
                return Err(("P1", format!("job {id} was run {} ns early", due - now.on(is_wall))));
            }
            Some(ModelRun { job, due: its, .. }) => {
                return Err((
                    "P3",
                    format!("job {id} (due {due}) was run, and {job} (due {its}) was first in the queue"),
                ));
            }
            None => return Err(("P2", format!("run {number} of job {id} was made, and the queue was empty"))),
        };
        self.last_ran = Some(ready.is_wall);
        self.counts.runs += 1;
        self.running.push((id, number));
        self.attempts.insert((id, number), (ready.attempt, ready.plan));
        self.counts.retried += u64::from(ready.attempt > 1);
        let Some(job) = self.job_mut(id) else { return Ok(()) };
        job.waiting -= 1;
        job.runs += 1;
        job.retried += u64::from(ready.attempt > 1);
        if job.closure != closure {
            return Err(("P2", format!("job {id} ran closure {closure}, which was replaced by {}", job.closure)));
        }
        if ready.due != due {
            return Err(("P1", format!("job {id} ran as due at {due}, and was due at {}", ready.due)));
        }
        if job.runs != number {
            return Err(("P2", format!("job {id} ran as number {number}, and it was its {}th run", job.runs)));
        }
        Ok(())
    }

    /// Notes that the engine polled a run.
    pub fn polled(&mut self, now: SimClocks) {
        self.enqueue_due(now);
    }

    /// Notes that a run has ended.
    ///
    /// # Errors
    /// Returns a mismatch if it was not running.
    pub fn done(&mut self, id: Id, number: u64, is_failed: bool, now: SimClocks) -> Result<(), Mismatch> {
        let id = self.job_of(id);
        let (attempt, plan) = self.take_running(id, number)?;
        self.counts.failed += u64::from(is_failed);
        let is_open = self.is_open();
        if let Some(index) = self.jobs.iter().position(|job| job.id == id && is_failed) {
            let job = &mut self.jobs[index];
            job.failed += 1;
            let own = now.on(job.timing.is_wall());
            if is_open && plan == job.plan && job.plan_retry(attempt, now.engine, own) {
                self.renew_order(index);
            }
        }
        self.ended(id);
        Ok(())
    }

    /// Notes that a run was dropped before its end.
    ///
    /// # Errors
    /// Returns a mismatch if the run had not been aborted.
    pub fn dropped(&mut self, id: Id, number: u64, now: SimClocks) -> Result<(), Mismatch> {
        let id = self.job_of(id);
        self.enqueue_due(now);
        self.take_running(id, number)?;
        if self.phase != ModelPhase::Ending(Shutdown::Abort) {
            return Err(("P2", format!("run {number} of job {id} was dropped without an abort")));
        }
        self.counts.aborted += 1;
        self.ended(id);
        Ok(())
    }

    /// Checks that no run is due, after the engine has been turned until nothing was left to do.
    ///
    /// # Errors
    /// Returns a mismatch if a run was due.
    pub fn check_settled(&mut self, now: SimClocks) -> Result<(), Mismatch> {
        // A stopped scheduler does not look at its jobs.
        if matches!(self.phase, ModelPhase::Stopped | ModelPhase::Over) {
            return Ok(());
        }
        self.enqueue_due(now);
        if let Some(ModelRun { job, due, .. }) = self.take_next(0) {
            return Err(("P4", format!("job {job} was due at {due} and not run at {now:?}")));
        }
        self.until = None;
        if matches!(self.phase, ModelPhase::Ending(_)) {
            self.try_end();
        }
        Ok(())
    }

    /// Returns when a job is next due; `NEVER` if it is not.
    #[must_use]
    pub fn next_of(&self, job: &ModelJob, now: SimClocks) -> u64 {
        let is_wall = job.timing.is_wall();
        let is_stopped = self.phase == ModelPhase::Stopped;
        let since = if is_stopped { now.on(is_wall) } else { self.since.on(is_wall) };
        match job.next_due() {
            NEVER => NEVER,
            due if due >= since || (job.is_past && !is_stopped) => due,
            _ => match job.first_from(since).0 {
                due if due > job.policy.end => NEVER,
                due => due,
            },
        }
    }

    /// Returns how many runs a job has left.
    #[must_use]
    pub fn remaining(job: &ModelJob) -> Remaining {
        job.times.map_or(Remaining::ForEver, Remaining::Runs)
    }

    /// Queues what is due, as the scheduler does before anything else.
    fn enqueue_due(&mut self, now: SimClocks) {
        self.note_clocks(SimClocks { wall: if self.has_wall() { now.wall } else { 0 }, ..now });
        let Some(until) = self.until(now) else { return };
        // The clocks take turns. It does not matter which is first as long as one of them has little to do.
        let mut is_wall = false;
        for _ in 0..AT_A_TIME {
            is_wall = !is_wall;
            let first = self.first_due_on(is_wall, until).map(|index| (index, is_wall));
            let first = first.or_else(|| self.first_due_on(!is_wall, until).map(|index| (index, !is_wall)));
            let Some((index, is_of_wall)) = first else { break };
            if self.is_full() && self.rules.overflow == Overflow::Wait {
                break;
            }
            self.on_due(index, is_of_wall, until);
        }
    }

    /// Returns the time up to which occurrences are queued.
    fn until(&self, now: SimClocks) -> Option<SimClocks> {
        match self.phase {
            ModelPhase::Running => Some(now),
            ModelPhase::Ending(_) => self.until,
            ModelPhase::Stopped | ModelPhase::Over => None,
        }
    }

    /// Notes what the clocks show. If the wall clock was set back far, its jobs follow the new time. The wall clock shows zero if
    /// no job uses it.
    fn note_clocks(&mut self, now: SimClocks) {
        let expected = self.seen.wall.saturating_add(now.engine.saturating_sub(self.seen.engine));
        self.seen = now;
        if now.wall == 0 || expected.saturating_sub(now.wall) <= SET_BACK.as_nanos() {
            return;
        }
        self.since.wall = self.since.wall.min(now.wall);
        for index in 0..self.jobs.len() {
            if self.jobs[index].timing.is_wall() {
                let next = self.jobs[index].timing.after(now.wall);
                self.jobs[index].due = self.jobs[index].due.min(next);
                self.renew_order(index);
            }
        }
    }

    /// Returns whether any job is due.
    fn is_any_due(&self, now: SimClocks) -> bool {
        self.first_due_on(false, now).or_else(|| self.first_due_on(true, now)).is_some()
    }

    /// Returns the job that is due first by one of the clocks.
    fn first_due_on(&self, is_wall: bool, now: SimClocks) -> Option<usize> {
        let now = now.on(is_wall);
        let is_due = |job: &ModelJob| job.due_on(is_wall) <= now && job.due_on(is_wall) != NEVER;
        let due = (0..self.jobs.len()).filter(|index| is_due(&self.jobs[*index]));
        due.min_by_key(|index| (self.jobs[*index].due_on(is_wall), self.jobs[*index].order))
    }

    fn is_full(&self) -> bool {
        self.waiting() > self.rules.queue_capacity
    }

    /// Queues a job's due occurrence or skips it, and counts those that were passed.
    fn on_due(&mut self, index: usize, is_of_wall: bool, now: SimClocks) {
        let job = &mut self.jobs[index];
        let is_wall = job.timing.is_wall();
        if !is_of_wall && job.next_retry() == job.due_on(false) {
            return self.on_retry_due(index, now);
        }
        job.retries.clear();
        let (now, since) = (now.on(is_wall), self.since.on(is_wall));
        job.is_past &= job.due < since;
        if job.due < since && !job.is_past {
            let away = job.skip_until(since);
            job.missed_runs += away;
            self.counts.missed += away;
            return self.end_or_renew(index);
        }
        let due = job.due;
        let result = job.on_due(now);
        self.counts.overlapped += result.overlapped;
        if result.is_made {
            self.enqueue_run(index, ModelRun::planned(due, is_wall));
        }
        // After its last run a plan has no occurrences that could be missed.
        let job = &mut self.jobs[index];
        let missed = if result.is_made && job.times == Some(0) { 0 } else { result.missed };
        job.missed_runs += missed;
        self.counts.missed += missed;
        self.end_or_renew(index);
    }

    /// Queues a retry, unless it would overlap or the regular occurrence is due as well, which then has its own turn.
    fn on_retry_due(&mut self, index: usize, now: SimClocks) {
        let job = &mut self.jobs[index];
        if job.next_due() <= now.on(job.timing.is_wall()) {
            job.retries.clear();
            return self.renew_order(index);
        }
        let Some((due, attempt)) = job.take_retry() else { return };
        if job.active > 0 && job.policy.overlap != Overlap::Parallel {
            job.overlapped += 1;
            self.counts.overlapped += 1;
        } else {
            self.enqueue_run(index, ModelRun { is_planned: false, attempt, ..ModelRun::planned(due, false) });
        }
        self.end_or_renew(index);
    }

    /// Removes a job whose plan has ended, or gives it the last rank among those that are due together.
    fn end_or_renew(&mut self, index: usize) {
        if self.jobs[index].is_over() {
            self.jobs.remove(index);
        } else {
            self.renew_order(index);
        }
    }

    fn enqueue_run(&mut self, index: usize, run: ModelRun) {
        let is_full = self.is_full();
        let job = &mut self.jobs[index];
        // A run that was asked for and accepted is made.
        if is_full && self.rules.overflow == Overflow::Skip && (run.is_planned || run.attempt > 1) {
            let count = 1 + job.backlog.len() as u64;
            job.backlog.clear();
            job.overflowed += count;
            self.counts.overflowed += count;
            return;
        }
        self.counts.late += u64::from(is_full && self.rules.overflow == Overflow::RunLate);
        job.enqueue_run(run.is_planned);
        self.queue.push_back(ModelRun { job: job.id, plan: job.plan, ..run });
    }

    /// Takes the next run. Where the order is not fixed, it takes the run of `id` if that may be next: the order is open between
    /// runs by different clocks, and between runs that were due together.
    fn take_next(&mut self, id: Id) -> Option<ModelRun> {
        let of_wall = self.queue.iter().find(|ready| ready.job == id).map(|ready| ready.is_wall);
        let is_of = |ready: &ModelRun| of_wall.is_none_or(|of_wall| of_wall == ready.is_wall);
        loop {
            let first = self.queue.iter().position(is_of)?;
            let run = self.queue[first];
            let due = run.due;
            match self.job_mut(run.job) {
                Some(job) if job.is_paused => job.unqueue_run(run.is_planned),
                Some(_) => {
                    let is_equal = |ready: &ModelRun| is_of(ready) && ready.due == due && ready.job == id;
                    let equal = self.queue.iter().position(is_equal);
                    return self.queue.remove(equal.unwrap_or(first));
                }
                None => {}
            }
            self.queue.remove(first);
        }
    }

    /// Ends a running run, and returns which attempt it was, of which plan.
    fn take_running(&mut self, id: Id, number: u64) -> Result<(u32, u32), Mismatch> {
        let found = self.running.iter().position(|run| *run == (id, number));
        let Some(index) = found else {
            return Err(("P2", format!("run {number} of job {id} ended, and was not running")));
        };
        self.running.remove(index);
        Ok(self.attempts.remove(&(id, number)).unwrap_or((1, 0)))
    }

    /// Notes that a run of this job is over: the next of its backlog follows, or the job is over as well.
    fn ended(&mut self, id: Id) {
        let Some(index) = self.jobs.iter().position(|job| job.id == id) else { return };
        let wanted = self.jobs[index].next_due();
        let is_wall = self.jobs[index].timing.is_wall();
        let planned = self.jobs[index].end_run().map(|due| ModelRun::planned(due, is_wall));
        let next = planned.or_else(|| self.jobs[index].take_requested().map(|due| ModelRun::requested(due, is_wall)));
        if let Some(run) = next.filter(|_| self.phase != ModelPhase::Ending(Shutdown::Abort)) {
            self.enqueue_run(index, run);
            if self.jobs[index].next_due() != wanted {
                self.renew_order(index);
            }
        }
        if self.jobs[index].is_over() {
            self.jobs.remove(index);
        }
    }

    fn try_end(&mut self) {
        if self.running.is_empty() && self.waiting() == 0 && self.until.is_none() {
            self.phase = ModelPhase::Over;
            self.clear();
        }
    }

    fn clear(&mut self) {
        self.jobs.clear();
        self.queue.clear();
    }

    fn renew_order(&mut self, index: usize) {
        self.order += 1;
        self.jobs[index].order = self.order;
    }

    /// Returns the job that a closure belongs to.
    fn job_of(&self, closure: Id) -> Id {
        self.replaced.get(&closure).copied().unwrap_or(closure)
    }

    fn job(&self, id: Id) -> Option<&ModelJob> {
        self.jobs.iter().find(|job| job.id == id)
    }

    fn job_mut(&mut self, id: Id) -> Option<&mut ModelJob> {
        self.jobs.iter_mut().find(|job| job.id == id)
    }
}

impl SimClocks {
    /// Returns what one of the two clocks shows.
    #[must_use]
    pub fn on(self, is_wall: bool) -> u64 {
        if is_wall { self.wall } else { self.engine }
    }
}
