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

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::task::Waker;
use std::time::Duration;

use tourbillon_queue::Time;

use crate::Engine;
use crate::driver::Turn;
use crate::engine::Entered;
use crate::home;
use crate::shard::{Access, BATCH, Notify, Shard};

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
    shard: NonNull<Shard>,
    /// How it is notified; also what it is known by.
    notify: Notify,
    entered: Entered,
    batch: Vec<Waker>,
    /// Not `Send`: it is the thread's.
    thread: PhantomData<*const ()>,
}

impl Worker {
    pub(crate) fn new(engine: &Engine, notify: Notify) -> Option<Worker> {
        let entered = engine.enter();
        let core = engine.core().as_ptr();
        let shard = home::with(core, |home| (home.access() == Access::Owner).then(|| NonNull::from(home.shard())))?;
        let worker = Worker { shard, notify, entered, batch: Vec::with_capacity(BATCH), thread: PhantomData };
        worker.shard().set_worker(worker.notify.clone()).then_some(worker)
    }

    fn shard(&self) -> &Shard {
        // SAFETY: the engine that was entered keeps its shards.
        unsafe { self.shard.as_ref() }
    }

    /// Fires what is due in this thread's shard, up to a batch, and says when to come again.
    pub fn turn(&mut self) -> Turn {
        let core = self.entered.engine().core();
        let (visit, next, now) = home::with(core.as_ptr(), |home| {
            let now = home.now();
            // SAFETY: a home knows how its thread stands to its shard.
            let visit = unsafe { home.shard().visit(home.access(), now, &mut self.batch) };
            (visit, home.shard().wants().next(Time::ZERO), now)
        });
        core.wake(&mut self.batch);
        Turn { fired: visit.fired, more: visit.more, next: (!next.is_never()).then_some(next), now }
    }

    /// How long the thread may wait before it has to [`turn`](Worker::turn): what it arms counts at once. `None`: for ever.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        home::with(self.entered.engine().core().as_ptr(), |home| {
            let next = home.shard().wants().next(Time::ZERO);
            (!next.is_never()).then(|| Duration::from(next - home.now()))
        })
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
