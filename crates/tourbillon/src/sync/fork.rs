//! Notices that the process was forked.
//!
//! `fork` copies the memory and one thread. In the child an engine of the parent has no driver, its locks may be held by threads that
//! were not copied, and its kernel timer is the parent's own. So the child may use nothing of it that takes a lock or makes a system
//! call: [`Core::is_inherited`](crate::core::Core::is_inherited) tells, and such an engine counts as shut down.
//!
//! The C library calls [`forked`] in the child, on its only thread, before `fork` returns there. That thread then forgets which engine
//! is its current one, so that every operation takes the slow path, where the generation is compared; the fast paths need not look.
//! A child that is made by the bare `clone` system call goes unnoticed.

#[cfg(all(unix, not(any(loom, miri, shuttle))))]
pub(crate) use self::noticed::{forget_in_child, generation, watch};
#[cfg(not(all(unix, not(any(loom, miri, shuttle)))))]
pub(crate) use self::unnoticed::{forget_in_child, generation, watch};

#[cfg(all(unix, not(any(loom, miri, shuttle))))]
mod noticed {
    use std::cell::Cell;
    use std::ffi::c_int;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    static GENERATION: AtomicU32 = AtomicU32::new(0);

    thread_local! {
        /// What the thread forgets in the child of a fork.
        static FORGET_CURRENT: Cell<Option<fn()>> = const { Cell::new(None) };
    }

    /// Has `forget` called on this thread in the child of each fork that this thread makes. It may only store to thread-local cells that
    /// need no destructor.
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

    /// How many forks lie between this process and the first of its ancestors that used an engine. It differs from what the parent has,
    /// and does not change while more than one thread runs.
    #[inline(always)]
    pub(crate) fn generation() -> u32 {
        GENERATION.load(Ordering::Relaxed)
    }

    /// Has the C library tell of forks from now on.
    pub(crate) fn watch() {
        // Not a `Once`: a fork in the middle of it would leave it locked in the child.
        static WATCHED: AtomicBool = AtomicBool::new(false);
        if !WATCHED.swap(true, Ordering::Relaxed) {
            // SAFETY: the function is what the C library asks for, and stays as long as the program does. Should there be no memory
            // for the registration, forks go unnoticed.
            let _refused = unsafe { pthread_atfork(None, None, Some(forked)) };
        }
    }

    /// In the child: stores to one atomic and to one thread-local cell that needs no destructor, which is allowed in this place.
    extern "C" fn forked() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
        FORGET_CURRENT.with(|forget| {
            if let Some(forget) = forget.get() {
                forget();
            }
        });
    }
}

/// There is no fork, or the check knows none.
#[cfg(not(all(unix, not(any(loom, miri, shuttle)))))]
mod unnoticed {
    pub(crate) const fn generation() -> u32 {
        0
    }

    pub(crate) const fn watch() {}

    pub(crate) const fn forget_in_child(_: fn()) {}
}
