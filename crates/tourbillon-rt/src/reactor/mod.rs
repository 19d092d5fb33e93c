//! Reactors: which sockets are ready, and which tasks wait for them.
//!
//! ```text
//!     net            tries the system call itself, with the caller's own buffer
//!      |  it would block
//!      v
//!     IoSource       a socket and its Readiness: which directions are worth a try, and the wakers of the tasks that wait
//!      |  registered once, with the reactor of the thread that first had to wait
//!      v
//!     Reactor        slots of readinesses by token; wakes tasks, outside its locks
//!      |
//!      v
//!     Selector       the back end, in `sys`:  Uring (workers) | Epoll
//! ```
//!
//! # Why readiness, also with io_uring
//!
//! A buffer that is lent to the kernel has to outlive the operation, also when its future is dropped or times out. Here none is
//! lent: the kernel holds a poll (`IORING_OP_POLL_ADD`, multishot and edge-triggered, or epoll the same way), and the task moves
//! the bytes, in a system call that does not wait, when there are bytes to move. So a buffer is borrowed for the length of a
//! call, a read that is dropped or timed out has taken nothing from the socket, and ten thousand idle connections hold no buffers.
//! `docs/design-log.md` has the measurements: it costs no more than operations on owned buffers.

mod current;
pub(crate) mod readiness;
mod recheck;
mod slots;
mod source;
pub(crate) mod sys;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::task::Waker;

use rustix::event::PollFlags;
use tourbillon::Time;

pub use self::current::NoRuntime;
pub(crate) use self::current::set_current;
pub(crate) use self::readiness::{Direction, WaiterId};
pub(crate) use self::source::{IoProgress, IoSource};

use self::readiness::Readiness;
use self::recheck::RecheckList;
use self::slots::SocketSlots;
use self::sys::{Selector, SocketEvent, TakeoverOutcome, Token};
#[cfg(feature = "test-util")]
use crate::sync::AtomicUsize;
use crate::sync::{AtomicBool, Mutex, Ordering, ThreadId, catch_panic, current_thread, lock};

/// A back end and the sockets that are registered with it.
pub(crate) struct Reactor {
    selector: Box<dyn Selector>,
    reports_urgent_data: bool,
    slots: Mutex<SocketSlots>,
    recheck: Mutex<RecheckList>,
    owner: Mutex<Option<ThreadId>>,
    /// Wakers that a thread has taken from sockets and is about to wake. They are here and not on that thread's stack: if one of them
    /// blocks the thread, the monitor wakes the others (P11).
    pending_wakers: Mutex<VecDeque<Waker>>,
    /// A thread owns the reactor, and waits or will soon.
    is_attended: AtomicBool,
    /// Threads other than the owner have left wakers.
    has_foreign_waiters: AtomicBool,
    /// In a runtime with virtual time: the number of removals by other threads that the owner has not finished.
    #[cfg(feature = "test-util")]
    removals: Option<AtomicUsize>,
}

/// The number of sockets that one call polls, under the lock.
const POLLED: usize = 256;

/// Buffers for the events and wakers of one wait, which the waiting thread keeps.
#[derive(Default)]
pub(crate) struct EventBatch {
    events: Vec<SocketEvent>,
    /// Each event with its socket.
    affected: Vec<(Arc<Readiness>, SocketEvent)>,
    wakers: Vec<Waker>,
}

impl Reactor {
    pub(crate) fn new(selector: Box<dyn Selector>) -> Reactor {
        Reactor {
            reports_urgent_data: selector.reports_urgent_data(),
            selector,
            slots: Mutex::default(),
            recheck: Mutex::default(),
            owner: Mutex::new(None),
            pending_wakers: Mutex::default(),
            is_attended: AtomicBool::new(true),
            has_foreign_waiters: AtomicBool::new(false),
            #[cfg(feature = "test-util")]
            removals: None,
        }
    }

    /// Counts removals by other threads from now on.
    #[cfg(feature = "test-util")]
    pub(crate) fn count_removals(&mut self) {
        self.removals = Some(AtomicUsize::new(0));
    }

    /// Returns whether there are removals that the owner has to finish. With io_uring the kernel keeps a socket open while it is polled,
    /// so a socket that another thread has closed is not closed for its peer before that.
    #[cfg(feature = "test-util")]
    pub(crate) fn has_removals(&self) -> bool {
        self.removals.as_ref().is_some_and(|removals| removals.load(Ordering::SeqCst) > 0)
    }

    /// Called by the owner: finishes the removals, collects the events that have happened, and returns whether there were removals.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub(crate) fn finish_removals(&self, batch: &mut EventBatch) -> bool {
        let Some(removals) = &self.removals else { return false };
        let made = removals.load(Ordering::SeqCst);
        if made > 0 {
            let _ = self.reap(batch);
            removals.fetch_sub(made, Ordering::SeqCst);
        }
        made > 0
    }

    /// Makes the calling thread the owner. If another thread was, all sockets are evicted: a back end may bind them to its owner.
    pub(crate) fn adopt(&self) {
        self.is_attended.store(true, Ordering::SeqCst);
        let this = current_thread().id();
        let before = lock(&self.owner).replace(this);
        if before != Some(this) {
            self.evict();
            self.selector.adopt();
        }
    }

    /// Called by the owner when it leaves. Another thread may adopt the reactor.
    pub(crate) fn leave(&self) {
        self.is_attended.store(false, Ordering::SeqCst);
    }

    /// Evicts all sockets if threads other than the owner wait for one: the reactor has no owner now, and those threads register the
    /// sockets elsewhere. Otherwise the sockets stay for the next owner.
    pub(crate) fn evict_foreign_waiters(&self) {
        if self.has_foreign_waiters.swap(false, Ordering::SeqCst) {
            self.evict();
        }
    }

    /// Returns whether a thread that leaves a waker here will be woken. Either that thread sees that the owner has left, or the owner,
    /// when it leaves, sees the flag that this sets.
    #[must_use]
    pub(crate) fn admit_waiter(&self, is_own: bool) -> bool {
        if !is_own && !self.has_foreign_waiters.load(Ordering::SeqCst) {
            self.has_foreign_waiters.store(true, Ordering::SeqCst);
        }
        is_own || self.is_attended.load(Ordering::SeqCst)
    }

    /// Returns whether the calling thread is the owner, or was the last one.
    pub(crate) fn is_adopted(&self) -> bool {
        *lock(&self.owner) == Some(current_thread().id())
    }

    /// Waits for events. [`dispatch`](Reactor::dispatch) then wakes the tasks.
    pub(crate) fn wait(&self, until: Option<Time>, batch: &mut EventBatch) -> io::Result<()> {
        let recheck = self.poll_recheck_list(&mut batch.events);
        if batch.events.is_empty() {
            self.selector.wait([until, recheck].into_iter().flatten().min(), &mut batch.events)
        } else {
            self.selector.reap(&mut batch.events)
        }
    }

    /// Collects the events that have happened, without waiting.
    pub(crate) fn reap(&self, batch: &mut EventBatch) -> io::Result<()> {
        let _later = self.poll_recheck_list(&mut batch.events);
        self.selector.reap(&mut batch.events)
    }

    /// Called by the monitor: does the work of an owner that is blocked, and wakes the tasks.
    pub(crate) fn reap_for_owner(&self, batch: &mut EventBatch) -> io::Result<()> {
        let outcome = self.selector.reap_for_owner(&mut batch.events)?;
        match outcome {
            TakeoverOutcome::Collected => {}
            TakeoverOutcome::PollSockets => self.poll_awaited(&mut batch.events),
            TakeoverOutcome::RingDropped => self.evict(),
        }
        self.dispatch(batch);
        // The owner may be blocked by one of its wakers: these are the ones that it has not come to.
        self.wake_pending();
        Ok(())
    }

    /// Collects the sockets that are ready for an operation that waits, takes nothing from the owner, and returns whether there are any.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub(crate) fn collect_ready(&self, batch: &mut EventBatch) -> bool {
        self.poll_awaited(&mut batch.events);
        // Not under the lock of the table: a socket that registers has locked itself before the slots.
        let get = |event: &SocketEvent| lock(&self.slots).get(event.token).cloned();
        batch.events.retain(|event| get(event).is_some_and(|readiness| readiness.is_awaited_for(event.ready)));
        !batch.events.is_empty()
    }

    /// Ends the current wait, or the next.
    pub(crate) fn wake(&self) {
        self.selector.wake();
    }

    /// Removes every socket, because no thread will wait here for a while. Tasks that wait for one are woken, try again, and register
    /// it where they run then.
    pub(crate) fn evict(&self) {
        let readinesses = lock(&self.slots).clear();
        let mut wakers = Vec::new();
        for readiness in readinesses {
            readiness.evicted(&mut wakers);
        }
        wakers.into_iter().for_each(wake);
    }

    fn reports_urgent_data(&self) -> bool {
        self.reports_urgent_data
    }

    /// Called by the owner: has a socket polled soon for data that no event has reported. See [`recheck`].
    fn recheck_later(&self, token: Token) {
        lock(&self.recheck).add(token);
    }

    /// Called by the owner: polls those sockets if it is time, and otherwise returns when that will be.
    fn poll_recheck_list(&self, events: &mut Vec<SocketEvent>) -> Option<Time> {
        let mut recheck = lock(&self.recheck);
        let polled = match recheck.take() {
            Ok(polled) => polled,
            Err(later) => return later,
        };
        for some in polled.chunks(POLLED) {
            let slots = lock(&self.slots);
            some.iter().filter_map(|token| slots.get(*token)).for_each(|readiness| readiness.clear_recheck());
            slots.poll_now(some, PollFlags::IN | PollFlags::PRI | PollFlags::RDHUP, events);
        }
        recheck.recycle(polled);
        None
    }

    /// Polls the sockets that tasks wait for. More events than edges do no harm.
    fn poll_awaited(&self, events: &mut Vec<SocketEvent>) {
        let awaited = lock(&self.slots).awaited();
        let all = PollFlags::IN | PollFlags::PRI | PollFlags::OUT | PollFlags::RDHUP;
        awaited.chunks(POLLED).for_each(|some| lock(&self.slots).poll_now(some, all, events));
    }

    pub(crate) fn add(&self, readiness: &Arc<Readiness>, fd: BorrowedFd<'_>) -> io::Result<Token> {
        let token = lock(&self.slots).insert(Arc::clone(readiness), fd.as_raw_fd())?;
        // After an error the back end may have begun to watch the socket.
        self.selector.add(token, fd).inspect_err(|_| self.remove(token, fd))?;
        Ok(token)
    }

    pub(crate) fn remove(&self, token: Token, fd: BorrowedFd<'_>) {
        let _removed = lock(&self.slots).remove(token);
        self.selector.remove(token, fd);
        #[cfg(feature = "test-util")]
        if let Some(removals) = self.removals.as_ref().filter(|_| !self.is_adopted()) {
            // After the removal, so that the owner finishes all that it finds counted; before the wake-up, so that it looks.
            removals.fetch_add(1, Ordering::SeqCst);
            self.selector.wake();
        }
    }

    /// Wakes the tasks that wait for the events.
    pub(crate) fn dispatch(&self, batch: &mut EventBatch) {
        let EventBatch { events, affected, wakers } = batch;
        if events.is_empty() {
            return;
        }
        // One lock for all events; no waker is called under it.
        let mut slots = lock(&self.slots);
        for event in events.drain(..) {
            let readiness = if event.ended { slots.remove(event.token) } else { slots.get(event.token).cloned() };
            affected.extend(readiness.map(|readiness| (readiness, event)));
        }
        drop(slots);
        for (readiness, event) in affected.drain(..) {
            readiness.became(event.ready, wakers);
            if event.ended {
                readiness.evicted(wakers);
            }
        }
        if wakers.len() > 1 {
            lock(&self.pending_wakers).extend(wakers.drain(..));
            self.wake_pending();
        } else {
            wakers.drain(..).for_each(wake);
        }
    }

    fn wake_pending(&self) {
        let next = || lock(&self.pending_wakers).pop_front();
        std::iter::from_fn(next).for_each(wake);
    }
}

/// Calls a waker, which is the user's code: a panic in it must not lose other wake-ups.
fn wake(waker: Waker) {
    catch_panic(|| waker.wake());
}
