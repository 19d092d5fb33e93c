//! Workers: threads of a runtime that fire the timers of their own shard, between their tasks and their wait for events.
//!
//! ```text
//!     loop {
//!         run tasks                              their timers go to this thread's shard
//!         let turn = worker.turn();              fires the timers that are due, and returns when to turn again
//!         if !turn.more { wait for events, for turn.time_left() at most }
//!     }
//! ```
//!
//! The engine's driver skips such a shard. A timer that the worker arms itself needs no notice, because the worker loads its next turn before
//! it waits. If another thread has to share the shard, because no other is left, and arms a timer in it, the worker is notified.
//!
//! Adaptive timers share wake-ups here as they do with a driver: see [`WakeupBudget`]. If a worker does not turn, because one of its tasks
//! blocks, another thread can hand its timers to the driver: [`WorkerTakeover`].

use std::fmt;
use std::marker::PhantomData;
use std::task::Waker;
use std::time::Duration;

use tourbillon_queue::{Span, Time};

use crate::Engine;
use crate::core::thread_shard::{self, ThreadShard};
use crate::driver::{Turn, WAKEUP_SPACING, WakeupBudget, too_short_to_sleep};
use crate::engine::Entered;
use crate::shard::{Access, BATCH, Notify, Shard, Visit};

/// A thread that drives its own shard: [`Engine::worker`].
///
/// The engine is [entered](Engine::enter) on this thread until the worker is dropped.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Clock, Engine};
///
/// let engine = Engine::builder().clock(Clock::manual()).build()?;
/// let mut worker = engine.worker(|| ()).expect("there is a shard left");
/// let mut sleep = std::pin::pin!(tourbillon::time::sleep(Duration::from_millis(3)));
/// let mut context = std::task::Context::from_waker(std::task::Waker::noop());
/// assert!(sleep.as_mut().poll(&mut context).is_pending());
///
/// assert_eq!(worker.time_left(), Some(Duration::from_millis(3)));
/// engine.clock().advance(Duration::from_millis(3));
/// assert_eq!(worker.turn().fired, 1);
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
pub struct Worker {
    /// The index of the thread's shard in the engine.
    shard: usize,
    /// Notifies the worker; its address also identifies the worker.
    notify: Notify,
    entered: Entered,
    batch: Vec<Waker>,
    budget: WakeupBudget,
    /// Whether the next turn fires another batch of the same wake-up.
    in_batches: bool,
    /// Not `Send`: the worker belongs to its thread.
    thread: PhantomData<*const ()>,
}

/// A handle by which another thread lets the driver fire the timers of a [`Worker`] that is blocked.
///
/// It counts as a handle of the engine: the engine is not shut down while it exists.
pub struct WorkerTakeover {
    /// The index of the shard.
    shard: usize,
    notify: Notify,
    engine: Engine,
}

impl Worker {
    pub(crate) fn new(engine: &Engine, notify: Notify) -> Option<Worker> {
        if engine.core().is_inherited() {
            return None;
        }
        let entered = engine.enter();
        let core = engine.core().as_ptr();
        let shard = thread_shard::with(core, |local| (local.access() == Access::Owner).then(|| local.index()))?;
        let (batch, budget) = (Vec::with_capacity(BATCH), WakeupBudget::default());
        let worker = Worker { shard, notify, entered, batch, budget, in_batches: false, thread: PhantomData };
        worker.shard().set_worker(worker.notify.clone()).then_some(worker)
    }

    fn shard(&self) -> &Shard {
        self.entered.engine().core().shard_at(self.shard)
    }

    /// Fires the timers of this thread's shard that are due, up to a batch, and returns when to turn again.
    pub fn turn(&mut self) -> Turn {
        let core = self.entered.engine().core();
        if core.is_inherited() {
            return Turn { fired: 0, more: false, next: None, now: core.clock.now() };
        }
        if !self.shard().has_worker() {
            // Another thread has taken over meanwhile. If the shard has another worker by now, that one keeps it.
            let _is_set = self.shard().set_worker(self.notify.clone());
        }
        let (visit, now) = thread_shard::with(core.as_ptr(), |local| {
            let now = local.now();
            if !self.in_batches && local.shard().is_quiet(now) {
                return (Visit::default(), now);
            }
            let visit = local.shard().visit(now, &mut self.batch);
            (visit, now)
        });
        // Batches of one and the same wake-up count once.
        if visit.fired > 0 && !self.in_batches {
            self.budget.spend(now);
        }
        self.in_batches = visit.more;
        core.free_slots(visit.fired, &mut self.batch);
        // After the wakers have run: they may have armed timers here, of which no other thread is notified.
        Turn { fired: visit.fired, more: visit.more, next: self.next_turn_after(now), now }
    }

    /// Returns when the thread has to [`turn`](Worker::turn) at the latest, on the engine's clock; `None` if nothing is pending. A timer that
    /// this thread arms counts at once. For runtimes, which wait until a time of the kernel's clock: [`time_left`](Worker::time_left).
    #[doc(hidden)]
    #[must_use]
    pub fn next_turn(&self) -> Option<Time> {
        let clock = &self.entered.engine().core().clock;
        // A steady clock need not be read.
        self.next_turn_after(if clock.is_steady() { Time::NEVER } else { clock.now() })
    }

    /// Returns how long the thread may wait before it has to [`turn`](Worker::turn); `None` if nothing is pending. A timer that this thread
    /// arms counts at once. On a [custom](crate::Clock::custom) clock this is real time, and a second at most.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        let core = self.entered.engine().core();
        let now = thread_shard::with(core.as_ptr(), ThreadShard::now);
        let next = self.next_turn_after(now)?;
        Some(if core.clock.runs_in_real_time() { Duration::from(next - now) } else { core.clock.wait_for(next) })
    }

    /// Returns the longest wait that is not worth a sleep: the thread should [`turn`](Worker::turn) in a loop instead.
    ///
    /// It is about 20 microseconds, because going to sleep takes longer. It is 0.2 ms if the last turn has found a
    /// [precise](crate::Slack::precise) timer that is due within that time; the [next turn](Worker::time_left) is planned so that a turn
    /// finds it. On a [custom](crate::Clock::custom) clock it is zero, because that clock may stand still.
    #[must_use]
    pub fn too_short_to_sleep(&self) -> Duration {
        if !self.entered.engine().core().clock.runs_in_real_time() {
            return Duration::ZERO;
        }
        Duration::from(too_short_to_sleep(self.shard().next_wake().is_lead_in()))
    }

    /// Returns a handle by which another thread lets the driver fire this worker's timers.
    #[must_use]
    pub fn takeover(&self) -> WorkerTakeover {
        WorkerTakeover { shard: self.shard, notify: self.notify.clone(), engine: self.entered.engine().clone() }
    }

    fn next_turn_after(&self, now: Time) -> Option<Time> {
        // After the clock was set back, the budget may lie far ahead.
        let floor = self.budget.next_wakeup().min(now + Span::from(WAKEUP_SPACING));
        let next = self.shard().next_wake().next(floor);
        (!next.is_never()).then_some(next)
    }
}

impl WorkerTakeover {
    /// Lets the engine's driver fire the worker's timers until the worker [turns](Worker::turn) again. Does nothing if the worker has been
    /// dropped.
    pub fn take_over(&self) {
        let core = self.engine.core();
        core.take_from_worker(core.shard_at(self.shard), Some(&self.notify));
    }
}

impl fmt::Debug for WorkerTakeover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerTakeover").field("engine", &self.engine).finish_non_exhaustive()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The driver fires the timers that are pending in the shard.
        self.entered.engine().core().take_from_worker(self.shard(), Some(&self.notify));
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("engine", self.entered.engine()).finish_non_exhaustive()
    }
}
