//! The seam for runtimes: a thread that turns its own shard, between its tasks and its wait for events.
//!
//! ```text
//!     loop {
//!         run tasks                              their timers go to this thread's shard
//!         let turn = worker.turn();              fires what is due there, and says when to come again
//!         if !turn.more { wait for events, until turn.next at most }
//!     }
//! ```
//!
//! The engine's driver leaves such a shard alone. Nobody has to be told of a timer that this thread arms: it looks before it
//! waits. Should another thread have to share the shard, because there are no more, the worker is notified.
//!
//! Adaptive timers share wake-ups here as they do with a driver: see [`Pace`]. A worker that does not come, because
//! one of its tasks blocks, can be stood in for: [`WorkerTakeover`].

use std::fmt;
use std::marker::PhantomData;
use std::task::Waker;
use std::time::Duration;

use tourbillon_queue::{Span, Time};

use crate::Engine;
use crate::core::thread_shard;
use crate::driver::{Pace, SPACE, Turn, too_short};
use crate::engine::Entered;
use crate::shard::{Access, BATCH, Notify, Shard, Visit};

/// The shard of the calling thread, in the hands of that thread: [`Engine::worker`].
///
/// While it lives the engine is [entered](Engine::enter) on this thread.
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
    /// The thread's shard, which the engine keeps.
    /// The index of the shard.
    shard: usize,
    /// How it is notified; also what it is known by.
    notify: Notify,
    entered: Entered,
    batch: Vec<Waker>,
    pace: Pace,
    /// What comes next is another batch of the same.
    in_batches: bool,
    /// Not `Send`: it is the thread's.
    thread: PhantomData<*const ()>,
}

/// For those who watch a [`Worker`] from other threads: they can have its timers fired while it is blocked.
///
/// It keeps the engine from being shut down by itself, as any handle does.
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
        let (batch, pace) = (Vec::with_capacity(BATCH), Pace::default());
        let worker = Worker { shard, notify, entered, batch, pace, in_batches: false, thread: PhantomData };
        worker.shard().set_worker(worker.notify.clone()).then_some(worker)
    }

    fn shard(&self) -> &Shard {
        self.entered.engine().core().shard_at(self.shard)
    }

    /// Fires what is due in this thread's shard, up to a batch, and says when to come again.
    pub fn turn(&mut self) -> Turn {
        let core = self.entered.engine().core();
        if core.is_inherited() {
            return Turn { fired: 0, more: false, next: None, now: core.clock.now() };
        }
        if !self.shard().has_worker() {
            // Somebody has stood in meanwhile.
            self.shard().set_worker(self.notify.clone());
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
            self.pace.woken(now);
        }
        self.in_batches = visit.more;
        core.give_room_back(visit.fired, &mut self.batch);
        // After the wakers, which may have armed some: nobody else is told of those.
        Turn { fired: visit.fired, more: visit.more, next: self.next_turn_after(now), now }
    }

    /// When the thread has to [`turn`](Worker::turn) at the latest, on the engine's clock: what it arms counts at once. `None`:
    /// never.
    #[must_use]
    pub fn next_turn(&self) -> Option<Time> {
        let clock = &self.entered.engine().core().clock;
        // A steady clock need not be asked.
        self.next_turn_after(if clock.is_steady() { Time::NEVER } else { clock.now() })
    }

    /// How long the thread may wait before it has to [`turn`](Worker::turn): what it arms counts at once. `None`: for ever.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        let now = thread_shard::with(self.entered.engine().core().as_ptr(), |local| local.now());
        self.next_turn_after(now).map(|next| Duration::from(next - now))
    }

    /// RemoteFreeList the time for which, or for less, the thread should not sleep but [`turn`](Worker::turn) in a loop: some 20 microseconds,
    /// as going to sleep takes longer. It is 0.2 ms once a turn has found a [precise](crate::Slack::precise) timer that is due within
    /// that time; the [next turn](Worker::next_turn) is planned so that one does.
    #[must_use]
    pub fn too_short_to_sleep(&self) -> Duration {
        Duration::from(too_short(self.shard().next_wake().is_lead_in()))
    }

    /// For those who watch this worker.
    #[must_use]
    pub fn takeover(&self) -> WorkerTakeover {
        WorkerTakeover { shard: self.shard, notify: self.notify.clone(), engine: self.entered.engine().clone() }
    }

    fn next_turn_after(&self, now: Time) -> Option<Time> {
        // A clock that was set back has left the pace ahead.
        let floor = self.pace.floor().min(now + Span::from(SPACE));
        let next = self.shard().next_wake().next(floor);
        (!next.is_never()).then_some(next)
    }
}

impl WorkerTakeover {
    /// Leaves the worker's timers to the engine's driver, until the worker [turns](Worker::turn) again. Nothing happens if it
    /// is no worker any more.
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
        // What is pending there is the driver's from now on.
        self.entered.engine().core().take_from_worker(self.shard(), Some(&self.notify));
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("engine", self.entered.engine()).finish_non_exhaustive()
    }
}
