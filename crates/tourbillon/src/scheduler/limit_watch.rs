//! The time limit of a run that blocks its thread: the run cannot be interrupted, so it is reported.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
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
}

struct LimitReport<K> {
    shared: Arc<SchedulerShared<K>>,
    limit: Duration,
    /// Until the limit; `None` after the run has ended. Its waker has a reference to this report.
    sleep: Mutex<Option<Pin<Box<Sleep>>>>,
    /// Taken by the thread that makes the report, and when the run has ended in time.
    run: Mutex<Option<Run<K>>>,
}

impl<K: Send + Sync + 'static> LimitWatch<K> {
    pub(super) fn start(shared: &Arc<SchedulerShared<K>>, run: &Run<K>, limit: Duration) -> LimitWatch<K> {
        let run_to_report = Mutex::new(Some(run.clone()));
        let sleep = Mutex::new(Some(Box::pin(sleep_on(&shared.engine_clock.core, limit))));
        let report = Arc::new(LimitReport { shared: Arc::clone(shared), limit, sleep, run: run_to_report });
        // If the limit is over already, or the engine is, the end of the run finds out.
        let _is_over = report.is_over();
        LimitWatch { report }
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

impl<K: Send + Sync + 'static> Drop for LimitWatch<K> {
    fn drop(&mut self) {
        let sleep = lock(&self.report.sleep).take();
        drop(sleep);
    }
}

impl<K: Send + Sync + 'static> LimitReport<K> {
    /// Returns whether the limit is over, and else waits for it. The engine also wakes a sleep that waits for a slot within the capacity,
    /// and a sleep that ends because the engine is shut down: neither is the end of the limit.
    fn is_over(self: &Arc<Self>) -> bool {
        let waker = Waker::from(Arc::clone(self));
        let mut sleep = lock(&self.sleep);
        let Some(sleep) = sleep.as_mut() else { return false };
        sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() && sleep.outcome() == Some(Outcome::Fired)
    }

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
        let callback = Box::new(move |_| {
            if self.is_over() {
                self.make();
            }
        });
        core.post(std::iter::once(PostedCallback { callback, outcome: Outcome::Fired }));
    }
}

/// Returns a sleep on an engine, counted from now.
pub(super) fn sleep_on(core: &CoreRef, duration: Duration) -> Sleep {
    Sleep::from_entry(thread_shard::with(core.as_ptr(), |local| Entry::idle(local, local.deadline(duration))))
}
