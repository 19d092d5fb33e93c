//! What a thread knows of the runtime that it works for.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use super::Handle;
use super::shared::Shared;
use super::worker::Worker;
use crate::reactor::Reactor;
use crate::sync::thread_local;

/// There is no runtime on this thread: it neither works for one nor is inside its `block_on`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRuntime(());

impl NoRuntime {
    pub(super) const NEW: NoRuntime = NoRuntime(());
}

/// What a thread is inside of.
#[derive(Clone)]
enum Inside {
    /// It runs tasks and turns a reactor.
    Seat(Rc<Worker>),
    /// It can spawn; it has no reactor but that of a seat that it may have.
    Handle(Handle),
    /// It can spawn; the reactor of its seat, if it has one, is not to be used.
    NoSeat(Handle),
}

thread_local! {
    /// What the thread has entered and not left, the latest last, each with the number of its guard.
    static ENTERED: RefCell<Vec<(u64, Inside)>> = const { RefCell::new(Vec::new()) };
    static LAST_GUARD: Cell<u64> = const { Cell::new(0) };
}

/// The thread is inside of something until this is dropped. Guards may be dropped in any order.
pub(super) struct Guard {
    number: u64,
    /// Not `Send`: it belongs to the thread.
    thread: PhantomData<*const ()>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Dropped outside of the borrow: with a handle may go a runtime.
        let _left = ENTERED.try_with(|entered| {
            let mut entered = entered.borrow_mut();
            let place = entered.iter().rposition(|(number, _)| *number == self.number)?;
            Some(entered.remove(place))
        });
    }
}

pub(super) fn enter_seat(worker: &Rc<Worker>) -> Guard {
    enter(Inside::Seat(Rc::clone(worker)))
}

pub(super) fn enter_handle(handle: &Handle) -> Guard {
    enter(Inside::Handle(handle.clone()))
}

pub(super) fn enter_without_seat(handle: &Handle) -> Guard {
    enter(Inside::NoSeat(handle.clone()))
}

fn enter(inside: Inside) -> Guard {
    let number = LAST_GUARD.with(Cell::get) + 1;
    LAST_GUARD.with(|last| last.set(number));
    ENTERED.with(|entered| entered.borrow_mut().push((number, inside)));
    Guard { number, thread: PhantomData }
}

/// The seat of this thread, if it has one of the runtime that it is inside of.
pub(super) fn seat() -> Option<Rc<Worker>> {
    let seat = ENTERED.try_with(|entered| match entered.borrow().split_last()? {
        ((_, Inside::Seat(worker)), _) => Some(Rc::clone(worker)),
        ((_, Inside::NoSeat(_)), _) => None,
        // It was sitting there before: it still does.
        ((_, Inside::Handle(handle)), before) => before.iter().rev().find_map(|(_, inside)| match inside {
            Inside::Seat(worker) if worker.shared().is_same(handle.shared()) => Some(Some(Rc::clone(worker))),
            Inside::NoSeat(other) if other.shared().is_same(handle.shared()) => Some(None),
            _ => None,
        })?,
    });
    seat.ok().flatten()
}

/// With that seat.
pub(super) fn with_seat<R>(f: impl FnOnce(Option<&Worker>) -> R) -> R {
    f(seat().as_deref())
}

/// The seat that this thread has of a runtime, wherever it is now.
pub(super) fn seat_of(shared: &Shared) -> Option<Rc<Worker>> {
    let seat = ENTERED.try_with(|entered| {
        entered.borrow().iter().rev().find_map(|(_, inside)| match inside {
            Inside::Seat(worker) if worker.shared().is_same(shared) => Some(Rc::clone(worker)),
            _ => None,
        })
    });
    seat.ok().flatten()
}

/// The seats that this thread has, of whatever runtimes, each once.
pub(super) fn seats() -> Vec<Rc<Worker>> {
    let seats = ENTERED.try_with(|entered| {
        let mut seats: Vec<Rc<Worker>> = Vec::new();
        for (_, inside) in &*entered.borrow() {
            match inside {
                Inside::Seat(worker) if !seats.iter().any(|seat| Rc::ptr_eq(seat, worker)) => {
                    seats.push(Rc::clone(worker));
                }
                _ => {}
            }
        }
        seats
    });
    seats.unwrap_or_default()
}

/// Whether the thread has a seat of any runtime.
pub(super) fn has_seat() -> bool {
    ENTERED.with(|entered| entered.borrow().iter().any(|(_, inside)| matches!(inside, Inside::Seat(_))))
}

/// The runtime of this thread.
pub(super) fn handle() -> Result<Handle, NoRuntime> {
    let handle = ENTERED.try_with(|entered| match &entered.borrow().last()?.1 {
        Inside::Seat(worker) => Some(Handle::of(worker.shared())),
        Inside::Handle(handle) | Inside::NoSeat(handle) => Some(handle.clone()),
    });
    handle.ok().flatten().ok_or(NoRuntime(()))
}

/// Whether this thread turns that reactor.
pub(crate) fn is_own(reactor: &Reactor) -> bool {
    with_seat(|seat| seat.is_some_and(|worker| std::ptr::eq(Arc::as_ptr(worker.reactor()), reactor)))
}

/// The reactor of this thread.
pub(crate) fn reactor() -> io::Result<Arc<Reactor>> {
    with_seat(|seat| seat.map(|worker| Arc::clone(worker.reactor()))).ok_or_else(|| NoRuntime(()).into())
}

impl fmt::Display for NoRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "there is no tourbillon runtime on this thread: I/O has to be polled in a task of one, or in its block_on",
        )
    }
}

impl Error for NoRuntime {}

impl From<NoRuntime> for io::Error {
    fn from(error: NoRuntime) -> io::Error {
        io::Error::new(io::ErrorKind::NotConnected, error)
    }
}
