//! Jobs under keys that run at intervals or by cron lines, on a bounded pool of threads.
//!
//! See [`Scheduler`].

mod async_run;
mod backoff;
mod builder;
mod changes;
mod clock_pair;
mod ending;
mod error;
mod history;
mod job;
mod job_body;
mod job_extras;
mod key_hasher;
mod key_index;
mod limit_watch;
#[cfg(all(loom, test))]
#[path = "../verify/loom/scheduler.rs"]
mod loom_models;
#[cfg(feature = "metrics")]
pub(crate) mod metrics_source;
mod options;
mod plan;
mod queries;
mod random;
mod shared;
mod state;
mod stats;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod timing;
pub(crate) mod timings;
mod user_hooks;

use std::borrow::Borrow;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Weak};

use tourbillon_queue::Time;

pub use self::backoff::{Backoff, BackoffError};
pub use self::builder::{Builder, Overflow};
pub use self::changes::Upserted;
use self::clock_pair::ClockId;
pub use self::ending::{Ending, Shutdown};
pub use self::error::{Cause, Failure, JobResult, ScheduleError, ScheduleErrorKind, SchedulerBuildError};
pub use self::history::{LastRun, RunStatus};
use self::job::RemovedJob;
pub use self::job_body::Run;
use self::job_body::{AsyncJob, BlockingJob, JobBody, JobBodyParts};
use self::key_hasher::KeyHashBuilder;
pub use self::plan::{Overlap, Plan};
use self::shared::SchedulerShared;
pub use self::state::{Requested, RunNowError};
use self::state::{SchedulerPhase, SchedulerState};
pub use self::stats::{JobReport, Remaining, SchedulerStats};
use crate::clock::WallShift;
use crate::core::CoreRef;
use crate::engine::Engine;
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
    hasher: KeyHashBuilder,
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

    /// Builds a scheduler on this engine, with the default settings.
    ///
    /// # Errors
    /// The system could not start a thread.
    pub fn on(engine: &Engine) -> Result<Scheduler<K>, SchedulerBuildError> {
        Builder::new().engine(engine).build()
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
        let bodies: Vec<_> = self.open().map_or_else(Vec::new, |mut state| state.bodies().collect());
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
        self.owner.shared.stats()
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
    /// There is already a job under this key, the plan makes no sense or ends before its first run, the scheduler is full or was
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
    /// The futures are polled on the scheduler's threads, on a Tokio runtime (`Builder::on_tokio`), or on another
    /// [executor](Builder::spawn_with) of yours.
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
        self.owner.shared.key_table_address.prefetch(hash);
        let Some(mut state) = self.open() else { return false };
        let removed = state.remove_under(hash, key);
        drop(state);
        self.owner.shared.postpone_virtual_wakeups();
        drop_removed(removed)
    }

    #[inline]
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
        // As early as possible: among many jobs, no near cache has the whole table.
        shared.key_table_address.prefetch(hash);
        let (plan, due) = match self.with_first_due(plan) {
            Ok(found) => found,
            Err(kind) => return Err(ScheduleError { kind, key, job }),
        };
        let body = Box::new(B::of(key, job));
        self.insert(shared.lock(), hash, plan, due, body)
    }

    /// Inserts a job, if its key is free.
    #[inline(always)]
    fn insert<B: JobBodyParts<K, F> + 'static, F>(
        &self,
        mut state: MutexGuard<'_, SchedulerState<K>>,
        hash: u32,
        plan: Plan,
        due: Time,
        body: Box<B>,
    ) -> Result<JobId, ScheduleError<K, F>> {
        let shared = &self.owner.shared;
        if let Err(kind) = state.check_new(hash, body.key()) {
            drop(state);
            let (key, job) = body.into_parts();
            return Err(ScheduleError { kind, key, job });
        }
        if plan.timing.clock() == ClockId::Wall {
            state.observe_clocks(shared.now(true));
        }
        let id = JobId(state.insert(body, hash, plan, due));
        shared.key_table_address.set(&state.keys);
        shared.unlock_changed(state);
        Ok(id)
    }

    /// Checks a plan, settles its end and its jitter, and returns it with the time at which its first run is due.
    ///
    /// # Errors
    /// The plan follows the wall clock, and the engine of the wall clock was shut down. A job with such a plan would never run, and
    /// would end the whole scheduler, because a scheduler ends with either of its engines. Or the plan ends before its first run, or
    /// makes no sense.
    // Takes the plan by value, so that one without options stays in registers.
    #[inline(always)]
    fn with_first_due(&self, plan: Plan) -> Result<(Plan, Time), ScheduleErrorKind> {
        plan.check()?;
        if plan.options.is_some() || plan.timing.clock() == ClockId::Wall {
            return self.with_options_settled(plan);
        }
        let due = plan.first_due(&self.owner.shared.engine_clock);
        Ok((plan, due))
    }

    #[cold]
    fn with_options_settled(&self, mut plan: Plan) -> Result<(Plan, Time), ScheduleErrorKind> {
        let shared = &self.owner.shared;
        let clock = match plan.timing.clock() {
            ClockId::Engine => &shared.engine_clock,
            ClockId::Wall => shared.wall_clock(|| self.owner.wall_core()).ok_or(ScheduleErrorKind::ShutDown)?,
        };
        let due = plan.first_due_with_options(clock, |most| shared.lock().random.span_below(most))?;
        Ok((plan, due))
    }
}

impl<K> SchedulerOwner<K> {
    fn new(shared: Arc<SchedulerShared<K>>, engine: Engine, wall: Option<Engine>) -> SchedulerOwner<K> {
        SchedulerOwner { shared, hasher: KeyHashBuilder::with_random_keys(), engine, wall_engine: wall }
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
    let Some(RemovedJob { body, .. }) = job else { return false };
    let _ignored = catch_panic(|| drop(body));
    true
}
