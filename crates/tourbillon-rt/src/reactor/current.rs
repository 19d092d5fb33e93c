//! The reactor of the calling thread, as the executor has set it.

use std::cell::RefCell;
use std::error::Error;
use std::fmt;
use std::io;
use std::ptr;
use std::sync::Arc;

use super::Reactor;
use crate::sync::thread_local;

thread_local! {
    static CURRENT: RefCell<Option<Arc<Reactor>>> = const { RefCell::new(None) };
}

/// The error of a call that needs a runtime, on a thread that neither works for one nor is inside its `block_on`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRuntime(());

impl NoRuntime {
    pub(crate) const NEW: NoRuntime = NoRuntime(());
}

/// Sets the reactor of the calling thread.
pub(crate) fn set_current(reactor: Option<Arc<Reactor>>) {
    // The reactor before it is dropped outside the borrow. At the thread's end there may be nothing left to set.
    let _before = CURRENT.try_with(|current| current.replace(reactor));
}

/// Returns the reactor of the calling thread.
pub(crate) fn current() -> Result<Arc<Reactor>, NoRuntime> {
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten().ok_or(NoRuntime::NEW)
}

/// Returns whether `reactor` is that of the calling thread.
pub(crate) fn is_current(reactor: &Reactor) -> bool {
    let is_same = |current: &Option<Arc<Reactor>>| current.as_deref().is_some_and(|own| ptr::eq(own, reactor));
    CURRENT.try_with(|current| is_same(&current.borrow())).unwrap_or(false)
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
