//! What all threads of a runtime share: the global queue, who sleeps, and who has ended.
//!
//! # Who is woken for a task
//!
//! A task that is woken on a worker goes to that worker's own queue, and nobody is called: the worker will get to it. If it
//! has run a handful of tasks and still has some, it calls one of those who sleep, who steals half of them; a wake-up costs as
//! much as tens of short tasks. A new task, and one that is woken from outside, calls somebody at once. See [`IdleWorkers`].

use std::iter;
use std::sync::Arc;
use std::time::Instant;

use async_task::Runnable;
use tourbillon::Engine;

use super::backend::{self, Backend};
use super::context;
use super::external_threads::ExternalThreads;
use super::idle::IdleWorkers;
use super::monitor::Monitor;
use super::registry::Registry;
use super::substitutes::{self, Substitutes};
use super::virtual_time::{VirtualTime, WorkEnd};
use super::worker::IdleSlot;
use super::worker_shared::WorkerShared;
use crate::sync::{AtomicBool, AtomicUsize, Injector, Ordering, catch_panic};

pub(crate) struct RuntimeShared {
    pub(crate) backend: Backend,
    pub(crate) engine: Engine,
    pub(crate) injector: Injector<Runnable>,
    /// The workers.
    pub(crate) workers: Vec<Arc<WorkerShared>>,
    /// Threads of the user's that work here for a while.
    pub(crate) external_threads: ExternalThreads,
    /// Whether there is a monitor. (A single thread that is blocked leaves nobody to do its work.)
    pub(crate) is_watched: bool,
    pub(crate) tasks: Arc<Registry>,
    pub(crate) monitor: Monitor,
    pub(crate) idle: IdleWorkers,
    pub(crate) substitutes: Substitutes,
    pub(crate) virtual_time: VirtualTime,
    /// So many workers have not ended.
    working: AtomicUsize,
    /// No new tasks.
    stopping: AtomicBool,
    /// Nobody runs tasks any more.
    stopped: AtomicBool,
}

/// Holds virtual time still until it is dropped.
pub(crate) struct HeldTime(Arc<RuntimeShared>);

/// The monitor, and whether it has a thread.
pub(crate) struct MonitorSetup {
    pub(crate) monitor: Monitor,
    pub(crate) is_watched: bool,
}

impl RuntimeShared {
    pub(crate) fn new(
        backend: Backend,
        engine: Engine,
        virtual_time: VirtualTime,
        workers: Vec<Arc<WorkerShared>>,
        watched: MonitorSetup,
        substitutes: Substitutes,
    ) -> RuntimeShared {
        let MonitorSetup { monitor, is_watched } = watched;
        RuntimeShared {
            backend,
            engine,
            injector: Injector::new(),
            working: AtomicUsize::new(workers.len()),
            workers,
            external_threads: ExternalThreads::default(),
            is_watched,
            tasks: Arc::default(),
            monitor,
            idle: IdleWorkers::default(),
            substitutes,
            virtual_time,
            stopping: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_same(&self, other: &RuntimeShared) -> bool {
        std::ptr::eq(self, other)
    }

    /// Whether there are workers, or all is done within `block_on`.
    pub(crate) fn has_workers(&self) -> bool {
        !self.workers.is_empty()
    }

    /// Returns a slot for one more external thread, unless the system refuses descriptors.
    pub(crate) fn new_slot(&self) -> Option<IdleSlot> {
        let reactor = backend::external_reactor();
        reactor.ok().map(|reactor| IdleSlot::new(reactor, &self.virtual_time))
    }

    /// A task was woken, or is new.
    pub(crate) fn schedule(self: &Arc<Self>, runnable: Runnable, is_new: bool) {
        if self.is_stopped() {
            // With it goes the task.
            return drop(runnable);
        }
        let elsewhere = context::with_worker(|worker| match worker {
            Some(worker) if worker.shared().is_same(self) && worker.keeps_tasks() => {
                worker.push(runnable);
                None
            }
            _ => Some(runnable),
        });
        match elsewhere {
            Some(runnable) => {
                self.injector.push(runnable);
                self.unpark_for_queued();
            }
            None if is_new => self.idle.unpark_searcher(),
            None => {}
        }
    }

    /// Wakes a sleeping thread, or calls a substitute, if there is a task in the global queue.
    pub(crate) fn unpark_if_tasks(self: &Arc<Self>) {
        if !self.injector.is_empty() {
            self.unpark_for_queued();
        }
    }

    /// The caller has left a task in the global queue. After the runtime's end no thread runs it: the caller drops it.
    fn unpark_for_queued(self: &Arc<Self>) {
        self.idle.unpark_one();
        self.request_substitute_if_needed();
        self.virtual_time.wait_for_move();
        if self.is_stopped() {
            self.drain();
        }
    }

    /// After a look at the queue or a push, and a fence: see [`substitutes`]. A task that is not in the queue any more has been taken by a
    /// thread that runs it.
    fn request_substitute_if_needed(self: &Arc<Self>) {
        if self.substitutes.lacks_runner() && !self.injector.is_empty() {
            substitutes::request(self);
        }
    }

    /// Holds virtual time still. `None` if the runtime has none.
    pub(crate) fn hold_time(self: &Arc<Self>) -> Option<HeldTime> {
        self.virtual_time.is_pausable().then(|| {
            self.virtual_time.begin_work();
            HeldTime(Arc::clone(self))
        })
    }

    /// By the thread that moves virtual time: whether nothing holds it still but, maybe, sockets.
    #[cfg(feature = "test-util")]
    pub(crate) fn is_idle(&self) -> bool {
        self.virtual_time.may_move()
            && !self.is_stopping()
            && self.injector.is_empty()
            && self.all_workers(|mut workers| Iterator::all(&mut workers, |worker| worker.is_idle()))
    }

    /// Wakes everybody.
    pub(crate) fn unpark_all(&self) {
        self.all_workers(|workers| workers.for_each(|worker| worker.unpark()));
    }

    /// Of workers and external_threads. Nothing of the user's is to be done with them: external_threads wait meanwhile.
    pub(crate) fn all_workers<R>(&self, f: impl FnOnce(&mut dyn Iterator<Item = &Arc<WorkerShared>>) -> R) -> R {
        self.external_threads.with(|external_threads| f(&mut self.workers.iter().chain(external_threads)))
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// No new tasks; those that there are end at their next await, and the workers when there is nothing left to do.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.tasks.abort_all();
        self.unpark_all();
    }

    /// How many tasks have not ended, also of those that stay with their worker.
    pub(crate) fn tasks_left(&self) -> usize {
        self.registries().map(Registry::len).sum()
    }

    /// Waits until all tasks have ended, until then at most. Whether they have.
    pub(crate) fn wait_for_tasks(&self, until: Option<Instant>) -> bool {
        // Those of one kind may spawn those of the other.
        while self.tasks_left() > 0 {
            if !self.registries().all(|registry| registry.wait_until_empty(until)) {
                return false;
            }
        }
        true
    }

    fn registries(&self) -> impl Iterator<Item = &Registry> {
        iter::once(&*self.tasks).chain(self.workers.iter().map(|worker| &*worker.locals))
    }

    /// Whether this thread runs tasks of this runtime.
    pub(crate) fn is_at_work_here(&self) -> bool {
        context::worker_of(self).is_some()
    }

    /// By a worker that will not come back. With the last of them go the timers, unless somebody has waited for it and does that.
    pub(crate) fn worker_has_ended(&self) {
        if self.is_stopped() {
            self.drain();
        }
        if self.working.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.end_timers();
        }
    }

    /// By the thread of a substitute, which is a worker as long as it lives.
    pub(crate) fn substitute_has_begun(&self) {
        if self.has_workers() {
            self.working.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// By the thread of a substitute, as the last thing.
    pub(crate) fn substitute_has_ended(&self) {
        if self.has_workers() {
            self.worker_has_ended();
        }
    }

    /// Nobody uses them any more, or has to hear that they have ended.
    pub(crate) fn end_timers(&self) {
        self.engine.shutdown();
        self.monitor.end();
    }

    /// The workers have ended: what they have left is ended here.
    pub(crate) fn finish(&self) {
        self.tasks.abort_all();
        self.drain();
        self.stopped.store(true, Ordering::SeqCst);
        self.substitutes.end();
        self.drain();
        self.external_threads.evict();
    }

    /// Drops what is left in the queues.
    fn drain(&self) {
        loop {
            let stolen =
                self.injector.steal().or_else(|| self.workers.iter().map(|worker| worker.stealer.steal()).collect());
            match stolen {
                crossbeam_deque::Steal::Success(runnable) => catch_panic(|| drop(runnable)),
                crossbeam_deque::Steal::Retry => {}
                crossbeam_deque::Steal::Empty => return,
            }
        }
    }
}

impl Drop for HeldTime {
    fn drop(&mut self) {
        // The workers look whether time moves now.
        if self.0.virtual_time.end_work() != WorkEnd::NotLast {
            self.0.unpark_all();
        }
    }
}
