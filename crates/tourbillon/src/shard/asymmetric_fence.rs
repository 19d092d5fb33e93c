//! An asymmetric fence: [`light`] costs nothing, and [`heavy`] pays for both sides by a fence on all cores.
//!
//! If one thread stores A, calls [`light`] and loads B, and another thread stores B, calls [`heavy`] and loads A, then at least one of the
//! two loads sees the other thread's store.

#[cfg(not(all(tourbillon_membarrier, not(any(loom, miri, shuttle)))))]
pub(crate) use self::ordinary::*;
#[cfg(all(tourbillon_membarrier, not(any(loom, miri, shuttle))))]
pub(crate) use self::process_wide::*;

/// With `membarrier`: the kernel interrupts every core that runs a thread of this process.
#[cfg(all(tourbillon_membarrier, not(any(loom, miri, shuttle))))]
mod process_wide {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

    use rustix::thread::{MembarrierCommand, membarrier};

    #[inline(always)]
    pub(crate) fn light() {
        compiler_fence(Ordering::SeqCst);
    }

    /// Fences all threads of the process. Only to be called after [`available`] has returned `true`.
    pub(crate) fn heavy() {
        fence(Ordering::SeqCst);
        // It cannot fail: `available` has returned true, so the process is registered.
        let done = membarrier(MembarrierCommand::PrivateExpedited);
        assert!(done.is_ok(), "membarrier refused after it was granted: {done:?}");
        fence(Ordering::SeqCst);
    }

    /// Whether the kernel has registered the process for `membarrier`; empty until the kernel was asked.
    static REGISTERED: OnceLock<bool> = OnceLock::new();

    /// Returns whether [`heavy`] is known to work. The kernel takes some ten milliseconds to register a process with several threads, so the
    /// first call starts a thread for that, and calls return `false` until that thread is done.
    pub(crate) fn available() -> bool {
        REGISTERED.get().copied().unwrap_or_else(start_registration)
    }

    /// Registers the process, and waits for that: afterwards [`available`] returns the final answer.
    #[cfg_attr(not(feature = "test-util"), expect(dead_code, reason = "only tests wait for the registration"))]
    pub(crate) fn find_out() {
        REGISTERED.get_or_init(register);
    }

    #[cold]
    fn start_registration() -> bool {
        static STARTED: AtomicBool = AtomicBool::new(false);
        if !STARTED.swap(true, Ordering::Relaxed) {
            let thread = std::thread::Builder::new().name("tourbillon-setup".into());
            if thread.spawn(|| REGISTERED.get_or_init(register)).is_err() {
                // No thread can be started: the locks of the shards stay ordinary ones.
                let _first = REGISTERED.set(false);
            }
        }
        false
    }

    fn register() -> bool {
        membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
            && membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }
}

/// Without `membarrier`, and in a check: both sides use an ordinary fence.
#[cfg(not(all(tourbillon_membarrier, not(any(loom, miri, shuttle)))))]
mod ordinary {
    use crate::sync::{IS_CHECK, Ordering, fence};

    #[inline(always)]
    pub(crate) fn light() {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn heavy() {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn available() -> bool {
        IS_CHECK || cfg!(miri)
    }

    #[cfg_attr(not(feature = "test-util"), expect(dead_code, reason = "only tests wait for the registration"))]
    pub(crate) fn find_out() {}
}
