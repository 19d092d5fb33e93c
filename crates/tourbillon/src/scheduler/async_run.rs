//! The future that polls one run of an async job.
//!
//! A thread of the scheduler polls it, or an executor of the user's. Either way the run ends exactly once: when its future is
//! ready, when its future panics, or when it is aborted, which includes that its executor drops it.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::job_body::{BoxedRun, Run, RunResult};
use super::limit_watch::sleep_on;
use super::shared::SchedulerShared;
use crate::core::CoreRef;
use crate::multi::deadline_map::DeadlineKey;
use crate::multi::waiter::OutcomeCell;
use crate::outcome::Outcome;
use crate::time::Sleep;

/// One run of an async job, from its start to its end.
pub(super) struct AsyncRun<K: Send + Sync + 'static> {
    /// `None` once the run has ended.
    pending: Option<PendingRun<K>>,
    /// Set when the run is to be aborted: the next poll drops its future.
    abort: Arc<OutcomeCell>,
    run_key: DeadlineKey,
    limit: Option<Box<TimeLimit>>,
}

/// An async run that is to be polled.
pub(super) struct SpawnedRun<K> {
    pub(super) future: BoxedRun,
    pub(super) run: Run<K>,
    pub(super) time_limit: Option<Duration>,
}

/// The time limit of a run. When its sleep is ready, the future of the run is dropped.
struct TimeLimit {
    limit: Duration,
    sleep: Pin<Box<Sleep>>,
}

/// The parts of a run that belong to the user. (`run` may hold the last reference to the job's closure.)
struct PendingRun<K> {
    future: BoxedRun,
    run: Run<K>,
}

/// How a run ended.
pub(super) enum RunOutcome {
    /// Its future was ready.
    Returned(RunResult),
    /// Its future panicked, with this payload.
    Panicked(Box<dyn Any + Send>),
    /// Its future was dropped because it took longer than this limit.
    TimedOut(Duration),
    /// Its future was dropped before it was ready.
    Aborted,
}

impl<K: Send + Sync + 'static> AsyncRun<K> {
    pub(super) fn new(
        run: SpawnedRun<K>,
        abort: Arc<OutcomeCell>,
        run_key: DeadlineKey,
        core: &CoreRef,
    ) -> AsyncRun<K> {
        let SpawnedRun { future, run, time_limit } = run;
        let limit = time_limit.map(|limit| Box::new(TimeLimit { limit, sleep: Box::pin(sleep_on(core, limit)) }));
        AsyncRun { pending: Some(PendingRun { future, run }), abort, run_key, limit }
    }

    fn poll_run(&mut self, context: &mut Context<'_>) -> Poll<RunOutcome> {
        let Some(PendingRun { future, run }) = &mut self.pending else { return Poll::Pending };
        match run.shared.run_user_code(|| future.as_mut().poll(context)) {
            Ok(Poll::Ready(result)) => Poll::Ready(RunOutcome::Returned(result)),
            Ok(Poll::Pending) => self.poll_limit(context),
            Err(payload) => Poll::Ready(RunOutcome::Panicked(payload)),
        }
    }

    /// Returns whether the run has taken longer than its limit. A stopped engine ends no run: its shutdown drains the scheduler.
    fn poll_limit(&mut self, context: &mut Context<'_>) -> Poll<RunOutcome> {
        let Some(limit) = &mut self.limit else { return Poll::Pending };
        let is_over = limit.sleep.as_mut().poll(context).is_ready();
        if is_over && limit.sleep.outcome() == Some(Outcome::Fired) {
            return Poll::Ready(RunOutcome::TimedOut(limit.limit));
        }
        if is_over {
            self.limit = None;
        }
        Poll::Pending
    }

    /// Drops the future and then ends the run, unless it has ended. Nothing of the user's is left afterwards, since an executor
    /// need not expect a panic when it drops what it was given.
    fn finish(&mut self, outcome: RunOutcome) {
        let Some(PendingRun { future, run }) = self.pending.take() else { return };
        let shared = Arc::clone(&run.shared);
        shared.drop_user_value(future);
        shared.finish_async(self.run_key, &run, outcome);
        shared.drop_user_value(run);
    }
}

impl<K: Send + Sync + 'static> Future for AsyncRun<K> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.pending.is_none() {
            return Poll::Ready(());
        }
        if self.abort.poll(context).is_ready() {
            self.finish(RunOutcome::Aborted);
            return Poll::Ready(());
        }
        self.poll_run(context).map(|outcome| self.finish(outcome))
    }
}

impl<K: Send + Sync + 'static> Drop for AsyncRun<K> {
    fn drop(&mut self) {
        self.finish(RunOutcome::Aborted);
    }
}

/// Hands a run to the scheduler's own threads.
pub(super) fn spawn<K: Send + Sync + 'static>(run: AsyncRun<K>, shared: &Arc<SchedulerShared<K>>) {
    let shared = Arc::clone(shared);
    let (runnable, task) = async_task::spawn(run, move |runnable| shared.push_task(runnable));
    task.detach();
    runnable.schedule();
}
