//! Synchronization primitives: from the standard library, or in a check from the tool that chooses which thread runs. Also locks that a
//! panic does not poison, and functions that catch panics.
//!
//! - `--cfg loom`: every order of a handful of steps, and every value that the memory model lets a load see. See `verify/loom`.
//! - `--cfg shuttle`: whole runtimes, in random schedules, where every atomic operation is sequentially consistent. See `verify/shuttle`.

#[cfg(any(loom, shuttle))]
mod queues;
#[cfg(shuttle)]
pub(crate) mod under_shuttle;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;

#[cfg(any(loom, shuttle))]
pub(crate) use self::queues::{Injector, Stealer, TaskQueue};
#[cfg(loom)]
pub(crate) use loom::{
    sync::atomic::{Ordering, fence},
    sync::{Condvar, Mutex, MutexGuard},
    thread::{ThreadId, current as current_thread},
};
#[cfg(loom)]
pub(crate) use tourbillon::modelled::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize};

#[cfg(shuttle)]
pub(crate) use self::under_shuttle::{Condvar, thread, unblock};
#[cfg(shuttle)]
pub(crate) use shuttle::{
    sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread::{ThreadId, current as current_thread},
    thread_local,
};

#[cfg(not(any(loom, shuttle)))]
pub(crate) use crossbeam_deque::{Injector, Stealer, Worker as TaskQueue};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Condvar, Mutex, MutexGuard},
    thread::{ThreadId, current as current_thread},
};

#[cfg(not(any(loom, shuttle)))]
pub(crate) use blocking::unblock;
/// Threads of the runtime, which no loom model starts, and thread-local values, which none shares.
#[cfg(not(shuttle))]
pub(crate) use std::{thread, thread_local};

/// Locks a mutex and ignores poison: no code of the user runs under the crate's locks, so no panic leaves the value half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the user's code and drops its panic, which the standard panic hook has reported.
pub(crate) fn catch_panic(users: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(users)) {
        dispose(payload);
    }
}

/// A value of the user's until it is taken. If no caller takes it, it may be dropped where a panic would end the process, as within a
/// task: a panic of its destructor is caught.
pub(crate) struct CatchDropPanic<T>(Option<T>);

impl<T> CatchDropPanic<T> {
    pub(crate) fn new(users: T) -> CatchDropPanic<T> {
        CatchDropPanic(Some(users))
    }

    pub(crate) fn take(mut self) -> Option<T> {
        self.0.take()
    }
}

impl<T> Drop for CatchDropPanic<T> {
    fn drop(&mut self) {
        catch_panic(|| drop(self.0.take()));
    }
}

/// Drops the payload of a panic. If its destructor panics, too, that second payload is leaked.
pub(crate) fn dispose(payload: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}

/// The crate `blocking` has models of its own behind the same flag, and does not build with them. Ours need no such threads.
#[cfg(loom)]
pub(crate) fn unblock<T>(_: impl FnOnce() -> T + Send + 'static) -> async_task::Task<T> {
    unreachable!("no model runs what blocks")
}
