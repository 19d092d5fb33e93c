//! A limit on how many timers an engine holds.
//!
//! Engines without one pay nothing for it. With one, each arming and each end counts on a shared word.

use std::collections::HashMap;
use std::task::Waker;

use crate::sync::{AtomicBool, AtomicUsize, Mutex, Ordering, lock};

pub(crate) struct Capacity {
    pub(crate) most: usize,
    held: AtomicUsize,
    /// Whether anybody waits for room.
    awaited: AtomicBool,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// By the addresses of their parts: who asks twice waits once, and keeps its place.
    wakers: HashMap<(usize, usize), (u64, Waker)>,
    /// How many have come so far.
    came: u64,
}

impl Capacity {
    pub(crate) fn new(most: usize) -> Capacity {
        Capacity {
            most,
            held: AtomicUsize::new(0),
            awaited: AtomicBool::new(false),
            waiting: Mutex::new(Waiting::default()),
        }
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
        if self.awaited.load(Ordering::SeqCst) { self.take_waiting() } else { Vec::new() }
    }

    /// Room for one more, or the waker is woken when there may be.
    pub(crate) fn take_or_wait(&self, waker: &Waker) -> bool {
        if self.take() {
            return true;
        }
        let address = (waker.data().addr(), std::ptr::from_ref(waker.vtable()).addr());
        let waker = waker.clone();
        let before = {
            let mut waiting = lock(&self.waiting);
            self.awaited.store(true, Ordering::SeqCst);
            waiting.add(address, waker)
        };
        drop(before);
        // Room that was given back before `awaited` could be seen would be missed.
        self.take()
    }

    /// All who wait, to be woken so that they try again, in the order in which they came: in virtual time that makes a run
    /// repeatable (B6). Who finds no room waits anew.
    #[must_use]
    pub(crate) fn take_waiting(&self) -> Vec<Waker> {
        let mut waiting: Vec<_> = {
            let mut waiting = lock(&self.waiting);
            self.awaited.store(false, Ordering::SeqCst);
            waiting.wakers.drain().map(|(_, waker)| waker).collect()
        };
        waiting.sort_unstable_by_key(|(came, _)| *came);
        waiting.into_iter().map(|(_, waker)| waker).collect()
    }
}

impl Waiting {
    /// Gives the waker that was there before, to be dropped outside the lock.
    fn add(&mut self, address: (usize, usize), waker: Waker) -> Option<Waker> {
        self.came += 1;
        let before = self.wakers.remove(&address);
        let came = before.as_ref().map_or(self.came, |(came, _)| *came);
        self.wakers.insert(address, (came, waker));
        before.map(|(_, waker)| waker)
    }
}
