//! Waiting for a timer whose outcome another thread decides, with a callback or a future.
//!
//! A callback goes to the engine's [callback queue](crate::core::callbacks). A future polls an [`OutcomeCell`]; the thread that sets
//! the cell wakes the future's task.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::coop;
use crate::core::Core;
use crate::core::callbacks::{Callback, PostedCallback};
use crate::outcome::Outcome;
use crate::sync::unmodelled::thread::{self, Thread};
use crate::sync::{Mutex, lock};

/// A callback or a task that waits for a timer. It receives one outcome.
pub(crate) enum TimerWaiter {
    Callback(Callback),
    Task(Arc<OutcomeCell>),
}

/// An outcome that one thread sets and a future waits for.
pub(crate) struct OutcomeCell(Mutex<CellState>);

/// An [`OutcomeCell`] as a user's future polls it.
pub(crate) struct AwaitedOutcome {
    cell: Arc<OutcomeCell>,
    /// Whether a poll was pending.
    has_waited: bool,
}

enum CellState {
    /// With the waker of the last poll.
    Unset(Option<Waker>),
    Set(Outcome),
}

/// How many waiters are notified before a lock is released that other threads need.
const BATCH: usize = if cfg!(shuttle) { 2 } else { 256 };

/// Gives each waiter its outcome, in order. Must be called without any lock held, because it wakes tasks.
pub(crate) fn notify_all(core: &Core, mut ended: impl Iterator<Item = (TimerWaiter, Outcome)>) {
    let mut cells = Vec::new();
    let mut notified = BATCH;
    while notified == BATCH {
        notified = 0;
        let batch = ended.by_ref().take(BATCH).inspect(|_| notified += 1);
        core.post(batch.filter_map(|(waiter, outcome)| match waiter {
            TimerWaiter::Callback(callback) => Some(PostedCallback { callback, outcome }),
            TimerWaiter::Task(cell) => {
                cells.push((cell, outcome));
                None
            }
        }));
        cells.drain(..).for_each(|(cell, outcome)| cell.set(core, outcome));
    }
}

/// Blocks the thread until the future is ready.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            // An unpark from elsewhere costs one more poll.
            Poll::Pending => thread::park(),
        }
    }
}

impl AwaitedOutcome {
    pub(crate) fn new(cell: Arc<OutcomeCell>) -> AwaitedOutcome {
        AwaitedOutcome { cell, has_waited: false }
    }

    /// [Polls](OutcomeCell::poll) the cell for a future of the user's. An outcome that is there at once may be `Pending` for one poll, so
    /// that the task yields.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        let result = if self.has_waited { coop::Result::Awaited } else { coop::Result::AtOnce };
        let poll = self.cell.poll(context);
        self.has_waited = poll.is_pending();
        match poll {
            Poll::Pending => Poll::Pending,
            // The cell gives the outcome again in the next poll.
            Poll::Ready(outcome) => coop::poll_result(context, result).map(|()| outcome),
        }
    }
}

impl OutcomeCell {
    pub(crate) fn new() -> Arc<OutcomeCell> {
        Arc::new(OutcomeCell(Mutex::new(CellState::Unset(None))))
    }

    /// Returns the outcome in this and every later poll once it is set; else registers the waker.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Outcome> {
        if let Some(poll) = self.poll_with_same_waker(context.waker()) {
            return poll;
        }
        // Wakers are the user's: they are cloned and dropped outside the lock.
        let mut waker = Some(context.waker().clone());
        let poll = match &mut *lock(&self.0) {
            CellState::Set(outcome) => Poll::Ready(*outcome),
            CellState::Unset(registered) => {
                std::mem::swap(registered, &mut waker);
                Poll::Pending
            }
        };
        drop(waker);
        poll
    }

    /// Returns the result of a poll if no other waker has to be registered for it.
    fn poll_with_same_waker(&self, waker: &Waker) -> Option<Poll<Outcome>> {
        match &*lock(&self.0) {
            CellState::Set(outcome) => Some(Poll::Ready(*outcome)),
            CellState::Unset(Some(registered)) if registered.will_wake(waker) => Some(Poll::Pending),
            CellState::Unset(_) => None,
        }
    }

    /// Sets the outcome. Must be called without any lock held, because it wakes the task that waits.
    pub(crate) fn set(&self, core: &Core, outcome: Outcome) {
        let before = std::mem::replace(&mut *lock(&self.0), CellState::Set(outcome));
        if let CellState::Unset(Some(waker)) = before {
            core.wake_one(waker);
        }
    }
}
