//! A limit on how many timers an engine holds.
//!
//! Engines without one pay nothing for it. With one, each arming and each end counts on a shared word.

use std::task::Waker;

use crate::sync::{AtomicBool, AtomicUsize, Mutex, Ordering, lock};

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

    /// One has gone.
    pub(crate) fn give_back(&self) {
        self.held.fetch_sub(1, Ordering::SeqCst);
        if self.awaited.load(Ordering::SeqCst) {
            self.wake_all();
        }
    }

    /// Room for one more, or the waker is woken when there may be.
    pub(crate) fn take_or_wait(&self, waker: &Waker) -> bool {
        if self.take() {
            return true;
        }
        let mut waiting = lock(&self.waiting);
        if !waiting.iter().any(|known| known.will_wake(waker)) {
            waiting.push(waker.clone());
        }
        self.awaited.store(true, Ordering::SeqCst);
        drop(waiting);
        // Room that was given back before `awaited` could be seen would be missed.
        self.take()
    }

    /// Lets everybody try again.
    pub(crate) fn wake_all(&self) {
        let waiting = {
            let mut waiting = lock(&self.waiting);
            self.awaited.store(false, Ordering::SeqCst);
            std::mem::take(&mut *waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}
