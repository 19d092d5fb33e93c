//! A scheduler in the plainest words: a list of jobs, a line of runs, and counts.
//!
//! Where the [model](crate::model) knows what may happen to a timer, this foretells what a scheduler without threads does: which run
//! comes next, with which number, when it was due, and what becomes of those that are not made. It has no wheel and no bell.
//! It looks at every job whenever anything happens, as of the time at which that happened, and is given all that was heard of runs in
//! the order in which it was heard:
//!
//! ```text
//!     ran --> [polled --> polled -->] done            or dropped, where it is aborted
//! ```
//!
//! The scheduler looks at its jobs before each of these but `done`.

mod job;
mod operations;

use std::collections::VecDeque;

use tourbillon::scheduler::{Overflow, Remaining, Shutdown};

pub use self::job::{JobPolicy, JobTiming, ModelJob};
use crate::recorder::Id;
use crate::timer_model::NEVER;
use crate::violation::Mismatch;

/// See the module.
#[derive(Debug)]
pub struct SchedulerModel {
    rules: SchedulerRules,
    /// All there are.
    pub jobs: Vec<ModelJob>,
    queue: VecDeque<QueuedRun>,
    /// Runs that have begun and have not ended.
    pub running: Vec<(Id, u64)>,
    /// Where it is in its life.
    pub phase: SchedulerPhase,
    /// Times before this are passed over.
    since: SimClocks,
    /// What the clocks showed when the scheduler last looked.
    seen: SimClocks,
    /// While it is drained: what was due by then is still made.
    until: Option<SimClocks>,
    /// What has happened.
    pub counts: RunCounts,
    /// Somebody has asked for the wall clock, be it in vain.
    has_read_wall: bool,
    /// Since runs in line were last counted: whether the last run that was made is by the wall clock.
    last_ran: Option<bool>,
    order: u64,
}

/// By what a scheduler was built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SchedulerRules {
    /// What happens when the line is full.
    pub overflow: Overflow,
    /// How many stand in it.
    pub queue_capacity: usize,
    /// How many jobs there are at most.
    pub capacity: usize,
}

/// The life of a scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SchedulerPhase {
    /// It runs jobs.
    Running,
    /// It does not.
    Stopped,
    /// It comes to its end.
    Ending(Shutdown),
    /// Nothing will ever run.
    Over,
}

/// What the engine's clock and the wall clock show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SimClocks {
    /// The engine's.
    pub engine: u64,
    /// The other.
    pub wall: u64,
}

/// Counts, as [`SchedulerStats`](tourbillon::scheduler::SchedulerStats) has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "they are called as there")]
pub struct RunCounts {
    pub runs: u64,
    pub failed: u64,
    pub overlapped: u64,
    pub overflowed: u64,
    pub late: u64,
    pub missed: u64,
    pub aborted: u64,
}

/// A run in line.
#[derive(Clone, Copy, Debug)]
struct QueuedRun {
    job: Id,
    due: u64,
    is_wall: bool,
    /// Of which of the job's plans.
    plan: u32,
}

/// A scheduler looks at so many jobs before it makes a run.
const AT_A_TIME: usize = 64;
/// A wall clock that is set back by more than this had been wrong, in nanoseconds.
const SET_BACK: u64 = 3 * 60 * 60 * 1_000_000_000;

impl SchedulerModel {
    /// Without jobs.
    #[must_use]
    pub fn new(rules: SchedulerRules) -> SchedulerModel {
        let zero = SimClocks { engine: 0, wall: 0 };
        SchedulerModel {
            rules,
            jobs: Vec::new(),
            queue: VecDeque::new(),
            running: Vec::new(),
            phase: SchedulerPhase::Running,
            since: zero,
            seen: zero,
            until: None,
            counts: RunCounts::default(),
            has_read_wall: false,
            last_ran: None,
            order: 0,
        }
    }

    /// Whether it has not been shut down.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.phase, SchedulerPhase::Running | SchedulerPhase::Stopped)
    }

    /// Whether any job follows the wall clock.
    #[must_use]
    pub fn has_wall(&self) -> bool {
        self.jobs.iter().any(|job| job.timing.is_wall())
    }

    /// How many runs stand in line.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.iter().filter(|ready| self.job(ready.job).is_some()).count()
    }

    /// Takes note of how many runs the scheduler has in line, after all that was to be done has been done.
    ///
    /// A scheduler removes a paused run when that is next in line. Runs by different clocks stand in line in any order. So it is not known
    /// which paused runs by the other clock stood before the last run that was made, if that run has stopped the scheduler: the ledger
    /// removes as many of them as the scheduler has removed, up to the first that is not paused.
    pub fn reconcile_queue(&mut self, waiting: usize) {
        let Some(of_wall) = self.last_ran.take() else { return };
        while self.waiting() > waiting {
            let Some(first) = self.queue.iter().position(|ready| ready.is_wall != of_wall) else { return };
            let QueuedRun { job, plan, .. } = self.queue[first];
            match self.job_mut(job) {
                Some(job) if job.is_paused => job.unqueue_run(plan),
                Some(_) => return,
                None => {}
            }
            self.queue.remove(first);
        }
    }

    /// A run was begun: whether it is the one that is next.
    ///
    /// # Errors
    /// It is not.
    pub fn ran(&mut self, id: Id, number: u64, due: u64, now: SimClocks) -> Result<(), Mismatch> {
        self.enqueue_due(now);
        if matches!(self.phase, SchedulerPhase::Stopped | SchedulerPhase::Over) {
            return Err(("P2", format!("job {id} was run while nothing may run")));
        }
        let is_wall = self.job(id).is_some_and(|job| job.timing.is_wall());
        let ready = match self.take_next(id) {
            Some(ready) if ready.job == id => ready,
            // What has once been due and stands in line is made, also if the clock was set back meanwhile.
            _ if due > now.on(is_wall) => {
                return Err(("P1", format!("job {id} was run {} ns early", due - now.on(is_wall))));
            }
            Some(QueuedRun { job, due: its, .. }) => {
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
        let Some(job) = self.job_mut(id) else { return Ok(()) };
        job.waiting -= 1;
        job.runs += 1;
        if ready.due != due {
            return Err(("P1", format!("job {id} ran as due at {due}, and was due at {}", ready.due)));
        }
        if job.runs != number {
            return Err(("P2", format!("job {id} ran as number {number}, and it was its {}th run", job.runs)));
        }
        Ok(())
    }

    /// A run that goes on for a while was looked at.
    pub fn polled(&mut self, now: SimClocks) {
        self.enqueue_due(now);
    }

    /// A run has ended, well or not.
    ///
    /// # Errors
    /// It was not running.
    pub fn done(&mut self, id: Id, number: u64, is_failed: bool) -> Result<(), Mismatch> {
        self.take_running(id, number)?;
        self.counts.failed += u64::from(is_failed);
        if let Some(job) = self.job_mut(id) {
            job.failed += u64::from(is_failed);
        }
        self.ended(id);
        Ok(())
    }

    /// A run was dropped before its end.
    ///
    /// # Errors
    /// Nobody had aborted it.
    pub fn dropped(&mut self, id: Id, number: u64, now: SimClocks) -> Result<(), Mismatch> {
        self.enqueue_due(now);
        self.take_running(id, number)?;
        if self.phase != SchedulerPhase::Ending(Shutdown::Abort) {
            return Err(("P2", format!("run {number} of job {id} was dropped, and nobody aborted it")));
        }
        self.counts.aborted += 1;
        self.ended(id);
        Ok(())
    }

    /// All that was to be done at this time has been done.
    ///
    /// # Errors
    /// There is something that was not.
    pub fn check_settled(&mut self, now: SimClocks) -> Result<(), Mismatch> {
        // A scheduler that is stopped does not look.
        if matches!(self.phase, SchedulerPhase::Stopped | SchedulerPhase::Over) {
            return Ok(());
        }
        self.enqueue_due(now);
        if let Some(QueuedRun { job, due, .. }) = self.take_next(0) {
            return Err(("P4", format!("job {job} was due at {due} and not run at {now:?}")));
        }
        self.until = None;
        if matches!(self.phase, SchedulerPhase::Ending(_)) {
            self.try_end();
        }
        Ok(())
    }

    /// When a job is due next; never, if it is not.
    #[must_use]
    pub fn next_of(&self, job: &ModelJob, now: SimClocks) -> u64 {
        let is_wall = job.timing.is_wall();
        let is_stopped = self.phase == SchedulerPhase::Stopped;
        let since = if is_stopped { now.on(is_wall) } else { self.since.on(is_wall) };
        match job.next_due() {
            NEVER => NEVER,
            due if due >= since || (job.is_past && !is_stopped) => due,
            due => job.timing.first_from(due, since).0,
        }
    }

    /// How many runs a job has before it.
    #[must_use]
    pub fn remaining(job: &ModelJob) -> Remaining {
        job.times.map_or(Remaining::ForEver, Remaining::Runs)
    }

    /// Puts what is due in line, as the scheduler does before it does anything else.
    fn enqueue_due(&mut self, now: SimClocks) {
        self.note_clocks(SimClocks { wall: if self.has_wall() { now.wall } else { 0 }, ..now });
        let Some(until) = self.until(now) else { return };
        // The clocks take turns. Which has the first does not matter as long as one of them has little to do.
        let mut is_wall = false;
        for _ in 0..AT_A_TIME {
            is_wall = !is_wall;
            let first = self.first_due_on(is_wall, until).or_else(|| self.first_due_on(!is_wall, until));
            let Some(index) = first else { break };
            if self.is_full() && self.rules.overflow == Overflow::Wait {
                break;
            }
            self.on_due(index, until);
        }
    }

    /// By when what is due is put in line.
    fn until(&self, now: SimClocks) -> Option<SimClocks> {
        match self.phase {
            SchedulerPhase::Running => Some(now),
            SchedulerPhase::Ending(_) => self.until,
            SchedulerPhase::Stopped | SchedulerPhase::Over => None,
        }
    }

    /// If the wall clock was set back by much, its jobs are due when it says so now. Where no job asks for it, it shows zero.
    fn note_clocks(&mut self, now: SimClocks) {
        let expected = self.seen.wall.saturating_add(now.engine.saturating_sub(self.seen.engine));
        self.seen = now;
        if now.wall == 0 || expected.saturating_sub(now.wall) <= SET_BACK {
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

    /// Whether any job is due.
    fn is_any_due(&self, now: SimClocks) -> bool {
        self.first_due_on(false, now).or_else(|| self.first_due_on(true, now)).is_some()
    }

    /// The job that is due first by one of the clocks.
    fn first_due_on(&self, is_wall: bool, now: SimClocks) -> Option<usize> {
        let now = now.on(is_wall);
        let is_due =
            |job: &ModelJob| job.timing.is_wall() == is_wall && job.next_due() <= now && job.next_due() != NEVER;
        let due = (0..self.jobs.len()).filter(|index| is_due(&self.jobs[*index]));
        due.min_by_key(|index| (self.jobs[*index].due, self.jobs[*index].order))
    }

    fn is_full(&self) -> bool {
        self.waiting() > self.rules.queue_capacity
    }

    /// One of its times has come: is it made, and what of those that went by?
    fn on_due(&mut self, index: usize, now: SimClocks) {
        let job = &mut self.jobs[index];
        let is_wall = job.timing.is_wall();
        let (now, since) = (now.on(is_wall), self.since.on(is_wall));
        job.is_past &= job.due < since;
        if job.due < since && !job.is_past {
            let away = job.skip_until(since);
            job.missed_runs += away;
            self.counts.missed += away;
            return self.renew_order(index);
        }
        let due = job.due;
        let result = job.on_due(now);
        self.counts.overlapped += result.overlapped;
        if result.is_made {
            self.enqueue_run(index, due);
        }
        // After its last run a plan has no occurrences that could be missed.
        let job = &mut self.jobs[index];
        let missed = if result.is_made && job.times == Some(0) { 0 } else { result.missed };
        job.missed_runs += missed;
        self.counts.missed += missed;
        self.renew_order(index);
    }

    fn enqueue_run(&mut self, index: usize, due: u64) {
        let is_full = self.is_full();
        let job = &mut self.jobs[index];
        if is_full && self.rules.overflow == Overflow::Skip {
            let count = 1 + job.backlog.len() as u64;
            job.backlog.clear();
            job.overflowed += count;
            self.counts.overflowed += count;
            return;
        }
        self.counts.late += u64::from(is_full && self.rules.overflow == Overflow::RunLate);
        job.enqueue_run();
        self.queue.push_back(QueuedRun { job: job.id, due, is_wall: job.timing.is_wall(), plan: job.plan });
    }

    /// Takes the run that is next. Where runs are next in any order, it is that of `id`, if it is one of them: runs by different clocks,
    /// and those that were due together, of which it is not known when the scheduler last looked at each.
    fn take_next(&mut self, id: Id) -> Option<QueuedRun> {
        let of_wall = self.queue.iter().find(|ready| ready.job == id).map(|ready| ready.is_wall);
        let is_of = |ready: &QueuedRun| of_wall.is_none_or(|of_wall| of_wall == ready.is_wall);
        loop {
            let first = self.queue.iter().position(is_of)?;
            let QueuedRun { job, due, plan, .. } = self.queue[first];
            match self.job_mut(job) {
                Some(job) if job.is_paused => job.unqueue_run(plan),
                Some(_) => {
                    let is_equal = |ready: &QueuedRun| is_of(ready) && ready.due == due && ready.job == id;
                    let equal = self.queue.iter().position(is_equal);
                    return self.queue.remove(equal.unwrap_or(first));
                }
                None => {}
            }
            self.queue.remove(first);
        }
    }

    fn take_running(&mut self, id: Id, number: u64) -> Result<(), Mismatch> {
        let found = self.running.iter().position(|run| *run == (id, number));
        let Some(index) = found else {
            return Err(("P2", format!("run {number} of job {id} ended, and was not running")));
        };
        self.running.remove(index);
        Ok(())
    }

    /// A run of this job is over: the next of its backlog is its turn, or the job is over as well.
    fn ended(&mut self, id: Id) {
        let Some(index) = self.jobs.iter().position(|job| job.id == id) else { return };
        let wanted = self.jobs[index].next_due();
        let next = self.jobs[index].end_run();
        if let Some(due) = next.filter(|_| self.phase != SchedulerPhase::Ending(Shutdown::Abort)) {
            self.enqueue_run(index, due);
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
            self.phase = SchedulerPhase::Over;
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

    fn job(&self, id: Id) -> Option<&ModelJob> {
        self.jobs.iter().find(|job| job.id == id)
    }

    fn job_mut(&mut self, id: Id) -> Option<&mut ModelJob> {
        self.jobs.iter_mut().find(|job| job.id == id)
    }
}

impl SimClocks {
    /// What one of the two shows.
    #[must_use]
    pub fn on(self, is_wall: bool) -> u64 {
        if is_wall { self.wall } else { self.engine }
    }
}
