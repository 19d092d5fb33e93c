//! A limit on how many timers an engine holds.
//!
//! Engines without one pay nothing for it. With one, each arming and each end counts on a shared word.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Waker;

use crate::sync::lock_std;

pub(crate) struct Capacity {
    pub(crate) most: usize,
    held: AtomicUsize,
    /// Whether anybody waits for room.
    awaited: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl Capacity {
    pub(crate) fn new(most: usize) -> Capacity {
        Capacity { most, held: AtomicUsize::new(0), awaited: AtomicBool::new(false), waiting: Mutex::new(Vec::new()) }
    }

    /// Room for one more, if there is.
    pub(crate) fn take(&self) -> bool {
        let take = |held| (held < self.most).then_some(held + 1);
        self.held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok()
    }

    /// One has gone. Whoever is to be woken has been waiting for that.
    #[must_use]
    pub(crate) fn give_back(&self) -> Vec<Waker> {
        self.held.fetch_sub(1, Ordering::SeqCst);
        if self.awaited.load(Ordering::SeqCst) { self.take_waiting() } else { Vec::new() }
    }

    /// Room for one more, or the waker is woken when there may be.
    pub(crate) fn take_or_wait(&self, waker: &Waker) -> bool {
        if self.take() {
            return true;
        }
        // Cloned and dropped outside the lock.
        let mut waker = Some(waker.clone());
        let mut waiting = lock_std(&self.waiting);
        if let Some(new) = waker.take_if(|new| !waiting.iter().any(|known| known.will_wake(new))) {
            waiting.push(new);
        }
        self.awaited.store(true, Ordering::SeqCst);
        drop(waiting);
        // Room that was given back before `awaited` could be seen would be missed.
        self.take()
    }

    /// Everybody who waits, to be woken and to try again.
    #[must_use]
    pub(crate) fn take_waiting(&self) -> Vec<Waker> {
        let mut waiting = lock_std(&self.waiting);
        self.awaited.store(false, Ordering::SeqCst);
        std::mem::take(&mut *waiting)
    }
}
