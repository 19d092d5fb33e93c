//! What other threads know of one that runs tasks: how to wake it, what can be stolen from it, whether it gets on.

use std::collections::VecDeque;
use std::sync::Arc;

use async_task::Runnable;
use tourbillon::WorkerTakeover;

use super::registry::Registry;
use super::virtual_time::VirtualTime;
use crate::reactor::{Batch, Reactor};
use crate::sync::{AtomicU8, AtomicU64, AtomicUsize, Mutex, Ordering, Stealer, lock};

pub(crate) struct WorkerShared {
    pub(crate) reactor: Arc<Reactor>,
    pub(crate) stealer: Stealer<Runnable>,
    /// Tasks that run here and nowhere else.
    inbox: Mutex<VecDeque<Runnable>>,
    inbox_len: AtomicUsize,
    /// Those tasks, while they have not ended.
    pub(crate) locals: Arc<Registry>,
    sleep: AtomicU8,
    /// Counted up when a task begins and when it ends: odd while one runs.
    poll_count: AtomicU64,
    /// What the monitor has seen of them.
    poll_count_seen: AtomicU64,
    /// How its timers are fired while it is blocked.
    takeover: Mutex<Option<WorkerTakeover>>,
    /// Of its runtime.
    pub(crate) virtual_time: VirtualTime,
}

/// A task runs, until it is dropped.
pub(crate) struct PollGuard<'a> {
    worker_shared: &'a WorkerShared,
    count: u64,
}

/// What came of wanting to sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum ParkAttempt {
    Parked,
    /// Somebody has called in between.
    Notified,
}

const AWAKE: u8 = 0;
const PARKED: u8 = 1;
/// Somebody has called, and it has not heard yet.
const NOTIFIED: u8 = 2;

impl WorkerShared {
    pub(crate) fn new(reactor: Arc<Reactor>, stealer: Stealer<Runnable>, virtual_time: VirtualTime) -> WorkerShared {
        WorkerShared {
            reactor,
            stealer,
            inbox: Mutex::default(),
            inbox_len: AtomicUsize::new(0),
            locals: Arc::default(),
            sleep: AtomicU8::new(AWAKE),
            poll_count: AtomicU64::new(0),
            poll_count_seen: AtomicU64::new(0),
            takeover: Mutex::new(None),
            virtual_time,
        }
    }

    /// By anybody: what there is to do here is looked at before it sleeps, or it wakes up. A system call only if it sleeps.
    pub(crate) fn unpark(&self) {
        if self.sleep.swap(NOTIFIED, Ordering::SeqCst) == PARKED {
            self.reactor.wake();
        }
    }

    /// By the owner: from here on a call rings.
    pub(crate) fn try_park(&self) -> ParkAttempt {
        match self.sleep.compare_exchange(AWAKE, PARKED, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => ParkAttempt::Parked,
            Err(_) => {
                self.set_awake();
                ParkAttempt::Notified
            }
        }
    }

    /// By the owner: a loop that it ran inside of another one has ended. The nested loop has heard every call of the worker_shared, also those for
    /// the loop outside of it (D66): that one is to look again before it sleeps.
    pub(crate) fn nested_loop_has_ended(&self) {
        self.unpark();
    }

    pub(crate) fn set_awake(&self) {
        // Not a store: of several calls that this takes back it sees the last, and what was done before each of them. (On x86 the two
        // are the same instruction.)
        self.sleep.swap(AWAKE, Ordering::SeqCst);
    }

    pub(crate) fn is_parked(&self) -> bool {
        self.sleep.load(Ordering::SeqCst) == PARKED
    }

    /// By anybody: a task that runs here.
    pub(crate) fn send(&self, runnable: Runnable) {
        let mut inbox = lock(&self.inbox);
        inbox.push_back(runnable);
        self.inbox_len.store(inbox.len(), Ordering::SeqCst);
        drop(inbox);
        self.unpark();
        self.virtual_time.wait_for_move();
    }

    /// By the owner.
    pub(crate) fn receive(&self) -> Option<Runnable> {
        if !self.has_mail() {
            return None;
        }
        let mut inbox = lock(&self.inbox);
        let runnable = inbox.pop_front();
        self.inbox_len.store(inbox.len(), Ordering::SeqCst);
        runnable
    }

    pub(crate) fn has_mail(&self) -> bool {
        self.inbox_len.load(Ordering::SeqCst) > 0
    }

    /// By the thread that moves virtual time: whether the owner is parked, and no task waits for it.
    #[cfg(any(feature = "test-util", all(test, loom)))]
    pub(crate) fn is_idle(&self) -> bool {
        #[cfg(feature = "test-util")]
        if self.reactor.has_removals() {
            return false;
        }
        self.is_parked() && !self.has_mail() && self.stealer.is_empty()
    }

    /// By the owner: a task begins, possibly inside of another that blocks on it.
    pub(crate) fn begin_poll(&self) -> PollGuard<'_> {
        let count = if self.poll_count().is_multiple_of(2) { 1 } else { 2 };
        self.advance_poll_count(count);
        PollGuard { worker_shared: self, count }
    }

    fn advance_poll_count(&self, count: u64) {
        self.poll_count.store(self.poll_count().wrapping_add(count), Ordering::Relaxed);
    }

    /// They change as long as it gets on.
    pub(crate) fn poll_count(&self) -> u64 {
        self.poll_count.load(Ordering::Relaxed)
    }

    /// By the monitor: whether it is in the same task as it was the last time. (One that blocks on another may sleep meanwhile: then it
    /// is looked after.)
    pub(crate) fn check_stuck(&self) -> bool {
        let poll_count = self.poll_count();
        self.poll_count_seen.swap(poll_count, Ordering::Relaxed) == poll_count
            && poll_count % 2 == 1
            && !self.is_parked()
    }

    /// By the owner: who fires its timers while it is blocked. `None` when it leaves.
    pub(crate) fn set_takeover(&self, takeover: Option<WorkerTakeover>) {
        let before = std::mem::replace(&mut *lock(&self.takeover), takeover);
        // With it may go an engine.
        drop(before);
    }

    /// Its timers are left to the driver, until it turns them again.
    pub(crate) fn leave_timers_to_driver(&self) {
        if let Some(takeover) = &*lock(&self.takeover) {
            takeover.take_over();
        }
    }

    /// By who finds it blocked: its timers are left to the driver, and who waits for its sockets is woken.
    pub(crate) fn take_over(&self, batch: &mut Batch) {
        self.leave_timers_to_driver();
        // The owner will see for itself what is wrong with its reactor.
        let _ = self.reactor.reap_for_owner(batch);
    }
}

impl Drop for PollGuard<'_> {
    fn drop(&mut self) {
        self.worker_shared.advance_poll_count(self.count);
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
    use crate::executor::context;
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
            let worker_shared = context::worker().map(|worker| Arc::clone(worker.worker_shared())).unwrap();
            let (locks, is_locked) = mpsc::channel();
            let holds = thread::spawn(move || {
                let _inbox = lock(&worker_shared.inbox);
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
