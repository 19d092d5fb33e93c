//! Atomics, locks and cells: the standard library's, or those of the checker that decides which thread runs.
//!
//! - `--cfg loom`: every order of a few steps, and every value that the memory model lets a load see. See `verify::loom`.
//! - `--cfg shuttle`: whole engines, in random schedules, in which all accesses are sequentially consistent. See `verify::shuttle`.

pub(crate) mod catch_panic;
pub(crate) mod fork;
pub(crate) mod prefetch;
pub(crate) mod published;
#[cfg(shuttle)]
pub mod schedules;
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
pub(crate) use self::under_shuttle::CheckedCell as UnsafeCell;
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

/// Primitives that loom does not model, because it would have too many orders to try. Shuttle checks them.
pub(crate) mod unmodelled {
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

    /// Locks, also if a thread has panicked inside: see [`lock`](super::lock).
    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        super::ignore_poison(mutex.lock())
    }
}

/// Whether this is a build for loom or shuttle. Limits are small there, so that a few timers reach them.
pub(crate) const IS_CHECK: bool = cfg!(any(loom, shuttle));

/// The standard cell, with the methods of loom's, which checks for conflicting accesses.
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

/// Locks, also if a thread has panicked inside before: the values under the locks of this crate are consistent at every point that can
/// panic.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    ignore_poison(mutex.lock())
}

/// Returns the guard, also of a poisoned lock: see [`lock`].
#[inline]
pub(crate) fn ignore_poison<G>(guard: std::sync::LockResult<G>) -> G {
    guard.unwrap_or_else(std::sync::PoisonError::into_inner)
}
