//! Counts the work on other threads that timers have started: callbacks that are queued or running, and runs of scheduled jobs.
//!
//! Virtual time stands still while such work is under way. Only an engine [in virtual time](crate::core::Core::is_virtual) counts it. Work on
//! the thread that moves the clock is not counted, because that thread does one thing at a time.

use std::cell::Cell;

use std::task::Waker;
#[cfg(feature = "test-util")]
use std::task::{Context, Poll};

use crate::core::Core;
use crate::sync::catch_panic::catch_panic;
use crate::sync::unmodelled::{AtomicBool, Condvar, Mutex, lock};
use crate::sync::{Ordering, ignore_poison};

thread_local! {
    /// Whether this thread does such work.
    static IS_AT_WORK: Cell<bool> = const { Cell::new(false) };
}

/// The work that the timers of an engine have started.
#[derive(Default)]
pub(crate) struct TimerWork {
    state: Mutex<WorkState>,
    ended: Condvar,
    is_closed: AtomicBool,
}

#[derive(Default)]
struct WorkState {
    under_way: usize,
    /// The last work has ended, and `wakers` are being woken. Time stands still until they have been woken.
    is_waking: bool,
    /// A blocking task on a Tokio runtime keeps the runtime's clock from moving until the work ends.
    #[cfg(feature = "tokio")]
    is_held: bool,
    /// The wakers of futures that wait for the end of the work.
    wakers: Vec<Waker>,
}

impl Core {
    /// Counts work that begins.
    #[inline]
    pub(crate) fn begin_work(&self, count: usize) {
        if self.is_virtual && self.work.begin(count) {
            self.hold_clock();
        }
    }

    /// Counts work that has ended.
    #[inline]
    pub(crate) fn end_work(&self, count: usize) {
        if self.is_virtual && self.work.end(count) && self.driver.is_external() {
            self.driver.wake();
        }
    }

    /// Runs `work` as counted work of this thread.
    #[inline]
    pub(crate) fn at_work<R>(&self, work: impl FnOnce() -> R) -> R {
        if !self.is_virtual {
            return work();
        }
        let _reset = ResetAtWork(IS_AT_WORK.replace(true));
        work()
    }

    /// Waits until no work is under way. Work that moves the clock does not wait for itself.
    pub(crate) fn wait_for_work(&self) {
        if self.is_virtual && !IS_AT_WORK.get() {
            self.work.wait();
        }
    }

    /// Polls for the end of all work. Work that moves the clock does not wait for itself.
    #[cfg(feature = "test-util")]
    pub(crate) fn poll_work(&self, context: &Context<'_>) -> Poll<()> {
        if IS_AT_WORK.get() { Poll::Ready(()) } else { self.work.poll_end(context) }
    }

    /// Keeps Tokio from moving the paused clock of its runtime while work is under way, by a task on Tokio's blocking pool: Tokio does not
    /// move the clock while such a task runs.
    ///
    /// Does nothing to a clock that runs. If that clock is paused while work is under way, the next turn holds it.
    pub(crate) fn hold_clock(&self) {
        #[cfg(feature = "tokio")]
        if let Some(clock) = self.clock.as_tokio()
            && self.work.needs_hold()
            && clock.is_paused()
            && self.work.begin_hold()
        {
            let core = self.to_ref();
            // Tokio panics if the system refuses a thread. Then the clock is not held.
            let _held = catch_panic(|| drop(clock.runtime().spawn_blocking(move || core.work.hold())));
        }
    }
}

/// Restores the former value of [`IS_AT_WORK`] when it is dropped.
struct ResetAtWork(bool);

impl Drop for ResetAtWork {
    fn drop(&mut self) {
        IS_AT_WORK.set(self.0);
    }
}

impl TimerWork {
    /// Counts work that begins, and returns whether it is the first.
    #[must_use]
    fn begin(&self, count: usize) -> bool {
        let mut state = lock(&self.state);
        state.under_way += count;
        state.under_way == count && count > 0
    }

    /// Counts work that has ended, and returns whether it was the last.
    #[must_use]
    fn end(&self, count: usize) -> bool {
        let mut state = lock(&self.state);
        state.under_way -= count;
        if state.under_way > 0 {
            return false;
        }
        let wakers = std::mem::take(&mut state.wakers);
        if !wakers.is_empty() {
            state.is_waking = true;
            drop(state);
            wake(wakers);
            lock(&self.state).is_waking = false;
        }
        self.ended.notify_all();
        true
    }

    /// Ends all waits, when the engine is shut down.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        let wakers = std::mem::take(&mut lock(&self.state).wakers);
        self.ended.notify_all();
        wake(wakers);
    }

    /// Returns whether work is under way.
    #[cfg(feature = "test-util")]
    pub(crate) fn is_under_way(&self) -> bool {
        let state = lock(&self.state);
        (state.under_way > 0 || state.is_waking) && !self.is_closed.load(Ordering::SeqCst)
    }

    /// Returns whether work is under way and no blocking task holds the clock.
    #[cfg(feature = "tokio")]
    fn needs_hold(&self) -> bool {
        let state = lock(&self.state);
        state.under_way > 0 && !state.is_held
    }

    /// As [`needs_hold`](TimerWork::needs_hold); if so, the caller has to start a blocking task that calls [`hold`](TimerWork::hold).
    #[must_use]
    #[cfg(feature = "tokio")]
    fn begin_hold(&self) -> bool {
        let mut state = lock(&self.state);
        state.under_way > 0 && !std::mem::replace(&mut state.is_held, true)
    }

    /// Waits until all work has ended. The body of the blocking task.
    #[cfg(feature = "tokio")]
    fn hold(&self) {
        loop {
            self.wait();
            let mut state = lock(&self.state);
            // More work may have begun meanwhile.
            if (state.under_way == 0 && !state.is_waking) || self.is_closed.load(Ordering::SeqCst) {
                state.is_held = false;
                return;
            }
        }
    }

    /// Waits until no work is under way, or the engine is shut down.
    fn wait(&self) {
        let mut state = lock(&self.state);
        while (state.under_way > 0 || state.is_waking) && !self.is_closed.load(Ordering::SeqCst) {
            state = ignore_poison(self.ended.wait(state));
        }
    }

    /// Returns `Ready` when no work is under way, and otherwise registers the waker.
    #[cfg(feature = "test-util")]
    fn poll_end(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = lock(&self.state);
        if state.under_way == 0 || self.is_closed.load(Ordering::SeqCst) {
            return Poll::Ready(());
        }
        state.wakers.push(context.waker().clone());
        Poll::Pending
    }
}

/// Wakes each waker. A panic of one does not keep the others from being woken.
fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(|waker| _ = catch_panic(|| waker.wake()));
}
