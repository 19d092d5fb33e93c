//! Waiting for a scheduler's end.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant as StdInstant};

use super::book::Phase;
use super::shared::Shared;

/// How a scheduler is [shut down](super::Scheduler::shutdown).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shutdown {
    /// Runs that were due before are made to the end. No others are.
    Drain,
    /// Runs that stand in line are not made. Async ones that have begun are dropped where they wait; a closure that runs
    /// cannot be interrupted, and goes on to its end.
    Abort,
}

/// The end of a scheduler that was shut down: a future, or something to [`wait`](Ending::wait) for. Need not be waited for.
///
/// A job that waits for its own end would wait for ever. Within a run of this scheduler nothing here waits: the future is ready
/// at once, and [`is_over`](Ending::is_over) says that the end has not come.
///
/// Without [threads](super::Builder::threads) of its own a scheduler ends where its engine's callbacks are called. So do not block
/// there; and where the engine is turned from outside, another thread has to turn it.
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
/// Dropping it gives up waiting, and nothing else. Polled after it was ready, it is ready again.
pub struct Ending<K> {
    shared: Arc<Shared<K>>,
    /// The number of its waker, if it was polled.
    watcher: Option<u64>,
}

impl<K> Ending<K> {
    pub(super) fn of(shared: Arc<Shared<K>>) -> Ending<K> {
        Ending { shared, watcher: None }
    }

    /// Whether everything has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.shared.lock().phase == Phase::Over
    }

    /// Blocks the thread until everything has ended, for so long at most (on the real clock). Gives whether it has.
    #[must_use]
    pub fn wait_for(&self, at_most: Duration) -> bool {
        let end = StdInstant::now().checked_add(at_most);
        let mut book = self.shared.lock();
        while book.phase != Phase::Over && !self.shared.is_inside() {
            let left = end.map_or(Duration::from_secs(3600), |end| end.saturating_duration_since(StdInstant::now()));
            if left.is_zero() {
                return false;
            }
            let waited = self.shared.over.wait_timeout(book, left);
            book = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
        book.phase == Phase::Over
    }

    /// The same, for as long as it takes.
    pub fn wait(&self) {
        let _is_over = self.wait_for(Duration::MAX);
    }
}

impl<K> Future for Ending<K> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let waker = context.waker().clone();
        let shared = Arc::clone(&self.shared);
        let mut book = shared.lock();
        if book.phase == Phase::Over || shared.is_inside() {
            drop(book);
            return Poll::Ready(());
        }
        let number = *self.watcher.get_or_insert_with(|| {
            book.watched += 1;
            book.watched
        });
        let before = book.watchers.insert(number, waker);
        // Wakers are the user's: they are dropped outside the lock.
        drop(book);
        drop(before);
        Poll::Pending
    }
}

impl<K> Drop for Ending<K> {
    fn drop(&mut self) {
        if let Some(watcher) = self.watcher {
            let waker = self.shared.lock().watchers.remove(&watcher);
            // Here, outside the lock: it is the user's.
            drop(waker);
        }
    }
}

impl<K> fmt::Debug for Ending<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ending").field("is_over", &self.is_over()).finish()
    }
}
