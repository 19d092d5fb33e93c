//! What a thread that is about to wait in `block_on` leaves to others: the tasks of every runtime that it works for.

use std::cell::Cell;
use std::rc::Rc;

use super::context;
use super::worker::{Role, WorkerLocal};

/// The work that a thread has interrupted for a `block_on`, or to wait for the end of a runtime. It goes on when this is dropped.
///
/// While it lives, the thread takes no tasks from the queues. When the call first has to wait,
/// [`suspend`](InterruptedWork::suspend) leaves them to other threads; a call that does not wait costs next to nothing.
pub(crate) struct InterruptedWork {
    /// One for each runtime that the thread works for.
    work: Vec<InterruptedWorker>,
    is_suspended: Cell<bool>,
}

struct InterruptedWorker {
    worker: Rc<WorkerLocal>,
    /// What it was before.
    role: Role,
    /// Its tasks had been left to others before, by a call outside of this one.
    was_suspended: bool,
    /// This call could run tasks, should no substitute be had.
    is_offered: Cell<bool>,
}

impl InterruptedWork {
    /// Interrupts the work of this thread, of whatever runtimes.
    pub(crate) fn new() -> InterruptedWork {
        let work = context::workers().into_iter().map(InterruptedWorker::interrupt).collect();
        InterruptedWork { work, is_suspended: Cell::new(false) }
    }

    /// The thread is about to wait. `turned`: the worker whose timers and reactor it turns meanwhile.
    pub(crate) fn suspend(&self, turned: Option<&WorkerLocal>) {
        if !self.work.is_empty() && !self.is_suspended.replace(true) {
            self.work.iter().for_each(|work| work.suspend(turned));
        }
    }

    /// By the call that turns `turned`: takes tasks from the queues after all, if no other thread can.
    pub(crate) fn help_if_needed(&self, turned: &WorkerLocal) {
        let may_help = turned.is_suspended() && turned.may_run_tasks_nested();
        if may_help && turned.shared().substitutes.take_offer() {
            turned.resume(Role::Worker);
        }
    }
}

impl InterruptedWorker {
    fn interrupt(worker: Rc<WorkerLocal>) -> InterruptedWorker {
        let (role, was_suspended) = (worker.role(), worker.is_suspended());
        if role == Role::Worker {
            worker.set_role(Role::Local);
        }
        InterruptedWorker { worker, role, was_suspended, is_offered: Cell::new(false) }
    }

    fn suspend(&self, turned: Option<&WorkerLocal>) {
        let (worker, shared) = (&self.worker, self.worker.shared());
        let is_turned = turned.is_some_and(|turned| std::ptr::eq(turned, &**worker));
        if !is_turned {
            // Until the thread comes back, the driver fires its timers; the monitor hears of its sockets, or else others do.
            worker.worker_shared().leave_timers_to_driver();
            // (Inside of a waker the sockets stay: to let go of them would call the next waker inside of this one.)
            if !shared.is_watched && !worker.is_in_a_turn() {
                worker.worker_shared().reactor.evict();
            }
        }
        if !worker.is_runner_by_nature() {
            return;
        }
        if is_turned {
            self.is_offered.set(true);
            shared.substitutes.offer(worker.worker_shared());
        }
        // A call outside of this one may have done so, or may be about to when it has to wait.
        if !worker.is_suspended() {
            worker.suspend();
        }
    }
}

impl Drop for InterruptedWorker {
    fn drop(&mut self) {
        let worker = &self.worker;
        if self.is_offered.get() {
            worker.shared().substitutes.withdraw(worker.worker_shared());
        }
        match (self.was_suspended, worker.is_suspended()) {
            (false, true) => {
                worker.shared().substitutes.resume();
                worker.resume(self.role);
            }
            // It has helped, inside of a call that had been suspended before: that one still is.
            (true, false) => worker.suspend(),
            _ => worker.set_role(self.role),
        }
        worker.worker_shared().nested_loop_has_ended();
    }
}
