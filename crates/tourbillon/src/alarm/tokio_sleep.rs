//! The alarm of an engine on the clock of a Tokio runtime: a sleep of Tokio's, so that Tokio's own time driver turns the engine.
//!
//! The engine holds one `tokio::time::Sleep` for its earliest deadline, so Tokio's auto-advance moves the clock to that deadline and not
//! beyond. When Tokio ends that sleep it wakes a waker of the alarm, which turns the engine inside the wake: the tasks whose timers are due
//! are scheduled at the same moment as those whose Tokio sleeps are due. No task of the runtime has to run in between.
//!
//! # Finer than Tokio's milliseconds
//!
//! Tokio's driver counts whole milliseconds since the runtime was built, rounds deadlines up to those, and moves a paused clock by whole
//! milliseconds. A clock that was paused in the middle of a millisecond stays in the middle: at `now + n` ms, for every `n`. The alarm
//! has to go off at the first of these times that is not before the deadline. It sets the sleep to [`ROUNDED_UP`] before that time, which
//! lies in the millisecond before wherever the clock stands, so Tokio rounds it to the right millisecond. A deadline that is whole
//! milliseconds away is thus met exactly, and any other at most one millisecond late. If the clock is meanwhile moved to another place
//! within its millisecond, Tokio may end the sleep too early: nothing is due then, and the turn sets the sleep again.
//!
//! # A sleep that ends inside the call that sets it
//!
//! Tokio ends a sleep at once, inside the call that sets it, if Tokio's driver has passed its time already. The engine must not be turned
//! inside that call, so the *turn task*, a task on the runtime, turns it. The runtime drops the turn task when it ends, which tells the
//! alarm of that end.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep};
use tourbillon_queue::{Span, Time};

use crate::clock::Clock;
use crate::sync::{Mutex, lock};

/// An alarm that the engine sets, and that turns the engine when it goes off.
pub(crate) struct TokioSleepAlarm {
    runtime: Handle,
    /// For the conversion of times.
    clock: Clock,
    sleeps: Mutex<SleepPair>,
    turn_task: Mutex<TurnTask>,
    /// Turns the engine that has this alarm, if the engine still exists.
    turn: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

struct SleepPair {
    /// The waker of `sleep`, which turns the engine. `None` after the runtime or the engine has ended.
    waker: Option<Waker>,
    /// Ends at the engine's earliest deadline, if there is one.
    sleep: Option<Pin<Box<Sleep>>>,
    /// Another sleep, a millisecond later. It never ends: when `sleep` has ended, both are set again or dropped.
    ///
    /// If Tokio's driver has no sleep at all, adding one wakes it by a system call, and it polls for events once more before it moves its
    /// clock. As long as it has this sleep, adding a later deadline costs neither.
    next: Option<Pin<Box<Sleep>>>,
}

/// The task on the runtime that turns the engine where the waker of the sleep must not.
#[derive(Default)]
struct TurnTask {
    waker: Option<Waker>,
    /// It has to turn the engine.
    is_requested: bool,
}

/// Closes the alarm and calls `end` when the runtime drops the turn task.
struct OnRuntimeEnd<F: FnOnce()> {
    alarm: Arc<TokioSleepAlarm>,
    end: Option<F>,
}

const MILLISECOND: u64 = 1_000_000;

/// The most that Tokio's rounding adds: one nanosecond less than a millisecond.
const ROUNDED_UP: Span = Span::from_nanos(MILLISECOND - 1);

thread_local! {
    /// Whether this thread is inside [`TokioSleepAlarm::set`].
    static IS_SETTING: Cell<bool> = const { Cell::new(false) };
}

impl TokioSleepAlarm {
    /// Returns an alarm for an engine on the clock of `runtime`. `None` if the runtime was built without `enable_time`.
    pub(crate) fn new(runtime: &Handle, clock: Clock) -> Option<Arc<TokioSleepAlarm>> {
        let _context = runtime.enter();
        // Tokio panics if the runtime was built without a time driver, and offers no way to ask before.
        std::panic::catch_unwind(|| drop(tokio::time::sleep_until(Instant::now()))).ok()?;
        let alarm = Arc::new(TokioSleepAlarm {
            runtime: runtime.clone(),
            clock,
            sleeps: Mutex::new(SleepPair { waker: None, sleep: None, next: None }),
            turn_task: Mutex::default(),
            turn: OnceLock::new(),
        });
        lock(&alarm.sleeps).waker = Some(Waker::from(Arc::clone(&alarm)));
        Some(alarm)
    }

    /// Sets the function that is called when the alarm goes off. For the thread that builds the engine, before others use it.
    pub(crate) fn on_expiry(&self, turn: impl Fn() + Send + Sync + 'static) {
        self.turn.get_or_init(|| Box::new(turn));
    }

    /// Starts the turn task. `end` is called when the runtime ends.
    pub(crate) fn start(self: &Arc<Self>, end: impl FnOnce() + Send + 'static) {
        // Timers of other threads may be due already.
        lock(&self.turn_task).is_requested = true;
        let on_end = OnRuntimeEnd { alarm: Arc::clone(self), end: Some(end) };
        drop(self.runtime.spawn(async move {
            let alarm = &on_end.alarm;
            poll_fn(|context| alarm.poll_turn_task(context)).await;
        }));
    }

    /// Sets the alarm to go off at `at`, and not before. `now`: the time of the clock, if the caller has just read it.
    pub(crate) fn set(&self, at: Time, now: Option<Time>) {
        let mut sleeps = lock(&self.sleeps);
        let SleepPair { waker: Some(waker), sleep, next } = &mut *sleeps else { return };
        if at.is_never() {
            // Tokio disarms a sleep that is dropped.
            (*sleep, *next) = (None, None);
            return;
        }
        let at = self.instant_for(at, now.unwrap_or_else(|| self.clock.now()));
        let is_setting = IsSetting::begin();
        let poll = self.set_sleep(sleep, at, waker);
        let later = at + Duration::from_nanos(MILLISECOND);
        match next {
            // Its first poll has registered it with Tokio, and nothing waits for its end, so it need not be polled again.
            Some(next) => next.as_mut().reset(later),
            None => _ = self.set_sleep(next, later, Waker::noop()),
        }
        drop(is_setting);
        drop(sleeps);
        if poll.is_ready() {
            self.request_turn();
        }
    }

    /// Returns the time to which the sleep has to be set at `now` for Tokio to end it at `at`: see the module.
    fn instant_for(&self, at: Time, now: Time) -> Instant {
        let millis = (at - now).as_nanos().div_ceil(MILLISECOND);
        let first = now + Span::from_nanos(millis.saturating_mul(MILLISECOND));
        Instant::from_std(self.clock.std_of(first - ROUNDED_UP))
    }

    fn set_sleep(&self, sleep: &mut Option<Pin<Box<Sleep>>>, at: Instant, waker: &Waker) -> Poll<()> {
        let sleep = match sleep {
            Some(sleep) => {
                sleep.as_mut().reset(at);
                sleep
            }
            // A thread that is ending cannot enter a context. The turn task sets the sleep instead.
            None if Handle::try_current().is_err_and(|none| none.is_thread_local_destroyed()) => return Poll::Ready(()),
            None => {
                let _context = self.runtime.enter();
                sleep.insert(Box::pin(tokio::time::sleep_until(at)))
            }
        };
        // Must not use up the cooperative budget of the task that happens to arm a timer.
        pin!(unconstrained(sleep.as_mut())).poll(&mut Context::from_waker(waker))
    }

    /// Ends the alarm, together with the runtime or the engine.
    pub(crate) fn close(&self) {
        let sleeps = std::mem::replace(&mut *lock(&self.sleeps), SleepPair { waker: None, sleep: None, next: None });
        drop(sleeps);
        let waker = lock(&self.turn_task).waker.take();
        drop(waker);
    }

    fn turn(&self) {
        if let Some(turn) = self.turn.get() {
            turn();
        }
    }

    fn request_turn(&self) {
        let waker = {
            let mut task = lock(&self.turn_task);
            task.is_requested = true;
            task.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll_turn_task(&self, context: &mut Context<'_>) -> Poll<()> {
        let is_requested = {
            let mut task = lock(&self.turn_task);
            task.waker = Some(context.waker().clone());
            std::mem::take(&mut task.is_requested)
        };
        if is_requested {
            self.turn();
        }
        Poll::Pending
    }
}

/// A guard that keeps [`IS_SETTING`] true.
struct IsSetting;

impl IsSetting {
    fn begin() -> IsSetting {
        IS_SETTING.set(true);
        IsSetting
    }
}

impl Drop for IsSetting {
    fn drop(&mut self) {
        IS_SETTING.set(false);
    }
}

/// The waker of the sleep, which Tokio's driver wakes.
impl Wake for TokioSleepAlarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // `set` sees that the sleep has ended, and requests a turn.
        if IS_SETTING.get() {
            return;
        }
        self.turn();
    }
}

impl<F: FnOnce()> Drop for OnRuntimeEnd<F> {
    fn drop(&mut self) {
        self.alarm.close();
        if let Some(end) = self.end.take() {
            end();
        }
    }
}
