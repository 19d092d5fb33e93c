//! What all threads of a runtime share: the global queue, who sleeps, and who has ended.
//!
//! # Who is woken for a task
//!
//! A task that is woken on a worker goes to that worker's own queue, and nobody is called: the worker will get to it. If it
//! has run a handful of tasks and still has some, it calls one of those who sleep, who steals half of them; a wake-up costs as
//! much as tens of short tasks. A new task, and one that is woken from outside, calls somebody at once. See [`Sleepers`].

use std::iter;
use std::sync::Arc;
use std::time::Instant;

use async_task::Runnable;
use tourbillon::Engine;

use super::context;
use super::guests::Guests;
use super::monitor::Monitor;
use super::registry::Registry;
use super::seat::Seat;
use super::sleepers::Sleepers;
use super::substitutes::{self, Substitutes};
use super::virtual_time::{VirtualTime, WorkEnd};
use super::worker::Spare;
use crate::backend::Backend;
use crate::sync::{AtomicBool, AtomicUsize, Injector, Ordering, contain};

pub(crate) struct Shared {
    pub(super) backend: Backend,
    pub(super) engine: Engine,
    pub(super) injector: Injector<Runnable>,
    /// The workers.
    pub(super) seats: Vec<Arc<Seat>>,
    /// Threads of the user's that work here for a while.
    pub(super) guests: Guests,
    /// Whether there is a monitor. (A single thread that is blocked leaves nobody to do its work.)
    pub(super) is_watched: bool,
    pub(super) tasks: Arc<Registry>,
    pub(super) monitor: Monitor,
    pub(super) sleepers: Sleepers,
    pub(super) substitutes: Substitutes,
    pub(super) virtual_time: VirtualTime,
    /// So many workers have not ended.
    working: AtomicUsize,
    /// No new tasks.
    stopping: AtomicBool,
    /// Nobody runs tasks any more.
    stopped: AtomicBool,
}

/// Holds virtual time still until it is dropped.
pub(super) struct HeldTime(Arc<Shared>);

/// The monitor, and whether it has a thread.
pub(super) struct Watched {
    pub(super) monitor: Monitor,
    pub(super) is_watched: bool,
}

impl Shared {
    pub(super) fn new(
        backend: Backend,
        engine: Engine,
        virtual_time: VirtualTime,
        seats: Vec<Arc<Seat>>,
        watched: Watched,
        substitutes: Substitutes,
    ) -> Shared {
        let Watched { monitor, is_watched } = watched;
        Shared {
            backend,
            engine,
            injector: Injector::new(),
            working: AtomicUsize::new(seats.len()),
            seats,
            guests: Guests::default(),
            is_watched,
            tasks: Arc::default(),
            monitor,
            sleepers: Sleepers::default(),
            substitutes,
            virtual_time,
            stopping: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }
    }

    pub(super) fn is_same(&self, other: &Shared) -> bool {
        std::ptr::eq(self, other)
    }

    /// Whether there are workers, or all is done within `block_on`.
    pub(super) fn has_workers(&self) -> bool {
        !self.seats.is_empty()
    }

    /// For one more thread. What was allowed when the runtime was built may be forbidden by now: then it is epoll.
    pub(super) fn new_seat(&self) -> Option<Spare> {
        let reactor = self.backend.reactor().or_else(|_| Backend::Epoll.reactor());
        reactor.ok().map(|reactor| Spare::new(reactor, &self.virtual_time))
    }

    /// A task was woken, or is new.
    pub(super) fn schedule(self: &Arc<Self>, runnable: Runnable, is_new: bool) {
        if self.is_stopped() {
            // With it goes the task.
            return drop(runnable);
        }
        let elsewhere = context::with_seat(|seat| match seat {
            Some(worker) if worker.shared().is_same(self) && worker.keeps_tasks() => {
                worker.push(runnable);
                None
            }
            _ => Some(runnable),
        });
        match elsewhere {
            Some(runnable) => {
                self.injector.push(runnable);
                self.call_for_queued();
            }
            None if is_new => self.sleepers.call_for_help(),
            None => {}
        }
    }

    /// Wakes a sleeping thread, or calls a substitute, if there is a task in the global queue.
    pub(super) fn call_if_tasks(self: &Arc<Self>) {
        if !self.injector.is_empty() {
            self.call_for_queued();
        }
    }

    /// The caller has left a task in the global queue. After the runtime's end no thread runs it: the caller drops it.
    fn call_for_queued(self: &Arc<Self>) {
        self.sleepers.call_one();
        self.call_substitute_if_deserted();
        self.virtual_time.wait_for_move();
        if self.is_stopped() {
            self.drain();
        }
    }

    /// After a look at the queue or a push, and a fence: see [`substitutes`]. A task that is not in the queue any more has been taken by a
    /// thread that runs it.
    fn call_substitute_if_deserted(self: &Arc<Self>) {
        if self.substitutes.is_deserted() && !self.injector.is_empty() {
            substitutes::call(self);
        }
    }

    /// Holds virtual time still. `None` if the runtime has none.
    pub(super) fn hold_time(self: &Arc<Self>) -> Option<HeldTime> {
        self.virtual_time.is_pausable().then(|| {
            self.virtual_time.begin_work();
            HeldTime(Arc::clone(self))
        })
    }

    /// By the thread that moves virtual time: whether nothing holds it still but, maybe, sockets.
    #[cfg(feature = "test-util")]
    pub(super) fn is_idle(&self) -> bool {
        self.virtual_time.may_move()
            && !self.is_stopping()
            && self.injector.is_empty()
            && self.all_seats(|mut seats| Iterator::all(&mut seats, |seat| seat.is_idle()))
    }

    /// Wakes everybody.
    pub(super) fn call_all(&self) {
        self.all_seats(|seats| seats.for_each(|seat| seat.call()));
    }

    /// Of workers and guests. Nothing of the user's is to be done with them: guests wait meanwhile.
    pub(super) fn all_seats<R>(&self, f: impl FnOnce(&mut dyn Iterator<Item = &Arc<Seat>>) -> R) -> R {
        self.guests.with(|guests| f(&mut self.seats.iter().chain(guests)))
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// No new tasks; those that there are end at their next await, and the workers when there is nothing left to do.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.tasks.abort_all();
        self.call_all();
    }

    /// How many tasks have not ended, also of those that stay with their worker.
    pub(super) fn tasks_left(&self) -> usize {
        self.registries().map(Registry::len).sum()
    }

    /// Waits until all tasks have ended, until then at most. Whether they have.
    pub(super) fn wait_for_tasks(&self, until: Option<Instant>) -> bool {
        // Those of one kind may spawn those of the other.
        while self.tasks_left() > 0 {
            if !self.registries().all(|registry| registry.wait_until_empty(until)) {
                return false;
            }
        }
        true
    }

    fn registries(&self) -> impl Iterator<Item = &Registry> {
        iter::once(&*self.tasks).chain(self.seats.iter().map(|seat| &*seat.locals))
    }

    /// Whether this thread runs tasks of this runtime.
    pub(super) fn is_at_work_here(&self) -> bool {
        context::seat_of(self).is_some()
    }

    /// By a worker that will not come back. With the last of them go the timers, unless somebody has waited for it and does that.
    pub(super) fn worker_has_ended(&self) {
        if self.is_stopped() {
            self.drain();
        }
        if self.working.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.end_timers();
        }
    }

    /// By the thread of a substitute, which is a worker as long as it lives.
    pub(super) fn substitute_has_begun(&self) {
        if self.has_workers() {
            self.working.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// By the thread of a substitute, as the last thing.
    pub(super) fn substitute_has_ended(&self) {
        if self.has_workers() {
            self.worker_has_ended();
        }
    }

    /// Nobody uses them any more, or has to hear that they have ended.
    pub(super) fn end_timers(&self) {
        self.engine.shutdown();
        self.monitor.end();
    }

    /// The workers have ended: what they have left is ended here.
    pub(super) fn finish(&self) {
        self.tasks.abort_all();
        self.drain();
        self.stopped.store(true, Ordering::SeqCst);
        self.substitutes.end();
        self.drain();
        self.guests.evict();
    }

    /// Drops what is left in the queues.
    fn drain(&self) {
        loop {
            let stolen = self.injector.steal().or_else(|| self.seats.iter().map(|seat| seat.stealer.steal()).collect());
            match stolen {
                crossbeam_deque::Steal::Success(runnable) => contain(|| drop(runnable)),
                crossbeam_deque::Steal::Retry => {}
                crossbeam_deque::Steal::Empty => return,
            }
        }
    }
}

impl Drop for HeldTime {
    fn drop(&mut self) {
        // The seats look whether time moves now.
        if self.0.virtual_time.end_work() != WorkEnd::NotLast {
            self.0.call_all();
        }
    }
}
