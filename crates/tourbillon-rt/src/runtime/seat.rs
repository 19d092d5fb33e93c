//! What other threads know of one that runs tasks: how to wake it, what can be stolen from it, whether it gets on.

use std::collections::VecDeque;
use std::sync::Arc;

use async_task::Runnable;
use tourbillon::WorkerTakeover;

use super::registry::Registry;
use super::virtual_time::VirtualTime;
use crate::reactor::{Batch, Reactor};
use crate::sync::{AtomicU8, AtomicU64, AtomicUsize, Mutex, Ordering, Stealer, lock};

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
    /// What the monitor has seen of them.
    steps_seen: AtomicU64,
    /// How its timers are fired while it is blocked.
    stand_in: Mutex<Option<WorkerTakeover>>,
    /// Of its runtime.
    pub(super) virtual_time: VirtualTime,
}

/// A task runs, until it is dropped.
pub(super) struct Step<'a> {
    seat: &'a Seat,
    count: u64,
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
    pub(super) fn new(reactor: Arc<Reactor>, stealer: Stealer<Runnable>, virtual_time: VirtualTime) -> Seat {
        Seat {
            reactor,
            stealer,
            inbox: Mutex::default(),
            inbox_len: AtomicUsize::new(0),
            locals: Arc::default(),
            sleep: AtomicU8::new(AWAKE),
            steps: AtomicU64::new(0),
            steps_seen: AtomicU64::new(0),
            stand_in: Mutex::new(None),
            virtual_time,
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
                self.wake_up();
                FallingAsleep::Called
            }
        }
    }

    /// By the owner: a loop that it ran inside of another one has ended. The nested loop has heard every call of the seat, also those for
    /// the loop outside of it (D66): that one is to look again before it sleeps.
    pub(super) fn nested_loop_has_ended(&self) {
        self.call();
    }

    pub(super) fn wake_up(&self) {
        // Not a store: of several calls that this takes back it sees the last, and what was done before each of them. (On x86 the two
        // are the same instruction.)
        self.sleep.swap(AWAKE, Ordering::SeqCst);
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
        self.virtual_time.wait_for_move();
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

    /// By the thread that moves virtual time: whether the owner is parked, and no task waits for it.
    #[cfg(any(feature = "test-util", all(test, loom)))]
    pub(super) fn is_idle(&self) -> bool {
        #[cfg(feature = "test-util")]
        if self.reactor.has_removals() {
            return false;
        }
        self.is_asleep() && !self.has_mail() && self.stealer.is_empty()
    }

    /// By the owner: a task begins, possibly inside of another that blocks on it.
    pub(super) fn step(&self) -> Step<'_> {
        let count = if self.steps().is_multiple_of(2) { 1 } else { 2 };
        self.count_step(count);
        Step { seat: self, count }
    }

    fn count_step(&self, count: u64) {
        self.steps.store(self.steps().wrapping_add(count), Ordering::Relaxed);
    }

    /// They change as long as it gets on.
    pub(super) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// By the monitor: whether it is in the same task as it was the last time. (One that blocks on another may sleep meanwhile: then it
    /// is looked after.)
    pub(super) fn is_stuck(&self) -> bool {
        let steps = self.steps();
        self.steps_seen.swap(steps, Ordering::Relaxed) == steps && steps % 2 == 1 && !self.is_asleep()
    }

    /// By the owner: who fires its timers while it is blocked. `None` when it leaves.
    pub(super) fn set_stand_in(&self, stand_in: Option<WorkerTakeover>) {
        let before = std::mem::replace(&mut *lock(&self.stand_in), stand_in);
        // With it may go an engine.
        drop(before);
    }

    /// Its timers are left to the driver, until it turns them again.
    pub(super) fn leave_timers(&self) {
        if let Some(stand_in) = &*lock(&self.stand_in) {
            stand_in.take_over();
        }
    }

    /// By who finds it blocked: its timers are left to the driver, and who waits for its sockets is woken.
    pub(super) fn stand_in(&self, batch: &mut Batch) {
        self.leave_timers();
        // The owner will see for itself what is wrong with its reactor.
        let _ = self.reactor.reap_for_owner(batch);
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        self.seat.count_step(self.count);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::future::poll_fn;
    use std::sync::mpsc;
    use std::task::Poll;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::runtime::context;
    use crate::sync::AtomicBool;
    use crate::{Runtime, spawn_local};

    struct Dropped(Arc<AtomicBool>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    /// Nobody else could run it, nor even drop it.
    #[test]
    fn d41_a_local_task_that_somebody_is_just_waking_ends_before_its_thread_leaves() {
        let runtime = Runtime::builder().workers(0).build().unwrap();
        let is_dropped = Arc::new(AtomicBool::new(false));
        let held = Dropped(Arc::clone(&is_dropped));
        let (sends, wakers) = mpsc::channel();
        let others = runtime.block_on(async {
            drop(spawn_local(async move {
                let _held = held;
                poll_fn(|context| {
                    sends.send(context.waker().clone()).unwrap();
                    Poll::<()>::Pending
                })
                .await;
            }));
            let waker = poll_fn(|context| {
                context.waker().wake_by_ref();
                wakers.try_recv().map_or(Poll::Pending, Poll::Ready)
            })
            .await;
            // Who wakes it gets no further than the inbox for a while.
            let seat = context::seat().map(|worker| Arc::clone(worker.seat())).unwrap();
            let (locks, is_locked) = mpsc::channel();
            let holds = thread::spawn(move || {
                let _inbox = lock(&seat.inbox);
                locks.send(()).unwrap();
                thread::sleep(Duration::from_millis(200));
            });
            is_locked.recv().unwrap();
            let wakes = thread::spawn(move || waker.wake());
            thread::sleep(Duration::from_millis(50));
            [holds, wakes]
        });
        assert!(is_dropped.load(Ordering::SeqCst), "it is left behind");
        others.into_iter().for_each(|other| other.join().unwrap());
    }
}
