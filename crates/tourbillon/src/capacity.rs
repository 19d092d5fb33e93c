//! A limit on how many timers an engine holds.
//!
//! Engines without one pay nothing for it. With one, each arming and each end counts on a shared word.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Waker;

use crate::sync::lock_std;

pub(crate) struct Capacity {
    pub(crate) most: usize,
    held: AtomicUsize,
    /// Whether anybody waits for room.
    awaited: AtomicBool,
    /// By the addresses of their parts: who asks twice waits once.
    waiting: Mutex<HashMap<(usize, usize), Waker>>,
}

impl Capacity {
    pub(crate) fn new(most: usize) -> Capacity {
        Capacity { most, held: AtomicUsize::new(0), awaited: AtomicBool::new(false), waiting: Mutex::default() }
    }

    /// Room for one more, if there is.
    pub(crate) fn take(&self) -> bool {
        let take = |held| (held < self.most).then_some(held + 1);
        self.held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok()
    }

    /// One has gone. Those who wait are to try again.
    #[must_use]
    pub(crate) fn give_back(&self) -> Vec<Waker> {
        self.held.fetch_sub(1, Ordering::SeqCst);
        self.take_waiting()
    }

    /// Room for one more, or the waker is woken when there may be.
    pub(crate) fn take_or_wait(&self, waker: &Waker) -> bool {
        if self.take() {
            return true;
        }
        let address = (waker.data().addr(), std::ptr::from_ref(waker.vtable()).addr());
        let waker = waker.clone();
        let before = {
            let mut waiting = lock_std(&self.waiting);
            self.awaited.store(true, Ordering::SeqCst);
            waiting.insert(address, waker)
        };
        drop(before);
        // Room that was given back before `awaited` could be seen would be missed.
        self.take()
    }

    /// All who wait, to be woken so that they try again. Who finds no room waits anew.
    #[must_use]
    pub(crate) fn take_waiting(&self) -> Vec<Waker> {
        if !self.awaited.load(Ordering::SeqCst) {
            return Vec::new();
        }
        let mut waiting = lock_std(&self.waiting);
        self.awaited.store(false, Ordering::SeqCst);
        waiting.drain().map(|(_, waker)| waker).collect()
    }
}
