//! What a job does, together with its key; and one run of it.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::error::JobResult;
use super::shared::Shared;
use super::{JobId, Scheduler};
use crate::instant::Instant;

/// How a run ended.
pub(super) type Ended = Result<(), Box<dyn Error + Send + Sync>>;

/// A run that goes on elsewhere.
pub(super) type BoxedRun = Pin<Box<dyn Future<Output = Ended> + Send>>;

/// A key and a closure, in one place of memory.
pub(super) trait Work<K>: Send + Sync {
    fn key(&self) -> &K;

    /// Makes a run, or begins one.
    fn begin(&self, run: &Run<K>) -> Begun;
}

/// Work that can be taken apart again.
pub(super) trait Parts<K, F>: Work<K> {
    fn of(key: K, job: F) -> Self;

    fn into_parts(self) -> (K, F);
}

/// What came of beginning a run.
pub(super) enum Begun {
    /// It has been made.
    Ended(Ended),
    /// It has to be polled.
    Future(BoxedRun),
}

/// A job that blocks its thread until it is done.
pub(super) struct Call<K, F> {
    pub(super) key: K,
    pub(super) job: F,
}

/// A job whose runs are futures.
pub(super) struct Spawn<K, F> {
    pub(super) key: K,
    pub(super) job: F,
}

/// One run of a job, as the job is given it.
pub struct Run<K> {
    pub(super) shared: Arc<Shared<K>>,
    pub(super) work: Arc<dyn Work<K>>,
    pub(super) id: JobId,
    pub(super) number: u64,
    pub(super) due: Instant,
}

impl<K> Run<K> {
    /// The job's key.
    #[must_use]
    pub fn key(&self) -> &K {
        self.work.key()
    }

    /// Which run of the job it is; the first is 1.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// When it was due.
    #[must_use]
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Which job it is, for ever: see [`JobId`].
    #[must_use]
    pub fn job(&self) -> JobId {
        self.id
    }

    /// The scheduler, to change something in it; `None` if nobody has it any more. (A job that kept a handle of its own would
    /// keep the scheduler alive, and itself.)
    #[must_use]
    pub fn scheduler(&self) -> Option<Scheduler<K>> {
        Scheduler::upgrade(&self.shared)
    }
}

impl<K, F, R> Work<K> for Call<K, F>
where
    K: Send + Sync,
    F: Fn(&Run<K>) -> R + Send + Sync,
    R: JobResult,
{
    fn key(&self) -> &K {
        &self.key
    }

    fn begin(&self, run: &Run<K>) -> Begun {
        Begun::Ended((self.job)(run).into_result())
    }
}

impl<K, F, R> Work<K> for Spawn<K, F>
where
    K: Send + Sync,
    F: Fn(Run<K>) -> R + Send + Sync,
    R: Future<Output: JobResult> + Send + 'static,
{
    fn key(&self) -> &K {
        &self.key
    }

    fn begin(&self, run: &Run<K>) -> Begun {
        let future = (self.job)(run.clone());
        Begun::Future(Box::pin(async { future.await.into_result() }))
    }
}

impl<K, F> Parts<K, F> for Call<K, F>
where
    Call<K, F>: Work<K>,
{
    fn of(key: K, job: F) -> Call<K, F> {
        Call { key, job }
    }

    fn into_parts(self) -> (K, F) {
        (self.key, self.job)
    }
}

impl<K, F> Parts<K, F> for Spawn<K, F>
where
    Spawn<K, F>: Work<K>,
{
    fn of(key: K, job: F) -> Spawn<K, F> {
        Spawn { key, job }
    }

    fn into_parts(self) -> (K, F) {
        (self.key, self.job)
    }
}

impl<K> Clone for Run<K> {
    fn clone(&self) -> Run<K> {
        let (shared, work) = (Arc::clone(&self.shared), Arc::clone(&self.work));
        Run { shared, work, id: self.id, number: self.number, due: self.due }
    }
}

impl<K: fmt::Debug> fmt::Debug for Run<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Run { number, due, .. } = self;
        f.debug_struct("Run").field("key", self.key()).field("number", number).field("due", due).finish_non_exhaustive()
    }
}
