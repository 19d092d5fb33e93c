//! What goes on on other threads because a timer has fired: callbacks that wait or are being called, and runs of scheduled jobs.
//!
//! Virtual time stands still meanwhile. So that work is counted, in an engine [whose time may move by itself](crate::core::Core::is_virtual).
//! What is done on the thread that moves the clock is not counted, because that thread does one thing at a time.

use std::cell::Cell;

use std::task::Waker;
#[cfg(feature = "test-util")]
use std::task::{Context, Poll};

use crate::core::Core;
use crate::sync::Ordering;
use crate::sync::aside::{AtomicBool, Condvar, Mutex, lock};
use crate::sync::catch_panic::catch_panic;

thread_local! {
    /// This thread does such work.
    static IS_AT_WORK: Cell<bool> = const { Cell::new(false) };
}

#[derive(Default)]
pub(crate) struct Work {
    state: Mutex<State>,
    ended: Condvar,
    is_closed: AtomicBool,
}

#[derive(Default)]
struct State {
    under_way: usize,
    /// None is under way any more, and those that wait for that are being woken. Time stands still until they have been.
    is_waking: bool,
    /// A blocking task of a Tokio runtime waits for the end of it.
    #[cfg(feature = "tokio")]
    is_held: bool,
    /// Those that wait for the end of it.
    wakers: Vec<Waker>,
}

impl Core {
    /// Some more work begins, which may take a lock.
    #[inline]
    pub(crate) fn begin_work(&self, count: usize) {
        if self.is_virtual && self.work.begin(count) {
            self.hold_clock();
        }
    }

    /// So much of it has ended.
    #[inline]
    pub(crate) fn end_work(&self, count: usize) {
        if self.is_virtual && self.work.end(count) && self.driver.is_external() {
            self.driver.wake();
        }
    }

    /// Does something of that work.
    #[inline]
    pub(crate) fn at_work<R>(&self, work: impl FnOnce() -> R) -> R {
        if !self.is_virtual {
            return work();
        }
        let _before = AtWork(IS_AT_WORK.replace(true));
        work()
    }

    /// Waits until no work is under way. (Work that moves the clock does not wait for itself.)
    pub(crate) fn wait_for_work(&self) {
        if self.is_virtual && !IS_AT_WORK.get() {
            self.work.wait();
        }
    }

    /// The same for a future.
    #[cfg(feature = "test-util")]
    pub(crate) fn poll_work(&self, context: &Context<'_>) -> Poll<()> {
        if IS_AT_WORK.get() { Poll::Ready(()) } else { self.work.poll_end(context) }
    }

    /// Keeps the clock of a Tokio runtime from being moved by Tokio as long as work is under way: Tokio holds its clock still for
    /// as long as something blocks a thread of its blocking pool.
    ///
    /// A clock that runs is not held. If it is paused while work is under way, the next turn holds it.
    pub(crate) fn hold_clock(&self) {
        #[cfg(feature = "tokio")]
        if let Some(clock) = self.clock.runtime()
            && self.work.is_to_be_held()
            && clock.is_paused()
            && self.work.begin_holding()
        {
            let core = self.to_ref();
            // Tokio panics if the system has no thread for it. Then the clock is not held.
            let _held = catch_panic(|| drop(clock.runtime().spawn_blocking(move || core.work.hold())));
        }
    }
}

/// What held for the thread before.
struct AtWork(bool);

impl Drop for AtWork {
    fn drop(&mut self) {
        IS_AT_WORK.set(self.0);
    }
}

impl Work {
    /// Some more work begins. RemoteFreeList whether it is the first.
    fn begin(&self, count: usize) -> bool {
        let mut state = lock(&self.state);
        state.under_way += count;
        state.under_way == count && count > 0
    }

    /// So much of it has ended. RemoteFreeList whether that was the last.
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

    /// When the engine is shut down: nobody waits any longer.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        let wakers = std::mem::take(&mut lock(&self.state).wakers);
        self.ended.notify_all();
        wake(wakers);
    }

    /// Whether there is any.
    #[cfg(feature = "test-util")]
    pub(crate) fn is_under_way(&self) -> bool {
        let state = lock(&self.state);
        (state.under_way > 0 || state.is_waking) && !self.is_closed.load(Ordering::SeqCst)
    }

    /// RemoteFreeList whether work is under way, and no blocking task waits for its end.
    #[cfg(feature = "tokio")]
    fn is_to_be_held(&self) -> bool {
        let state = lock(&self.state);
        state.under_way > 0 && !state.is_held
    }

    /// The same; if so, the caller starts such a task.
    #[cfg(feature = "tokio")]
    fn begin_holding(&self) -> bool {
        let mut state = lock(&self.state);
        state.under_way > 0 && !std::mem::replace(&mut state.is_held, true)
    }

    /// What that task does.
    #[cfg(feature = "tokio")]
    fn hold(&self) {
        loop {
            self.wait();
            let mut state = lock(&self.state);
            // More may have begun meanwhile.
            if (state.under_way == 0 && !state.is_waking) || self.is_closed.load(Ordering::SeqCst) {
                state.is_held = false;
                return;
            }
        }
    }

    /// Waits until there is none, or the engine is shut down.
    fn wait(&self) {
        let mut state = lock(&self.state);
        while (state.under_way > 0 || state.is_waking) && !self.is_closed.load(Ordering::SeqCst) {
            state = self.ended.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// Ready when there is none.
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

/// Each on its own: what one of them throws keeps no other from being woken.
fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(|waker| _ = catch_panic(|| waker.wake()));
}
