//! The end of a scheduler, and waiting for it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant as StdInstant};

use super::shared::SchedulerShared;
use super::state::SchedulerPhase;
use crate::sync::ignore_poison;

/// How a scheduler is [shut down](super::Scheduler::shutdown).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shutdown {
    /// Runs that are due now are made to their end, and no others.
    Drain,
    /// Queued runs are not made. Async runs that have begun are dropped where they wait; a closure that runs cannot be interrupted,
    /// and goes on to its end.
    Abort,
}

/// The end of a scheduler that was shut down. It can be awaited, [waited](Ending::wait) for on a thread, or dropped.
///
/// A job that waited for the end of its own scheduler would wait for ever. So nothing here waits inside a run of this scheduler: the
/// future is ready at once, and [`is_over`](Ending::is_over) is `false`.
///
/// A scheduler without [threads](super::Builder::threads) of its own ends in a callback of its engine. So do not block in a callback;
/// and if the engine is turned from outside, another thread has to turn it.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::scheduler::{Plan, Scheduler, Shutdown};
///
/// let scheduler = Scheduler::builder().threads(1).build()?;
/// scheduler.schedule("save", Plan::once(Duration::ZERO), |_| println!("saved"))?;
/// if !scheduler.shutdown(Shutdown::Drain).wait_for(Duration::from_secs(5)) {
///     scheduler.shutdown(Shutdown::Abort).wait();
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Cancel safety
/// Dropping it only stops waiting. Polled after it was ready, it is ready again.
pub struct Ending<K> {
    shared: Arc<SchedulerShared<K>>,
    /// The number under which its waker is registered, if it was polled.
    number: Option<u64>,
}

impl<K> Ending<K> {
    pub(super) fn of(shared: Arc<SchedulerShared<K>>) -> Ending<K> {
        Ending { shared, number: None }
    }

    /// Returns whether all runs have ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.shared.lock().phase == SchedulerPhase::Over
    }

    /// Blocks the thread until all runs have ended, for no longer than `at_most` of real time. Returns whether they have ended.
    #[must_use]
    pub fn wait_for(&self, at_most: Duration) -> bool {
        let end = StdInstant::now().checked_add(at_most);
        let mut state = self.shared.lock();
        while state.phase != SchedulerPhase::Over && !self.shared.is_inside_run() {
            let left = end.map_or(Duration::from_secs(3600), |end| end.saturating_duration_since(StdInstant::now()));
            if left.is_zero() {
                return false;
            }
            let waited = self.shared.over.wait_timeout(state, left);
            state = ignore_poison(waited).0;
        }
        state.phase == SchedulerPhase::Over
    }

    /// Blocks the thread until all runs have ended.
    pub fn wait(&self) {
        let _is_over = self.wait_for(Duration::MAX);
    }
}

impl<K> Future for Ending<K> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let waker = context.waker().clone();
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        if state.phase == SchedulerPhase::Over || shared.is_inside_run() {
            drop(state);
            return Poll::Ready(());
        }
        let number = *self.number.get_or_insert_with(|| {
            state.endings += 1;
            state.endings
        });
        let before = state.ending_wakers.insert(number, waker);
        // Wakers are the user's: they are dropped outside the lock.
        drop(state);
        drop(before);
        Poll::Pending
    }
}

impl<K> Drop for Ending<K> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let waker = self.shared.lock().ending_wakers.remove(&number);
            // Wakers are the user's: they are dropped outside the lock.
            drop(waker);
        }
    }
}

impl<K> fmt::Debug for Ending<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ending").field("is_over", &self.is_over()).finish()
    }
}
