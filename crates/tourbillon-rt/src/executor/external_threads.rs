//! Threads of the user that work for a runtime for a while, inside of `block_on` or running an event loop; and substitutes.
//!
//! Such a thread takes an idle slot, if there is one, and otherwise builds a new one. Sockets stay registered with the slot's reactor
//! while no other thread works: the next thread goes on with them, and a thread that polls an event loop again and again finds them as
//! it left them. But no socket may stay with an idle slot while a thread works that could serve it. So:
//!
//! - a thread that leaves while others work evicts its sockets;
//! - a thread that comes evicts the sockets of all idle slots but its own;
//! - the last thread to leave evicts its sockets if threads outside this runtime wait for one: they register it elsewhere (see
//!   `Reactor::admit_waiter`);
//! - a slot that changes threads evicts its sockets (see `Reactor::adopt`).
//!
//! The first two are decided under one lock: of two threads that come and go at the same time, one sees the other.

use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;

use super::context;
use super::shared::RuntimeShared;
use super::worker::{IdleSlot, Role, WorkerLocal};
use super::worker_shared::WorkerShared;
use crate::reactor::Reactor;
use crate::sync::{Mutex, lock};

/// The slots of external threads, in use and idle.
#[derive(Default)]
pub(crate) struct ExternalThreads(Mutex<ExternalSlots>);

#[derive(Default)]
struct ExternalSlots {
    in_use: Vec<Arc<WorkerShared>>,
    idle: Vec<IdleSlot>,
}

/// Makes an external thread act as a worker until it is dropped, also by a panic.
pub(crate) struct WorkerGuard {
    worker: Option<Rc<WorkerLocal>>,
    guard: Option<context::ContextGuard>,
    /// The thread's timer slack before.
    slack: Option<NonZeroU64>,
}

impl ExternalThreads {
    /// Runs `f`, under the lock, with the slots in use. It must not call the user's code.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&[Arc<WorkerShared>]) -> R) -> R {
        f(&lock(&self.0).in_use)
    }

    /// Adds a slot for the next thread.
    pub(crate) fn add_idle(&self, slot: Option<IdleSlot>) {
        lock(&self.0).idle.extend(slot);
    }

    /// Evicts the sockets of idle slots, at the end of the runtime: no thread will come any more.
    pub(crate) fn evict(&self) {
        let reactors = lock(&self.0).idle_reactors();
        reactors.iter().for_each(|reactor| reactor.evict());
    }

    /// Takes an idle slot: the one that this thread had before, if there is such.
    fn take(&self) -> Option<IdleSlot> {
        let mut slots = lock(&self.0);
        let own = slots.idle.iter().position(|slot| slot.worker.reactor.is_adopted());
        let index = own.or(slots.idle.len().checked_sub(1))?;
        Some(slots.idle.remove(index))
    }

    /// Enters a thread, and evicts the sockets of idle slots.
    pub(crate) fn attach(&self, worker: &Arc<WorkerShared>) {
        let reactors = {
            let mut slots = lock(&self.0);
            slots.in_use.push(Arc::clone(worker));
            slots.idle_reactors()
        };
        reactors.iter().for_each(|reactor| reactor.evict());
    }

    /// Removes a thread. Its sockets are evicted if other threads work.
    pub(crate) fn detach(&self, worker: &Arc<WorkerShared>, slot: Option<IdleSlot>, has_workers: bool) {
        let others_work = {
            let mut slots = lock(&self.0);
            slots.in_use.retain(|in_use| !Arc::ptr_eq(in_use, worker));
            // Before another thread can take the slot.
            worker.reactor.leave();
            slots.idle.extend(slot);
            has_workers || !slots.in_use.is_empty()
        };
        if others_work {
            worker.reactor.evict();
        } else {
            worker.reactor.evict_foreign_waiters();
        }
    }
}

impl ExternalSlots {
    fn idle_reactors(&self) -> Vec<Arc<Reactor>> {
        self.idle.iter().map(|slot| Arc::clone(&slot.worker.reactor)).collect()
    }
}

impl WorkerGuard {
    /// Returns `None` if the thread acts as a worker of this runtime already, or if there are no descriptors for a reactor.
    pub(crate) fn new(shared: &Arc<RuntimeShared>, role: Role) -> Option<WorkerGuard> {
        if context::worker_of(shared).is_some() {
            return None;
        }
        // A slot that changes threads evicts its sockets: the tasks that wait for them are woken before time can move.
        let _held = shared.hold_time();
        let slot = shared.external_threads.take().or_else(|| shared.new_slot())?;
        let slack = rustix::thread::current_timer_slack().ok().and_then(NonZeroU64::new);
        // With the default slack the kernel wakes a thread up to 50 us late.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let worker = WorkerLocal::attach(shared, slot, role);
        shared.external_threads.attach(worker.worker_shared());
        let guard = Some(context::enter_worker(&worker));
        Some(WorkerGuard { worker: Some(worker), guard, slack })
    }

    pub(crate) fn worker(&self) -> &WorkerLocal {
        self.worker.as_deref().expect("only the drop takes it")
    }
}

impl Drop for WorkerGuard {
    fn drop(&mut self) {
        let Some(worker) = self.worker.take() else { return };
        let (shared, worker_shared) = (Arc::clone(worker.runtime()), Arc::clone(worker.worker_shared()));
        // Until other threads have its tasks and sockets. Then they check whether time moves without this thread.
        let _held = shared.hold_time();
        worker.leave();
        drop(self.guard.take());
        let slot = worker.detach();
        let _ = rustix::thread::set_current_timer_slack(self.slack);
        shared.external_threads.detach(&worker_shared, slot, shared.has_workers());
        // The thread may have been unparked for a task that it has not run.
        shared.unpark_if_tasks();
    }
}
