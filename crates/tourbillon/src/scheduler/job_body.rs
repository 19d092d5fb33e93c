//! The body of a job: its closure together with its key. And one run of it.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

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

    /// Makes a run, or creates its future.
    fn begin(&self, run: &Run<K>) -> BegunRun;
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

    /// Returns when this run was due.
    #[must_use]
    pub fn due(&self) -> Instant {
        self.due
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
        Run { shared, body, id: self.id, number: self.number, due: self.due }
    }
}

impl<K: fmt::Debug> fmt::Debug for Run<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Run { number, due, .. } = self;
        f.debug_struct("Run").field("key", self.key()).field("number", number).field("due", due).finish_non_exhaustive()
    }
}
