//! What a worker waits on: the readiness of sockets, a deadline, and a call from another thread.
//!
//! ```text
//!     net            tries the system call itself, with the caller's own buffer
//!      |  it would block
//!      v
//!     Source         a socket and its Readiness: which directions are worth a try, and who waits for them
//!      |  registered once, with the reactor of the worker that first had to wait
//!      v
//!     Reactor        a table of readinesses by token; wakes who waits, outside its locks
//!      |
//!      v
//!     Selector       the back end:  OwnRing (io_uring, of a worker) | Uring | Epoll
//! ```
//!
//! # Why readiness, also with io_uring
//!
//! A buffer that is lent to the kernel has to outlive the operation, also when its future is dropped or times out. Here none is
//! lent: what waits in the kernel is a poll (`IORING_OP_POLL_ADD`, multishot and edge-triggered, or epoll the same way), and
//! the bytes are moved by the task, in a system call that does not wait, when there is something to move. So a buffer is
//! borrowed for the length of a call, a read that is dropped or timed out has taken nothing from the socket, and ten thousand
//! idle connections hold no buffers.
//!
//! It costs nothing. Server of a loopback echo, one thread, 100 connections, 64-byte messages, prototypes without futures, 2-core
//! virtual machine, Linux 6.18; CPU time of the server's thread a request, three runs:
//!
//! | design | ns a request |
//! |---|---|
//! | epoll, edge-triggered, `recv` + `send` | 2199, 2205, 2232 |
//! | io_uring, multishot poll, `recv` + `send` (**built**, for guests) | 2164, 2186, 2198 |
//! | the same, `DEFER_TASKRUN` (**built**, for workers) | 2150, 2164, 2194 |
//! | io_uring, a poll for each `recv` | 2318, 2289, 2319 |
//! | io_uring, `RECV` and `SEND` into owned buffers | 2235, 2257, 2295 |
//! | the same, `DEFER_TASKRUN` | 2588, 2268, 2302 |
//! | io_uring, `RECV` into owned buffers, plain `send` | 2323, 2310, 2334 |
//!
//! Nearly all of it is the network stack. With tasks and timers `DEFER_TASKRUN` is worth some 5%: see [`OwnRing`].
//!
//! # What a back end must provide
//!
//! 1. *Edges.* After [`add`](Selector::add), an [`Event`] for what the socket is ready for already, and one for each time that it
//!    becomes ready again. More events than edges do no harm; fewer lose a wake-up.
//! 2. *An end that is told.* If it cannot go on watching a socket, it says so in the last event, and the socket is registered
//!    anew when somebody waits for it.
//! 3. *A wait to the nanosecond*, until an event, the given time, or a [`wake`](Selector::wake). It may return early.
//! 4. *Wake from any thread*, one system call, never lost: one that comes before the wait ends that wait.
//! 5. *Removal from any thread.* Events of a token that was removed may come late; the table drops them.
//! 6. `add`, `wait` and `reap` are called by the owner's thread alone, [`reap_for_owner`](Selector::reap_for_owner) by who stands in
//!    for it, possibly while it goes to sleep: what the owner is to hear must not be taken from it. A thread becomes the owner by
//!    [`adopt`](Selector::adopt); before another does, it has let go of all sockets.

mod epoll;
mod own_ring;
mod readiness;
mod source;
mod uring;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::thread::{self, ThreadId};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tourbillon::Time;

pub(crate) use self::epoll::Epoll;
pub(crate) use self::own_ring::OwnRing;
pub(crate) use self::readiness::{Direction, Ready, Waiter};
pub(crate) use self::source::{Progress, Source};
pub(crate) use self::uring::Uring;

use self::readiness::Readiness;
use crate::sync::lock;

/// The back end of one worker. The module says what it must provide.
pub(crate) trait Selector: Send + Sync {
    /// From now on the calling thread is the owner.
    fn adopt(&self) {}
    /// Watches a socket, in both directions.
    fn add(&self, token: Token, fd: BorrowedFd<'_>) -> io::Result<()>;
    /// Watches it no longer.
    fn remove(&self, token: Token, fd: BorrowedFd<'_>);
    /// Waits until something happens or the monotonic clock shows `until`, and adds what happened.
    fn wait(&self, until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()>;
    /// Adds what has happened, and does not wait.
    fn reap(&self, events: &mut Vec<Event>) -> io::Result<()>;
    /// The same by another thread. A call or a deadline that comes with it is passed on to the owner.
    fn reap_for_owner(&self, events: &mut Vec<Event>) -> io::Result<StoodIn>;
    /// Ends the current wait, or the next.
    fn wake(&self);
}

/// What there was beside events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Heard {
    Nothing,
    /// Somebody has called, or the deadline has come.
    Call,
}

/// What came of standing in for an owner that is blocked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum StoodIn {
    /// What was to be had has been added.
    Told,
    /// Only the owner can be told. The sockets are to be asked.
    AskSockets,
    /// No socket is watched any more.
    LetGo,
}

/// What a socket is known by in one reactor: an index of its table and, above it, a generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Token(pub(crate) u64);

/// What has happened to a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) token: Token,
    pub(crate) ready: Ready,
    /// It is watched no longer.
    pub(crate) ended: bool,
}

/// A back end, and the sockets that are registered with it.
pub(crate) struct Reactor {
    selector: Box<dyn Selector>,
    table: Mutex<Table>,
    owner: Mutex<Option<ThreadId>>,
    /// Somebody waits here, or will soon.
    is_attended: AtomicBool,
    /// Threads that do not wait here have left wakers here.
    has_strangers: AtomicBool,
}

#[derive(Default)]
struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

struct Slot {
    generation: u32,
    readiness: Option<Arc<Readiness>>,
    /// Of the socket, while there is a readiness.
    fd: RawFd,
}

const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// So many sockets are asked at a time.
const ASKED: usize = 256;

/// Room for one wait's events and wakers, kept by who waits.
#[derive(Default)]
pub(crate) struct Batch {
    events: Vec<Event>,
    /// Whom they are about.
    concerned: Vec<(Arc<Readiness>, Event)>,
    wakers: Vec<Waker>,
}

impl Reactor {
    pub(crate) fn new(selector: Box<dyn Selector>) -> Reactor {
        let (is_attended, has_strangers) = (AtomicBool::new(true), AtomicBool::new(false));
        Reactor { selector, table: Mutex::default(), owner: Mutex::new(None), is_attended, has_strangers }
    }

    /// From now on the calling thread is the one that waits here. What another has registered it lets go of.
    pub(crate) fn adopt(&self) {
        self.is_attended.store(true, Ordering::SeqCst);
        let this = thread::current().id();
        let before = lock(&self.owner).replace(this);
        if before != Some(this) {
            self.evict();
            self.selector.adopt();
        }
    }

    /// The owner leaves, and somebody else may come.
    pub(crate) fn leave(&self) {
        self.is_attended.store(false, Ordering::SeqCst);
    }

    /// Nobody is here. Sockets stay, for who comes next; but threads of other runtimes do not wait for that: they try again.
    pub(crate) fn send_strangers_away(&self) {
        if self.has_strangers.swap(false, Ordering::SeqCst) {
            self.evict();
        }
    }

    /// Whether who leaves a waker here will be woken. Either it sees that nobody is here, or who leaves sees that it came.
    fn serves(&self, is_own: bool) -> bool {
        if !is_own && !self.has_strangers.load(Ordering::SeqCst) {
            self.has_strangers.store(true, Ordering::SeqCst);
        }
        is_own || self.is_attended.load(Ordering::SeqCst)
    }

    /// Whether the calling thread is the owner, or was the last.
    pub(crate) fn is_adopted(&self) -> bool {
        *lock(&self.owner) == Some(thread::current().id())
    }

    /// Waits, and wakes who waits for what happened.
    pub(crate) fn wait(&self, until: Option<Time>, batch: &mut Batch) -> io::Result<()> {
        let waited = self.selector.wait(until, &mut batch.events);
        self.dispatch(batch);
        waited
    }

    /// The same for what has happened already.
    pub(crate) fn reap(&self, batch: &mut Batch) -> io::Result<()> {
        let reaped = self.selector.reap(&mut batch.events);
        self.dispatch(batch);
        reaped
    }

    /// The same for the owner, who does not come.
    pub(crate) fn reap_for_owner(&self, batch: &mut Batch) -> io::Result<()> {
        let stood_in = self.selector.reap_for_owner(&mut batch.events)?;
        match stood_in {
            StoodIn::Told => {}
            StoodIn::AskSockets => self.ask_sockets(&mut batch.events),
            StoodIn::LetGo => self.evict(),
        }
        self.dispatch(batch);
        Ok(())
    }

    /// Ends the current wait, or the next.
    pub(crate) fn wake(&self) {
        self.selector.wake();
    }

    /// Lets go of every socket, because nobody will wait here for a while. Who waits for one of them tries again, and registers it
    /// where it is then.
    pub(crate) fn evict(&self) {
        let readinesses: Vec<_> = {
            let mut table = lock(&self.table);
            let indices = 0..table.slots.len();
            indices.filter_map(|index| table.free_slot(index)).collect()
        };
        let mut wakers = Vec::new();
        for readiness in readinesses {
            readiness.evicted(&mut wakers);
        }
        wakers.into_iter().for_each(wake);
    }

    /// What those sockets are ready for that somebody waits for. More events than edges do no harm.
    fn ask_sockets(&self, events: &mut Vec<Event>) {
        let mut next = 0;
        while let Some(after) = lock(&self.table).ask(next, events) {
            next = after;
        }
    }

    fn add(&self, readiness: &Arc<Readiness>, fd: BorrowedFd<'_>) -> io::Result<Token> {
        let token = lock(&self.table).insert(Arc::clone(readiness), fd.as_raw_fd())?;
        self.selector.add(token, fd).inspect_err(|_| _ = lock(&self.table).remove(token))?;
        Ok(token)
    }

    fn remove(&self, token: Token, fd: BorrowedFd<'_>) {
        let _removed = lock(&self.table).remove(token);
        self.selector.remove(token, fd);
    }

    fn dispatch(&self, batch: &mut Batch) {
        let Batch { events, concerned, wakers } = batch;
        if events.is_empty() {
            return;
        }
        // One lock for all of them; nobody is told under it.
        let mut table = lock(&self.table);
        for event in events.drain(..) {
            let readiness = if event.ended { table.remove(event.token) } else { table.get(event.token).cloned() };
            concerned.extend(readiness.map(|readiness| (readiness, event)));
        }
        drop(table);
        for (readiness, event) in concerned.drain(..) {
            readiness.became(event.ready, wakers);
            if event.ended {
                readiness.evicted(wakers);
            }
        }
        wakers.drain(..).for_each(wake);
    }
}

impl Table {
    fn insert(&mut self, readiness: Arc<Readiness>, fd: RawFd) -> io::Result<Token> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.slots.len()).map_err(io::Error::other)?;
                self.slots.push(Slot { generation: 0, readiness: None, fd });
                index
            }
        };
        let slot = &mut self.slots[index as usize];
        slot.readiness = Some(readiness);
        slot.fd = fd;
        Ok(slot.token(index))
    }

    /// Asks some sockets, from that index on. Where to go on.
    fn ask(&self, first: usize, events: &mut Vec<Event>) -> Option<usize> {
        let slots = self.slots.get(first..).filter(|slots| !slots.is_empty())?;
        let slots = &slots[..slots.len().min(ASKED)];
        let (tokens, mut asked): (Vec<_>, Vec<_>) = (first as u32..)
            .zip(slots)
            .filter(|(_, slot)| slot.readiness.as_ref().is_some_and(|readiness| readiness.is_awaited()))
            .map(|(index, slot)| (slot.token(index), slot.poll_fd()))
            .unzip();
        // It can fail for want of memory only; then they are asked the next time.
        if poll(&mut asked, Some(&NO_TIME)).is_ok() {
            let told = tokens.into_iter().zip(&asked).filter(|(_, asked)| !asked.revents().is_empty());
            let ready = |asked: &PollFd<'_>| Ready::from_poll(asked.revents().bits().into());
            events.extend(told.map(|(token, asked)| Event { token, ready: ready(asked), ended: false }));
        }
        Some(first + slots.len())
    }

    fn get(&self, token: Token) -> Option<&Arc<Readiness>> {
        let slot = self.slots.get(token.0 as u32 as usize)?;
        slot.readiness.as_ref().filter(|_| slot.generation == (token.0 >> 32) as u32)
    }

    fn remove(&mut self, token: Token) -> Option<Arc<Readiness>> {
        self.get(token)?;
        self.free_slot(token.0 as u32 as usize)
    }

    fn free_slot(&mut self, index: usize) -> Option<Arc<Readiness>> {
        let slot = &mut self.slots[index];
        let readiness = slot.readiness.take()?;
        // The highest generation is the back ends' own.
        slot.generation = (slot.generation + 1) % Token::RESERVED_GENERATION;
        self.free.push(index as u32);
        Some(readiness)
    }
}

impl Slot {
    fn token(&self, index: u32) -> Token {
        Token(u64::from(self.generation) << 32 | u64::from(index))
    }

    /// Of a slot with a readiness, and not to outlive the lock of the table.
    fn poll_fd(&self) -> PollFd<'_> {
        // SAFETY: a socket is closed after it has been removed from the table, which we have.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd) };
        PollFd::from_borrowed_fd(fd, PollFlags::IN | PollFlags::PRI | PollFlags::OUT | PollFlags::RDHUP)
    }
}

impl Token {
    const RESERVED_GENERATION: u32 = u32::MAX;

    /// A token that no socket has, for what a back end watches itself.
    pub(crate) const fn reserved(number: u32) -> Token {
        Token((Token::RESERVED_GENERATION as u64) << 32 | number as u64)
    }

    pub(crate) fn is_reserved(self) -> bool {
        (self.0 >> 32) as u32 == Token::RESERVED_GENERATION
    }
}

/// A waker is the user's: what it throws is not to take other wake-ups with it.
fn wake(waker: Waker) {
    crate::sync::contain(|| waker.wake());
}
