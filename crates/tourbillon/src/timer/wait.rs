//! One wait for a timer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::TimerShared;
use crate::multi::waiter::AwaitedOutcome;
use crate::outcome::Outcome;
use crate::sync::lock;

/// The future of [`Timer::wait`](super::Timer::wait), which returns how the wait ended.
///
/// The wait begins when the future is created, not when it is polled. Once ready, it stays ready.
///
/// # Cancel safety
/// Dropping it withdraws the wait: a later cancel does not count it.
#[must_use = "the wait is withdrawn when this is dropped"]
pub struct Wait {
    pub(super) shared: Arc<TimerShared>,
    pub(super) id: u64,
    pub(super) outcome: AwaitedOutcome,
}

/// Cancels one wait, of [`Timer::on_expiry`](super::Timer::on_expiry) or of [`Timer::wait`](super::Timer::wait). Dropping it does nothing.
#[derive(Clone)]
pub struct WaitHandle {
    pub(super) shared: Arc<TimerShared>,
    pub(super) id: u64,
}

impl Wait {
    /// Returns a handle that cancels this wait: the future is then ready, with [`Cancelled`](Outcome::Cancelled).
    #[must_use]
    pub fn handle(&self) -> WaitHandle {
        WaitHandle { shared: self.shared.clone(), id: self.id }
    }
}

impl Future for Wait {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        self.outcome.poll(context)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let waiter = self.shared.change(|state| state.waits.remove(&self.id));
        // Dropped outside the lock, because it holds a waker of the user's.
        drop(waiter);
    }
}

impl WaitHandle {
    /// Cancels this wait. Returns `true` if its callback or future receives [`Cancelled`](Outcome::Cancelled), and `false` if the wait
    /// had ended before.
    pub fn cancel(&self) -> bool {
        self.shared.change(|state| state.cancel(self.id))
    }

    /// Returns whether the wait has not ended yet.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        lock(&self.shared.state).waits.contains_key(&self.id)
    }
}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").finish_non_exhaustive()
    }
}

impl fmt::Debug for WaitHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitHandle").field("is_pending", &self.is_pending()).finish()
    }
}
