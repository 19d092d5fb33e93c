//! What threads share, from the standard library or, in a model check (`--cfg loom`), from loom.

#[cfg(loom)]
pub(crate) use self::modelled::{AtomicBool, AtomicU64, AtomicUsize};
#[cfg(loom)]
pub(crate) use loom::{
    cell::{Cell, UnsafeCell},
    hint::spin_loop,
    sync::atomic::{Ordering, fence},
    sync::{Condvar, Mutex, MutexGuard},
    thread::yield_now,
};

#[cfg(not(loom))]
pub(crate) use std::{
    cell::Cell,
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Condvar, Mutex, MutexGuard},
    thread::yield_now,
};

/// The standard cell, with the methods of loom's, which watch who is inside.
#[cfg(not(loom))]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
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

/// Loom's atomics, with sequential consistency.
///
/// Loom takes `SeqCst` for no more than acquire and release, and would report races that cannot be. It tries
/// every order in which threads can take their steps, and that order can serve as the single order of all `SeqCst` accesses. So
/// a `SeqCst` load waits for the newest value if that was stored by `SeqCst`, and otherwise takes what loom chooses: the
/// models notice when either of the two is weakened.
#[cfg(loom)]
mod modelled {
    use std::cell::Cell;

    use loom::sync::atomic::Ordering;
    use loom::thread::yield_now;

    macro_rules! atomic {
        ($name:ident, $value:ty) => {
            pub(crate) struct $name {
                word: loom::sync::atomic::$name,
                /// The value that was stored last, if that was by `SeqCst`.
                newest: Cell<Option<$value>>,
            }

            // SAFETY: loom runs all threads of a model on one thread of the system, and changes between them only inside
            // its own calls.
            unsafe impl Sync for $name {}

            impl $name {
                pub(crate) fn new(value: $value) -> $name {
                    $name { word: loom::sync::atomic::$name::new(value), newest: Cell::new(None) }
                }

                pub(crate) fn load(&self, ordering: Ordering) -> $value {
                    loop {
                        let value = self.word.load(ordering);
                        match self.newest.get() {
                            // After a yield loom does not choose again what it chose before.
                            Some(newest) if ordering == Ordering::SeqCst && value != newest => yield_now(),
                            _ => return value,
                        }
                    }
                }

                pub(crate) fn store(&self, value: $value, ordering: Ordering) {
                    self.word.store(value, ordering);
                    self.stored(value, ordering);
                }

                pub(crate) fn swap(&self, value: $value, ordering: Ordering) -> $value {
                    let before = self.word.swap(value, ordering);
                    self.stored(value, ordering);
                    before
                }

                pub(crate) fn compare_exchange(
                    &self,
                    from: $value,
                    to: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    let result = self.word.compare_exchange(from, to, success, failure);
                    if result.is_ok() {
                        self.stored(to, success);
                    }
                    result
                }

                pub(crate) fn compare_exchange_weak(
                    &self,
                    from: $value,
                    to: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    self.compare_exchange(from, to, success, failure)
                }

                pub(crate) fn fetch_update(
                    &self,
                    success: Ordering,
                    failure: Ordering,
                    mut f: impl FnMut($value) -> Option<$value>,
                ) -> Result<$value, $value> {
                    let mut before = self.load(failure);
                    while let Some(after) = f(before) {
                        match self.compare_exchange(before, after, success, failure) {
                            Ok(before) => return Ok(before),
                            Err(changed) => before = changed,
                        }
                    }
                    Err(before)
                }

                fn stored(&self, value: $value, ordering: Ordering) {
                    self.newest.set((ordering == Ordering::SeqCst).then_some(value));
                }
            }
        };
    }

    atomic!(AtomicBool, bool);
    atomic!(AtomicU64, u64);
    atomic!(AtomicUsize, usize);

    impl AtomicUsize {
        pub(crate) fn fetch_sub(&self, value: usize, ordering: Ordering) -> usize {
            let before = self.word.fetch_sub(value, ordering);
            self.stored(before - value, ordering);
            before
        }
    }
}

/// The same for what no model looks at.
pub(crate) fn lock_std<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
