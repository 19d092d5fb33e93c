//! Jobs under keys that run at intervals or by cron lines, on a bounded pool of threads.
//!
//! See [`Scheduler`].

mod async_run;
mod builder;
mod clock_pair;
mod ending;
mod error;
mod job;
mod job_body;
mod key_index;
#[cfg(all(loom, test))]
#[path = "../verify/loom/scheduler.rs"]
mod loom_models;
mod plan;
mod shared;
mod state;
mod stats;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use std::borrow::Borrow;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, Weak};

use tourbillon_queue::Time;

pub use self::builder::{Builder, Overflow};
use self::clock_pair::ClockId;
pub use self::ending::{Ending, Shutdown};
pub use self::error::{Cause, Failure, JobResult, ScheduleError, ScheduleErrorKind};
use self::job::{RemovedJob, ScheduledJob};
pub use self::job_body::Run;
use self::job_body::{AsyncJob, BlockingJob, JobBody, JobBodyParts};
use self::plan::FOR_EVER;
pub use self::plan::{Overlap, Plan};
use self::shared::SchedulerShared;
use self::state::{SchedulerPhase, SchedulerState};
pub use self::stats::{JobReport, Remaining, SchedulerStats};
use crate::clock::WallShift;
use crate::core::CoreRef;
use crate::engine::Engine;
use crate::instant::Instant;
use crate::multi::deadline_map::DeadlineKey;
use crate::sync::MutexGuard;
use crate::sync::catch_panic::catch_panic;

/// Runs jobs, each under its own key and by its own plan, on a few threads.
///
/// ```
/// use std::sync::mpsc::channel;
/// use std::time::Duration;
/// use tourbillon::scheduler::{Plan, Scheduler};
///
/// let (sender, receiver) = channel();
/// let scheduler = Scheduler::builder().threads(2).build()?;
/// scheduler.schedule("greet", Plan::every(Duration::from_millis(2)).times(3), move |run| {
///     sender.send((*run.key(), run.number())).unwrap();
/// })?;
/// assert_eq!(receiver.iter().collect::<Vec<_>>(), [("greet", 1), ("greet", 2), ("greet", 3)]);
/// assert!(!scheduler.contains("greet"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Jobs
///
/// A job is a closure, which blocks one of the scheduler's threads while it runs, or a closure that returns a future
/// ([`schedule_async`](Scheduler::schedule_async)), which blocks no thread while it waits. The closure is given its [`Run`]: key,
/// number, due time. It may return nothing or a `Result`. A panic or an error is counted and [reported](Builder::on_failure), and
/// the job goes on.
///
/// # Time
///
/// The n-th run is due n intervals after the job was scheduled, to the nanosecond: lateness does not add up, and no run
/// begins early. Runs begin in the order of their due times. See [`Plan`] for when jobs run, [`Overlap`] for jobs that take longer
/// than their interval, [`Overflow`] for when all threads are busy, and [`Builder::missed`] for times that have passed. A run that
/// is not made for one of these reasons is counted: [`stats`](Scheduler::stats), [`report`](Scheduler::report).
///
/// # Handles
///
/// Clones are handles of the same scheduler. When the last handle is dropped, the scheduler is shut down as by
/// [`Shutdown::Abort`]. A job gets a handle from [`Run::scheduler`]; a job that keeps a handle keeps the scheduler alive until the
/// job is removed.
///
/// Every method can be called from any thread, in any order and from within a job, and no method blocks. Keys are compared
/// under the scheduler's lock: their `Eq` must not call the scheduler.
///
/// # Panics
///
/// Only if the `Hash`, `Eq` or `Clone` of a key panics.
pub struct Scheduler<K> {
    owner: Arc<SchedulerOwner<K>>,
}

/// The identity of one job of one scheduler. It stays unique after the job is removed, also if another job gets the same key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct JobId(DeadlineKey);

/// The part that all handles share. Dropping it shuts the scheduler down.
struct SchedulerOwner<K> {
    shared: Arc<SchedulerShared<K>>,
    hasher: RandomState,
    /// Keeps the engine running as long as there are handles.
    engine: Engine,
    /// The engine that [`Builder::wall_engine`] gave for the wall clock.
    wall_engine: Option<Engine>,
}

impl<K> Scheduler<K> {
    fn upgrade(shared: &SchedulerShared<K>) -> Option<Scheduler<K>> {
        shared.owner.get().and_then(Weak::upgrade).map(|owner| Scheduler { owner })
    }
}

impl<K: Send + Sync + 'static> Scheduler<K> {
    /// Returns a builder with the default settings.
    pub fn builder() -> Builder<K> {
        Builder::new()
    }

    /// Returns how many jobs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open().map_or(0, |state| state.jobs.len())
    }

    /// Returns whether there is no job.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the keys of all jobs, in no particular order.
    #[must_use]
    pub fn keys(&self) -> Vec<K>
    where
        K: Clone,
    {
        // Keys are cloned outside the lock.
        let bodies: Vec<_> = self.open().map_or_else(Vec::new, |state| state.bodies().collect());
        bodies.into_iter().map(key_of).collect()
    }

    /// Starts to run jobs again, after a [`stop`](Scheduler::stop). Times that passed meanwhile are counted as missed and not made up
    /// for; the next runs are due as planned. A job that runs [once](Plan::once) and whose time passed is due at once.
    pub fn start(&self) {
        let shared = &self.owner.shared;
        let mut state = shared.lock();
        let now = shared.now(true);
        state.start(now);
        let wakeups = state.take_new_wakeups();
        shared.unlock_alerted(state);
        shared.set_wakeups(wakeups);
    }

    /// Stops beginning runs, until the scheduler is [started](Scheduler::start) again. Runs that have begun go on. Jobs can be
    /// scheduled and removed meanwhile.
    pub fn stop(&self) {
        self.owner.shared.lock().stop();
        self.owner.shared.postpone_virtual_wakeups();
    }

    /// Returns whether the scheduler runs jobs: it has been neither stopped nor shut down.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.owner.shared.lock().phase == SchedulerPhase::Running
    }

    /// Shuts the scheduler down for ever: no job can be found any more, and runs end as `how` says. Returns without waiting; the
    /// [`Ending`] waits for the end of the runs.
    ///
    /// After `Drain` the scheduler can be shut down once more with `Abort`.
    pub fn shutdown(&self, how: Shutdown) -> Ending<K> {
        self.owner.shared.shut_down_and_alert(how);
        Ending::of(Arc::clone(&self.owner.shared))
    }

    /// Returns what the scheduler has done so far.
    #[must_use]
    pub fn stats(&self) -> SchedulerStats {
        let state = self.owner.shared.lock();
        let jobs = if state.is_open() { state.jobs.len() } else { 0 };
        SchedulerStats { jobs, waiting: state.queued(), running: state.running, ..state.stats }
    }

    /// Removes exactly this job, and not another that was scheduled under the same key since. Returns whether the job was still there.
    /// See [`remove`](Scheduler::remove).
    pub fn remove_job(&self, job: JobId) -> bool {
        let Some(mut state) = self.open() else { return false };
        let removed = state.remove(job.0);
        drop(state);
        self.owner.shared.postpone_virtual_wakeups();
        drop_removed(removed)
    }

    /// Locks the state; `None` if the scheduler has been shut down, and so has no jobs.
    fn open(&self) -> Option<MutexGuard<'_, SchedulerState<K>>> {
        let state = self.owner.shared.lock();
        state.is_open().then_some(state)
    }
}

impl<K: Hash + Eq + Send + Sync + 'static> Scheduler<K> {
    /// Schedules a job under a key that has none.
    ///
    /// The closure runs on one of the scheduler's threads, never inside this call.
    ///
    /// # Errors
    /// There is already a job under this key, the plan has an interval or a number of runs of zero, the scheduler is full or was
    /// shut down. The error gives back key and job.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::scheduler::{Scheduler, ScheduleErrorKind};
    ///
    /// let scheduler = Scheduler::builder().build()?;
    /// scheduler.schedule(7, Duration::from_secs(1), |_| println!("tick"))?;
    /// let error = scheduler.schedule(7, Duration::from_secs(1), |_| println!("tock")).unwrap_err();
    /// assert_eq!((error.kind, error.key), (ScheduleErrorKind::Duplicate, 7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn schedule<F, R>(&self, key: K, plan: impl Into<Plan>, job: F) -> Result<JobId, ScheduleError<K, F>>
    where
        F: Fn(&Run<K>) -> R + Send + Sync + 'static,
        R: JobResult + 'static,
    {
        self.add::<BlockingJob<K, F>, F>(key, plan.into(), job)
    }

    /// Schedules a job whose runs are futures. See [`schedule`](Scheduler::schedule).
    ///
    /// The futures are polled on the scheduler's threads, or on an [executor](Builder::spawn_with) of yours.
    ///
    /// # Errors
    /// As for [`schedule`](Scheduler::schedule).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::scheduler::{Plan, Scheduler};
    ///
    /// let scheduler = Scheduler::builder().build()?;
    /// scheduler.schedule_async("fetch", Plan::every(Duration::from_secs(5)).first_at_once(), |run| async move {
    ///     tourbillon::time::sleep(Duration::from_millis(10)).await;
    ///     println!("{} has run {} times", run.key(), run.number());
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn schedule_async<F, R>(&self, key: K, plan: impl Into<Plan>, job: F) -> Result<JobId, ScheduleError<K, F>>
    where
        F: Fn(Run<K>) -> R + Send + Sync + 'static,
        R: Future<Output: JobResult> + Send + 'static,
    {
        self.add::<AsyncJob<K, F>, F>(key, plan.into(), job)
    }

    /// Removes a job, and returns whether there was one. None of its runs begins after this; a run that has begun goes on. The key
    /// is free again.
    pub fn remove<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hash(key);
        self.owner.shared.tag_address.prefetch(hash);
        let Some(mut state) = self.open() else { return false };
        let removed = state.remove_under(hash, key);
        drop(state);
        self.owner.shared.postpone_virtual_wakeups();
        drop_removed(removed)
    }

    /// Returns whether there is a job under this key. A job is there until its last run has ended.
    #[must_use]
    pub fn contains<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.with_job(key, |_| ()).is_some()
    }

    /// Returns how many runs the job has left; `None` if there is no such job.
    #[must_use]
    pub fn remaining<Q>(&self, key: &Q) -> Option<Remaining>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.with_job(key, |job| match job.runs_left {
            FOR_EVER => Remaining::ForEver,
            runs => Remaining::Runs(runs),
        })
    }

    /// Returns when the job is due next; `None` if there is no such job, or it is paused, or it has no further run. While the
    /// scheduler is stopped, this is when the job would be due if the scheduler were started now.
    #[must_use]
    pub fn next_run<Q>(&self, key: &Q) -> Option<Instant>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hash(key);
        let now = self.owner.shared.now(true);
        let state = self.open()?;
        let due = state.next_due(state.find(hash, key)?, now)?;
        drop(state);
        Some(self.owner.shared.instant(due))
    }

    /// Returns what the job has done so far; `None` if there is no such job.
    #[must_use]
    pub fn report<Q>(&self, key: &Q) -> Option<JobReport>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.with_job(key, |job| {
            let report = JobReport { runs: job.runs, ..JobReport::default() };
            let Some(problems) = &job.problems else { return report };
            JobReport {
                failed: problems.failed,
                overlapped: problems.overlapped,
                overflowed: problems.overflowed,
                missed: problems.missed,
                last_failure: problems.last_failure.clone(),
                ..report
            }
        })
    }

    /// Gives a job another plan, from now on. The job keeps its closure, its count of runs, and whether it is paused. A run that has
    /// begun goes on; runs that were still to be made up for are dropped.
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
    /// There is no such job, the plan has an interval or a number of runs of zero, or the scheduler, or the engine of the wall clock, was
    /// shut down. (The engine of the wall clock matters only for a plan that follows the wall clock.)
    pub fn reschedule<Q>(&self, key: &Q, plan: impl Into<Plan>) -> Result<(), ScheduleErrorKind>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let plan = plan.into();
        plan.check()?;
        let due = self.first_due(&plan)?;
        let hash = self.hash(key);
        let mut state = self.open().ok_or(ScheduleErrorKind::ShutDown)?;
        let found = state.find(hash, key).ok_or(ScheduleErrorKind::Unknown)?;
        if plan.timing.clock() == ClockId::Wall {
            state.observe_clocks(self.owner.shared.now(true));
        }
        let _to_be_dropped_unlocked = state.change_plan(found, plan, due);
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
        self.owner.shared.unlock_changed(state);
        is_there
    }

    fn with_job<Q, R>(&self, key: &Q, ask: impl FnOnce(&ScheduledJob<K>) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hash(key);
        let state = self.open()?;
        state.find(hash, key).and_then(|job| state.jobs.get(job)).map(ask)
    }

    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u32 {
        // All bits of the hash are equally good.
        self.owner.hasher.hash_one(key) as u32
    }

    fn add<B: JobBodyParts<K, F> + 'static, F>(
        &self,
        key: K,
        plan: Plan,
        job: F,
    ) -> Result<JobId, ScheduleError<K, F>> {
        let shared = &self.owner.shared;
        let hash = self.hash(&key);
        // As early as possible: among many jobs, the wait for the tags is the longest part of scheduling.
        shared.tag_address.prefetch(hash);
        let due = match plan.check().and_then(|()| self.first_due(&plan)) {
            Ok(due) => due,
            Err(kind) => return Err(ScheduleError { kind, key, job }),
        };
        let body = Arc::new(B::of(key, job));
        let mut state = shared.lock();
        if let Err(kind) = state.check_new(hash, body.key()) {
            drop(state);
            let (key, job) = Arc::into_inner(body).expect("no other thread has seen it").into_parts();
            return Err(ScheduleError { kind, key, job });
        }
        if plan.timing.clock() == ClockId::Wall {
            state.observe_clocks(shared.now(true));
        }
        let job = ScheduledJob::new(body, hash, plan, due, &state.rules);
        let id = JobId(state.insert(job));
        shared.tag_address.set(&state.keys);
        shared.unlock_changed(state);
        Ok(id)
    }

    /// Returns when the first run of a plan is due.
    ///
    /// # Errors
    /// The plan follows the wall clock, and the engine of the wall clock was shut down. A job with such a plan would never run, and
    /// would end the whole scheduler, because a scheduler ends with either of its engines.
    fn first_due(&self, plan: &Plan) -> Result<Time, ScheduleErrorKind> {
        let shared = &self.owner.shared;
        let clock = match plan.timing.clock() {
            ClockId::Engine => &shared.engine_clock,
            ClockId::Wall => shared.wall_clock(|| self.owner.wall_core()).ok_or(ScheduleErrorKind::ShutDown)?,
        };
        Ok(plan.first_due(clock))
    }
}

impl<K> SchedulerOwner<K> {
    fn new(shared: Arc<SchedulerShared<K>>, engine: Engine, wall: Option<Engine>) -> SchedulerOwner<K> {
        SchedulerOwner { shared, hasher: RandomState::new(), engine, wall_engine: wall }
    }

    /// Returns the engine of the wall clock: the one that the user gave for it, or the scheduler's own if that is in virtual time, or
    /// the one that follows the system's wall clock.
    fn wall_core(&self) -> (CoreRef, Option<WallShift>) {
        if let Some(engine) = &self.wall_engine {
            return (engine.core().clone(), None);
        }
        match self.engine.clock().wall_shift() {
            Some(shift) => (self.engine.core().clone(), Some(shift)),
            None => (Engine::wall().core().clone(), None),
        }
    }
}

impl<K> Drop for SchedulerOwner<K> {
    fn drop(&mut self) {
        self.shared.shut_down(Shutdown::Abort);
    }
}

impl<K> Clone for Scheduler<K> {
    fn clone(&self) -> Scheduler<K> {
        Scheduler { owner: Arc::clone(&self.owner) }
    }
}

impl<K: Send + Sync + 'static> fmt::Debug for Scheduler<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// Returns a copy of a job's key. If the job was removed meanwhile, this drops its closure, whose destructor may panic.
fn key_of<K: Clone>(body: Arc<dyn JobBody<K>>) -> K {
    let key = body.key().clone();
    let _ignored = catch_panic(|| drop(body));
    key
}

/// Drops a removed job, outside the lock, as the destructors of its closure and key may do anything. Returns whether there was a job.
fn drop_removed<K>(job: Option<RemovedJob<K>>) -> bool {
    let is_there = job.is_some();
    let _ignored = catch_panic(|| drop(job));
    is_there
}
