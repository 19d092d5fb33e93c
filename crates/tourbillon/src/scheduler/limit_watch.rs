//! The time limit of a run that blocks its thread: the run cannot be interrupted, so it is reported.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tourbillon_queue::Span;

use super::error::Cause;
use super::job_body::Run;
use super::shared::SchedulerShared;
use crate::core::CoreRef;
use crate::core::callbacks::PostedCallback;
use crate::core::thread_shard;
use crate::entry::Entry;
use crate::outcome::Outcome;
use crate::sync::{Mutex, lock};
use crate::time::Sleep;

/// Watches one run. The report is made in a callback of the engine, because all threads of the scheduler may be blocked.
pub(super) struct LimitWatch<K: Send + Sync + 'static> {
    report: Arc<LimitReport<K>>,
    #[expect(dead_code, reason = "dropping it cancels the wait")]
    sleep: Pin<Box<Sleep>>,
}

struct LimitReport<K> {
    shared: Arc<SchedulerShared<K>>,
    limit: Duration,
    /// Taken by the thread that makes the report, and when the run has ended in time.
    run: Mutex<Option<Run<K>>>,
}

impl<K: Send + Sync + 'static> LimitWatch<K> {
    pub(super) fn start(shared: &Arc<SchedulerShared<K>>, run: &Run<K>, limit: Duration) -> LimitWatch<K> {
        let run_to_report = Mutex::new(Some(run.clone()));
        let report = Arc::new(LimitReport { shared: Arc::clone(shared), limit, run: run_to_report });
        let mut sleep = Box::pin(sleep_on(&shared.engine_clock.core, limit));
        let waker = Waker::from(Arc::clone(&report));
        // If the limit is over already, or the engine is, the end of the run finds out.
        let _: Poll<()> = sleep.as_mut().poll(&mut Context::from_waker(&waker));
        LimitWatch { report, sleep }
    }

    /// Ends the watch when the run has ended, after `took`. Reports the run if that is too long and has not been reported.
    pub(super) fn end(self, took: Span) {
        if took > Span::from(self.report.limit) {
            return self.report.make();
        }
        let run = lock(&self.report.run).take();
        self.report.shared.drop_user_value(run);
    }
}

impl<K: Send + Sync + 'static> LimitReport<K> {
    /// Makes the report, unless it has been made or the run has ended in time.
    fn make(&self) {
        let Some(run) = lock(&self.run).take() else { return };
        self.shared.lock().count_over_limit(run.id.0);
        let _message = self.shared.report(&run, Cause::TimeLimit(self.limit));
        self.shared.drop_user_value(run);
    }
}

impl<K: Send + Sync + 'static> Wake for LimitReport<K> {
    fn wake(self: Arc<Self>) {
        let core = self.shared.engine_clock.core.clone();
        let callback = Box::new(move |_| self.make());
        core.post(std::iter::once(PostedCallback { callback, outcome: Outcome::Fired }));
    }
}

/// Returns a sleep on an engine, counted from now.
pub(super) fn sleep_on(core: &CoreRef, duration: Duration) -> Sleep {
    Sleep::from_entry(thread_shard::with(core.as_ptr(), |local| Entry::idle(local, local.deadline(duration))))
}
