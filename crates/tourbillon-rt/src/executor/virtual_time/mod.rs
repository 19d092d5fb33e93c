//! Virtual time: when the clock of a runtime moves by itself (B6).
//!
//! The clock of a runtime that was built [paused](super::Builder::start_paused) moves to the next deadline when the runtime is idle:
//!
//! 1. a thread is inside `block_on` (between two calls of it time stands still, also with workers);
//! 2. every thread that runs tasks, or is inside `block_on`, is parked: its [`WorkerShared`](super::worker_shared::WorkerShared) is
//!    `Parked`;
//! 3. no task is queued, in the global queue, a worker's queue or an inbox;
//! 4. no work is counted as [busy](VirtualTime::begin_work): blocking tasks, a thread that is just coming or leaving, the monitor while
//!    it serves a blocked worker, a thread inside `block_on` that does not act as a worker;
//! 5. no socket is ready for an operation that waits for it (`poll(2)` has reported on all of them), and none that was closed is still
//!    open in the kernel because another thread's ring polls it.
//!
//! The thread that parks last moves the clock, and then fires the timers and runs the tasks that they wake. (A thread inside `block_on`
//! that runs no tasks unparks a worker, which looks again and moves the clock: so with one worker a run can be repeated.) All threads
//! share one shard of timers: they fire in the order of their deadlines, equal ones in the order in which they were armed.
//!
//! # Time does not move while a wake-up is on its way
//!
//! Precisely: after the call that wakes a task (or the future of a `block_on`) has returned, the clock does not move until the task has
//! been polled. The thread that moves the clock (the *mover*) and the thread that wakes (the *waker*) do this:
//!
//! ```text
//!     mover, under a lock                            waker
//!     M1  moving = true                              W1  queue the task, or change a worker from Parked to Notified
//!     M2  fence                                      W2  fence
//!     M3  look at 1 to 5; if idle, move the clock    W3  if moving: wait for the end of that move
//!     M4  moving = false; notify threads in W3
//! ```
//!
//! - *One of the two sees the other.* The fences are sequentially consistent. If W2 comes before M2, the mover's look M3 sees the effect
//!   of W1, and the clock does not move. If M2 comes before W2, the waker finds `moving` true, or the mover has finished; the waker
//!   returns after M4, so that move was before its return.
//! - *The effect of W1 stays visible until the task is polled.* The thread that takes a queued task is not `Parked`, and a worker that
//!   was `Notified` becomes `Awake`. Only the worker's own thread makes it `Parked` again, after it has looked at its queues and, in
//!   `block_on`, at its future. So a later mover finds a queue that is not empty or a worker that is not `Parked`.
//! - *No thread wakes up during a move.* A thread that the kernel wakes, for an event of its reactor, makes its worker `Awake` and then
//!   does W2 and W3 before anything else. So if M3 finds all workers `Parked`, none of them has taken an event, run a task or read a
//!   socket since M2 that M3 does not see: the parts of M3 are one look at one moment.
//! - *Sockets.* A send over the loopback device, or to a socket of the same machine, has put its bytes into the receiver's buffer when it
//!   returns (except on kernels that leave this to a thread of their own, such as real-time kernels). The bytes stay there until a task
//!   reads them, so `poll(2)` in M3 finds the socket ready, whether or not the kernel has told the receiver's reactor yet, and whether or
//!   not that thread is on its way. The same holds for the end of a stream, with one exception: io_uring keeps a socket open while it
//!   polls it. A thread that closes a socket of another thread's reactor counts that before its own worker can become `Parked`, and the
//!   owner ends the poll before its worker does.
//! - *After a move* the mover's worker is `Awake` before the lock is free. It stays so until the mover has woken all timers that it has
//!   fired and run all queued tasks. So tasks that one deadline has woken run before time moves again.
//!
//! # Time moves if the runtime is idle
//!
//! The last of the five conditions to become true makes a thread look: a thread looks after it has made its worker `Parked`; the end of
//! counted work unparks all workers; and so does a timer that a thread outside the runtime arms before all others, and a `pause`. A
//! thread waits for the mover's lock and does not only try it: of two threads that park at the same time the second finds both workers
//! `Parked`.

#[cfg(feature = "test-util")]
mod mover;
#[cfg(not(feature = "test-util"))]
mod no_mover;

use std::sync::{Arc, PoisonError};

#[cfg(feature = "test-util")]
pub(crate) use self::mover::{Mover, finish_removals, next_turn, prepare, turn, turn_if_running};
#[cfg(not(feature = "test-util"))]
pub(crate) use self::no_mover::{Mover, finish_removals, next_turn, prepare, turn, turn_if_running};
use crate::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, Ordering, fence, lock};

/// The virtual time of a runtime, if it has any. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct VirtualTime(Option<Arc<Moves>>);

#[derive(Default)]
struct Moves {
    /// A thread is about to move the clock. Written under `mover`; made false under `ended`.
    moving: AtomicBool,
    /// Held by the mover.
    mover: Mutex<()>,
    /// Not the mover's lock itself: threads that park one after the other could keep a waker from that for long.
    ended: Mutex<EndedMoves>,
    has_ended: Condvar,
    /// The amount of counted work.
    work: AtomicUsize,
    /// The number of outermost calls of `block_on`.
    calls: AtomicUsize,
}

/// Moves that have ended, and attempts to move.
#[derive(Default)]
struct EndedMoves {
    count: usize,
    /// Threads that wait for the end of the current move.
    waiting: usize,
}

/// The result of [`VirtualTime::end_work`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum WorkEnd {
    /// No counted work is left: the caller unparks all workers.
    Last,
    NotLast,
}

/// Counts a thread as inside `block_on` until it is dropped.
pub(crate) struct BlockOnCall(Option<Arc<Moves>>);

impl VirtualTime {
    /// Returns the virtual time of a runtime whose clock can be paused. (The default is that of a runtime whose clock cannot.)
    #[cfg(any(feature = "test-util", loom))]
    pub(crate) fn pausable() -> VirtualTime {
        VirtualTime(Some(Arc::default()))
    }

    /// Returns whether the clock can be paused.
    pub(crate) fn is_pausable(&self) -> bool {
        self.0.is_some()
    }

    /// Called by a thread that has queued a task, unparked a worker, or left `Parked`: waits for the end of a move that may not have seen
    /// that.
    pub(crate) fn wait_for_move(&self) {
        let Some(moves) = &self.0 else { return };
        fence(Ordering::SeqCst);
        if moves.moving.load(Ordering::SeqCst) {
            moves.wait();
        }
    }

    /// Called by a thread that is about to park: runs `attempt`, which looks whether the runtime is idle and moves the clock, and returns
    /// its result: whether the thread has something to do.
    #[must_use]
    pub(crate) fn try_move(&self, attempt: impl FnOnce() -> bool) -> bool {
        let Some(moves) = &self.0 else { return false };
        let _mover = lock(&moves.mover);
        moves.moving.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let has_work = attempt();
        moves.end();
        has_work
    }

    /// Counts work that holds time still, until [`end_work`](VirtualTime::end_work).
    pub(crate) fn begin_work(&self) {
        let Some(moves) = &self.0 else { return };
        moves.work.fetch_add(1, Ordering::SeqCst);
        self.wait_for_move();
    }

    pub(crate) fn end_work(&self) -> WorkEnd {
        let is_last = self.0.as_ref().is_some_and(|moves| moves.work.fetch_sub(1, Ordering::SeqCst) == 1);
        if is_last { WorkEnd::Last } else { WorkEnd::NotLast }
    }

    /// Counts an outermost call of `block_on`.
    pub(crate) fn enter_block_on(&self) -> BlockOnCall {
        let moves = self.0.clone();
        moves.as_ref().inspect(|moves| _ = moves.calls.fetch_add(1, Ordering::SeqCst));
        BlockOnCall(moves)
    }

    /// Called by the mover: returns whether a thread is inside `block_on`, and no work is counted.
    pub(crate) fn may_move(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|moves| moves.calls.load(Ordering::SeqCst) > 0 && moves.work.load(Ordering::SeqCst) == 0)
    }
}

impl Moves {
    /// Waits for the end of the current move, if there is one.
    #[cold]
    fn wait(&self) {
        let mut ended = lock(&self.ended);
        let before = ended.count;
        ended.waiting += 1;
        while ended.count == before && self.moving.load(Ordering::SeqCst) {
            ended = self.has_ended.wait(ended).unwrap_or_else(PoisonError::into_inner);
        }
        ended.waiting -= 1;
    }

    /// Called by the mover.
    fn end(&self) {
        let mut ended = lock(&self.ended);
        self.moving.store(false, Ordering::SeqCst);
        ended.count += 1;
        if ended.waiting > 0 {
            self.has_ended.notify_all();
        }
    }
}

impl Drop for BlockOnCall {
    fn drop(&mut self) {
        self.0.as_ref().inspect(|moves| _ = moves.calls.fetch_sub(1, Ordering::SeqCst));
    }
}
