//! What threads share: from the standard library, or in a check from the tool that decides who runs.
//!
//! - `--cfg loom`: every order of a handful of steps, and every value that the memory model lets a load see. See `models`.
//! - `--cfg shuttle`: whole engines, in schedules at random, in which all that threads share is sequentially consistent. See
//!   `schedules`.

pub(crate) mod catch_panic;
pub(crate) mod fork;
pub(crate) mod racy;
#[cfg(loom)]
pub mod under_loom;
#[cfg(shuttle)]
pub(crate) mod under_shuttle;

#[cfg(loom)]
pub(crate) use self::under_loom::{AtomicBool, AtomicU64, AtomicUsize};
#[cfg(loom)]
pub(crate) use loom::{
    cell::{Cell, UnsafeCell},
    hint::spin_loop,
    sync::atomic::{Ordering, fence},
    sync::{Condvar, Mutex, MutexGuard},
    thread::yield_now,
};

#[cfg(shuttle)]
pub(crate) use self::under_shuttle::UnsafeCell;
#[cfg(shuttle)]
pub(crate) use shuttle::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Condvar, Mutex, MutexGuard},
    thread::yield_now,
};
#[cfg(shuttle)]
pub(crate) use std::cell::Cell;

#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::{
    cell::Cell,
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Condvar, Mutex, MutexGuard},
    thread::yield_now,
};

/// What loom does not look at: it would have more orders to try than it can. Shuttle does.
pub(crate) mod aside {
    #[cfg(shuttle)]
    pub(crate) use shuttle::{
        sync::atomic::{AtomicBool, AtomicU64, AtomicUsize},
        sync::{Condvar, Mutex, MutexGuard},
        thread, thread_local,
    };
    #[cfg(not(shuttle))]
    pub(crate) use std::{
        sync::atomic::{AtomicBool, AtomicU64, AtomicUsize},
        sync::{Condvar, Mutex, MutexGuard},
        thread, thread_local,
    };

    /// As [`lock`](super::lock).
    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Whether this is a check. Limits are small in one, so that a few timers reach them.
pub(crate) const IS_CHECK: bool = cfg!(any(loom, shuttle));

/// The standard cell, with the methods of loom's, which watch who is inside.
#[cfg(not(any(loom, shuttle)))]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(any(loom, shuttle)))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Locks, whether or not somebody has panicked inside before: what our locks protect is consistent at every point
/// that can panic.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
