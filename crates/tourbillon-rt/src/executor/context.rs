//! The runtimes that the calling thread is inside of.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use super::handle::Handle;
use super::shared::RuntimeShared;
use super::worker::WorkerLocal;
use crate::reactor::{self, NoRuntime};
use crate::sync::thread_local;

/// One thing that a thread is inside of.
#[derive(Clone)]
enum Inside {
    /// The thread acts as a worker: it runs tasks and drives a reactor.
    Worker(Rc<WorkerLocal>),
    /// The thread can spawn. It has no reactor, unless it acts as a worker of the same runtime further out.
    Handle(Handle),
    /// The thread can spawn. It must not use a reactor, even if it acts as a worker further out.
    NoWorker(Handle),
}

thread_local! {
    /// The contexts that the thread has entered and not left, the latest last, each with the number of its guard.
    static ENTERED: RefCell<Vec<(u64, Inside)>> = const { RefCell::new(Vec::new()) };
    static LAST_GUARD: Cell<u64> = const { Cell::new(0) };
}

/// Keeps the thread inside of a runtime until it is dropped. Guards may be dropped in any order.
pub(crate) struct ContextGuard {
    number: u64,
    /// Not `Send`: it belongs to the thread.
    thread: PhantomData<*const ()>,
}

impl Drop for ContextGuard {
    fn drop(&mut self) {
        // The entry is dropped outside of the borrow: its handle may be the last reference to a runtime.
        let _left = ENTERED.try_with(|entered| {
            let mut entered = entered.borrow_mut();
            let index = entered.iter().rposition(|(number, _)| *number == self.number)?;
            Some(entered.remove(index))
        });
        update_reactor();
    }
}

pub(crate) fn enter_worker(worker: &Rc<WorkerLocal>) -> ContextGuard {
    enter(Inside::Worker(Rc::clone(worker)))
}

pub(crate) fn enter_handle(handle: &Handle) -> ContextGuard {
    enter(Inside::Handle(handle.clone()))
}

pub(crate) fn enter_without_worker(handle: &Handle) -> ContextGuard {
    enter(Inside::NoWorker(handle.clone()))
}

fn enter(inside: Inside) -> ContextGuard {
    let number = LAST_GUARD.with(Cell::get) + 1;
    LAST_GUARD.with(|last| last.set(number));
    ENTERED.with(|entered| entered.borrow_mut().push((number, inside)));
    update_reactor();
    ContextGuard { number, thread: PhantomData }
}

/// Sets the reactor that this thread registers sockets with: that of the worker as which it acts.
fn update_reactor() {
    reactor::set_current(worker().map(|worker| Arc::clone(worker.reactor())));
}

/// Returns the worker as which this thread acts in the runtime that it is inside of.
pub(crate) fn worker() -> Option<Rc<WorkerLocal>> {
    let worker = ENTERED.try_with(|entered| match entered.borrow().split_last()? {
        ((_, Inside::Worker(worker)), _) => Some(Rc::clone(worker)),
        ((_, Inside::NoWorker(_)), _) => None,
        // The thread may act as a worker of the same runtime further out.
        ((_, Inside::Handle(handle)), before) => before.iter().rev().find_map(|(_, inside)| match inside {
            Inside::Worker(worker) if worker.runtime().is_same(handle.shared()) => Some(Some(Rc::clone(worker))),
            Inside::NoWorker(other) if other.shared().is_same(handle.shared()) => Some(None),
            _ => None,
        })?,
    });
    worker.ok().flatten()
}

/// Runs `f` with that worker.
pub(crate) fn with_worker<R>(f: impl FnOnce(Option<&WorkerLocal>) -> R) -> R {
    f(worker().as_deref())
}

/// Returns the worker as which this thread acts for a runtime, even if it has entered another since.
pub(crate) fn worker_of(shared: &RuntimeShared) -> Option<Rc<WorkerLocal>> {
    let worker = ENTERED.try_with(|entered| {
        entered.borrow().iter().rev().find_map(|(_, inside)| match inside {
            Inside::Worker(worker) if worker.runtime().is_same(shared) => Some(Rc::clone(worker)),
            _ => None,
        })
    });
    worker.ok().flatten()
}

/// Returns every worker as which this thread acts, of all runtimes, each once.
pub(crate) fn workers() -> Vec<Rc<WorkerLocal>> {
    let workers = ENTERED.try_with(|entered| {
        let mut workers: Vec<Rc<WorkerLocal>> = Vec::new();
        for (_, inside) in &*entered.borrow() {
            match inside {
                Inside::Worker(worker) if !workers.iter().any(|other| Rc::ptr_eq(other, worker)) => {
                    workers.push(Rc::clone(worker));
                }
                _ => {}
            }
        }
        workers
    });
    workers.unwrap_or_default()
}

/// Returns whether this thread acts as a worker of any runtime.
pub(crate) fn has_worker() -> bool {
    ENTERED.with(|entered| entered.borrow().iter().any(|(_, inside)| matches!(inside, Inside::Worker(_))))
}

/// Returns the runtime that this thread is inside of.
pub(crate) fn handle() -> Result<Handle, NoRuntime> {
    let handle = ENTERED.try_with(|entered| match &entered.borrow().last()?.1 {
        Inside::Worker(worker) => Some(Handle::of(worker.runtime())),
        Inside::Handle(handle) | Inside::NoWorker(handle) => Some(handle.clone()),
    });
    handle.ok().flatten().ok_or(NoRuntime::NEW)
}
