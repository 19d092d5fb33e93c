//! Jobs under keys, that run every so often on a bounded pool of threads.
//!
//! See [`Scheduler`].

mod book;
mod builder;
mod ending;
mod error;
mod flight;
mod job;
#[cfg(all(loom, test))]
#[path = "../verify/loom/scheduler.rs"]
mod loom_models;
mod plan;
mod shared;
mod table;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod times;
mod work;

use std::borrow::Borrow;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, Weak};

use self::book::{Book, Phase};
use self::builder::Rules;
pub use self::builder::{Builder, Overflow};
pub use self::ending::{Ending, Shutdown};
pub use self::error::{Cause, Failure, JobResult, ScheduleError, ScheduleErrorKind};
use self::job::{Gone, Job};
use self::plan::FOR_EVER;
pub use self::plan::{Overlap, Plan};
use self::shared::Shared;
pub use self::work::Run;
use self::work::{Call, Parts, Spawn, Work};
use crate::Engine;
use crate::clock::WallShift;
use crate::core::CoreRef;
use crate::instant::Instant;
use crate::multi::deadline_map::Key;
use crate::sync::MutexGuard;
use crate::sync::catch_panic::catch_panic;

/// Runs jobs: each under a key of its own, every so often, so many times or for ever, on a few threads.
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
/// A job is a closure, which blocks one of the scheduler's threads while it runs, or one that makes a future
/// ([`schedule_async`](Scheduler::schedule_async)), which does not while it waits. It is given its [`Run`]: key, number, when
/// it was due. It may return nothing or a `Result`. When it panics or returns an error, that is counted and
/// [reported](Builder::on_failure), and its schedule goes on.
///
/// # Time
///
/// The n-th run is due n intervals after the job was scheduled, to the nanosecond: lateness does not add up, and no run
/// begins early. What is due first is begun first. See [`Plan`] for when jobs run, [`Overlap`] for jobs that take longer than
/// their interval, [`Overflow`] for when all threads are busy, and [`Builder::missed`] for times that went by. Whatever is
/// not made for one of these reasons is counted: [`stats`](Scheduler::stats), [`report`](Scheduler::report).
///
/// # Handles
///
/// Clones are handles of the same scheduler. When the last is dropped, it is shut down as by [`Shutdown::Abort`]. A job can
/// reach its scheduler by [`Run::scheduler`]; one that holds a handle keeps the scheduler alive until it is removed.
///
/// Every method can be called from any thread, in any order and from within a job, and none of them blocks. Keys are compared
/// under the scheduler's lock: their `Eq` must not call it.
///
/// # Panics
///
/// No method panics, unless the `Hash`, `Eq` or `Clone` of a key does.
pub struct Scheduler<K> {
    owner: Arc<Owner<K>>,
}

/// Names one job of one scheduler, for ever. When that job is gone, it means nothing, also if another has the same key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct JobId(Key);

/// How many runs a job has before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Remaining {
    /// So many; those that stand in line or are being made do not count.
    Runs(u64),
    /// It runs until it is removed.
    ForEver,
}

/// What a scheduler has done so far, and what it is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SchedulerStats {
    /// Jobs that it has now.
    pub jobs: usize,
    /// Runs that stand in line now.
    pub waiting: usize,
    /// Runs that are being made now.
    pub running: usize,
    /// Runs that were begun.
    pub runs: u64,
    /// Runs that panicked or returned an error.
    pub failed: u64,
    /// Runs that were not made because the job's last had not ended: [`Overlap`].
    pub overlapped: u64,
    /// Runs that were not made because there was no room: [`Overflow::Skip`].
    pub overflowed: u64,
    /// Runs that stood in line although there was no room: [`Overflow::RunLate`].
    pub late: u64,
    /// Occurrences that were due and for which no run was made, because their time had gone by: [`Builder::missed`]. The late
    /// run that is made is none of them, and a plan that ends with that run has no occurrences after it. Of a cron line no more
    /// than a thousand are counted at a time, since the clock may have been set by years.
    pub missed: u64,
    /// Runs that were ended, or were in line and not made, by [`Shutdown::Abort`].
    pub aborted: u64,
}

/// How one job has fared.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct JobReport {
    /// Runs that were begun.
    pub runs: u64,
    /// Those of them that panicked or returned an error.
    pub failed: u64,
    /// Runs that were not made because its last had not ended.
    pub overlapped: u64,
    /// Runs that were not made because there was no room.
    pub overflowed: u64,
    /// Occurrences for which no run was made because their time had gone by: [`SchedulerStats::missed`].
    pub missed: u64,
    /// What went wrong last.
    pub last_failure: Option<String>,
}

/// What all handles share. Its end is the scheduler's.
struct Owner<K> {
    shared: Arc<Shared<K>>,
    hasher: RandomState,
    /// Kept as long as there are handles.
    engine: Engine,
    /// The engine that the wall clock is to be read from, if the user said so.
    wall: Option<Engine>,
}

impl<K> Scheduler<K> {
    fn upgrade(shared: &Shared<K>) -> Option<Scheduler<K>> {
        shared.owner.get().and_then(Weak::upgrade).map(|owner| Scheduler { owner })
    }
}

impl<K: Send + Sync + 'static> Scheduler<K> {
    /// How to build one.
    pub fn builder() -> Builder<K> {
        Builder::new()
    }

    /// How many jobs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open().map_or(0, |book| book.jobs.len())
    }

    /// Whether there is no job.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The keys of all jobs, in no particular order.
    #[must_use]
    pub fn keys(&self) -> Vec<K>
    where
        K: Clone,
    {
        // They are cloned outside the lock.
        let works: Vec<_> = self.open().map_or_else(Vec::new, |book| book.works().collect());
        works.into_iter().map(key_of).collect()
    }

    /// Begins to run jobs again, after a [`stop`](Scheduler::stop). The times that went by meanwhile are counted as missed, and
    /// not made up for; the next are those that would have been next anyway. A job that runs [once](Plan::once) and whose time
    /// went by is due at once.
    pub fn start(&self) {
        let shared = &self.owner.shared;
        let mut book = shared.lock();
        let now = shared.now(true);
        book.start(now);
        let rings = book.plan();
        shared.alert(book);
        shared.set_bells(rings);
    }

    /// Begins no more runs, until it is [started](Scheduler::start) again. Runs that have begun go on. Jobs can be
    /// scheduled and removed meanwhile.
    pub fn stop(&self) {
        self.owner.shared.lock().stop();
        self.owner.shared.postpone_wakeups();
    }

    /// Whether it runs jobs: it has been neither stopped nor shut down.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.owner.shared.lock().phase == Phase::Running
    }

    /// Ends it, for ever: all jobs are gone at once, and runs end as `how` says. Does not wait for them; what it returns can
    /// be waited for.
    ///
    /// After `Drain` it can be shut down once more with `Abort`.
    pub fn shutdown(&self, how: Shutdown) -> Ending<K> {
        self.owner.shared.end(how);
        Ending::of(Arc::clone(&self.owner.shared))
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> SchedulerStats {
        let book = self.owner.shared.lock();
        let jobs = if book.is_open() { book.jobs.len() } else { 0 };
        SchedulerStats { jobs, waiting: book.waiting(), running: book.running, ..book.stats }
    }

    /// Removes exactly this job, if it is still there: not another that has come under the same key. See
    /// [`remove`](Scheduler::remove).
    pub fn remove_job(&self, job: JobId) -> bool {
        let Some(mut book) = self.open() else { return false };
        let removed = book.remove(job.0);
        drop(book);
        self.owner.shared.postpone_wakeups();
        let_go(removed)
    }

    /// The book, unless the scheduler has been shut down: then it knows of no job.
    fn open(&self) -> Option<MutexGuard<'_, Book<K>>> {
        let book = self.owner.shared.lock();
        book.is_open().then_some(book)
    }
}

impl<K: Hash + Eq + Send + Sync + 'static> Scheduler<K> {
    /// Schedules a job under a key that has none. It is there when this returns.
    ///
    /// The closure runs on one of the scheduler's threads, never inside this call.
    ///
    /// # Errors
    /// There is a job under this key, the plan has an interval or a number of runs of zero, the scheduler is full or was
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
        self.add::<Call<K, F>, F>(key, plan.into(), job)
    }

    /// Schedules a job whose runs are futures. See [`schedule`](Scheduler::schedule).
    ///
    /// They are polled on the scheduler's threads, or [elsewhere](Builder::spawn_with).
    ///
    /// # Errors
    /// The same.
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
        self.add::<Spawn<K, F>, F>(key, plan.into(), job)
    }

    /// Removes a job, and gives whether there was one. None of its runs begins after this; one that has begun goes on. The key
    /// is free.
    pub fn remove<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hash(key);
        self.owner.shared.hint.fetch(hash);
        let Some(mut book) = self.open() else { return false };
        let removed = book.remove_under(hash, key);
        drop(book);
        self.owner.shared.postpone_wakeups();
        let_go(removed)
    }

    /// Whether there is a job under this key. A job that runs for the last time is there until that has ended.
    #[must_use]
    pub fn contains<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.with_job(key, |_| ()).is_some()
    }

    /// How many runs it has before it; `None` if there is no such job.
    #[must_use]
    pub fn remaining<Q>(&self, key: &Q) -> Option<Remaining>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.with_job(key, |job| match job.times {
            FOR_EVER => Remaining::ForEver,
            times => Remaining::Runs(times),
        })
    }

    /// When it is due next; `None` if there is no such job, or it is paused, or it has no further run. While the scheduler is
    /// stopped: when it would be if that were started now.
    #[must_use]
    pub fn next_run<Q>(&self, key: &Q) -> Option<Instant>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hash(key);
        let now = self.owner.shared.now(true);
        let book = self.open()?;
        let due = book.next_due(book.find(hash, key)?, now)?;
        drop(book);
        Some(self.owner.shared.instant(due))
    }

    /// How it has fared; `None` if there is no such job.
    #[must_use]
    pub fn report<Q>(&self, key: &Q) -> Option<JobReport>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.with_job(key, |job| {
            let report = JobReport { runs: job.runs, ..JobReport::default() };
            let Some(troubles) = &job.troubles else { return report };
            JobReport {
                failed: troubles.failed,
                overlapped: troubles.overlapped,
                overflowed: troubles.overflowed,
                missed: troubles.missed,
                last_failure: troubles.last_failure.clone(),
                ..report
            }
        })
    }

    /// Gives a job another plan, from now on. It keeps its closure, its count of runs, and whether it is paused; a run that has
    /// begun goes on, and what was still to be made up for is forgotten.
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
    /// There is no such job, or the plan has an interval or a number of runs of zero.
    pub fn reschedule<Q>(&self, key: &Q, plan: impl Into<Plan>) -> Result<(), ScheduleErrorKind>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let plan = plan.into();
        plan.check()?;
        let due = self.first_due(&plan)?;
        let hash = self.hash(key);
        let mut book = self.open().ok_or(ScheduleErrorKind::ShutDown)?;
        let found = book.find(hash, key).ok_or(ScheduleErrorKind::Unknown)?;
        if plan.timing.is_wall() {
            book.see(self.owner.shared.now(true));
        }
        let _to_be_dropped_unlocked = book.change_plan(found, plan, due);
        self.owner.shared.changed(book);
        Ok(())
    }

    /// Lets a job rest until it is [resumed](Scheduler::resume): no run of it begins. `false` if there is no such job.
    pub fn pause<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hash(key);
        let Some(mut book) = self.open() else { return false };
        let is_there = book.find(hash, key).is_some_and(|job| book.pause(job));
        drop(book);
        self.owner.shared.postpone_wakeups();
        is_there
    }

    /// Ends a job's rest. The times that went by are not made up for: the next is that which would have been next anyway. A job
    /// that runs [once](Plan::once) and whose time went by is due at once. `false` if there is no such job.
    pub fn resume<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hash(key);
        let now = self.owner.shared.now(true);
        let Some(mut book) = self.open() else { return false };
        let is_there = book.find(hash, key).is_some_and(|job| book.resume(job, now));
        self.owner.shared.changed(book);
        is_there
    }

    fn with_job<Q, R>(&self, key: &Q, ask: impl FnOnce(&Job<K>) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hash(key);
        let book = self.open()?;
        book.find(hash, key).and_then(|job| book.jobs.get(job)).map(ask)
    }

    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u32 {
        // The lower half is as good as the upper.
        self.owner.hasher.hash_one(key) as u32
    }

    fn add<W: Parts<K, F> + 'static, F>(&self, key: K, plan: Plan, job: F) -> Result<JobId, ScheduleError<K, F>> {
        let due = match plan.check().and_then(|()| self.first_due(&plan)) {
            Ok(due) => due,
            Err(kind) => return Err(ScheduleError { kind, key, job }),
        };
        let shared = &self.owner.shared;
        let hash = self.hash(&key);
        shared.hint.fetch(hash);
        let work = Arc::new(W::of(key, job));
        let mut book = shared.lock();
        if let Err(kind) = book.check_new(hash, work.key()) {
            drop(book);
            let (key, job) = Arc::into_inner(work).expect("nobody else has it").into_parts();
            return Err(ScheduleError { kind, key, job });
        }
        if plan.timing.is_wall() {
            book.see(shared.now(true));
        }
        let job = Job::new(work, hash, plan, due, &book.rules);
        let id = JobId(book.insert(job));
        shared.hint.set(&book.table);
        shared.changed(book);
        Ok(id)
    }

    /// When the first run of a plan is due.
    ///
    /// # Errors
    /// The plan follows the wall clock, and the engine that has it was shut down. A job with such a plan would never run, and take
    /// the others with it: a scheduler ends with its engines.
    fn first_due(&self, plan: &Plan) -> Result<tourbillon_queue::Time, ScheduleErrorKind> {
        let shared = &self.owner.shared;
        if !plan.timing.is_wall() {
            return Ok(plan.first_due(&shared.core));
        }
        let wall = shared.wall(|| self.owner.wall_core()).ok_or(ScheduleErrorKind::ShutDown)?;
        Ok(plan.first_due_by_wall(wall))
    }
}

impl<K> Owner<K> {
    fn new(shared: Arc<Shared<K>>, engine: Engine, wall: Option<Engine>) -> Owner<K> {
        Owner { shared, hasher: RandomState::new(), engine, wall }
    }

    /// Where the wall clock is read: on the engine that the user gave for that, or on the scheduler's own if that has virtual time, or
    /// on the one that follows the system's wall clock.
    fn wall_core(&self) -> (CoreRef, Option<WallShift>) {
        if let Some(engine) = &self.wall {
            return (engine.core().clone(), None);
        }
        match self.engine.clock().wall_shift() {
            Some(shift) => (self.engine.core().clone(), Some(shift)),
            None => (Engine::wall().core().clone(), None),
        }
    }
}

impl<K> Drop for Owner<K> {
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

/// RemoteFreeList a copy of a job's key. If the job was removed meanwhile, this drops its closure, whose destructor may panic.
fn key_of<K: Clone>(work: Arc<dyn Work<K>>) -> K {
    let key = work.key().clone();
    let _ignored = catch_panic(|| drop(work));
    key
}

/// Drops a job, outside the lock: its closure and its key may do anything, also panic. Gives whether there was one.
fn let_go<K>(job: Option<Gone<K>>) -> bool {
    let is_there = job.is_some();
    let _ignored = catch_panic(|| drop(job));
    is_there
}
