//! The body of a job: its closure together with its key. And one run of it.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tourbillon_queue::{Span, Time};

use super::error::JobResult;
use super::shared::SchedulerShared;
use super::{JobId, Scheduler};
use crate::instant::Instant;

/// The return value of a run.
pub(super) type RunResult = Result<(), Box<dyn Error + Send + Sync>>;

/// The future of one run of an async job.
pub(super) type BoxedRun = Pin<Box<dyn Future<Output = RunResult> + Send>>;

/// A key and a closure, in one allocation.
pub(super) trait JobBody<K>: Send + Sync {
    fn key(&self) -> &K;

    /// Returns whether a run blocks its thread until it is done.
    fn is_blocking(&self) -> bool;

    /// Makes a run, or creates its future.
    fn begin(&self, run: &Run<K>) -> BegunRun;
}

/// The body of a job, as its scheduler keeps it.
///
/// A job that is removed before its first run leaves its body in a box, which is freed without atomic instructions.
pub(super) enum HeldBody<K> {
    /// No run has begun, and no other thread has a reference.
    Unshared(Box<dyn JobBody<K>>),
    /// Runs share it, or have shared it.
    Shared(Arc<dyn JobBody<K>>),
    /// Only while [`share`](HeldBody::share) moves it out of its box.
    Moving,
}

/// A body that is made of a key and a closure, and can be taken apart again.
pub(super) trait JobBodyParts<K, F>: JobBody<K> {
    fn of(key: K, job: F) -> Self;

    fn into_parts(self) -> (K, F);
}

/// The result of [`JobBody::begin`].
pub(super) enum BegunRun {
    /// The run has been made.
    Returned(RunResult),
    /// The run has to be polled.
    Future(BoxedRun),
}

/// The body of a job that blocks its thread until it is done.
pub(super) struct BlockingJob<K, F> {
    pub(super) key: K,
    pub(super) job: F,
}

/// The body of a job whose runs are futures.
pub(super) struct AsyncJob<K, F> {
    pub(super) key: K,
    pub(super) job: F,
}

/// One run of a job. The scheduler passes it to the job's closure.
pub struct Run<K> {
    pub(super) shared: Arc<SchedulerShared<K>>,
    pub(super) body: Arc<dyn JobBody<K>>,
    pub(super) id: JobId,
    pub(super) number: u64,
    pub(super) due: Instant,
    pub(super) facts: RunFacts,
}

/// The facts about a run that the scheduler needs at its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunFacts {
    /// Which attempt it is; the first is 1.
    pub(super) attempt: u32,
    /// The number of the plan that it was due by.
    pub(super) plan: u32,
    /// When its occurrence was due on the wall clock, if its job follows that; else `NEVER`.
    pub(super) wall: Time,
    /// When it began, on the engine's clock.
    pub(super) began: Time,
    /// How long after its due time it began.
    pub(super) late: Span,
    /// Whether its timings are recorded, and the job has no histograms for them.
    pub(super) needs_timings: bool,
}

impl<K> HeldBody<K> {
    #[inline]
    pub(super) fn key(&self) -> &K {
        match self {
            HeldBody::Unshared(body) => body.key(),
            HeldBody::Shared(body) => body.key(),
            HeldBody::Moving => unreachable!("the body is seen while it is moved"),
        }
    }

    /// Returns a reference for a run, or for another thread.
    pub(super) fn share(&mut self) -> Arc<dyn JobBody<K>> {
        let shared = match std::mem::replace(self, HeldBody::Moving) {
            HeldBody::Unshared(body) => Arc::from(body),
            HeldBody::Shared(body) => body,
            HeldBody::Moving => unreachable!("the body is seen while it is moved"),
        };
        *self = HeldBody::Shared(Arc::clone(&shared));
        shared
    }
}

impl<K> Run<K> {
    /// Returns the job's key.
    #[must_use]
    pub fn key(&self) -> &K {
        self.body.key()
    }

    /// Returns which run of the job this is; the first is 1.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns which attempt this run is: 1, or 2 for the first [retry](super::Plan::retry), and so on.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.facts.attempt
    }

    /// Returns when this run was due. A retry is due when its backoff is over.
    #[must_use]
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Returns the time that the wall clock was to show when this run was due, if the job follows a [cron
    /// line](super::Plan::cron); `None` for other plans. A retry has the time of the run that it repeats.
    #[must_use]
    pub fn due_wall(&self) -> Option<SystemTime> {
        system_time(self.facts.wall)
    }

    /// Returns the identity of the job: see [`JobId`].
    #[must_use]
    pub fn job(&self) -> JobId {
        self.id
    }

    /// Returns a handle of the scheduler; `None` if all handles have been dropped. (A job that keeps a handle in its closure keeps the
    /// scheduler, and so itself, alive.)
    #[must_use]
    pub fn scheduler(&self) -> Option<Scheduler<K>> {
        Scheduler::upgrade(&self.shared)
    }
}

impl<K, F, R> JobBody<K> for BlockingJob<K, F>
where
    K: Send + Sync,
    F: Fn(&Run<K>) -> R + Send + Sync,
    R: JobResult,
{
    fn key(&self) -> &K {
        &self.key
    }

    fn is_blocking(&self) -> bool {
        true
    }

    fn begin(&self, run: &Run<K>) -> BegunRun {
        BegunRun::Returned((self.job)(run).into_result())
    }
}

impl<K, F, R> JobBody<K> for AsyncJob<K, F>
where
    K: Send + Sync,
    F: Fn(Run<K>) -> R + Send + Sync,
    R: Future<Output: JobResult> + Send + 'static,
{
    fn key(&self) -> &K {
        &self.key
    }

    fn is_blocking(&self) -> bool {
        false
    }

    fn begin(&self, run: &Run<K>) -> BegunRun {
        let future = (self.job)(run.clone());
        BegunRun::Future(Box::pin(async { future.await.into_result() }))
    }
}

impl<K, F> JobBodyParts<K, F> for BlockingJob<K, F>
where
    BlockingJob<K, F>: JobBody<K>,
{
    fn of(key: K, job: F) -> BlockingJob<K, F> {
        BlockingJob { key, job }
    }

    fn into_parts(self) -> (K, F) {
        (self.key, self.job)
    }
}

impl<K, F> JobBodyParts<K, F> for AsyncJob<K, F>
where
    AsyncJob<K, F>: JobBody<K>,
{
    fn of(key: K, job: F) -> AsyncJob<K, F> {
        AsyncJob { key, job }
    }

    fn into_parts(self) -> (K, F) {
        (self.key, self.job)
    }
}

impl<K> Clone for Run<K> {
    fn clone(&self) -> Run<K> {
        let (shared, body) = (Arc::clone(&self.shared), Arc::clone(&self.body));
        Run { shared, body, id: self.id, number: self.number, due: self.due, facts: self.facts }
    }
}

impl<K: fmt::Debug> fmt::Debug for Run<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Run { number, due, .. } = self;
        f.debug_struct("Run").field("key", self.key()).field("number", number).field("due", due).finish_non_exhaustive()
    }
}

/// Returns a time of the wall clock; `None` for `NEVER`.
pub(super) fn system_time(wall: Time) -> Option<SystemTime> {
    let since_1970 = (!wall.is_never()).then(|| Duration::from_nanos(wall.as_nanos()))?;
    SystemTime::UNIX_EPOCH.checked_add(since_1970)
}
