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

use crate::barrier;
use crate::sync::{AtomicBool, IS_CHECK, Mutex, Ordering, UnsafeCell, lock, spin_loop, yield_now};

/// So often must the owner come between two guests for the bias to pay: some microseconds of barrier against some ten
/// nanoseconds of mutex each time.
const PAYS: u64 = if IS_CHECK { 2 } else { 1024 };

/// Data behind a lock that is biased to its owner.
pub(crate) struct Biased<T> {
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
unsafe impl<T: Send> Sync for Biased<T> {}

impl<T: Busy> Biased<T> {
    /// An ordinary lock until its owner has come often enough.
    pub(crate) fn new(value: T) -> Biased<T> {
        Biased {
            inside: AtomicBool::new(false),
            revoked: AtomicBool::new(true),
            mutex: Mutex::new(()),
            data: UnsafeCell::new(Counted { value, at_last_guest: 0 }),
        }
    }

    /// The owner's quick way in; `None` if the lock is revoked, and then it must go [by the mutex](Biased::owner_by_mutex).
    ///
    /// # Safety
    /// At any time at most one thread is the owner, it is the calling one, and it is not inside already. A thread becomes
    /// the owner after the one before it has ceased to be (in the sense of happens-before).
    #[inline(always)]
    pub(crate) unsafe fn owner(&self) -> Option<Inside<'_, T>> {
        self.inside.store(true, Ordering::Relaxed);
        barrier::light();
        let inside = Inside { lock: self };
        // On the other way the guard withdraws the announcement.
        (!self.revoked.load(Ordering::Acquire)).then_some(inside)
    }

    /// Everybody else's way in.
    pub(crate) fn guest<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let _locked = lock(&self.mutex);
        let biased = !self.revoked.load(Ordering::Relaxed);
        if biased {
            self.revoked.store(true, Ordering::Relaxed);
            barrier::heavy();
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
    /// As for [`owner`](Biased::owner).
    pub(crate) unsafe fn owner_by_mutex<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let _locked = lock(&self.mutex);
        self.data.with_mut(|data| {
            // SAFETY: guests hold the mutex while they are inside, and the only owner is here.
            let data = unsafe { &mut *data };
            let result = f(&mut data.value);
            let alone = data.value.visits().wrapping_sub(data.at_last_guest) >= PAYS;
            if alone && barrier::available() {
                self.revoked.store(false, Ordering::Release);
            }
            result
        })
    }

    fn wait_for_owner(&self) {
        let mut spins = 0;
        while self.inside.load(Ordering::Acquire) {
            // It is inside for some tens of nanoseconds, unless the kernel has taken its core away.
            if spins < 64 && !IS_CHECK {
                spins += 1;
                spin_loop();
            } else {
                yield_now();
            }
        }
    }
}

/// The owner is inside. It leaves when this goes, also when it panics.
pub(crate) struct Inside<'a, T> {
    lock: &'a Biased<T>,
}

impl<T> Inside<'_, T> {
    #[inline(always)]
    pub(crate) fn with<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: `inside` was set and then `revoked` was found clear, so no guest is in, and none comes in before `inside`
        // is cleared, which is when this goes. There is no other owner, says the contract.
        self.lock.data.with_mut(|data| f(unsafe { &mut (*data).value }))
    }
}

impl<T> Drop for Inside<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.inside.store(false, Ordering::Release);
    }
}
