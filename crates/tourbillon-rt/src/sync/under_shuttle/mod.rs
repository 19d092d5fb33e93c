//! Replacements, in a schedule, for the kernel and for threads that shuttle does not know: a [signal](Signal) to wait for, a
//! [clock](time), timeouts of condition variables, and threads that tell whether they have ended.
//!
//! Those timeouts do not follow that clock: they come at any moment, or never.

pub(crate) mod thread;
pub(crate) mod time;

use std::sync::{Arc, LockResult, PoisonError};
use std::time::Duration;

use async_task::Task;
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::sync::{Mutex, MutexGuard};

use super::lock;

/// A flag that one thread waits for.
#[derive(Default)]
pub(crate) struct Signal {
    is_raised: Mutex<bool>,
    raised: shuttle::sync::Condvar,
}

/// Shuttle's condition variable, with timeouts.
#[derive(Default)]
pub(crate) struct Condvar(Arc<shuttle::sync::Condvar>);

/// Says whether a wait has timed out.
pub(crate) struct WaitTimeoutResult(bool);

/// The most substitutes that a runtime has: so few that schedules reach the limit.
pub(crate) const SUBSTITUTES: usize = 2;

/// One in four waits with a timeout times out, if no other thread ends it before.
const TIMES_OUT: u32 = 4;

impl Signal {
    pub(crate) fn set(&self, is_raised: bool) {
        *lock(&self.is_raised) = is_raised;
        self.raised.notify_one();
    }

    /// Waits until the flag is raised, and lowers it.
    pub(crate) fn take(&self) {
        let mut is_raised = lock(&self.is_raised);
        while !std::mem::take(&mut *is_raised) {
            is_raised = self.raised.wait(is_raised).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Condvar {
    pub(crate) fn new() -> Condvar {
        Condvar::default()
    }

    /// Waits until another thread notifies, or for that time. `Duration::MAX` never ends.
    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let has_timed_out = Arc::new(AtomicBool::new(false));
        if timeout < Duration::MAX && thread_rng().gen_range(0..TIMES_OUT) == 0 {
            let (condvar, is_over) = (Arc::clone(&self.0), Arc::clone(&has_timed_out));
            // It wakes the other waiters, too: a condition variable may do that. If it comes before this thread waits, no timeout comes.
            shuttle::thread::spawn(move || {
                is_over.store(true, Ordering::SeqCst);
                condvar.notify_all();
            });
        }
        let guard = self.0.wait(guard).unwrap_or_else(PoisonError::into_inner);
        Ok((guard, WaitTimeoutResult(has_timed_out.load(Ordering::SeqCst))))
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl WaitTimeoutResult {
    pub(crate) fn timed_out(&self) -> bool {
        self.0
    }
}

/// Replaces `blocking::unblock`: starts a thread of shuttle for each call.
pub(crate) fn unblock<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Task<T> {
    let (runnable, task) = async_task::spawn(async move { f() }, |runnable: async_task::Runnable| {
        shuttle::thread::spawn(move || runnable.run());
    });
    runnable.schedule();
    task
}
