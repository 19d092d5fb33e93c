//! The way from a due job to a run that a thread makes, and to its end.

use std::sync::Arc;
use std::time::Duration;

use async_task::Runnable;
use tourbillon_queue::Time;

use super::{SchedulerPhase, SchedulerState};
use crate::multi::deadline_map::{DeadlineKey, Popped};
use crate::scheduler::builder::Overflow;
use crate::scheduler::clock_pair::{ClockId, ClockPair, DueTime};
use crate::scheduler::ending::Shutdown;
use crate::scheduler::history::{PackedRun, RunStatus};
use crate::scheduler::job::{DueAction, RemovedJob, ScheduledJob};
use crate::scheduler::job_body::{JobBody, RunFacts};
use crate::scheduler::plan::Overlap;
use crate::scheduler::timings::RunTimings;

/// How many withdrawn runs the queue may hold, however short it is.
const WITHDRAWN_KEPT: usize = 64;

/// The next action of a thread of the scheduler.
pub(in crate::scheduler) enum NextAction<K> {
    Run(RunStart<K>),
    Task(Runnable),
    /// Releases the lock and asks again.
    Again,
    /// Waits, as there is nothing to do now.
    Wait,
    /// Ends, as there will never be anything to do.
    End,
}

/// A run that begins.
pub(in crate::scheduler) struct RunStart<K> {
    pub(in crate::scheduler) job: DeadlineKey,
    pub(in crate::scheduler) body: Arc<dyn JobBody<K>>,
    pub(in crate::scheduler) number: u64,
    pub(in crate::scheduler) due: DueTime,
    pub(in crate::scheduler) facts: RunFacts,
    pub(in crate::scheduler) time_limit: Option<Duration>,
}

/// A run that has ended.
pub(in crate::scheduler) struct RunEnd {
    pub(in crate::scheduler) job: DeadlineKey,
    pub(in crate::scheduler) facts: RunFacts,
    pub(in crate::scheduler) status: RunStatus,
    /// The message of the failure, if the run failed.
    pub(in crate::scheduler) failure: Option<String>,
    /// The histograms that the job lacked when the run began, allocated outside the lock.
    timings: Option<Box<RunTimings>>,
}

/// A run that waits for a thread.
pub(super) struct QueuedRun {
    job: DeadlineKey,
    due: DueTime,
    /// The [number](ScheduledJob::plan_number) of the plan that the run was due by.
    plan: u32,
    /// Whether it uses up one of the plan's runs.
    is_planned: bool,
    attempt: u32,
    /// See [`RunFacts::wall`].
    wall: Time,
}

/// A run that is to be queued.
#[derive(Clone, Copy)]
pub(super) struct NewRun {
    pub(super) due: DueTime,
    pub(super) is_planned: bool,
    pub(super) attempt: u32,
    pub(super) wall: Time,
}

/// Whether all due jobs were queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Admitted {
    All,
    /// There may be more due jobs, and there is room for them.
    Some,
    /// There may be more due jobs, and they have to wait for room.
    UpToRoom,
}

impl<K> SchedulerState<K> {
    /// How many due jobs are processed before the lock is released.
    const BATCH: usize = 64;
    /// How many steps of the wheel's upkeep are done before the lock is released.
    const STEPS: usize = 1024;

    /// Returns what the calling thread does next.
    pub(in crate::scheduler) fn next(&mut self, now: ClockPair) -> NextAction<K> {
        self.observe_clocks(now);
        let admitted = match (self.phase, self.drain_until) {
            (SchedulerPhase::Running, _) => self.admit(now),
            (_, Some(until)) => self.admit(until),
            _ => Admitted::All,
        };
        if admitted == Admitted::All {
            self.drain_until = None;
        }
        self.tasks_first = !self.tasks_first;
        if self.tasks_first
            && let Some(task) = self.tasks.pop_front()
        {
            return NextAction::Task(task);
        }
        if let Some(start) = self.begin(now) {
            return NextAction::Run(start);
        }
        if let Some(task) = self.tasks.pop_front() {
            return NextAction::Task(task);
        }
        match (self.phase, admitted) {
            (SchedulerPhase::Over, _) => NextAction::End,
            (SchedulerPhase::Ending(_), Admitted::All) if self.running == 0 => NextAction::End,
            (_, Admitted::All) => NextAction::Wait,
            // The queued runs were of removed jobs, so there is room now.
            (_, Admitted::Some | Admitted::UpToRoom) => NextAction::Again,
        }
    }

    /// Records that a run has ended. Returns its job, to be dropped outside the lock, if this was the job's last run.
    #[must_use]
    pub(in crate::scheduler) fn record_end(&mut self, end: RunEnd, now: ClockPair) -> Option<RemovedJob<K>> {
        self.running -= 1;
        let RunEnd { job: job_key, facts, status, failure, timings } = end;
        let took = now.engine - facts.began;
        self.timings.iter_mut().for_each(|timings| timings.record(took, facts.late));
        self.stats.failed += u64::from(status.is_failure());
        let is_open = self.is_open();
        let job = self.jobs.get_mut(job_key)?;
        job.last_run = PackedRun::new(status, facts.began, took);
        if self.records_each_job {
            let extras = job.extras_mut();
            extras.timings = extras.timings.take().or(timings);
            extras.timings.iter_mut().for_each(|timings| timings.record(took, facts.late));
        }
        job.extras.iter_mut().for_each(|extras| extras.last_attempt = facts.attempt);
        if status.is_failure() {
            let problems = job.problems_mut();
            problems.failed += 1;
            problems.last_failure = failure;
            if is_open
                && facts.plan == job.plan_number
                && job.plan_retry(facts.attempt, facts.wall, now, &mut self.random)
            {
                self.update_deadline(job_key);
            }
        }
        self.queue_next_of(job_key);
        let is_over = self.jobs.get(job_key).is_some_and(ScheduledJob::is_over);
        if is_over { self.remove(job_key) } else { None }
    }

    /// Ends a run of a job, and queues the run that waited for its end, if there is one.
    fn queue_next_of(&mut self, job_key: DeadlineKey) {
        let Some(job) = self.jobs.get_mut(job_key) else { return };
        let (clock, next_deadline) = (job.timing.clock(), job.next_deadline());
        let next = job.end_run().map(|time| NewRun::planned(DueTime { time, clock }));
        let next = next.or_else(|| job.take_requested().map(|time| NewRun::requested(DueTime { time, clock })));
        if let Some(next) = next
            && self.phase != SchedulerPhase::Ending(Shutdown::Abort)
        {
            self.enqueue(job_key, next);
            // If there was no room for the planned run, the one that was asked for comes now: it has been accepted.
            if let Some(time) = self.jobs.get_mut(job_key).and_then(ScheduledJob::take_requested) {
                self.enqueue(job_key, NewRun::requested(DueTime { time, clock }));
            }
            self.update_deadline_if_changed(job_key, next_deadline);
        }
    }

    /// Removes a job whose plan has ended without a further run. The caller takes it with
    /// [`take_ended_jobs`](SchedulerState::take_ended_jobs).
    pub(super) fn remove_if_over(&mut self, job_key: DeadlineKey) {
        if self.jobs.get(job_key).is_some_and(ScheduledJob::is_over) {
            let removed = self.remove(job_key);
            self.ended_jobs.extend(removed);
        }
    }

    /// Returns the jobs that were removed because their plans ended, to be dropped outside the lock.
    #[must_use]
    pub(in crate::scheduler) fn take_ended_jobs(&mut self) -> Vec<RemovedJob<K>> {
        std::mem::take(&mut self.ended_jobs)
    }

    /// Counts a run that took longer than its time limit.
    pub(in crate::scheduler) fn count_over_limit(&mut self, job_key: DeadlineKey) {
        self.stats.over_limit += 1;
        if let Some(job) = self.jobs.get_mut(job_key) {
            job.problems_mut().over_limit += 1;
        }
    }

    /// Adds an async run that was woken and is to be polled.
    pub(in crate::scheduler) fn push_task(&mut self, task: Runnable) {
        self.tasks.push_back(task);
        self.alerts += 1;
    }

    /// Returns how many runs wait for a thread.
    pub(in crate::scheduler) fn queued(&self) -> usize {
        self.queue.len() - self.removed_in_queue
    }

    /// Queues due jobs, until the queue or the batch is full.
    fn admit(&mut self, now: ClockPair) -> Admitted {
        let mut left = Self::BATCH;
        while left > 0 {
            if self.is_queue_full() && self.rules.overflow == Overflow::Wait {
                return Admitted::UpToRoom;
            }
            match self.pop(now) {
                Ok((key, due)) => self.on_due(key, due, now),
                Err(admitted) => return admitted,
            }
            left -= 1;
        }
        Admitted::Some
    }

    /// Returns a due job, or whether there may be more. The two clocks alternate, so that a clock on which a job is always due does
    /// not keep back the jobs of the other.
    fn pop(&mut self, now: ClockPair) -> Result<(DeadlineKey, DueTime), Admitted> {
        if !self.has_wall_jobs() {
            self.clock_first = ClockId::Engine;
            return self.pop_on(ClockId::Engine, now);
        }
        self.clock_first = self.clock_first.other();
        match self.pop_on(self.clock_first, now) {
            Err(Admitted::All) => self.pop_on(self.clock_first.other(), now),
            found => found,
        }
    }

    /// Returns a job that is due on one clock, or whether there may be more.
    fn pop_on(&mut self, clock: ClockId, now: ClockPair) -> Result<(DeadlineKey, DueTime), Admitted> {
        let popped = match clock {
            ClockId::Engine => self.jobs.pop(now.engine, Self::STEPS),
            ClockId::Wall => self.wall_deadlines.pop(now.wall, Self::STEPS),
        };
        match popped {
            Popped::Due(key, time) => Ok((key, DueTime { time, clock })),
            Popped::NotYet => Err(Admitted::Some),
            Popped::Nothing => Err(Admitted::All),
        }
    }

    /// Returns whether no more runs can be queued. Beyond the limit there is room for one run for each idle thread, and for one that
    /// the calling thread takes.
    pub(super) fn is_queue_full(&self) -> bool {
        self.queued() > self.rules.queue.saturating_add(self.idle)
    }

    /// Processes a job that is due.
    fn on_due(&mut self, job_key: DeadlineKey, due: DueTime, now: ClockPair) {
        let Some(job) = self.jobs.get_mut(job_key) else { return };
        if job.extras.is_some() && self.on_retry_due(job_key, due, now) {
            return;
        }
        let Some(job) = self.jobs.get_mut(job_key) else { return };
        let (now, started_at) = (now.on(due.clock), self.started_at.on(due.clock));
        job.due = due.time;
        job.starts_in_past &= due.time < started_at;
        let passed_over = if job.starts_in_past { 0 } else { job.pass_over_until(started_at) };
        if passed_over > 0 {
            add(&mut job.problems_mut().missed, passed_over);
            add(&mut self.stats.missed, passed_over);
            self.update_deadline(job_key);
            return self.remove_if_over(job_key);
        }
        let action = job.on_due(due.time, now);
        if action.run {
            self.enqueue(job_key, NewRun::planned(due));
        }
        if action.missed > 0 || action.overlapped > 0 {
            self.count_unmade(job_key, action);
        }
        self.update_deadline(job_key);
        self.remove_if_over(job_key);
    }

    /// Queues a retry, if it is one that is due. Returns whether the regular run is not to be queued now.
    ///
    /// If the regular time has come as well, because the scheduler is late or the wall clock was set forward, the regular run comes
    /// instead of all retries.
    fn on_retry_due(&mut self, job_key: DeadlineKey, due: DueTime, now: ClockPair) -> bool {
        let Some(job) = self.jobs.get_mut(job_key) else { return true };
        let (is_active, clock) = (job.active > 0 && job.overlap != Overlap::Parallel, job.timing.clock());
        let next = job.next_deadline();
        let Some(extras) = &mut job.extras else { return false };
        if next <= now.on(clock) {
            extras.retries.clear();
            let is_of_retry = due.clock != clock || due.time < next;
            if is_of_retry {
                // The regular run has its own turn among those that are due.
                self.update_deadline(job_key);
            }
            return is_of_retry;
        }
        let retry = if due.clock == ClockId::Engine { extras.retries.take_due(due.time) } else { None };
        let Some(retry) = retry else { return due.clock != clock };
        if is_active {
            add(&mut job.problems_mut().overlapped, 1);
            add(&mut self.stats.overlapped, 1);
        } else {
            self.enqueue(job_key, NewRun { due, is_planned: false, attempt: retry.attempt, wall: retry.wall });
        }
        self.update_deadline(job_key);
        self.remove_if_over(job_key);
        true
    }

    /// Counts the occurrences for which no run is made. Called after the run that is made was queued, because a plan has no occurrences
    /// after its last run, however late that is (D60).
    fn count_unmade(&mut self, job_key: DeadlineKey, action: DueAction) {
        let Some(job) = self.jobs.get_mut(job_key) else { return };
        let is_last = action.run && job.runs_left == 0;
        let missed = if is_last { 0 } else { action.missed };
        if missed > 0 || action.overlapped > 0 {
            let problems = job.problems_mut();
            add(&mut problems.missed, missed);
            add(&mut problems.overlapped, action.overlapped);
            add(&mut self.stats.missed, missed);
            add(&mut self.stats.overlapped, action.overlapped);
        }
    }

    /// Queues a run, or applies the [`Overflow`] rule if there is no room.
    pub(super) fn enqueue(&mut self, job_key: DeadlineKey, run: NewRun) {
        let is_full = self.is_queue_full();
        let Some(job) = self.jobs.get_mut(job_key) else { return };
        // A run that was asked for has been accepted, and is made however full the queue is when its turn comes.
        if is_full && self.rules.overflow == Overflow::Skip && !run.is_requested() {
            // The runs of the backlog, which were to follow this one, are not made either.
            let count = job.take_backlog().count.saturating_add(1);
            add(&mut job.problems_mut().overflowed, count);
            add(&mut self.stats.overflowed, count);
            return;
        }
        if is_full && self.rules.overflow == Overflow::RunLate {
            self.stats.late += 1;
        }
        job.enqueue_run(run.is_planned);
        let (plan, NewRun { due, is_planned, attempt, wall }) = (job.plan_number, run);
        self.queue.push_back(QueuedRun { job: job_key, due, plan, is_planned, attempt, wall });
    }

    /// Updates a job's deadline if its [next deadline](ScheduledJob::next_deadline) is no longer `before`. A job whose last run is queued
    /// loses its deadline, else it would count as overlapped when it is next due. A job whose backlog found no room gets one again.
    fn update_deadline_if_changed(&mut self, job_key: DeadlineKey, before: Time) {
        if self.jobs.get(job_key).is_some_and(|job| job.next_deadline() != before) {
            self.update_deadline(job_key);
        }
    }

    /// Removes the runs of removed jobs and replaced plans from the queue if they are the greater part of it. So the memory is bounded, also while
    /// no thread comes to the queue, and a change of a job takes constant time on average.
    #[inline]
    pub(super) fn drop_withdrawn_runs(&mut self) {
        if self.has_many_withdrawn_runs() {
            self.drop_all_withdrawn_runs();
        }
    }

    #[inline]
    pub(super) fn has_many_withdrawn_runs(&self) -> bool {
        self.removed_in_queue > WITHDRAWN_KEPT.max(self.queue.len() / 2)
    }

    #[cold]
    fn drop_all_withdrawn_runs(&mut self) {
        let jobs = &self.jobs;
        self.queue.retain(|run| jobs.get(run.job).is_some_and(|job| job.plan_number == run.plan));
        self.removed_in_queue = 0;
    }

    /// Begins the first queued run whose job has been neither removed nor paused, and still has the plan that the run was due by.
    fn begin(&mut self, now: ClockPair) -> Option<RunStart<K>> {
        if matches!(self.phase, SchedulerPhase::Stopped | SchedulerPhase::Over) {
            return None;
        }
        while let Some(QueuedRun { job: key, due, plan, is_planned, attempt, wall }) = self.queue.pop_front() {
            let Some(job) = self.jobs.get_mut(key).filter(|job| job.plan_number == plan) else {
                self.removed_in_queue -= 1;
                continue;
            };
            if job.is_paused {
                job.withdraw_run(is_planned, due.time);
                continue;
            }
            job.begin_run();
            self.stats.runs += 1;
            self.running += 1;
            if attempt > 1 {
                job.problems_mut().retried += 1;
                self.stats.retried += 1;
            }
            let late = now.on(due.clock) - due.time;
            let needs_timings =
                self.records_each_job && job.extras.as_ref().is_none_or(|extras| extras.timings.is_none());
            let facts = RunFacts { attempt, plan, wall, began: now.engine, late, needs_timings };
            let time_limit = job.options().and_then(|options| options.time_limit);
            let body = job.body.share();
            return Some(RunStart { job: key, body, number: job.runs, due, facts, time_limit });
        }
        None
    }
}

impl RunEnd {
    /// Returns the end of a run. Called outside the lock, because it may allocate.
    pub(in crate::scheduler) fn new(
        job: DeadlineKey,
        facts: RunFacts,
        status: RunStatus,
        failure: Option<String>,
    ) -> RunEnd {
        RunEnd { job, facts, status, failure, timings: facts.needs_timings.then(Box::default) }
    }

    /// Returns the end of a run that began like this.
    #[cfg(test)]
    pub(in crate::scheduler) fn of<K>(start: &RunStart<K>, status: RunStatus) -> RunEnd {
        RunEnd::new(start.job, start.facts, status, status.is_failure().then(String::new))
    }
}

impl NewRun {
    /// Returns a run of the plan.
    fn planned(due: DueTime) -> NewRun {
        NewRun { is_planned: true, ..NewRun::requested(due) }
    }

    /// Returns a run that a user asked for.
    pub(super) fn requested(due: DueTime) -> NewRun {
        let wall = if due.clock == ClockId::Wall { due.time } else { Time::NEVER };
        NewRun { due, is_planned: false, attempt: 1, wall }
    }

    fn is_requested(&self) -> bool {
        !self.is_planned && self.attempt == 1
    }
}

/// Adds to a count, saturating: an interval of one nanosecond can be missed more often in centuries than a count can hold.
fn add(count: &mut u64, more: u64) {
    *count = count.saturating_add(more);
}
