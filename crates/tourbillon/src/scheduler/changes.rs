//! Changes of the jobs of a scheduler.

use std::borrow::Borrow;
use std::future::Future;
use std::hash::Hash;

use super::clock_pair::ClockId;
use super::error::{JobResult, ScheduleError, ScheduleErrorKind};
use super::job_body::{AsyncJob, BlockingJob, JobBodyParts, Run};
use super::plan::Plan;
use super::state::{Requested, RunNowError};
use super::{JobId, Scheduler, drop_removed};
use crate::sync::catch_panic::catch_panic;

/// The result of [`Scheduler::upsert`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Upserted {
    /// There was no job under the key, and now there is this one.
    Inserted(JobId),
    /// This job has another plan and closure now.
    Replaced(JobId),
}

impl<K: Hash + Eq + Send + Sync + 'static> Scheduler<K> {
    /// Gives a job another plan, from now on. The job keeps its closure, its count of runs, and whether it is paused. A run that has
    /// begun goes on. Any other run of the old plan is not made: not one that waits for a thread, and not one that was still to be
    /// made up for, repeated, or [asked for](Scheduler::run_now).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::scheduler::{Remaining, Plan, Scheduler};
    ///
    /// let scheduler = Scheduler::builder().threads(1).build()?;
    /// scheduler.schedule("poll", Duration::from_secs(60), |_| println!("polled"))?;
    /// scheduler.reschedule("poll", Plan::every(Duration::from_secs(5)).times(12))?;
    /// assert_eq!(scheduler.remaining("poll"), Some(Remaining::Runs(12)));
    /// assert!(scheduler.pause("poll") && scheduler.next_run("poll").is_none());
    /// assert!(scheduler.resume("poll") && scheduler.next_run("poll").is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is no such job, the plan makes no sense or ends before its first run, or the scheduler, or the engine of the wall clock, was
    /// shut down. (The engine of the wall clock matters only for a plan that follows the wall clock.)
    pub fn reschedule<Q>(&self, key: &Q, plan: impl Into<Plan>) -> Result<(), ScheduleErrorKind>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let (plan, due) = self.with_first_due(plan.into())?;
        let hash = self.hash(key);
        let mut state = self.open().ok_or(ScheduleErrorKind::ShutDown)?;
        let found = state.find(hash, key).ok_or(ScheduleErrorKind::Unknown)?;
        if plan.timing.clock() == ClockId::Wall {
            state.observe_clocks(self.owner.shared.now(true));
        }
        let _to_be_dropped_unlocked = state.change_plan(found, plan, due, None);
        self.owner.shared.unlock_changed(state);
        Ok(())
    }

    /// Pauses a job until it is [resumed](Scheduler::resume): no run of it begins. Returns `false` if there is no such job.
    pub fn pause<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hash(key);
        let Some(mut state) = self.open() else { return false };
        let is_there = state.find(hash, key).is_some_and(|job| state.pause(job));
        drop(state);
        self.owner.shared.postpone_virtual_wakeups();
        is_there
    }

    /// Resumes a paused job. The times that passed are not made up for: the next run is due as planned. A job that runs
    /// [once](Plan::once) and whose time passed is due at once. Returns `false` if there is no such job.
    pub fn resume<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hash(key);
        let now = self.owner.shared.now(true);
        let Some(mut state) = self.open() else { return false };
        let is_there = state.find(hash, key).is_some_and(|job| state.resume(job, now));
        let ended = state.take_ended_jobs();
        self.owner.shared.unlock_changed(state);
        ended.into_iter().for_each(|job| _ = drop_removed(Some(job)));
        is_there
    }

    /// Schedules a job, or replaces the plan and the closure of the job under this key, in one atomic step: of two threads that do so at
    /// once, one inserts and the other replaces. Returns which of both happened.
    ///
    /// A job that is replaced is still the same job, as after [`reschedule`](Scheduler::reschedule): it keeps its [`JobId`], its counts,
    /// and whether it is paused. A run that has begun goes on with the old closure, and the [`Overlap`](super::Overlap) rule holds between it and
    /// the runs of the new closure. A run of the old plan that waits for a thread is not made.
    ///
    /// # Errors
    /// The plan makes no sense or ends before its first run, the scheduler is full and has no job under this key, or it was shut
    /// down. The error gives back key and job.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::scheduler::{Plan, Scheduler};
    ///
    /// let scheduler = Scheduler::builder().threads(1).build()?;
    /// // Indexes a file when it has not changed for a second.
    /// let changed = |file: &str| {
    ///     scheduler.upsert(file.to_owned(), Plan::once(Duration::from_secs(1)), |run| println!("indexes {}", run.key()))
    /// };
    /// assert!(!changed("notes.md")?.is_replaced());
    /// assert!(changed("notes.md")?.is_replaced());
    /// assert_eq!(scheduler.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn upsert<F, R>(&self, key: K, plan: impl Into<Plan>, job: F) -> Result<Upserted, ScheduleError<K, F>>
    where
        F: Fn(&Run<K>) -> R + Send + Sync + 'static,
        R: JobResult + 'static,
    {
        self.replace_or_add::<BlockingJob<K, F>, F>(key, plan.into(), job)
    }

    /// Schedules a job whose runs are futures, or replaces the job under this key: see [`upsert`](Scheduler::upsert).
    ///
    /// # Errors
    /// As for [`upsert`](Scheduler::upsert).
    pub fn upsert_async<F, R>(&self, key: K, plan: impl Into<Plan>, job: F) -> Result<Upserted, ScheduleError<K, F>>
    where
        F: Fn(Run<K>) -> R + Send + Sync + 'static,
        R: Future<Output: JobResult> + Send + 'static,
    {
        self.replace_or_add::<AsyncJob<K, F>, F>(key, plan.into(), job)
    }

    /// Makes a run of a job at once, beside those of its plan: the plan goes on as before, and the run uses up none of its
    /// [`times`](Plan::times). If the run fails, it is [repeated](Plan::retry) as any other.
    ///
    /// The run is queued as if it were due now: while a run of the job is active, it is refused, waits or overlaps by the job's
    /// [`Overlap`](super::Overlap) rule. The result says whether it waits. A run that is accepted is made, however full the queue is
    /// later, unless the job is paused, removed or gets another plan, or the scheduler is aborted before.
    ///
    /// # Errors
    /// There is no such job, it is paused, or it may not overlap with its active run; the queue is full (except with
    /// [`Overflow::RunLate`](super::Overflow::RunLate)); the scheduler is stopped or was shut down.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use std::time::Duration;
    /// use tourbillon::scheduler::{Requested, RunNowError, Scheduler};
    ///
    /// let (send, receive) = channel();
    /// let scheduler = Scheduler::builder().threads(1).build()?;
    /// let job = scheduler.schedule("report", Duration::from_secs(3600), move |run| send.send(run.number()))?;
    /// assert_eq!(scheduler.run_now("report"), Ok(Requested::Queued(job)));
    /// assert_eq!(receive.recv(), Ok(1));
    /// assert_eq!(scheduler.run_now("raport"), Err(RunNowError::Unknown));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_now<Q>(&self, key: &Q) -> Result<Requested, RunNowError>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hash(key);
        let shared = &self.owner.shared;
        let mut state = self.open().ok_or(RunNowError::ShutDown)?;
        let now = shared.now(state.has_wall_jobs());
        let job = state.find(hash, key).ok_or(RunNowError::Unknown)?;
        let requested = state.run_now(job, now)?;
        shared.unlock_alerted(state);
        Ok(requested)
    }

    fn replace_or_add<B: JobBodyParts<K, F> + 'static, F>(
        &self,
        key: K,
        plan: Plan,
        job: F,
    ) -> Result<Upserted, ScheduleError<K, F>> {
        let shared = &self.owner.shared;
        let hash = self.hash(&key);
        let (plan, due) = match self.with_first_due(plan) {
            Ok(found) => found,
            Err(kind) => return Err(ScheduleError { kind, key, job }),
        };
        let body = Box::new(B::of(key, job));
        let mut state = shared.lock();
        let found = state.find(hash, body.key()).filter(|_| state.is_open());
        let Some(found) = found else { return self.insert(state, hash, plan, due, body).map(Upserted::Inserted) };
        if plan.timing.clock() == ClockId::Wall {
            state.observe_clocks(shared.now(true));
        }
        let replaced = state.change_plan(found, plan, due, Some(body));
        shared.unlock_changed(state);
        // Outside the lock, because the destructor of the closure may do anything.
        let _ignored = catch_panic(|| drop(replaced));
        Ok(Upserted::Replaced(JobId(found)))
    }
}

impl Upserted {
    /// Returns the identity of the job.
    #[must_use]
    pub fn job(self) -> JobId {
        match self {
            Upserted::Inserted(job) | Upserted::Replaced(job) => job,
        }
    }

    /// Returns whether there was a job under the key.
    #[must_use]
    pub fn is_replaced(self) -> bool {
        matches!(self, Upserted::Replaced(_))
    }
}
