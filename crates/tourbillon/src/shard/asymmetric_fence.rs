//! A fence of which one side pays for both: a light one that is free, and a heavy one that acts on all cores.
//!
//! If a thread stores A, passes [`light`] and loads B, and another stores B, passes [`heavy`] and loads A, then at least
//! one of the two loads sees the other's store.

#[cfg(not(all(target_os = "linux", not(any(loom, miri, shuttle)))))]
pub(crate) use self::ordinary::*;
#[cfg(all(target_os = "linux", not(any(loom, miri, shuttle))))]
pub(crate) use self::process_wide::*;

/// The kernel interrupts every core that runs a thread of this process (`membarrier`).
#[cfg(all(target_os = "linux", not(any(loom, miri, shuttle))))]
mod process_wide {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

    use rustix::thread::{MembarrierCommand, membarrier};

    #[inline(always)]
    pub(crate) fn light() {
        compiler_fence(Ordering::SeqCst);
    }

    /// Does its work only where it is [`available`].
    pub(crate) fn heavy() {
        fence(Ordering::SeqCst);
        // It cannot fail once the process has been registered, which is what `available` has seen to.
        let done = membarrier(MembarrierCommand::PrivateExpedited);
        assert!(done.is_ok(), "membarrier refused after it was granted: {done:?}");
        fence(Ordering::SeqCst);
    }

    /// Whether the process is registered for it; the kernel may refuse that.
    static REGISTERED: OnceLock<bool> = OnceLock::new();

    /// Whether there is such a barrier, as far as is known. To find out takes the kernel some ten milliseconds in a process with
    /// several threads: the first who asks has a thread do that, and it is not available until that one is done.
    pub(crate) fn available() -> bool {
        REGISTERED.get().copied().unwrap_or_else(ask)
    }

    /// The same for who can wait: afterwards it is known.
    #[cfg_attr(not(feature = "test-util"), expect(dead_code, reason = "only tests want to know what is to come"))]
    pub(crate) fn find_out() {
        REGISTERED.get_or_init(register);
    }

    #[cold]
    fn ask() -> bool {
        static ASKED: AtomicBool = AtomicBool::new(false);
        if !ASKED.swap(true, Ordering::Relaxed) {
            let thread = std::thread::Builder::new().name("tourbillon-setup".into());
            if thread.spawn(|| REGISTERED.get_or_init(register)).is_err() {
                // Ordinary locks, then; a process without a thread to spare has other worries.
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

/// No such thing here; and in a check the two sides pay alike.
#[cfg(not(all(target_os = "linux", not(any(loom, miri, shuttle)))))]
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

    #[cfg_attr(not(feature = "test-util"), expect(dead_code, reason = "only tests want to know what is to come"))]
    pub(crate) fn find_out() {}
}
