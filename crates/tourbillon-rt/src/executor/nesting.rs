//! The tasks that a thread leaves to others while it waits in a nested `block_on`, of every runtime that it works for.

use std::cell::Cell;
use std::rc::Rc;

use super::context;
use super::worker::{Role, WorkerLocal};

/// The work that a thread has interrupted for a `block_on`, or to wait for the end of a runtime. The thread resumes it when this is
/// dropped.
///
/// While it lives, the thread takes no tasks from the queues. When the call first has to wait, [`suspend`](InterruptedWork::suspend)
/// leaves them to other threads; a call that does not wait costs next to nothing.
pub(crate) struct InterruptedWork {
    /// One for each runtime that the thread works for.
    work: Vec<InterruptedWorker>,
    is_suspended: Cell<bool>,
}

struct InterruptedWorker {
    worker: Rc<WorkerLocal>,
    /// The role before the interruption.
    role: Role,
    /// A call further out has left the tasks to other threads already.
    was_suspended: bool,
    /// A call further out, which waits for something else, has left the timers and sockets to other threads already.
    was_left: bool,
    /// This call has offered to run tasks if a substitute is refused.
    is_offered: Cell<bool>,
}

impl InterruptedWork {
    /// Interrupts the work of this thread, for all its runtimes.
    pub(crate) fn new() -> InterruptedWork {
        let work = context::workers().into_iter().map(InterruptedWorker::interrupt).collect();
        InterruptedWork { work, is_suspended: Cell::new(false) }
    }

    /// Called when the thread is about to wait. `driven` is the worker whose timers and reactor it serves meanwhile.
    pub(crate) fn suspend(&self, driven: Option<&WorkerLocal>) {
        if !self.work.is_empty() && !self.is_suspended.replace(true) {
            self.work.iter().for_each(|work| work.suspend(driven));
        }
    }

    /// Called by the nested call that serves `driven`: takes tasks from the queues after all, if no other thread can.
    pub(crate) fn help_if_needed(&self, driven: &WorkerLocal) {
        let may_help = driven.is_suspended() && driven.may_run_tasks_nested();
        if may_help && driven.runtime().substitutes.take_offer() {
            driven.resume(Role::Worker);
        }
    }
}

impl InterruptedWorker {
    fn interrupt(worker: Rc<WorkerLocal>) -> InterruptedWorker {
        let (role, was_suspended, was_left) = (worker.role(), worker.is_suspended(), worker.is_left());
        if role == Role::Worker {
            worker.set_role(Role::Local);
        }
        InterruptedWorker { worker, role, was_suspended, was_left, is_offered: Cell::new(false) }
    }

    fn suspend(&self, driven: Option<&WorkerLocal>) {
        let (worker, shared) = (&self.worker, self.worker.runtime());
        let is_driven = driven.is_some_and(|driven| std::ptr::eq(driven, &**worker));
        worker.set_left(!is_driven);
        if !is_driven {
            worker.leave_timers_and_sockets();
        }
        if !worker.is_base_runner() {
            return;
        }
        if is_driven {
            self.is_offered.set(true);
            shared.substitutes.offer(worker.worker_shared());
        }
        // A call further out may have suspended the worker.
        if !worker.is_suspended() {
            worker.suspend();
        }
    }
}

impl Drop for InterruptedWorker {
    fn drop(&mut self) {
        let worker = &self.worker;
        if self.is_offered.get() {
            worker.runtime().substitutes.withdraw(worker.worker_shared());
        }
        match (self.was_suspended, worker.is_suspended()) {
            (false, true) => {
                worker.runtime().substitutes.resume();
                worker.resume(self.role);
            }
            // This call has run tasks itself, inside of a call that was suspended before and still is.
            (true, false) => worker.suspend(),
            _ => worker.set_role(self.role),
        }
        worker.set_left(self.was_left);
        if self.was_left {
            // The thread goes back to a loop that does not serve this worker, but this call may have: with one turn of the timers the
            // worker has them again.
            worker.leave_timers_and_sockets();
        }
        worker.worker_shared().nested_loop_has_ended();
    }
}
