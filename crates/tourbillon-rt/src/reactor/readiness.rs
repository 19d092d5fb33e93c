//! Which directions of a socket are worth a try, and which tasks wait for them.
//!
//! The word:
//!
//! ```text
//!     tick: 32 bits    ...    urgent   registered   write closed   read closed   write   read
//! ```
//!
//! Each event adds bits and raises the tick. A task that finds that its operation would block clears the bit of its direction, but
//! only if the tick is still the one that it saw before it tried: an event that came in between is not lost. A closed
//! direction stays worth a try as long as it does not block.
//!
//! A read of fewer bytes than there was room for has taken all that there was, so the next need not be tried. But a read that meets
//! urgent data ends before it, though there is more, and no event comes. If the back end reports urgent data, such a
//! read does not clear the bit; otherwise the reactor polls the socket soon ([`Reactor::recheck_later`]).
//!
//! # No wake-up is lost
//!
//! A task that waits reads the word under the lock and leaves its waker there. The reactor changes the word first and takes the
//! wakers under the lock afterwards. So either the task sees the event, or the reactor finds the waker.

use std::sync::Arc;
use std::task::Waker;

use super::current::is_current;
use super::sys::{ReadyFlags, Token};
use super::{Reactor, wake};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// The word as it was before an operation was tried.
#[derive(Clone, Copy)]
pub(crate) struct ReadinessSnapshot(u64);

/// Identifies an operation that waits, within one socket. Zero: it does not wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaiterId(u64);

/// The result of [`Readiness::wait`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum WaitOutcome {
    /// The waker is left with the socket and will be woken.
    Waits,
    /// The direction is worth a try, or the socket has to be registered first.
    TryAgain,
}

/// The result of the attempt before a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AttemptResult {
    /// The operation was not tried, because the word says that it would block.
    NotTried,
    /// The operation was tried and would block.
    WouldBlock,
}

#[derive(Default)]
pub(crate) struct Readiness {
    word: AtomicU64,
    /// Whether the lists of readers and of writers may have entries. Written under the lock. A task that has left a waker and
    /// finds this false has been woken, and need not take the lock.
    waits: [AtomicBool; 2],
    /// The socket is on its reactor's recheck list. Only the reactor's owner writes it.
    is_recheck_pending: AtomicBool,
    waiters: Mutex<WaiterLists>,
}

#[derive(Default)]
struct WaiterLists {
    registration: Option<Registration>,
    last_waiter: u64,
    readers: Vec<(WaiterId, Waker)>,
    writers: Vec<(WaiterId, Waker)>,
}

/// Where a socket is registered, or was until it was evicted.
pub(crate) struct Registration {
    pub(crate) reactor: Arc<Reactor>,
    pub(crate) token: Token,
}

const REGISTERED: u64 = 1 << 4;
const TICK: u64 = 1 << 32;

impl Direction {
    fn bit(self) -> u64 {
        match self {
            Direction::Read => ReadyFlags::READ.bits(),
            Direction::Write => ReadyFlags::WRITE.bits(),
        }
    }

    fn closed(self) -> u64 {
        match self {
            Direction::Read => ReadyFlags::READ_CLOSED.bits(),
            Direction::Write => ReadyFlags::WRITE_CLOSED.bits(),
        }
    }
}

impl ReadinessSnapshot {
    pub(crate) fn is_registered(self) -> bool {
        self.0 & REGISTERED != 0
    }

    /// Returns whether an operation may succeed. On a socket that is not registered it can only be tried.
    pub(crate) fn is_worth_a_try(self, direction: Direction) -> bool {
        !self.is_registered() || self.0 & (direction.bit() | direction.closed()) != 0
    }
}

impl WaiterId {
    /// The id of an operation that does not wait yet.
    pub(crate) const NONE: WaiterId = WaiterId(0);
    /// The id that all callers of `poll_read` and its like share: the last one to poll is woken.
    #[cfg(any(feature = "futures-io", feature = "hyper"))]
    pub(crate) const LAST_POLL: WaiterId = WaiterId(u64::MAX);
}

impl Readiness {
    pub(crate) fn snapshot(&self) -> ReadinessSnapshot {
        ReadinessSnapshot(self.word.load(Ordering::Acquire))
    }

    /// Notes that an operation since `snapshot` has moved all that there was: the next one would block.
    pub(crate) fn exhausted(&self, direction: Direction, snapshot: ReadinessSnapshot) {
        if snapshot.0 & ReadyFlags::URGENT.bits() == 0 {
            self.take_back(direction.bit(), snapshot);
        }
    }

    /// Notes that an operation since `snapshot` would have blocked. The direction may be closed: on a datagram socket it blocks even so.
    pub(crate) fn blocked(&self, direction: Direction, snapshot: ReadinessSnapshot) {
        self.take_back(direction.bit() | direction.closed(), snapshot);
    }

    fn take_back(&self, bits: u64, snapshot: ReadinessSnapshot) {
        let take_back = |word: u64| (word / TICK == snapshot.0 / TICK).then_some(word & !bits);
        // It fails if an event has come in between.
        let _ = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, take_back);
    }

    /// Leaves a waker until the direction is worth a try. An operation has one waker there at most.
    pub(crate) fn wait(
        &self,
        direction: Direction,
        result: AttemptResult,
        waiter: &mut WaiterId,
        waker: &Waker,
    ) -> WaitOutcome {
        // A waker is the user's code: it is cloned, and the one that it replaces is dropped, outside the lock.
        let mut new = Some(waker.clone());
        let mut old = None;
        let mut waiters = lock(&self.waiters);
        if self.snapshot().is_worth_a_try(direction) {
            drop(waiters);
            return WaitOutcome::TryAgain;
        }
        if let Some(registration) = &waiters.registration {
            let is_own = is_current(&registration.reactor);
            if !registration.reactor.admit_waiter(is_own) {
                // The reactor has no owner: the socket is registered with another.
                self.word.fetch_and(!REGISTERED, Ordering::AcqRel);
                drop(waiters);
                return WaitOutcome::TryAgain;
            }
            let is_unsure = direction == Direction::Read && result == AttemptResult::NotTried;
            if is_unsure
                && !registration.reactor.reports_urgent_data()
                && self.recheck_later(registration, is_own) == WaitOutcome::TryAgain
            {
                drop(waiters);
                return WaitOutcome::TryAgain;
            }
        }
        if *waiter == WaiterId::NONE {
            waiters.last_waiter += 1;
            *waiter = WaiterId(waiters.last_waiter);
        }
        let list = waiters.list(direction);
        match list.iter_mut().find(|(id, _)| id == waiter) {
            Some((_, there)) => old = new.take().map(|new| std::mem::replace(there, new)),
            None => list.extend(new.take().map(|new| (*waiter, new))),
        }
        self.waits[direction as usize].store(true, Ordering::Release);
        drop(waiters);
        drop((old, new));
        WaitOutcome::Waits
    }

    /// Has the reactor poll the socket, or the caller try again: there may be data behind urgent data, which no event has reported.
    fn recheck_later(&self, registration: &Registration, is_own: bool) -> WaitOutcome {
        if !is_own {
            self.word.fetch_or(ReadyFlags::READ.bits(), Ordering::AcqRel);
            return WaitOutcome::TryAgain;
        }
        if !self.is_recheck_pending.load(Ordering::Relaxed) {
            self.is_recheck_pending.store(true, Ordering::Relaxed);
            registration.reactor.recheck_later(registration.token);
        }
        WaitOutcome::Waits
    }

    /// Called by the reactor's owner, which is about to poll the socket.
    pub(crate) fn clear_recheck(&self) {
        self.is_recheck_pending.store(false, Ordering::Relaxed);
    }

    /// Removes the waker that was left.
    pub(crate) fn stop_waiting(&self, direction: Direction, waiter: WaiterId) {
        if !self.waits[direction as usize].load(Ordering::Acquire) {
            return;
        }
        let mut waiters = lock(&self.waiters);
        let list = waiters.list(direction);
        let found = list.iter().position(|(id, _)| *id == waiter).map(|index| list.swap_remove(index));
        drop(waiters);
        drop(found);
    }

    /// Returns whether a task waits.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waits.iter().any(|waits| waits.load(Ordering::Acquire))
    }

    /// Returns whether a task waits for what the socket is ready for.
    #[cfg(feature = "test-util")]
    pub(crate) fn is_awaited_for(&self, ready: ReadyFlags) -> bool {
        let waiters = lock(&self.waiters);
        let waits = |direction: Direction, list: &[(WaiterId, Waker)]| {
            ready.bits() & (direction.bit() | direction.closed()) != 0 && !list.is_empty()
        };
        waits(Direction::Read, &waiters.readers) || waits(Direction::Write, &waiters.writers)
    }

    /// Called by the reactor after an event. It wakes the wakers that this appends.
    pub(crate) fn became(&self, ready: ReadyFlags, wakers: &mut Vec<Waker>) {
        let update = |word: u64| Some(word.wrapping_add(TICK) | ready.bits());
        let _always = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
        let mut waiters = lock(&self.waiters);
        for direction in [Direction::Read, Direction::Write] {
            if ready.bits() & (direction.bit() | direction.closed()) != 0 {
                self.take_wakers(&mut waiters, direction, wakers);
            }
        }
    }

    /// Called by the reactor when it watches the socket no longer.
    pub(crate) fn evicted(&self, wakers: &mut Vec<Waker>) {
        let mut waiters = lock(&self.waiters);
        let update = |word: u64| Some(word.wrapping_add(TICK) & !REGISTERED);
        let _always = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
        for direction in [Direction::Read, Direction::Write] {
            self.take_wakers(&mut waiters, direction, wakers);
        }
    }

    fn take_wakers(&self, waiters: &mut WaiterLists, direction: Direction, wakers: &mut Vec<Waker>) {
        let list = waiters.list(direction);
        // Nearly always there is one waker or none.
        if list.len() > 1 {
            wakers.extend(list.drain(..).map(|(_, waker)| waker));
        } else if let Some((_, waker)) = list.pop() {
            wakers.push(waker);
        }
        self.waits[direction as usize].store(false, Ordering::Release);
    }

    /// Registers the socket, unless another thread has. `register` gets the former registration.
    pub(crate) fn register<E>(
        &self,
        register: impl FnOnce(Option<Registration>) -> Result<Registration, E>,
    ) -> Result<(), E> {
        let mut waiters = lock(&self.waiters);
        if self.snapshot().is_registered() {
            return Ok(());
        }
        let before = waiters.registration.take();
        self.is_recheck_pending.store(false, Ordering::Relaxed);
        // Before `register`: an event may come at once. The old flags are cleared; the event brings the current ones.
        let fresh = |word: u64| Some((word / TICK).wrapping_add(1).wrapping_mul(TICK) | REGISTERED);
        let _always = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, fresh);
        match register(before) {
            Ok(registration) => waiters.registration = Some(registration),
            Err(error) => {
                self.word.fetch_and(!REGISTERED, Ordering::AcqRel);
                // No reactor watches the socket for the other tasks that wait: they are woken to find out, too.
                let mut wakers = Vec::new();
                self.take_wakers(&mut waiters, Direction::Read, &mut wakers);
                self.take_wakers(&mut waiters, Direction::Write, &mut wakers);
                drop(waiters);
                wakers.into_iter().for_each(wake);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes the registration, when the socket is dropped.
    pub(crate) fn take_registration(&self) -> Option<Registration> {
        lock(&self.waiters).registration.take()
    }
}

impl WaiterLists {
    fn list(&mut self, direction: Direction) -> &mut Vec<(WaiterId, Waker)> {
        match direction {
            Direction::Read => &mut self.readers,
            Direction::Write => &mut self.writers,
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;
    use crate::reactor::sys::Epoll;

    #[derive(Default)]
    struct PendingWakes(AtomicUsize);

    impl Wake for PendingWakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A thread that finds no owner registers the socket elsewhere, and that may fail.
    #[test]
    fn d39_a_task_that_waits_for_a_socket_that_cannot_be_registered_again_is_woken() {
        let readiness = Readiness::default();
        let reactor = Arc::new(Reactor::new(Box::new(Epoll::new().unwrap())));
        let registration = |_| Ok::<_, ()>(Registration { reactor: Arc::clone(&reactor), token: Token(0) });
        readiness.register(registration).unwrap();
        let [waits, comes] = [(); 2].map(|()| Arc::<PendingWakes>::default());
        for direction in [Direction::Read, Direction::Write] {
            let waker = Waker::from(Arc::clone(&waits));
            assert_eq!(
                readiness.wait(direction, AttemptResult::WouldBlock, &mut { WaiterId::NONE }, &waker),
                WaitOutcome::Waits
            );
        }
        reactor.leave();
        let waker = Waker::from(Arc::clone(&comes));
        let wait = readiness.wait(Direction::Write, AttemptResult::WouldBlock, &mut { WaiterId::NONE }, &waker);
        assert_eq!((wait, readiness.snapshot().is_registered()), (WaitOutcome::TryAgain, false));
        assert_eq!(readiness.register(|_| Err("no more descriptors")), Err("no more descriptors"));
        assert_eq!(waits.0.load(Ordering::SeqCst), 2, "a task would wait for ever");
        assert!(!readiness.is_awaited() && !readiness.snapshot().is_registered());
    }
}
