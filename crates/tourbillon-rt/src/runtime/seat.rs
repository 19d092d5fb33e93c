//! What other threads know of one that runs tasks: how to wake it, what can be stolen from it, whether it gets on.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use async_task::Runnable;
use crossbeam_deque::Stealer;
use tourbillon::StandIn;

use super::registry::Registry;
use crate::reactor::{Batch, Reactor};
use crate::sync::lock;

pub(crate) struct Seat {
    pub(super) reactor: Arc<Reactor>,
    pub(super) stealer: Stealer<Runnable>,
    /// Tasks that run here and nowhere else.
    inbox: Mutex<VecDeque<Runnable>>,
    inbox_len: AtomicUsize,
    /// Those tasks, while they have not ended.
    pub(super) locals: Arc<Registry>,
    sleep: AtomicU8,
    /// Counted up when a task begins and when it ends: odd while one runs.
    steps: AtomicU64,
    /// How its timers are fired while it is blocked.
    pub(super) stand_in: OnceLock<StandIn>,
}

/// What came of wanting to sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(super) enum FallingAsleep {
    Asleep,
    /// Somebody has called in between.
    Called,
}

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
/// Somebody has called, and it has not heard yet.
const CALLED: u8 = 2;

impl Seat {
    pub(super) fn new(reactor: Arc<Reactor>, stealer: Stealer<Runnable>) -> Seat {
        Seat {
            reactor,
            stealer,
            inbox: Mutex::default(),
            inbox_len: AtomicUsize::new(0),
            locals: Arc::default(),
            sleep: AtomicU8::new(AWAKE),
            steps: AtomicU64::new(0),
            stand_in: OnceLock::new(),
        }
    }

    /// By anybody: what there is to do here is looked at before it sleeps, or it wakes up. A system call only if it sleeps.
    pub(super) fn call(&self) {
        if self.sleep.swap(CALLED, Ordering::SeqCst) == ASLEEP {
            self.reactor.wake();
        }
    }

    /// By the owner: from here on a call rings.
    pub(super) fn fall_asleep(&self) -> FallingAsleep {
        match self.sleep.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => FallingAsleep::Asleep,
            Err(_) => {
                self.sleep.store(AWAKE, Ordering::SeqCst);
                FallingAsleep::Called
            }
        }
    }

    pub(super) fn wake_up(&self) {
        self.sleep.store(AWAKE, Ordering::SeqCst);
    }

    pub(super) fn is_asleep(&self) -> bool {
        self.sleep.load(Ordering::SeqCst) == ASLEEP
    }

    /// By anybody: a task that runs here.
    pub(super) fn send(&self, runnable: Runnable) {
        let mut inbox = lock(&self.inbox);
        inbox.push_back(runnable);
        self.inbox_len.store(inbox.len(), Ordering::SeqCst);
        drop(inbox);
        self.call();
    }

    /// By the owner.
    pub(super) fn receive(&self) -> Option<Runnable> {
        if !self.has_mail() {
            return None;
        }
        let mut inbox = lock(&self.inbox);
        let runnable = inbox.pop_front();
        self.inbox_len.store(inbox.len(), Ordering::SeqCst);
        runnable
    }

    pub(super) fn has_mail(&self) -> bool {
        self.inbox_len.load(Ordering::SeqCst) > 0
    }

    /// By the owner: a task begins, or ends.
    pub(super) fn step(&self) {
        self.steps.store(self.steps.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// By who finds it blocked: its timers are left to the driver, and who waits for its sockets is woken.
    pub(super) fn stand_in(&self, batch: &mut Batch) {
        if let Some(stand_in) = self.stand_in.get() {
            stand_in.take_over();
        }
        // The owner will see for itself what is wrong with its reactor.
        let _ = self.reactor.reap(batch);
    }
}
