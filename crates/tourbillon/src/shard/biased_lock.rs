//! A lock that costs its owner next to nothing.
//!
//! One thread, the *owner*, comes millions of times a second; all others, the *guests*, come rarely. So the owner
//! announces itself with a plain store and looks with a plain load, and the guests pay for both sides:
//!
//! ```text
//!     owner                                    guest
//!     inside = true                            lock the mutex
//!     (nothing: the compiler keeps the order)  revoked = true
//!     revoked? -- no --> the data is mine      barrier on every core of the process (membarrier)
//!       |                                      wait until not inside
//!       yes: inside = false, lock the mutex    the data is mine
//! ```
//!
//! It is Dekker's algorithm. It needs a full fence between the store and the load on both sides; the guest's
//! `membarrier` runs one on the owner's core at a point between two of the owner's instructions. Before that point the owner's
//! store is made visible, so the guest sees it and waits; after it the owner's load sees `revoked`. There
//! is no third case.
//!
//! The barrier takes some microseconds on a busy machine. It pays when the owner comes a thousand times between two guests,
//! so a guest who finds that it did not leaves the lock *revoked*: from then on it is an ordinary mutex, until the
//! owner has come so often alone that the bias pays again. Where the kernel has no `membarrier` it stays so.

#[cfg(all(test, target_os = "linux", not(any(loom, miri, shuttle))))]
mod tests;

use std::time::Duration;

use crate::shard::asymmetric_fence;
use crate::sync::{AtomicBool, IS_CHECK, Mutex, Ordering, UnsafeCell, lock, spin_loop, yield_now};

/// So often must the owner come between two guests for the bias to pay: some microseconds of barrier against some ten
/// nanoseconds of mutex each time.
const PAYS: u64 = if IS_CHECK { 2 } else { 1024 };

/// Data behind a lock that is biased to its owner.
pub(crate) struct BiasedLock<T> {
    /// The owner is inside, or about to find out that it may not be. Written by the owner only.
    inside: AtomicBool,
    /// The owner must take the mutex. Written by whoever holds the mutex.
    revoked: AtomicBool,
    mutex: Mutex<()>,
    data: UnsafeCell<Counted<T>>,
}

/// What tells the lock how busy its owner is.
pub(crate) trait Busy {
    /// A count that grows with each visit of the owner.
    fn visits(&self) -> u64;
}

struct Counted<T> {
    value: T,
    /// `value.visits()` when the last guest left.
    at_last_guest: u64,
}

// SAFETY: the data is reached only through `owner` and `guest`, and those exclude each other (see the module).
unsafe impl<T: Send> Sync for BiasedLock<T> {}

impl<T: Busy> BiasedLock<T> {
    /// An ordinary lock until its owner has come often enough.
    pub(crate) fn new(value: T) -> BiasedLock<T> {
        BiasedLock {
            inside: AtomicBool::new(false),
            revoked: AtomicBool::new(true),
            mutex: Mutex::new(()),
            data: UnsafeCell::new(Counted { value, at_last_guest: 0 }),
        }
    }

    /// The owner's quick way in; `None` if the lock is revoked, and then it must go [by the mutex](BiasedLock::lock_owner_slow).
    ///
    /// # Safety
    /// At any time at most one thread is the owner, it is the calling one, and it is not inside already. A thread becomes
    /// the owner after the one before it has ceased to be (in the sense of happens-before).
    #[inline(always)]
    pub(crate) unsafe fn lock_owner(&self) -> Option<OwnerGuard<'_, T>> {
        self.inside.store(true, Ordering::Relaxed);
        asymmetric_fence::light();
        let inside = OwnerGuard { lock: self };
        // On the other way the guard withdraws the announcement.
        (!self.revoked.load(Ordering::Acquire)).then_some(inside)
    }

    /// Everybody else's way in.
    pub(crate) fn lock_remote<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let _locked = lock(&self.mutex);
        let biased = !self.revoked.load(Ordering::Relaxed);
        if biased {
            self.revoked.store(true, Ordering::Relaxed);
            asymmetric_fence::heavy();
            self.wait_for_owner();
        }
        self.data.with_mut(|data| {
            // SAFETY: the mutex keeps out guests and an owner who found `revoked`; the barrier and the wait have
            // made sure that the owner is not inside without having found it.
            let data = unsafe { &mut *data };
            let result = f(&mut data.value);
            let visits = data.value.visits();
            let paid = visits.wrapping_sub(data.at_last_guest) >= PAYS;
            data.at_last_guest = visits;
            if biased && paid {
                self.revoked.store(false, Ordering::Release);
            }
            result
        })
    }

    /// The owner's way in when the lock is revoked.
    ///
    /// # Safety
    /// As for [`owner`](BiasedLock::owner).
    pub(crate) unsafe fn lock_owner_slow<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let _locked = lock(&self.mutex);
        self.data.with_mut(|data| {
            // SAFETY: guests hold the mutex while they are inside, and the only owner is here.
            let data = unsafe { &mut *data };
            let result = f(&mut data.value);
            let alone = data.value.visits().wrapping_sub(data.at_last_guest) >= PAYS;
            if alone && asymmetric_fence::available() {
                self.revoked.store(false, Ordering::Release);
            }
            result
        })
    }

    fn wait_for_owner(&self) {
        let mut patience = Patience::default();
        while self.inside.load(Ordering::Acquire) {
            patience.wait();
        }
    }
}

/// How a guest waits for an owner that is inside: for some tens of nanoseconds, unless the kernel has taken the owner's core away.
///
/// After some spins and yields the guest sleeps. `sched_yield` does not let the owner run if the guest has a real-time priority, the owner
/// has none, and both are on one core: then the guest would wait until the kernel takes the core from it, about a second later (D71).
/// The owner leaves by a plain store and wakes nobody, so the guest sleeps for a time, which grows.
#[derive(Default)]
struct Patience {
    waits: u32,
}

impl Patience {
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

    /// How long the guest sleeps now.
    fn sleep(&self) -> Duration {
        let doubled = self.waits.saturating_sub(Self::SPINS + Self::YIELDS + 1).min(8);
        (Self::FIRST_SLEEP * (1 << doubled)).min(Self::LONGEST_SLEEP)
    }
}

/// The owner is inside. It leaves when this goes, also when it panics.
pub(crate) struct OwnerGuard<'a, T> {
    lock: &'a BiasedLock<T>,
}

impl<T> OwnerGuard<'_, T> {
    #[inline(always)]
    pub(crate) fn with<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: `inside` was set and then `revoked` was found clear, so no guest is in, and none comes in before `inside`
        // is cleared, which is when this goes. There is no other owner, says the contract.
        self.lock.data.with_mut(|data| f(unsafe { &mut (*data).value }))
    }
}

impl<T> Drop for OwnerGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.inside.store(false, Ordering::Release);
    }
}
