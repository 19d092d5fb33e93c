//! Loom's atomics, with sequential consistency.
//!
//! Loom treats `SeqCst` as no more than acquire and release, and would report races that cannot happen. It tries every order in which
//! threads can take their steps, and that order can serve as the single order of all `SeqCst` accesses. So a `SeqCst` load waits for the
//! newest value if that was stored by `SeqCst`, and otherwise takes the value that loom chooses: a model fails if either of the two accesses
//! is weakened.
//!
//! Public for the models of `tourbillon-rt`, and only with `--cfg loom`.

#![allow(missing_docs, reason = "the methods are those of the standard library's atomics")]

use std::cell::Cell;

use loom::sync::atomic::Ordering;
use loom::thread::yield_now;

macro_rules! atomic {
    ($name:ident, $value:ty, $($modify:ident: $modified:expr),*) => {
        pub struct $name {
            word: loom::sync::atomic::$name,
            /// The value that was stored last, if that was by `SeqCst`.
            newest: Cell<Option<$value>>,
        }

        // SAFETY: loom runs all threads of a model on one thread of the system, and switches between them only inside its own calls, so
        // no two of them access the cell at the same time.
        unsafe impl Sync for $name {}

        impl Default for $name {
            fn default() -> $name {
                $name::new(<$value>::default())
            }
        }

        #[allow(dead_code, reason = "all have the same methods")]
        impl $name {
            pub fn new(value: $value) -> $name {
                $name { word: loom::sync::atomic::$name::new(value), newest: Cell::new(None) }
            }

            pub fn load(&self, ordering: Ordering) -> $value {
                loop {
                    let value = self.word.load(ordering);
                    match self.newest.get() {
                        // After a yield loom does not choose again what it chose before.
                        Some(newest) if ordering == Ordering::SeqCst && value != newest => yield_now(),
                        _ => return value,
                    }
                }
            }

            pub fn store(&self, value: $value, ordering: Ordering) {
                self.word.store(value, ordering);
                self.stored(value, ordering);
            }

            pub fn swap(&self, value: $value, ordering: Ordering) -> $value {
                let before = self.word.swap(value, ordering);
                self.stored(value, ordering);
                before
            }

            pub fn compare_exchange(
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

            pub fn compare_exchange_weak(
                &self,
                from: $value,
                to: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(from, to, success, failure)
            }

            pub fn fetch_update(
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

            $(
                pub fn $modify(&self, value: $value, ordering: Ordering) -> $value {
                    let before = self.word.$modify(value, ordering);
                    let modified: fn($value, $value) -> $value = $modified;
                    self.stored(modified(before, value), ordering);
                    before
                }
            )*

            fn stored(&self, value: $value, ordering: Ordering) {
                self.newest.set((ordering == Ordering::SeqCst).then_some(value));
            }
        }
    };
}

atomic!(AtomicBool, bool,);
atomic!(AtomicU8, u8,);
atomic!(AtomicU64, u64, fetch_and: |before, value| before & value, fetch_or: |before, value| before | value);
atomic!(AtomicUsize, usize, fetch_add: usize::wrapping_add, fetch_sub: |before, value| before - value);
