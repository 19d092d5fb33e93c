//! Notices that the process was forked.
//!
//! `fork` copies the memory and one thread. In the child an engine of the parent has no driver, its locks may be held by threads that
//! were not copied, and its kernel timer is shared with the parent. So the child must not take a lock of that engine or make a system call
//! for it: [`Core::is_inherited`](crate::core::Core::is_inherited) tells, and such an engine counts as shut down.
//!
//! The C library calls `posix::forked` in the child, on its only thread, before `fork` returns there. `forked` clears that thread's current
//! engine, so that every operation takes the slow path, where the generation is compared; the fast paths need no check.
//! A child that was made by the bare `clone` system call is not noticed.

#[cfg(not(all(unix, not(any(loom, miri, shuttle)))))]
pub(crate) use self::none::{forget_in_child, generation, watch};
#[cfg(all(unix, not(any(loom, miri, shuttle))))]
pub(crate) use self::posix::{forget_in_child, generation, watch};

#[cfg(all(unix, not(any(loom, miri, shuttle))))]
mod posix {
    use std::cell::Cell;
    use std::ffi::c_int;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    static GENERATION: AtomicU32 = AtomicU32::new(0);

    thread_local! {
        /// Clears this thread's current engine in the child of a fork.
        static FORGET_CURRENT: Cell<Option<fn()>> = const { Cell::new(None) };
    }

    /// Sets the function that runs on this thread in the child of each fork that this thread makes. It may only store to thread-local cells
    /// that need no destructor.
    pub(crate) fn forget_in_child(forget: fn()) {
        FORGET_CURRENT.set(Some(forget));
    }

    unsafe extern "C" {
        fn pthread_atfork(
            prepare: Option<unsafe extern "C" fn()>,
            parent: Option<unsafe extern "C" fn()>,
            child: Option<unsafe extern "C" fn()>,
        ) -> c_int;
    }

    /// Returns how many forks lie between this process and the first of its ancestors that used an engine. It differs from the parent's, and
    /// does not change while more than one thread runs.
    #[inline(always)]
    pub(crate) fn generation() -> u32 {
        GENERATION.load(Ordering::Relaxed)
    }

    /// Makes the C library report forks.
    pub(crate) fn watch() {
        // Not a `Once`: a fork in the middle of it would leave it locked in the child.
        static WATCHED: AtomicBool = AtomicBool::new(false);
        if !WATCHED.swap(true, Ordering::Relaxed) {
            // SAFETY: `forked` has the signature that the C library requires, and is never unloaded. If the library has no memory for the
            // registration, forks go unnoticed.
            let _refused = unsafe { pthread_atfork(None, None, Some(forked)) };
        }
    }

    /// Runs in the child. It stores to one atomic and to one thread-local cell that needs no destructor, which is allowed there.
    extern "C" fn forked() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
        FORGET_CURRENT.with(|forget| {
            if let Some(forget) = forget.get() {
                forget();
            }
        });
    }
}

/// For systems without `fork`, and for checkers that do not support it.
#[cfg(not(all(unix, not(any(loom, miri, shuttle)))))]
mod none {
    pub(crate) const fn generation() -> u32 {
        0
    }

    pub(crate) const fn watch() {}

    pub(crate) const fn forget_in_child(_: fn()) {}
}
