//! What threads share: from the standard library, or in a check from the tool that decides which thread runs. Also locks that a panic
//! does not poison, and panics that go no further.
//!
//! - `--cfg loom`: every order of a handful of steps, and every value that the memory model lets a load see. See `models`.
//! - `--cfg shuttle`: whole runtimes, in schedules at random, in which all that threads share is sequentially consistent. See
//!   `schedules`.

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
/// Threads of the runtime, which no model of loom starts, and thread-local values, which none shares.
#[cfg(not(shuttle))]
pub(crate) use std::{thread, thread_local};

/// Nothing of the user's runs under a lock of ours, so a panic under one is none that left it half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs something of the user's. What it throws goes no further; the standard panic hook has reported it.
pub(crate) fn catch_panic(users: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(users)) {
        dispose(payload);
    }
}

/// Something of the user's, until it is taken. If nobody takes it, it is dropped where a panic would end the process, as within a task; and
/// its destructor is the user's, too.
pub(crate) struct Fragile<T>(Option<T>);

impl<T> Fragile<T> {
    pub(crate) fn new(users: T) -> Fragile<T> {
        Fragile(Some(users))
    }

    pub(crate) fn take(mut self) -> Option<T> {
        self.0.take()
    }
}

impl<T> Drop for Fragile<T> {
    fn drop(&mut self) {
        catch_panic(|| drop(self.0.take()));
    }
}

/// Drops what a panic threw. Its destructor is the user's, too; what that throws is kept for ever.
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
