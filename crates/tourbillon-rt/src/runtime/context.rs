//! What a thread knows of the runtime that it works for.

use std::cell::RefCell;
use std::error::Error;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use super::Handle;
use super::worker::Worker;
use crate::reactor::Reactor;

/// There is no runtime on this thread: it neither works for one nor is inside its `block_on`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRuntime(());

/// What a thread is inside of.
#[derive(Clone)]
enum Inside {
    /// It runs tasks and turns a reactor.
    Seat(Rc<Worker>),
    /// It can spawn; it has no reactor.
    Handle(Handle),
}

thread_local! {
    static CURRENT: RefCell<Option<Inside>> = const { RefCell::new(None) };
}

/// Restores what the thread was inside of before.
pub(super) struct Guard(Option<Inside>);

impl Drop for Guard {
    fn drop(&mut self) {
        let before = self.0.take();
        // Dropped outside of the borrow: with a handle may go a runtime.
        let _this = CURRENT.try_with(|current| std::mem::replace(&mut *current.borrow_mut(), before));
    }
}

pub(super) fn enter_seat(worker: &Rc<Worker>) -> Guard {
    Guard(CURRENT.replace(Some(Inside::Seat(Rc::clone(worker)))))
}

pub(super) fn enter_handle(handle: &Handle) -> Guard {
    // A thread that has a seat of that runtime keeps it.
    let inside = match CURRENT.with_borrow(Clone::clone) {
        Some(Inside::Seat(worker)) if worker.shared().is_same(handle.shared()) => Inside::Seat(worker),
        _ => Inside::Handle(handle.clone()),
    };
    Guard(CURRENT.replace(Some(inside)))
}

/// Whether the thread has a seat of any runtime.
pub(super) fn has_seat() -> bool {
    CURRENT.with_borrow(|current| matches!(current, Some(Inside::Seat(_))))
}

/// With the seat of this thread, if it has one.
pub(super) fn with_seat<R>(f: impl FnOnce(Option<&Worker>) -> R) -> R {
    let seat = CURRENT.try_with(|current| match &*current.borrow() {
        Some(Inside::Seat(worker)) => Some(Rc::clone(worker)),
        _ => None,
    });
    f(seat.ok().flatten().as_deref())
}

/// The runtime of this thread.
pub(super) fn handle() -> Result<Handle, NoRuntime> {
    let handle = CURRENT.try_with(|current| match &*current.borrow() {
        Some(Inside::Seat(worker)) => Some(Handle::of(worker.shared())),
        Some(Inside::Handle(handle)) => Some(handle.clone()),
        None => None,
    });
    handle.ok().flatten().ok_or(NoRuntime(()))
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
