//! The driver of an engine: fires timers when they are due.
//!
//! A driver repeats three steps:
//!
//! 1. *Round*: it reads the clock, visits each shard whose next wake-up is due, and wakes the wakers of the timers that fire.
//! 2. *Plan*: it computes its next wake-up, the earliest of all shards; but adaptive timers count no earlier than the [`WakeupBudget`] allows.
//! 3. *Sleep* until then, on the [`Alarm`].
//!
//! # No wake-up is lost
//!
//! A thread that arms a timer earlier than its shard's next wake-up stores the new wake-up and then loads the driver's plan. The driver
//! stores its plan and then loads the next wake-up of every shard again. All four accesses are sequentially consistent, so at least one
//! of the two sees the other: either the driver plans anew, or the arming thread finds a plan that is too late and sets the alarm earlier.
//! While the driver is awake its plan is zero, and no thread sets the alarm. The first wake-up of a new shard is found together with the
//! shard, and the shard is looked up with less than sequential consistency: hence a fence there, and one where a shard is made.
//!
//! So the driver is notified of an earlier deadline only (T7), and of no other (P9, D40); with a timerfd by one system call.
//!
//! # Where a driver runs
//!
//! | file | driver |
//! |---|---|
//! | `thread` | a thread of the engine |
//! | `tokio_task` | a task on a Tokio runtime, beside that thread |
//! | `advance` | the caller that moves a clock of virtual time |
//!
//! Thread and task make their steps under one lock, [`SharedDriver`], so that there is always one driver: `alarm::task_alarm` explains which
//! of the two is next.

mod advance;
#[cfg(any(tourbillon_driver_task, all(loom, test)))]
pub(crate) mod hand_over;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod thread;
#[cfg(tourbillon_driver_task)]
mod tokio_task;
mod wakeup_budget;

#[cfg(feature = "tokio")]
use std::cell::Cell;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tourbillon_queue::{Span, Time};

#[cfg(feature = "test-util")]
pub(crate) use self::advance::ClockAdvance;
#[cfg(feature = "tokio")]
pub(crate) use self::advance::MAX_TURNS_AT_ONCE;
pub(crate) use self::wakeup_budget::{WAKEUP_SPACING, WakeupBudget};
use crate::alarm::Alarm;
#[cfg(feature = "tokio")]
use crate::alarm::TokioSleepAlarm;
use crate::clock::Clock;
use crate::core::driver_shared::DriverShared;
use crate::core::error::BuildError;
#[cfg(feature = "tokio")]
use crate::core::thread_shard;
use crate::core::{Core, CoreRef};
use crate::shard::{BATCH, Shard, Visit};
use crate::slack::PRECISE_LEAD;
use crate::sync::Mutex;

/// The driver of an engine, which fires its timers: a thread, a task on Tokio, or the user's own loop.
///
/// ```
/// use std::sync::mpsc::channel;
/// use std::time::Duration;
/// use tourbillon::{Driver, Engine};
///
/// // A loop of the program's own, which other threads can wake.
/// let (wake, woken) = channel();
/// let engine = Engine::builder().driver(Driver::external_with(move || drop(wake.send(())))).build()?;
/// let asleep = std::thread::spawn({
///     let engine = engine.clone();
///     move || futures_lite::future::block_on(engine.sleep(Duration::from_millis(2)))
/// });
/// while !asleep.is_finished() {
///     let turn = engine.turn();
///     let pause = turn.time_left().unwrap_or(Duration::from_millis(5));
///     let _ = woken.recv_timeout(pause);
/// }
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
pub struct Driver(DriverKind);

enum DriverKind {
    Automatic,
    Thread,
    #[cfg(tourbillon_driver_task)]
    Tokio,
    External(Box<dyn Fn() + Send + Sync>),
    #[cfg(feature = "tokio")]
    TokioTimeDriver(Arc<TokioSleepAlarm>),
}

/// The result of one turn of an engine: what it did, and when the next turn is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Turn {
    /// How many timers it fired.
    pub fired: usize,
    /// Whether more is due at the same time: turn again soon. (A turn fires a bounded number of timers, so that other work can run.)
    pub more: bool,
    /// When the next turn is due, on the engine's clock; `None` if nothing is pending. For runtimes: [`time_left`](Turn::time_left).
    #[doc(hidden)]
    pub next: Option<Time>,
    /// The time of the engine's clock for which the turn was made. For runtimes.
    #[doc(hidden)]
    pub now: Time,
}

impl Turn {
    /// Returns how long after this turn the next is due: zero if more is due now, `None` if nothing is pending.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        if self.more { Some(Duration::ZERO) } else { self.next.map(|next| Duration::from(next - self.now)) }
    }
}

impl Driver {
    /// Returns a driver on a thread of its own, which stays there: timers fire on time also while every executor thread is blocked.
    #[must_use]
    pub fn thread() -> Driver {
        Driver(DriverKind::Thread)
    }

    /// Returns the [default](Driver::default) driver, which is a task on the Tokio runtime in whose context the engine is built from the
    /// start. Outside a runtime, or in one without I/O, building the engine is an [error](BuildError::NoRuntime).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Driver, Engine};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tourbillon::BuildError> {
    /// let engine = Engine::builder().driver(Driver::tokio()).build()?;
    /// engine.sleep(Duration::from_millis(1)).await;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(tourbillon_driver_task)]
    #[must_use]
    pub fn tokio() -> Driver {
        Driver(DriverKind::Tokio)
    }

    /// Returns a driver that is the user's own loop, which calls [`Engine::turn`](crate::Engine::turn). The loop is not notified of timers
    /// that are due earlier than the last turn said, nor of queued callbacks; for that see [`external_with`](Driver::external_with).
    #[must_use]
    pub fn external() -> Driver {
        Driver::external_with(|| {})
    }

    /// Returns a driver that is the user's own loop, which calls [`Engine::turn`](crate::Engine::turn) and is notified when to do so.
    ///
    /// `notify` should make the loop turn again. It is called on the thread that arms a timer, if that timer is due before the time that the
    /// last turn announced by [`time_left`](Turn::time_left), and on any thread when a callback is queued.
    #[must_use]
    pub fn external_with(notify: impl Fn() + Send + Sync + 'static) -> Driver {
        Driver(DriverKind::External(Box::new(notify)))
    }

    /// Returns the time driver of the Tokio runtime whose clock the engine is on.
    #[cfg(feature = "tokio")]
    pub(crate) fn tokio_time_driver(alarm: Arc<TokioSleepAlarm>) -> Driver {
        Driver(DriverKind::TokioTimeDriver(alarm))
    }

    /// Returns the shared state of the driver, and the start of the driver for when the core exists.
    pub(crate) fn prepare(self, clock: &Clock) -> Result<(DriverShared, DriverStart), BuildError> {
        let manual = |start| if clock.is_manual() { Err(BuildError::ManualClock) } else { Ok(start) };
        let (alarm, start) = match self.0 {
            DriverKind::Automatic => (Alarm::new(clock), manual(DriverStart::Automatic)?),
            DriverKind::Thread => (Alarm::new(clock), manual(DriverStart::Thread)?),
            #[cfg(tourbillon_driver_task)]
            DriverKind::Tokio => (Alarm::new(clock), manual(DriverStart::Tokio(tokio_task::runtime()?))?),
            DriverKind::External(notify) => (Alarm::external(notify), DriverStart::Nothing),
            #[cfg(feature = "tokio")]
            DriverKind::TokioTimeDriver(alarm) => (Alarm::tokio_sleep(alarm), DriverStart::Nothing),
        };
        Ok((DriverShared::new(alarm), start))
    }
}

impl Default for Driver {
    /// Returns the default driver: a thread of the engine, and with the feature `tokio` on Linux a task on a Tokio runtime while there is one.
    ///
    /// The first timer that is used inside a Tokio runtime moves the driver to that runtime, which saves a switch between threads for each
    /// wake-up. The thread stays, asleep. It takes over within five milliseconds while all workers of the runtime are blocked, and at once
    /// when the runtime ends; then the next runtime that uses a timer gets the driver. In a process with several runtimes one of them drives
    /// the timers of all.
    ///
    /// The driver stays on its thread if the runtime has no I/O, if the system has no timerfd, or if the program is built with
    /// `panic = "abort"`. Tokio cannot be asked whether a runtime has I/O, and panics if it does not. The panic is caught, but the program's
    /// panic hook sees it, once: a program that has runtimes with and without I/O, and a hook that ends the process, needs
    /// [`Driver::thread`].
    fn default() -> Driver {
        Driver(DriverKind::Automatic)
    }
}

/// How to start a driver.
pub(crate) enum DriverStart {
    Automatic,
    Thread,
    #[cfg(tourbillon_driver_task)]
    Tokio(::tokio::runtime::Handle),
    Nothing,
}

impl DriverStart {
    /// Starts the driver and returns where it runs; `None` if there is nothing to start.
    pub(crate) fn run(self, core: &CoreRef) -> Result<Option<&'static str>, BuildError> {
        if let DriverStart::Nothing = self {
            return Ok(None);
        }
        let driver = Arc::new(SharedDriver::new());
        #[cfg(tourbillon_driver_task)]
        match &self {
            DriverStart::Tokio(runtime) => {
                tokio_task::spawn(runtime, core, &driver)?;
                tokio_task::spawn_when_used(core, &driver);
            }
            DriverStart::Automatic => tokio_task::spawn_when_used(core, &driver),
            DriverStart::Thread | DriverStart::Nothing => {}
        }
        thread::spawn(core.clone(), driver).map_err(BuildError::Thread)?;
        Ok(Some(self.place()))
    }

    fn place(&self) -> &'static str {
        match self {
            #[cfg(tourbillon_driver_task)]
            DriverStart::Tokio(_) => "a task",
            _ => "a thread",
        }
    }
}

/// The driver of an engine, as its thread and its task share it.
pub(crate) struct SharedDriver {
    /// Locked during each step. A step wakes wakers of the user, but no code of the user waits for this lock: the thread has nothing else to
    /// do, and the task only tries.
    steps: Mutex<DriverLoop>,
    /// The tasks that found another thread in the middle of a step. (More than one only while one replaces another.)
    #[cfg(any(tourbillon_driver_task, all(loom, test)))]
    waiting: Mutex<Vec<Waker>>,
}

impl SharedDriver {
    pub(crate) fn new() -> SharedDriver {
        SharedDriver {
            steps: Mutex::new(DriverLoop::new()),
            #[cfg(any(tourbillon_driver_task, all(loom, test)))]
            waiting: Mutex::new(Vec::new()),
        }
    }
}

/// The loop of a driver.
struct DriverLoop {
    batch: Vec<Waker>,
    budget: WakeupBudget,
    /// Whether the next step begins with a wake-up.
    slept: bool,
    /// Whether the next step fires another batch of the same wake-up.
    in_batches: bool,
}

/// The next action of a driver.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum DriverStep {
    /// Makes another round: more is due at the same time.
    More,
    /// Makes another round soon, after letting other work run: a timer is due too soon to sleep until then.
    Soon,
    /// Sleeps until the alarm goes off.
    Sleep,
    /// Ends: the engine has been shut down.
    End,
}

impl DriverLoop {
    fn new() -> DriverLoop {
        DriverLoop {
            batch: Vec::with_capacity(BATCH),
            budget: WakeupBudget::default(),
            slept: false,
            in_batches: false,
        }
    }

    /// Makes a round, in which `visit` visits a shard, and a plan.
    fn step(&mut self, core: &Core, visit: fn(&Shard, Time, &mut Vec<Waker>) -> Visit) -> DriverStep {
        core.driver.mark_awake();
        if core.is_closed() {
            return DriverStep::End;
        }
        let now = core.clock.now();
        let round = core.round_by(now, &mut self.batch, |shard, batch| visit(shard, now, batch));
        // Batches of one and the same wake-up count once.
        if std::mem::take(&mut self.slept) || (round.fired > 0 && !self.in_batches) {
            self.budget.spend(now);
        }
        self.in_batches = round.more;
        if core.has_callbacks() {
            core.run_callbacks_or_start_thread();
        }
        if round.more {
            return DriverStep::More;
        }
        // After the clock was set back, the budget may lie far ahead.
        let floor = self.budget.next_wakeup().min(now + Span::from(WAKEUP_SPACING));
        let is_soon = || core.next_round(floor) - core.clock.now() <= too_short_to_sleep(core.is_lead_in());
        if core.clock.runs_in_real_time() && is_soon() {
            return DriverStep::Soon;
        }
        match core.driver.plan(core, now, floor) {
            Some(_) => {
                self.slept = true;
                DriverStep::Sleep
            }
            None => DriverStep::Soon,
        }
    }
}

/// Visits a shard as its owner, if it is the calling thread's: a Tokio runtime turns its engine on the thread that arms its timers.
#[cfg(feature = "tokio")]
fn visit_as_owner(shard: &Shard, now: Time, batch: &mut Vec<Waker>) -> Visit {
    thread_shard::with_owner(shard, |local| match local {
        Some(local) => local.shard().visit(now, batch),
        None => shard.visit_remote(now, batch),
    })
}

#[cfg(feature = "tokio")]
thread_local! {
    /// The empty batch of the last turn, kept so that a turn allocates nothing.
    static KEPT_BATCH: Cell<Vec<Waker>> = const { Cell::new(Vec::new()) };
}

impl Core {
    /// Makes one turn for `now`, on the calling thread.
    pub(crate) fn turn(&self, now: Time) -> Turn {
        if self.is_inherited() {
            return Turn { fired: 0, more: false, next: None, now };
        }
        let mut batch = Vec::with_capacity(BATCH);
        let is_driver = self.driver.is_external();
        if is_driver {
            self.driver.mark_awake();
        }
        let round = self.round(now, &mut batch);
        if is_driver && self.has_callbacks() {
            self.run_callbacks();
        }
        // An engine that has a driver of its own leaves the plan to that driver.
        let next = if is_driver { self.driver.plan(self, now, Time::ZERO) } else { Some(self.next_round(Time::ZERO)) };
        let next = next.unwrap_or(now);
        if self.is_closed() {
            return Turn { fired: round.fired, more: is_driver && self.has_callbacks(), next: None, now };
        }
        let more = round.more || next <= now;
        Turn { fired: round.fired, more, next: (!next.is_never()).then_some(next), now }
    }

    /// Turns the engine as its driver until nothing is due any more and the alarm is set, and returns how many timers fired.
    #[cfg(feature = "tokio")]
    pub(crate) fn drive(&self) -> usize {
        let mut batch = KEPT_BATCH.try_with(Cell::take).unwrap_or_default();
        let fired = self.drive_with(&mut batch);
        let _ = KEPT_BATCH.try_with(|kept| kept.set(batch));
        fired
    }

    #[cfg(feature = "tokio")]
    fn drive_with(&self, batch: &mut Vec<Waker>) -> usize {
        let mut fired = 0;
        for _ in 0..MAX_TURNS_AT_ONCE {
            self.driver.mark_awake();
            let now = self.clock.now();
            let round = self.round_by(now, batch, |shard, batch| visit_as_owner(shard, now, batch));
            fired += round.fired;
            if self.is_closed() {
                return fired;
            }
            if self.has_callbacks() {
                self.run_callbacks_or_start_thread();
            }
            if !round.more && self.driver.plan(self, now, Time::ZERO).is_some() {
                self.hold_clock();
                return fired;
            }
        }
        // Other tasks run before this continues.
        self.driver.wake();
        fired
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            DriverKind::Automatic => "Driver::default",
            DriverKind::Thread => "Driver::thread",
            #[cfg(tourbillon_driver_task)]
            DriverKind::Tokio => "Driver::tokio",
            DriverKind::External(_) => "Driver::external",
            #[cfg(feature = "tokio")]
            DriverKind::TokioTimeDriver(_) => "Tokio's time driver",
        })
    }
}

/// Returns the longest time for which a driver does not sleep. To sleep costs more than to stay awake; and in the lead-in of a precise timer
/// (the last [`PRECISE_LEAD`] before it is due) a sleep would make that timer late.
pub(crate) fn too_short_to_sleep(is_lead_in: bool) -> Span {
    if is_lead_in { Span::from(PRECISE_LEAD) } else { Span::from_nanos(20_000) }
}
