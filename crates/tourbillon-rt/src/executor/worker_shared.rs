//! The part of a worker's state that other threads use: how to unpark it, which tasks they can steal, whether it makes progress.

use std::collections::VecDeque;
use std::sync::Arc;

use async_task::Runnable;
use tourbillon::WorkerTakeover;

use super::registry::Registry;
use super::virtual_time::VirtualTime;
use crate::reactor::{EventBatch, Reactor};
use crate::sync::{AtomicU8, AtomicU64, AtomicUsize, Mutex, Ordering, Stealer, lock};

pub(crate) struct WorkerShared {
    pub(crate) reactor: Arc<Reactor>,
    pub(crate) stealer: Stealer<Runnable>,
    /// Local tasks that have been woken: they run on this thread and no other.
    inbox: Mutex<VecDeque<Runnable>>,
    inbox_len: AtomicUsize,
    /// All local tasks that have not ended.
    pub(crate) locals: Arc<Registry>,
    park_state: AtomicParkState,
    /// Raised when a poll of a task begins and when it ends: odd during a poll.
    poll_count: AtomicU64,
    /// The count at the monitor's last look.
    poll_count_seen: AtomicU64,
    /// Gives the worker's timers to the driver while the worker is blocked.
    takeover: Mutex<Option<WorkerTakeover>>,
    /// The runtime's virtual time.
    pub(crate) virtual_time: VirtualTime,
}

/// Marks a poll of a task, until it is dropped.
pub(crate) struct PollGuard<'a> {
    worker: &'a WorkerShared,
    count: u64,
}

/// The result of [`WorkerShared::try_park`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum ParkAttempt {
    Parked,
    /// Another thread has unparked the worker in between.
    Notified,
}

/// Whether the worker is parked, as other threads see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum ParkState {
    /// The worker runs, and looks at its queues before it waits.
    Awake,
    /// The worker waits on its reactor, or is about to: `unpark` has to wake the reactor.
    Parked,
    /// Another thread has unparked the worker, and the worker has not noticed yet.
    Notified,
}

/// A [`ParkState`] that threads share. All operations are sequentially consistent.
struct AtomicParkState(AtomicU8);

impl WorkerShared {
    pub(crate) fn new(reactor: Arc<Reactor>, stealer: Stealer<Runnable>, virtual_time: VirtualTime) -> WorkerShared {
        WorkerShared {
            reactor,
            stealer,
            inbox: Mutex::default(),
            inbox_len: AtomicUsize::new(0),
            locals: Arc::default(),
            park_state: AtomicParkState::new(ParkState::Awake),
            poll_count: AtomicU64::new(0),
            poll_count_seen: AtomicU64::new(0),
            takeover: Mutex::new(None),
            virtual_time,
        }
    }

    /// Called by any thread: makes the worker look at its queues before it parks, or wakes it up. Makes a system call only if it is
    /// parked.
    pub(crate) fn unpark(&self) {
        if self.park_state.swap(ParkState::Notified) == ParkState::Parked {
            self.reactor.wake();
        }
    }

    /// Called by the worker: from here on `unpark` wakes its reactor.
    pub(crate) fn try_park(&self) -> ParkAttempt {
        match self.park_state.compare_exchange(ParkState::Awake, ParkState::Parked) {
            Ok(()) => ParkAttempt::Parked,
            Err(_) => {
                self.set_awake();
                ParkAttempt::Notified
            }
        }
    }

    /// Called by the worker when a nested loop has ended. The nested loop has consumed every `unpark`, also those for the loop outside of
    /// it (D66): the outer loop has to look again before it parks.
    pub(crate) fn nested_loop_has_ended(&self) {
        self.unpark();
    }

    pub(crate) fn set_awake(&self) {
        // Not a store: the swap sees the last of several calls of `unpark`, and what their threads did before them. (On x86 the two are
        // the same instruction.)
        let _before = self.park_state.swap(ParkState::Awake);
    }

    pub(crate) fn is_parked(&self) -> bool {
        self.park_state.load() == ParkState::Parked
    }

    /// Called by any thread: queues a local task.
    pub(crate) fn push_local(&self, runnable: Runnable) {
        let mut inbox = lock(&self.inbox);
        inbox.push_back(runnable);
        self.inbox_len.store(inbox.len(), Ordering::SeqCst);
        drop(inbox);
        self.unpark();
        self.virtual_time.wait_for_move();
    }

    /// Called by the worker: takes the next local task.
    pub(crate) fn pop_local(&self) -> Option<Runnable> {
        if !self.has_local_task() {
            return None;
        }
        let mut inbox = lock(&self.inbox);
        let runnable = inbox.pop_front();
        self.inbox_len.store(inbox.len(), Ordering::SeqCst);
        runnable
    }

    pub(crate) fn has_local_task(&self) -> bool {
        self.inbox_len.load(Ordering::SeqCst) > 0
    }

    /// Called by the thread that moves virtual time: returns whether the worker is parked, and no task waits for it.
    #[cfg(any(feature = "test-util", all(test, loom)))]
    pub(crate) fn is_idle(&self) -> bool {
        #[cfg(feature = "test-util")]
        if self.reactor.has_removals() {
            return false;
        }
        self.is_parked() && !self.has_local_task() && self.stealer.is_empty()
    }

    /// Called by the worker when a poll of a task begins, possibly inside of another poll that blocks on that task.
    pub(crate) fn begin_poll(&self) -> PollGuard<'_> {
        let count = if self.poll_count().is_multiple_of(2) { 1 } else { 2 };
        self.advance_poll_count(count);
        PollGuard { worker: self, count }
    }

    fn advance_poll_count(&self, count: u64) {
        self.poll_count.store(self.poll_count().wrapping_add(count), Ordering::Relaxed);
    }

    /// Returns a number that changes as long as the worker makes progress.
    pub(crate) fn poll_count(&self) -> u64 {
        self.poll_count.load(Ordering::Relaxed)
    }

    /// Called by the monitor: returns whether the worker is awake and still in the poll that it was in at the last call. (A worker that
    /// blocks in a nested call may park meanwhile: then that call serves its timers and sockets.)
    #[must_use]
    pub(crate) fn check_stuck(&self) -> bool {
        let poll_count = self.poll_count();
        self.poll_count_seen.swap(poll_count, Ordering::Relaxed) == poll_count
            && poll_count % 2 == 1
            && !self.is_parked()
    }

    /// Called by the worker: sets how its timers get to the driver while it is blocked. `None` when it leaves.
    pub(crate) fn set_takeover(&self, takeover: Option<WorkerTakeover>) {
        let before = std::mem::replace(&mut *lock(&self.takeover), takeover);
        // It may be the last reference to an engine, and is dropped outside the lock.
        drop(before);
    }

    /// Leaves the worker's timers to the driver, until the worker turns them again.
    pub(crate) fn leave_timers_to_driver(&self) {
        if let Some(takeover) = &*lock(&self.takeover) {
            takeover.take_over();
        }
    }

    /// Called by a thread that finds the worker blocked: leaves its timers to the driver, and wakes the tasks that wait for its sockets.
    pub(crate) fn take_over(&self, batch: &mut EventBatch) {
        self.leave_timers_to_driver();
        // If the reactor fails, the worker gets the same error.
        let _ = self.reactor.reap_for_owner(batch);
    }
}

impl ParkState {
    fn from_byte(byte: u8) -> ParkState {
        match byte {
            0 => ParkState::Awake,
            1 => ParkState::Parked,
            _ => ParkState::Notified,
        }
    }
}

impl AtomicParkState {
    fn new(state: ParkState) -> AtomicParkState {
        AtomicParkState(AtomicU8::new(state as u8))
    }

    fn load(&self) -> ParkState {
        ParkState::from_byte(self.0.load(Ordering::SeqCst))
    }

    /// Sets the state and returns the one before.
    #[must_use]
    fn swap(&self, state: ParkState) -> ParkState {
        ParkState::from_byte(self.0.swap(state as u8, Ordering::SeqCst))
    }

    /// Changes the state from `from` to `to`, or returns the state that it is in instead.
    fn compare_exchange(&self, from: ParkState, to: ParkState) -> Result<(), ParkState> {
        let result = self.0.compare_exchange(from as u8, to as u8, Ordering::SeqCst, Ordering::SeqCst);
        result.map(drop).map_err(ParkState::from_byte)
    }
}

impl Drop for PollGuard<'_> {
    fn drop(&mut self) {
        self.worker.advance_poll_count(self.count);
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
    use crate::executor::{Runtime, spawn_local};
    use crate::sync::AtomicBool;

    struct Dropped(Arc<AtomicBool>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    /// No other thread could run the task, nor even drop it.
    #[test]
    fn d41_a_local_task_that_another_thread_is_just_waking_ends_before_its_thread_leaves() {
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
            // The thread that wakes the task gets no further than the inbox for a while.
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
