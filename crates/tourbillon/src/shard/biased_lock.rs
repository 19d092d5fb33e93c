//! A biased lock: it costs its owner two plain stores and a load.
//!
//! One thread, the *owner*, takes the lock millions of times a second; all other threads are *remote* and take it rarely. So the owner
//! announces itself with a plain store and checks with a plain load, and the remote threads pay for the fence of both sides:
//!
//! ```text
//!     owner                                    remote thread
//!     inside = true                            lock the mutex
//!     (nothing: the compiler keeps the order)  revoked = true
//!     revoked? -- no --> has the lock          barrier on every core of the process (membarrier)
//!       |                                      wait until not inside
//!       yes: inside = false, lock the mutex    has the lock
//! ```
//!
//! This is Dekker's algorithm, which needs a full fence between the store and the load on both sides. The remote thread's `membarrier` runs
//! that fence on the owner's core too, between two instructions of the owner. There are two cases:
//!
//! 1. The owner's store of `inside` is before that fence: the remote thread sees `inside`, and waits.
//! 2. The owner's store is after it, and so is its load: the owner sees `revoked`, and takes the mutex.
//!
//! The barrier takes some microseconds on a busy machine. It pays if the owner takes the lock a thousand times between two remote threads,
//! or more often on a machine with many cores ([`bias_pays_at`]). A remote thread that finds that it did not pay leaves the lock *revoked*:
//! the lock is then an ordinary mutex until the owner has taken it alone often enough for the bias to pay again. Where the kernel has no
//! `membarrier` it stays an ordinary mutex.

#[cfg(all(test, tourbillon_membarrier, not(any(loom, miri, shuttle))))]
mod tests;

use std::time::Duration;

use crate::shard::asymmetric_fence;
use crate::sync::published::Published;
use crate::sync::{AtomicBool, IS_CHECK, Mutex, Ordering, UnsafeCell, lock, spin_loop, yield_now};

/// Returns how often the owner has to take the lock between two remote threads for the bias to pay.
///
/// A mutex costs the owner some ten nanoseconds more each time. A barrier costs the remote thread some ten microseconds, and every other core
/// that runs the process is interrupted for the better part of a microsecond. So the bias pays later on a machine with many cores.
fn bias_pays_at() -> u64 {
    static PAYS_AT: Published<u64> = Published::new();
    const ON_TWO_CORES: u64 = 1024;
    const FOR_EACH_CORE: u64 = 72;
    if IS_CHECK {
        return 2;
    }
    *PAYS_AT.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(2, |cores| cores.get() as u64);
        ON_TWO_CORES + FOR_EACH_CORE * cores.saturating_sub(2)
    })
}

/// Data behind a lock that is biased to its owner.
pub(crate) struct BiasedLock<T> {
    /// Whether the owner has the lock by the fast path, or is about to check `revoked`. Written by the owner only.
    inside: AtomicBool,
    /// Whether the owner must take the mutex. Written by the thread that holds the mutex.
    revoked: AtomicBool,
    mutex: Mutex<()>,
    data: UnsafeCell<Counted<T>>,
}

/// Data that tells the lock how often its owner takes it.
pub(crate) trait Busy {
    /// Returns a count that grows about as often as the owner takes the lock.
    fn owner_locks(&self) -> u64;
}

struct Counted<T> {
    value: T,
    /// `value.owner_locks()` when the last remote thread left the lock.
    at_last_remote: u64,
}

// SAFETY: threads reach the data only through `OwnerGuard::with`, `lock_owner_slow` and `lock_remote`, which exclude each other (see the
// proofs there). So the data passes from thread to thread, for which `T: Send` suffices.
unsafe impl<T: Send> Sync for BiasedLock<T> {}

impl<T: Busy> BiasedLock<T> {
    /// Creates a lock that is an ordinary mutex until its owner has taken it often enough.
    pub(crate) fn new(value: T) -> BiasedLock<T> {
        BiasedLock {
            inside: AtomicBool::new(false),
            revoked: AtomicBool::new(true),
            mutex: Mutex::new(()),
            data: UnsafeCell::new(Counted { value, at_last_remote: 0 }),
        }
    }

    /// Locks by the owner's fast path; `None` if the lock is revoked: then the owner has to [use the mutex](BiasedLock::lock_owner_slow).
    ///
    /// # Safety
    /// The calling thread is the owner, no other thread is at the same time, and the calling thread does not have this lock already. If
    /// another thread was the owner before, the end of its ownership happens before the beginning of this one.
    #[inline(always)]
    pub(crate) unsafe fn lock_owner(&self) -> Option<OwnerGuard<'_, T>> {
        self.inside.store(true, Ordering::Relaxed);
        asymmetric_fence::light();
        let inside = OwnerGuard { lock: self };
        // If the lock is revoked, the guard is dropped here and clears `inside`.
        (!self.revoked.load(Ordering::Acquire)).then_some(inside)
    }

    /// Runs `f` with the lock, on any thread that is not the owner.
    pub(crate) fn lock_remote<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let _locked = lock(&self.mutex);
        let biased = !self.revoked.load(Ordering::Relaxed);
        if biased {
            self.revoked.store(true, Ordering::Relaxed);
            asymmetric_fence::heavy();
            self.wait_for_owner();
        }
        self.data.with_mut(|data| {
            // SAFETY: no other thread has the data. (1) Other remote threads, and an owner that has seen `revoked`, wait for the mutex, which
            // this thread holds. (2) If the lock was biased, this thread has waited until the owner left the fast path, and has acquired its
            // writes; the owner's next check is after the barrier and sees `revoked`. (3) If the lock was revoked already, (2) holds since
            // an earlier thread revoked it, or since it was created: `revoked` is cleared only under the mutex.
            let data = unsafe { &mut *data };
            let result = f(&mut data.value);
            let locks = data.value.owner_locks();
            let paid = locks.wrapping_sub(data.at_last_remote) >= bias_pays_at();
            data.at_last_remote = locks;
            if biased && paid {
                self.revoked.store(false, Ordering::Release);
            }
            result
        })
    }

    /// Runs `f` with the lock, on the owner, by the mutex. For an owner that has found the lock revoked.
    ///
    /// # Safety
    /// As for [`lock_owner`](BiasedLock::lock_owner).
    pub(crate) unsafe fn lock_owner_slow<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let _locked = lock(&self.mutex);
        self.data.with_mut(|data| {
            // SAFETY: remote threads hold the mutex while they have the data, and this thread holds it now. The only owner is this thread,
            // and it has no `OwnerGuard`: the contract of this function.
            let data = unsafe { &mut *data };
            let result = f(&mut data.value);
            let alone = data.value.owner_locks().wrapping_sub(data.at_last_remote) >= bias_pays_at();
            if alone && asymmetric_fence::available() {
                self.revoked.store(false, Ordering::Release);
            }
            result
        })
    }

    fn wait_for_owner(&self) {
        let mut backoff = Backoff::default();
        while self.inside.load(Ordering::Acquire) {
            backoff.wait();
        }
    }
}

/// How a remote thread waits for the owner to leave the lock: some tens of nanoseconds, unless the kernel has preempted the owner.
///
/// After some spins and yields the remote thread sleeps. `sched_yield` does not let the owner run if the remote thread has a real-time
/// priority, the owner has none, and both are on one core: the remote thread would spin until the kernel throttles it, about a second later
/// (D71). The owner leaves by a plain store and wakes no thread, so the remote thread sleeps for a time, which grows.
#[derive(Default)]
struct Backoff {
    waits: u32,
}

impl Backoff {
    const SPINS: u32 = 64;
    const YIELDS: u32 = 16;
    const FIRST_SLEEP: Duration = Duration::from_micros(50);
    const LONGEST_SLEEP: Duration = Duration::from_millis(1);

    fn wait(&mut self) {
        // In a check the tool decides when the owner goes on.
        if IS_CHECK {
            return yield_now();
        }
        self.waits = self.waits.saturating_add(1);
        if self.waits <= Self::SPINS {
            spin_loop();
        } else if self.waits <= Self::SPINS + Self::YIELDS {
            yield_now();
        } else {
            std::thread::sleep(self.sleep());
        }
    }

    /// Returns how long the remote thread sleeps next.
    fn sleep(&self) -> Duration {
        let doubled = self.waits.saturating_sub(Self::SPINS + Self::YIELDS + 1).min(8);
        (Self::FIRST_SLEEP * (1 << doubled)).min(Self::LONGEST_SLEEP)
    }
}

/// The lock, held by the owner on the fast path. Dropping it unlocks, also in a panic.
pub(crate) struct OwnerGuard<'a, T> {
    lock: &'a BiasedLock<T>,
}

impl<T> OwnerGuard<'_, T> {
    #[inline(always)]
    pub(crate) fn with<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: no other thread has the data. (1) The owner has set `inside` and then found `revoked` clear, so by the two cases of the
        // module every remote thread that revokes the lock waits until `inside` is cleared, which the drop of this guard does. (2) A remote
        // thread that had the lock before has cleared `revoked` with a release store, which the owner's load acquires. (3) There is no other
        // owner, and this one has one guard: the contract of `lock_owner`.
        self.lock.data.with_mut(|data| f(unsafe { &mut (*data).value }))
    }
}

impl<T> Drop for OwnerGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.inside.store(false, Ordering::Release);
    }
}
