//! Which directions of a socket are worth a try, and who waits for them.
//!
//! The word:
//!
//! ```text
//!     tick: 32 bits    ...    urgent   registered   write closed   read closed   write   read
//! ```
//!
//! Each event adds bits and raises the tick. Whoever finds that an operation would block takes the bit of its direction back, but
//! only if the tick is still the one that it saw before it tried: an event that came in between is not lost. A closed
//! direction stays worth a try as long as it does not block.
//!
//! A read of fewer bytes than there was room for has taken all that there was, so the next need not be tried. But one that comes upon
//! urgent data ends before it, though there is more, and no event will tell. Where the back end tells of urgent data, such
//! a read is not relied upon; where it does not, the reactor is to ask the socket soon ([`Reactor::doubt`]).
//!
//! # No wake-up is lost
//!
//! Who waits looks at the word under the lock and leaves its waker there; an event changes the word first and takes the
//! wakers under the lock afterwards. So either the waiter sees the event, or the event finds the waker.

use std::sync::Arc;
use std::task::Waker;

use rustix::event::PollFlags;

use super::{Reactor, Token, wake};
use crate::runtime::context;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// What a socket is ready for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Ready(u64);

/// What was seen of the word before an operation was tried.
#[derive(Clone, Copy)]
pub(crate) struct Seen(u64);

/// Who waits: a number that is its own in this socket. Zero: it does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiter(u64);

/// What came of the wish to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Wait {
    /// The waker will be woken.
    Waits,
    /// There is something to try, or the socket has to be registered first.
    TryAgain,
}

/// What who wants to wait has tried just now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// Nothing: it relies on what is known of the socket.
    Nothing,
    /// That the operation blocks.
    Blocks,
}

#[derive(Default)]
pub(crate) struct Readiness {
    word: AtomicU64,
    /// Whether the lists of readers and of writers may have somebody in them. Written under the lock; who has left a waker
    /// and finds this false has been woken, and need not look.
    waits: [AtomicBool; 2],
    /// Its reactor will ask whether there is something to read. Written by the reactor's owner alone.
    is_doubted: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    home: Option<Home>,
    last_waiter: u64,
    readers: Vec<(Waiter, Waker)>,
    writers: Vec<(Waiter, Waker)>,
}

/// Where a socket is registered; or was, until it was evicted.
pub(super) struct Home {
    pub(super) reactor: Arc<Reactor>,
    pub(super) token: Token,
}

const REGISTERED: u64 = 1 << 4;
const TICK: u64 = 1 << 32;

impl Ready {
    pub(crate) const READ: Ready = Ready(1);
    pub(crate) const WRITE: Ready = Ready(1 << 1);
    pub(crate) const READ_CLOSED: Ready = Ready(1 << 2);
    pub(crate) const WRITE_CLOSED: Ready = Ready(1 << 3);
    const URGENT: Ready = Ready(1 << 5);

    /// From what `poll` and epoll say alike.
    pub(crate) fn from_poll(bits: u32) -> Ready {
        // As wide as rustix has them: signed, where that goes by libc.
        let bits = PollFlags::from_bits_retain(bits as _);
        let has = |these: PollFlags, ready: Ready| if bits.intersects(these) { ready } else { Ready(0) };
        has(PollFlags::IN | PollFlags::ERR | PollFlags::HUP | PollFlags::RDHUP, Ready::READ)
            | has(PollFlags::OUT | PollFlags::ERR | PollFlags::HUP, Ready::WRITE)
            | has(PollFlags::HUP | PollFlags::RDHUP, Ready::READ_CLOSED)
            | has(PollFlags::HUP, Ready::WRITE_CLOSED)
            | has(PollFlags::PRI, Ready::URGENT)
    }
}

impl std::ops::BitOr for Ready {
    type Output = Ready;

    fn bitor(self, other: Ready) -> Ready {
        Ready(self.0 | other.0)
    }
}

impl Direction {
    fn bit(self) -> u64 {
        match self {
            Direction::Read => Ready::READ.0,
            Direction::Write => Ready::WRITE.0,
        }
    }

    fn closed(self) -> u64 {
        match self {
            Direction::Read => Ready::READ_CLOSED.0,
            Direction::Write => Ready::WRITE_CLOSED.0,
        }
    }
}

impl Seen {
    pub(crate) fn is_registered(self) -> bool {
        self.0 & REGISTERED != 0
    }

    /// Whether an operation may not block. One that is not registered can only be tried.
    pub(crate) fn is_worth_a_try(self, direction: Direction) -> bool {
        !self.is_registered() || self.0 & (direction.bit() | direction.closed()) != 0
    }
}

impl Waiter {
    /// Does not wait yet.
    pub(crate) const NONE: Waiter = Waiter(0);
    /// Whoever polled last, of those who have no operation: `poll_read` and its like.
    #[cfg(any(feature = "futures-io", feature = "hyper"))]
    pub(crate) const LAST_POLL: Waiter = Waiter(u64::MAX);
}

impl Readiness {
    pub(crate) fn see(&self) -> Seen {
        Seen(self.word.load(Ordering::Acquire))
    }

    /// An operation has moved all that there was, since `seen`: the next one would block.
    pub(crate) fn exhausted(&self, direction: Direction, seen: Seen) {
        if seen.0 & Ready::URGENT.0 == 0 {
            self.take_back(direction.bit(), seen);
        }
    }

    /// An operation would have blocked, since `seen`, though the direction may be closed: a datagram socket's does.
    pub(crate) fn blocked(&self, direction: Direction, seen: Seen) {
        self.take_back(direction.bit() | direction.closed(), seen);
    }

    fn take_back(&self, bits: u64, seen: Seen) {
        let take_back = |word: u64| (word / TICK == seen.0 / TICK).then_some(word & !bits);
        // Where it fails, something has happened in between.
        let _ = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, take_back);
    }

    /// Leaves a waker until the direction is worth a try. A waiter has one waker there at most. It may have found that the operation
    /// blocks, or take that for granted.
    pub(crate) fn wait(&self, direction: Direction, found: Found, waiter: &mut Waiter, waker: &Waker) -> Wait {
        // The user's code is called outside the lock: its clone, and its drop of the one that is replaced.
        let mut new = Some(waker.clone());
        let mut old = None;
        let mut inner = lock(&self.inner);
        if self.see().is_worth_a_try(direction) {
            drop(inner);
            return Wait::TryAgain;
        }
        if let Some(home) = &inner.home {
            let is_own = context::is_own(&home.reactor);
            if !home.reactor.serves(is_own) {
                // It is to be registered where somebody is.
                self.word.fetch_and(!REGISTERED, Ordering::AcqRel);
                drop(inner);
                return Wait::TryAgain;
            }
            let is_doubtful = direction == Direction::Read && found == Found::Nothing;
            if is_doubtful && !home.reactor.hears_of_urgent_data() && self.doubt(home, is_own) == Wait::TryAgain {
                drop(inner);
                return Wait::TryAgain;
            }
        }
        if *waiter == Waiter::NONE {
            inner.last_waiter += 1;
            *waiter = Waiter(inner.last_waiter);
        }
        let list = inner.list(direction);
        match list.iter_mut().find(|(who, _)| who == waiter) {
            Some((_, there)) => old = new.take().map(|new| std::mem::replace(there, new)),
            None => list.extend(new.take().map(|new| (*waiter, new))),
        }
        self.waits[direction as usize].store(true, Ordering::Release);
        drop(inner);
        drop((old, new));
        Wait::Waits
    }

    /// There may be something to read behind urgent data, which nobody has told us of: the reactor is to ask, or who waits.
    fn doubt(&self, home: &Home, is_own: bool) -> Wait {
        if !is_own {
            self.word.fetch_or(Ready::READ.0, Ordering::AcqRel);
            return Wait::TryAgain;
        }
        if !self.is_doubted.load(Ordering::Relaxed) {
            self.is_doubted.store(true, Ordering::Relaxed);
            home.reactor.doubt(home.token);
        }
        Wait::Waits
    }

    /// By the owner of its reactor, who is about to ask.
    pub(super) fn is_asked(&self) {
        self.is_doubted.store(false, Ordering::Relaxed);
    }

    /// Takes back the waker that was left.
    pub(crate) fn stop_waiting(&self, direction: Direction, waiter: Waiter) {
        if !self.waits[direction as usize].load(Ordering::Acquire) {
            return;
        }
        let mut inner = lock(&self.inner);
        let list = inner.list(direction);
        let found = list.iter().position(|(who, _)| *who == waiter).map(|index| list.swap_remove(index));
        drop(inner);
        drop(found);
    }

    /// Whether anybody waits.
    pub(super) fn is_awaited(&self) -> bool {
        self.waits.iter().any(|waits| waits.load(Ordering::Acquire))
    }

    /// Whether anybody waits for what the socket is ready for.
    #[cfg(feature = "test-util")]
    pub(super) fn is_awaited_for(&self, ready: Ready) -> bool {
        let inner = lock(&self.inner);
        let waits = |direction: Direction, list: &[(Waiter, Waker)]| {
            ready.0 & (direction.bit() | direction.closed()) != 0 && !list.is_empty()
        };
        waits(Direction::Read, &inner.readers) || waits(Direction::Write, &inner.writers)
    }

    /// By the reactor: something has happened. The wakers are for it to wake.
    pub(crate) fn became(&self, ready: Ready, wakers: &mut Vec<Waker>) {
        let update = |word: u64| Some(word.wrapping_add(TICK) | ready.0);
        let _always = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
        let mut inner = lock(&self.inner);
        for direction in [Direction::Read, Direction::Write] {
            if ready.0 & (direction.bit() | direction.closed()) != 0 {
                self.take_wakers(&mut inner, direction, wakers);
            }
        }
    }

    /// By the reactor: nobody watches this socket any more.
    pub(crate) fn evicted(&self, wakers: &mut Vec<Waker>) {
        let mut inner = lock(&self.inner);
        let update = |word: u64| Some(word.wrapping_add(TICK) & !REGISTERED);
        let _always = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
        for direction in [Direction::Read, Direction::Write] {
            self.take_wakers(&mut inner, direction, wakers);
        }
    }

    fn take_wakers(&self, inner: &mut Inner, direction: Direction, wakers: &mut Vec<Waker>) {
        let list = inner.list(direction);
        // Nearly always there is nobody or one.
        if list.len() > 1 {
            wakers.extend(list.drain(..).map(|(_, waker)| waker));
        } else if let Some((_, waker)) = list.pop() {
            wakers.push(waker);
        }
        self.waits[direction as usize].store(false, Ordering::Release);
    }

    /// Registers it, unless somebody else has: `register` is given where it was before.
    pub(super) fn register<E>(&self, register: impl FnOnce(Option<Home>) -> Result<Home, E>) -> Result<(), E> {
        let mut inner = lock(&self.inner);
        if self.see().is_registered() {
            return Ok(());
        }
        let before = inner.home.take();
        self.is_doubted.store(false, Ordering::Relaxed);
        // Before it is: an event may come at once. What the socket was ready for is forgotten; the event will say.
        let fresh = |word: u64| Some((word / TICK).wrapping_add(1).wrapping_mul(TICK) | REGISTERED);
        let _always = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, fresh);
        match register(before) {
            Ok(home) => inner.home = Some(home),
            Err(error) => {
                self.word.fetch_and(!REGISTERED, Ordering::AcqRel);
                // Nobody watches it any more for others who wait: they are to find out, too.
                let mut wakers = Vec::new();
                self.take_wakers(&mut inner, Direction::Read, &mut wakers);
                self.take_wakers(&mut inner, Direction::Write, &mut wakers);
                drop(inner);
                wakers.into_iter().for_each(wake);
                return Err(error);
            }
        }
        Ok(())
    }

    /// For the end of the socket: where it is or was registered.
    pub(super) fn take_home(&self) -> Option<Home> {
        lock(&self.inner).home.take()
    }
}

impl Inner {
    fn list(&mut self, direction: Direction) -> &mut Vec<(Waiter, Waker)> {
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
    use crate::reactor::Epoll;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The first to come where nobody is registers a socket elsewhere; and there may be no room for it there.
    #[test]
    fn d39_who_waits_for_a_socket_that_cannot_be_registered_anew_is_woken() {
        let readiness = Readiness::default();
        let reactor = Arc::new(Reactor::new(Box::new(Epoll::new().unwrap())));
        let home = |_| Ok::<_, ()>(Home { reactor: Arc::clone(&reactor), token: Token(0) });
        readiness.register(home).unwrap();
        let [waits, comes] = [(); 2].map(|()| Arc::<Woken>::default());
        for direction in [Direction::Read, Direction::Write] {
            let waker = Waker::from(Arc::clone(&waits));
            assert_eq!(readiness.wait(direction, Found::Blocks, &mut { Waiter::NONE }, &waker), Wait::Waits);
        }
        reactor.leave();
        let waker = Waker::from(Arc::clone(&comes));
        let wait = readiness.wait(Direction::Write, Found::Blocks, &mut { Waiter::NONE }, &waker);
        assert_eq!((wait, readiness.see().is_registered()), (Wait::TryAgain, false));
        assert_eq!(readiness.register(|_| Err("no more descriptors")), Err("no more descriptors"));
        assert_eq!(waits.0.load(Ordering::SeqCst), 2, "it would wait for ever");
        assert!(!readiness.is_awaited() && !readiness.see().is_registered());
    }
}
