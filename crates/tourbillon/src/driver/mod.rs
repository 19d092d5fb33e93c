//! Who turns an engine, and when.
//!
//! A driver repeats three steps:
//!
//! 1. *Round*: read the clock, visit each shard that wants it, wake what is due.
//! 2. *Plan*: the earliest wish of all shards, but relaxed timers not before the floor that [`Pace`] sets.
//! 3. *Sleep* until then, on the [`Alarm`].
//!
//! # No wish is missed
//!
//! Whoever arms a timer earlier than its shard's wish stores the wish and then looks at the plan; the driver stores
//! its plan and then looks at all wishes again. All four are sequentially consistent, so at least one sees the other: either the
//! driver plans anew, or the thread that armed finds a plan that is too late and brings the alarm forward. While the driver
//! is awake its plan is zero, and nobody rings. The first wish of a shard is found together with the shard, and that one is
//! looked up with less than sequential consistency: hence a fence there, and one where a shard is made.
//!
//! The driver is thus told of an earlier deadline only (T7), by one system call, and of no other (P9, D40).

mod advance;
mod pace;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod thread;
#[cfg(all(feature = "tokio", target_os = "linux"))]
mod tokio_task;

#[cfg(feature = "tokio")]
use std::cell::Cell;
#[cfg(feature = "tokio")]
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tourbillon_queue::{Span, Time};

#[cfg(feature = "tokio")]
pub(crate) use self::advance::AT_ONCE;
#[cfg(feature = "test-util")]
pub(crate) use self::advance::Way;
pub(crate) use self::pace::Pace;
use crate::alarm::Alarm;
#[cfg(feature = "tokio")]
use crate::alarm::RuntimeAlarm;
use crate::clock::Clock;
use crate::core::driver_shared::DriverShared;
use crate::core::error::BuildError;
#[cfg(feature = "tokio")]
use crate::core::thread_shard::{self, ThreadShard};
use crate::core::{Core, CoreRef};
use crate::shard::BATCH;
#[cfg(feature = "tokio")]
use crate::shard::{Access, Shard, Visit};
use crate::slack::LEAD;

/// Who turns an engine.
///
/// ```
/// use std::sync::mpsc::channel;
/// use std::time::Duration;
/// use tourbillon::{Driver, Engine};
///
/// // A loop of one's own, which other threads can call.
/// let (call, called) = channel();
/// let engine = Engine::builder().driver(Driver::external_with(move || drop(call.send(())))).build()?;
/// let asleep = std::thread::spawn({
///     let engine = engine.clone();
///     move || futures_lite::future::block_on(engine.sleep(Duration::from_millis(2)))
/// });
/// while !asleep.is_finished() {
///     let turn = engine.turn();
///     let pause = turn.next.map_or(Duration::from_millis(5), |next| (next - engine.clock().now()).into());
///     let _ = called.recv_timeout(pause);
/// }
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
pub struct Driver(DriverKind);

enum DriverKind {
    Thread,
    #[cfg(all(feature = "tokio", target_os = "linux"))]
    Tokio,
    External(Box<dyn Fn() + Send + Sync>),
    #[cfg(feature = "tokio")]
    Runtime(Arc<RuntimeAlarm>),
}

/// What one turn did, and when the next is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Turn {
    /// How many timers it fired.
    pub fired: usize,
    /// There is more to do at the same time: turn again soon. (A turn is bounded, so that others get their turn.)
    pub more: bool,
    /// When the next turn is due, on the engine's clock; `None` if nothing is pending.
    pub next: Option<Time>,
    /// The time that the turn was made for.
    pub now: Time,
}

impl Driver {
    /// A thread of its own. The default: its timers fire on time also while every executor thread is blocked.
    #[must_use]
    pub fn thread() -> Driver {
        Driver(DriverKind::Thread)
    }

    /// A task on the Tokio runtime in whose context the engine is built, woken by a timer of the kernel. It saves the way
    /// from one thread to another, and depends on the runtime: while all its workers are blocked, nothing fires. When
    /// the runtime is gone, a thread takes over.
    ///
    /// Outside a runtime, or in one without I/O, building the engine is an [error](BuildError::NoRuntime).
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
    #[cfg(all(feature = "tokio", target_os = "linux"))]
    #[must_use]
    pub fn tokio() -> Driver {
        Driver(DriverKind::Tokio)
    }

    /// Whoever calls [`Engine::turn`](crate::Engine::turn). Nobody is told of timers that are due earlier than the last turn
    /// said, nor of callbacks that wait to be called; for that see [`external_with`](Driver::external_with).
    #[must_use]
    pub fn external() -> Driver {
        Driver::external_with(|| {})
    }

    /// Whoever calls [`Engine::turn`](crate::Engine::turn). `notify` is called, on the thread that arms, when a
    /// timer is due before the time that the last turn gave as `next`, and on any thread when there is a callback to call: it should
    /// make the driver turn again.
    #[must_use]
    pub fn external_with(notify: impl Fn() + Send + Sync + 'static) -> Driver {
        Driver(DriverKind::External(Box::new(notify)))
    }

    /// The time driver of the Tokio runtime on whose clock the engine is.
    #[cfg(feature = "tokio")]
    pub(crate) fn on_runtime(alarm: Arc<RuntimeAlarm>) -> Driver {
        Driver(DriverKind::Runtime(alarm))
    }

    /// What is shared, and what has to be started once the core is there.
    pub(crate) fn prepare(self, clock: &Clock) -> Result<(DriverShared, Start), BuildError> {
        let manual = |start| if clock.is_manual() { Err(BuildError::ManualClock) } else { Ok(start) };
        let (alarm, start) = match self.0 {
            DriverKind::Thread => (Alarm::new(clock), manual(Start::Thread)?),
            #[cfg(all(feature = "tokio", target_os = "linux"))]
            DriverKind::Tokio => (Alarm::new(clock), manual(Start::Tokio(tokio_task::runtime()?))?),
            DriverKind::External(notify) => (Alarm::call(notify), Start::Nothing),
            #[cfg(feature = "tokio")]
            DriverKind::Runtime(alarm) => (Alarm::on_runtime(alarm), Start::Nothing),
        };
        Ok((DriverShared::new(alarm), start))
    }
}

/// What a driver needs to be started.
pub(crate) enum Start {
    Thread,
    #[cfg(all(feature = "tokio", target_os = "linux"))]
    Tokio(::tokio::runtime::Handle),
    Nothing,
}

impl Start {
    /// Starts the driver. What it runs on, if there is one.
    pub(crate) fn run(self, core: &CoreRef) -> Result<Option<&'static str>, BuildError> {
        match self {
            Start::Thread => thread::spawn(core.clone()).map(|()| Some("a thread")).map_err(BuildError::Thread),
            #[cfg(all(feature = "tokio", target_os = "linux"))]
            Start::Tokio(runtime) => tokio_task::spawn(&runtime, core.clone()).map(|()| Some("a task")),
            Start::Nothing => Ok(None),
        }
    }
}

/// A driver at work.
struct DriverLoop {
    core: CoreRef,
    batch: Vec<Waker>,
    pace: Pace,
    /// What comes next is a wake-up.
    slept: bool,
    /// What comes next is another batch of the same.
    in_batches: bool,
}

/// What a driver does next.
#[derive(PartialEq, Eq, Debug)]
enum Next {
    /// Another round: there is more to do at the same time.
    More,
    /// Another round, at once or after letting others have a turn: something is due too soon to sleep until then.
    Soon,
    /// Waits for the alarm.
    Sleep,
    End,
}

impl DriverLoop {
    fn new(core: CoreRef) -> DriverLoop {
        DriverLoop { core, batch: Vec::with_capacity(BATCH), pace: Pace::default(), slept: false, in_batches: false }
    }

    /// A round and a plan.
    fn step(&mut self) -> Next {
        self.core.driver.mark_awake();
        if self.core.is_closed() {
            return Next::End;
        }
        let now = self.core.clock.now();
        let round = self.core.round(now, &mut self.batch);
        // Batches of one and the same wake-up count once.
        if std::mem::take(&mut self.slept) || (round.fired > 0 && !self.in_batches) {
            self.pace.woken(now);
        }
        self.in_batches = round.more;
        if self.core.has_callbacks() {
            self.core.run_callbacks_or_start_thread();
        }
        if round.more {
            return Next::More;
        }
        // A clock that was set back has left the pace ahead.
        let floor = self.pace.floor().min(now + Span::from(SPACE));
        if self.core.next_round(floor) - self.core.clock.now() <= too_short(self.core.is_lead_in()) {
            return Next::Soon;
        }
        match self.core.driver.plan(&self.core, now, floor) {
            Some(_) => {
                self.slept = true;
                Next::Sleep
            }
            None => Next::Soon,
        }
    }
}

/// Visits a shard as its owner, if it is the calling thread's: a Tokio runtime turns its engine on the thread that arms its timers.
#[cfg(feature = "tokio")]
fn visit_as_owner(shard: &Shard, now: Time, batch: &mut Vec<Waker>) -> Visit {
    thread_shard::with_owner(shard, |local| {
        let access = local.map_or(Access::Remote, ThreadShard::access);
        // SAFETY: a thread shard knows how its thread stands to its shard.
        unsafe { shard.visit(access, now, batch) }
    })
}

#[cfg(feature = "tokio")]
thread_local! {
    /// The empty batch of the last turn, so that a turn allocates nothing.
    static KEPT_BATCH: Cell<Vec<Waker>> = const { Cell::new(Vec::new()) };
}

impl Core {
    /// One turn, by whoever drives from outside.
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
        // Beside a driver, whose plan it is, nothing is planned.
        let next = if is_driver { self.driver.plan(self, now, Time::ZERO) } else { Some(self.next_round(Time::ZERO)) };
        let next = next.unwrap_or(now);
        if self.is_closed() {
            return Turn { fired: round.fired, more: is_driver && self.has_callbacks(), next: None, now };
        }
        let more = round.more || next <= now;
        Turn { fired: round.fired, more, next: (!next.is_never()).then_some(next), now }
    }

    /// Turns it for the time that its clock shows, as its driver: until nothing is due any more, and the alarm is set for what comes next.
    /// Gives how many timers fired.
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
        for _ in 0..AT_ONCE {
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
        // Others get a turn before it goes on.
        self.driver.wake();
        fired
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            DriverKind::Thread => "Driver::thread",
            #[cfg(all(feature = "tokio", target_os = "linux"))]
            DriverKind::Tokio => "Driver::tokio",
            DriverKind::External(_) => "Driver::external",
            #[cfg(feature = "tokio")]
            DriverKind::Runtime(_) => "Tokio's time driver",
        })
    }
}

/// Between two wake-ups for relaxed timers, when they come thick.
pub(crate) const SPACE: Duration = Duration::from_micros(1750);

/// The driver does not sleep for this long or less. To sleep costs more than to stay awake; and during the lead-in of a precise timer
/// (the last [`LEAD`] before it is due) it would make that timer late.
pub(crate) fn too_short(is_lead_in: bool) -> Span {
    if is_lead_in { Span::from(LEAD) } else { Span::from_nanos(20_000) }
}
