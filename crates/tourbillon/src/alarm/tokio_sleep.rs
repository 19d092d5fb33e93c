//! The driver of an engine that is on the clock of a Tokio runtime: Tokio's own time driver.
//!
//! The engine holds one `tokio::time::Sleep` for its earliest deadline, so Tokio's auto-advance moves the clock to that deadline and not
//! beyond. When Tokio ends that sleep it wakes a waker of ours, which turns the engine there and then: the tasks whose timers are due are
//! scheduled at the same moment as those whose Tokio sleeps are due. No task of the runtime has to run in between.
//!
//! # Finer than Tokio's milliseconds
//!
//! Tokio's driver counts whole milliseconds since the runtime was built, rounds deadlines up to those, and moves a paused clock by whole
//! milliseconds. A clock that was paused in the middle of a millisecond stays in the middle: at `now + n` ms, for every `n`. Of these
//! times the first that is not before the deadline is the right one, and the sleep is set so that Tokio rounds it to the millisecond in
//! which that time lies: to [`LESS`] before it, which is in the millisecond before, wherever in a millisecond the clock stands. So a
//! deadline that is whole milliseconds away is met exactly, and any other at most one millisecond late. Should the clock meanwhile be moved
//! to another place within its millisecond, Tokio may end the sleep too early: nothing is due then, and the sleep is set again.
//!
//! # OwnerGuard the call that sets the sleep
//!
//! SleepPair the sleep to a time that Tokio's driver has passed already would end it inside the call that sets it. Then the engine is not
//! turned in that call, but by the *resident*: a task on the runtime. The runtime drops the resident when it ends, and so tells the engine.

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

/// What the engine sets, and what turns the engine.
pub(crate) struct RuntimeAlarm {
    runtime: Handle,
    /// For the conversion of times.
    clock: Clock,
    sleeps: Mutex<SleepPair>,
    resident: Mutex<Resident>,
    /// Turns the engine that has this alarm, if the engine is still there.
    turn: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

struct SleepPair {
    /// What the sleep is polled with: it turns the engine. `None` when the runtime has ended, or the engine is gone.
    waker: Option<Waker>,
    /// What Tokio's driver moves its clock to, if there is such a time.
    sleep: Option<Pin<Box<Sleep>>>,
    /// Another, a millisecond later. It never ends: when the first has, both are set again or dropped.
    ///
    /// While Tokio's driver has no sleep at all, each that is added wakes it, by a system call, and it looks for events once more
    /// before it moves its clock. As long as it has this one, a later deadline is added for nothing.
    next: Option<Pin<Box<Sleep>>>,
}

#[derive(Default)]
struct Resident {
    waker: Option<Waker>,
    /// There is a turn for it to make.
    is_called: bool,
}

/// Runs when the runtime drops the resident.
struct OnEnd<F: FnOnce()> {
    alarm: Arc<RuntimeAlarm>,
    end: Option<F>,
}

const MILLISECOND: u64 = 1_000_000;

/// The most that is less than a millisecond.
const LESS: Span = Span::from_nanos(MILLISECOND - 1);

thread_local! {
    /// This thread is setting an alarm.
    static IS_SETTING: Cell<bool> = const { Cell::new(false) };
}

impl RuntimeAlarm {
    /// For an engine on the clock of that runtime. `None` if the runtime was built without `enable_time`.
    pub(crate) fn new(runtime: &Handle, clock: Clock) -> Option<Arc<RuntimeAlarm>> {
        let _context = runtime.enter();
        // Tokio panics if the runtime was built without a time driver, and there is no way to ask it before.
        std::panic::catch_unwind(|| drop(tokio::time::sleep_until(Instant::now()))).ok()?;
        let alarm = Arc::new(RuntimeAlarm {
            runtime: runtime.clone(),
            clock,
            sleeps: Mutex::new(SleepPair { waker: None, sleep: None, next: None }),
            resident: Mutex::default(),
            turn: OnceLock::new(),
        });
        lock(&alarm.sleeps).waker = Some(Waker::from(Arc::clone(&alarm)));
        Some(alarm)
    }

    /// Has `turn` called when the alarm goes off. No other thread knows the engine yet.
    pub(crate) fn on_expiry(&self, turn: impl Fn() + Send + Sync + 'static) {
        self.turn.get_or_init(|| Box::new(turn));
    }

    /// Starts the resident. When the runtime ends, `end` is called.
    pub(crate) fn start(self: &Arc<Self>, end: impl FnOnce() + Send + 'static) {
        // Timers of other threads may have called it already.
        lock(&self.resident).is_called = true;
        let on_end = OnEnd { alarm: Arc::clone(self), end: Some(end) };
        drop(self.runtime.spawn(async move {
            let alarm = &on_end.alarm;
            poll_fn(|context| alarm.poll_resident(context)).await;
        }));
    }

    /// Sets it to go off at `at`, and not before. The clock shows `now`, if the caller has just read it.
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
            // Tokio has it from its first poll on, and nothing waits for its end.
            Some(next) => next.as_mut().reset(later),
            None => _ = self.set_sleep(next, later, Waker::noop()),
        }
        drop(is_setting);
        drop(sleeps);
        if poll.is_ready() {
            self.call_resident();
        }
    }

    /// What the sleep is set to when the clock shows `now`, so that Tokio ends it when the clock shows `at`: see the module.
    fn instant_for(&self, at: Time, now: Time) -> Instant {
        let millis = (at - now).as_nanos().div_ceil(MILLISECOND);
        let first = now + Span::from_nanos(millis.saturating_mul(MILLISECOND));
        Instant::from_std(self.clock.std_of(first - LESS))
    }

    fn set_sleep(&self, sleep: &mut Option<Pin<Box<Sleep>>>, at: Instant, waker: &Waker) -> Poll<()> {
        let sleep = match sleep {
            Some(sleep) => {
                sleep.as_mut().reset(at);
                sleep
            }
            // A thread that is ending cannot enter a context. The resident sets it.
            None if Handle::try_current().is_err_and(|none| none.is_thread_local_destroyed()) => return Poll::Ready(()),
            None => {
                let _context = self.runtime.enter();
                sleep.insert(Box::pin(tokio::time::sleep_until(at)))
            }
        };
        // The budget of the task that happens to arm a timer is not to be spent on it.
        pin!(unconstrained(sleep.as_mut())).poll(&mut Context::from_waker(waker))
    }

    /// When the runtime or the engine ends: never goes off again.
    pub(crate) fn close(&self) {
        let sleeps = std::mem::replace(&mut *lock(&self.sleeps), SleepPair { waker: None, sleep: None, next: None });
        drop(sleeps);
        let waker = lock(&self.resident).waker.take();
        drop(waker);
    }

    fn turn(&self) {
        if let Some(turn) = self.turn.get() {
            turn();
        }
    }

    fn call_resident(&self) {
        let waker = {
            let mut resident = lock(&self.resident);
            resident.is_called = true;
            resident.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll_resident(&self, context: &mut Context<'_>) -> Poll<()> {
        let is_called = {
            let mut resident = lock(&self.resident);
            resident.waker = Some(context.waker().clone());
            std::mem::take(&mut resident.is_called)
        };
        if is_called {
            self.turn();
        }
        Poll::Pending
    }
}

/// As long as it lives, [`IS_SETTING`] holds.
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

/// Tokio's driver wakes it.
impl Wake for RuntimeAlarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The call that sets it sees that the sleep has ended, and calls the resident.
        if IS_SETTING.get() {
            return;
        }
        self.turn();
    }
}

impl<F: FnOnce()> Drop for OnEnd<F> {
    fn drop(&mut self) {
        self.alarm.close();
        if let Some(end) = self.end.take() {
            end();
        }
    }
}
