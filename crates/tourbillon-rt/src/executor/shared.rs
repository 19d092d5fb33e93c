//! The state that all threads of a runtime share: the global queue, the parked workers, and whether the runtime has ended.
//!
//! # Which worker is unparked for a task
//!
//! A task that is woken on a worker goes to that worker's own queue, and no other worker is unparked: the worker will get to it. A worker
//! that has run a handful of tasks and has more unparks one, which steals half of them; a wake-up costs as much as tens of short tasks. A
//! new task, or one that is woken from outside, unparks a worker at once. See [`IdleWorkers`].

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
    pub(crate) workers: Vec<Arc<WorkerShared>>,
    pub(crate) external_threads: ExternalThreads,
    /// Whether there is a monitor. (In a runtime of one thread no other could do the work of a blocked one.)
    pub(crate) has_monitor: bool,
    pub(crate) tasks: Arc<Registry>,
    pub(crate) monitor: Monitor,
    pub(crate) idle: IdleWorkers,
    pub(crate) substitutes: Substitutes,
    pub(crate) virtual_time: VirtualTime,
    /// The number of workers that have not ended.
    working: AtomicUsize,
    /// The runtime takes no new tasks.
    stopping: AtomicBool,
    /// No thread runs tasks any more.
    stopped: AtomicBool,
}

/// Holds virtual time still until it is dropped.
pub(crate) struct HeldTime(Arc<RuntimeShared>);

/// The monitor, and whether it has a thread.
pub(crate) struct MonitorSetup {
    pub(crate) monitor: Monitor,
    pub(crate) has_monitor: bool,
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
        let MonitorSetup { monitor, has_monitor } = watched;
        RuntimeShared {
            backend,
            engine,
            injector: Injector::new(),
            working: AtomicUsize::new(workers.len()),
            workers,
            external_threads: ExternalThreads::default(),
            has_monitor,
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

    /// Returns whether there are workers. Without, threads in `block_on` run the tasks.
    pub(crate) fn has_workers(&self) -> bool {
        !self.workers.is_empty()
    }

    /// Returns a slot for one more external thread, unless the system refuses descriptors.
    pub(crate) fn new_slot(&self) -> Option<IdleSlot> {
        let reactor = backend::external_reactor();
        reactor.ok().map(|reactor| IdleSlot::new(reactor, &self.virtual_time))
    }

    /// Queues a task that is new or has been woken.
    pub(crate) fn schedule(self: &Arc<Self>, runnable: Runnable, is_new: bool) {
        if self.is_stopped() {
            // The task is dropped with it.
            return drop(runnable);
        }
        let elsewhere = context::with_worker(|worker| match worker {
            Some(worker) if worker.runtime().is_same(self) && worker.keeps_tasks() => {
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

    /// Unparks a worker, or requests a substitute, if there is a task in the global queue.
    pub(crate) fn unpark_if_tasks(self: &Arc<Self>) {
        if !self.injector.is_empty() {
            self.unpark_for_queued();
        }
    }

    /// Unparks a worker for a task that the caller has left in the global queue. After the runtime's end no thread would run the task:
    /// the caller drops it.
    fn unpark_for_queued(self: &Arc<Self>) {
        self.idle.unpark_one();
        self.request_substitute_if_needed();
        self.virtual_time.wait_for_move();
        if self.is_stopped() {
            self.drain();
        }
    }

    /// Called after a look at the queue or a push, and a fence: see [`substitutes`]. If the task is not in the queue any more, a thread
    /// has taken it and runs it.
    fn request_substitute_if_needed(self: &Arc<Self>) {
        if self.substitutes.lacks_runner() && !self.injector.is_empty() {
            substitutes::request(self);
        }
    }

    /// Holds virtual time still. Returns `None` if the runtime has none.
    pub(crate) fn hold_time(self: &Arc<Self>) -> Option<HeldTime> {
        self.virtual_time.is_pausable().then(|| {
            self.virtual_time.begin_work();
            HeldTime(Arc::clone(self))
        })
    }

    /// Called by the thread that moves virtual time: returns whether nothing holds time still, except possibly a socket.
    #[cfg(feature = "test-util")]
    pub(crate) fn is_idle(&self) -> bool {
        self.virtual_time.may_move()
            && !self.is_stopping()
            && self.injector.is_empty()
            && self.all_workers(|mut workers| Iterator::all(&mut workers, |worker| worker.is_idle()))
    }

    /// Unparks every worker and external thread.
    pub(crate) fn unpark_all(&self) {
        self.all_workers(|workers| workers.for_each(|worker| worker.unpark()));
    }

    /// Runs `f`, under a lock, with all workers and external threads. It must not call the user's code: external threads wait for the
    /// lock.
    pub(crate) fn all_workers<R>(&self, f: impl FnOnce(&mut dyn Iterator<Item = &Arc<WorkerShared>>) -> R) -> R {
        self.external_threads.with(|external_threads| f(&mut self.workers.iter().chain(external_threads)))
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Takes no new tasks. The present ones end at their next await, and the workers when no task is left to run.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.tasks.abort_all();
        self.unpark_all();
    }

    /// Returns the number of tasks that have not ended, local ones included.
    pub(crate) fn tasks_left(&self) -> usize {
        self.registries().map(Registry::len).sum()
    }

    /// Waits until all tasks have ended, but not beyond `until`, and returns whether they have.
    #[must_use]
    pub(crate) fn wait_for_tasks(&self, until: Option<Instant>) -> bool {
        // Tasks of one kind may spawn tasks of the other.
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

    /// Returns whether this thread runs tasks of this runtime.
    pub(crate) fn works_on_this_thread(&self) -> bool {
        context::worker_of(self).is_some()
    }

    /// Called by a worker as the last thing. The last worker ends the timers; `Runtime::end`, which waits for the workers, may do so as
    /// well.
    pub(crate) fn worker_has_ended(&self) {
        if self.is_stopped() {
            self.drain();
        }
        if self.working.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.end_timers();
        }
    }

    /// Called by the thread of a substitute, which counts as a worker until it ends.
    pub(crate) fn substitute_has_begun(&self) {
        if self.has_workers() {
            self.working.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Called by the thread of a substitute, as the last thing.
    pub(crate) fn substitute_has_ended(&self) {
        if self.has_workers() {
            self.worker_has_ended();
        }
    }

    /// Shuts the timers down. No task uses them any more; a wait outside the runtime ends as stopped.
    pub(crate) fn end_timers(&self) {
        self.engine.shutdown();
        self.monitor.end();
    }

    /// Called after the workers have ended: ends the tasks that they have left.
    pub(crate) fn finish(&self) {
        self.tasks.abort_all();
        self.drain();
        self.stopped.store(true, Ordering::SeqCst);
        self.substitutes.end();
        self.drain();
        self.external_threads.evict();
    }

    /// Drops the tasks that are left in the queues.
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
        // The workers check whether time moves now.
        if self.0.virtual_time.end_work() != WorkEnd::NotLast {
            self.0.unpark_all();
        }
    }
}
