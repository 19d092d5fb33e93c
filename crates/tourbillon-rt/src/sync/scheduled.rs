//! What a runtime gets in a schedule instead of the kernel and of threads that shuttle does not know: a back end that parks, a
//! [clock](time), the monitor's alarm, timeouts of condition variables, and threads that tell whether they have ended.
//!
//! The monitor's alarm and those timeouts do not follow that clock: they come at any moment, and a timeout may never come.

pub(crate) mod thread;
pub(crate) mod time;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, LockResult, PoisonError};
use std::time::Duration;

use async_task::Task;
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::sync::{Mutex, MutexGuard};
use tourbillon::Time;

use self::time::Timeline;
use super::lock;
use crate::reactor::{Event, Selector, StoodIn, Token};

/// A back end without a kernel: it has no sockets, and a wait ends when another thread wakes it or when it is time.
pub(crate) struct Parking {
    signal: Arc<Signal>,
    time: Arc<Timeline>,
}

/// The alarm of the monitor. One that is set goes off when the schedule lets the monitor run: the period has passed then.
#[derive(Default)]
pub(crate) struct MonitorAlarm(Signal);

/// A flag for one thread that waits until it is raised.
#[derive(Default)]
struct Signal {
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

/// One of so many waits with a timeout times out, if no other thread ends it before.
const TIMES_OUT: u32 = 4;

impl Signal {
    fn set(&self, is_raised: bool) {
        *lock(&self.is_raised) = is_raised;
        self.raised.notify_one();
    }

    /// Waits until the flag is raised, and lowers it.
    fn take(&self) {
        let mut is_raised = lock(&self.is_raised);
        while !std::mem::take(&mut *is_raised) {
            is_raised = self.raised.wait(is_raised).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Parking {
    pub(crate) fn new() -> Parking {
        Parking { signal: Arc::default(), time: Timeline::current() }
    }
}

impl Selector for Parking {
    fn add(&self, _: Token, _: BorrowedFd<'_>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn remove(&self, _: Token, _: BorrowedFd<'_>) {}

    fn wait(&self, until: Option<Time>, _: &mut Vec<Event>) -> io::Result<()> {
        let _sleeps = until.map(|until| self.time.raise_at(until, &self.signal));
        self.signal.take();
        Ok(())
    }

    fn hears_of_urgent_data(&self) -> bool {
        true
    }

    fn reap(&self, _: &mut Vec<Event>) -> io::Result<()> {
        // The owner is busy. It may be so because a timer is due too soon to sleep: that has to come.
        self.time.pass();
        Ok(())
    }

    fn reap_for_owner(&self, _: &mut Vec<Event>) -> io::Result<StoodIn> {
        Ok(StoodIn::Told)
    }

    fn wake(&self) {
        self.signal.set(true);
    }
}

impl MonitorAlarm {
    pub(crate) fn new() -> io::Result<MonitorAlarm> {
        Ok(MonitorAlarm::default())
    }

    /// Sets the alarm. Zero switches it off.
    pub(crate) fn set(&self, after: Duration) {
        self.0.set(!after.is_zero());
    }

    /// Waits until the alarm goes off, and switches it off.
    pub(crate) fn wait(&self) {
        // While a worker is awake the monitor sets its alarm again and again: the others go first.
        shuttle::thread::yield_now();
        self.0.take();
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

/// As `blocking::unblock`, with a thread of shuttle for each call.
pub(crate) fn unblock<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Task<T> {
    let (runnable, task) = async_task::spawn(async move { f() }, |runnable: async_task::Runnable| {
        shuttle::thread::spawn(move || runnable.run());
    });
    runnable.schedule();
    task
}
