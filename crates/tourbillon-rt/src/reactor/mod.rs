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

mod bell;
mod doubts;
mod epoll;
mod left;
#[cfg(all(test, loom))]
pub(crate) mod models;
mod own_ring;
mod readiness;
mod source;
mod table;
mod uring;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::task::Waker;

use rustix::event::PollFlags;
use tourbillon::Time;

pub(crate) use self::epoll::Epoll;
pub(crate) use self::own_ring::OwnRing;
pub(crate) use self::readiness::{Direction, Ready, Waiter};
pub(crate) use self::source::{Progress, Source};
pub(crate) use self::uring::Uring;

use self::doubts::Doubts;
use self::readiness::Readiness;
use self::table::Table;
#[cfg(feature = "test-util")]
use crate::sync::AtomicUsize;
use crate::sync::{AtomicBool, Mutex, Ordering, ThreadId, current_thread, lock};

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
    /// Whether an event says [urgent](Ready) if and only if there is urgent data.
    fn hears_of_urgent_data(&self) -> bool;
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
    hears_of_urgent_data: bool,
    table: Mutex<Table>,
    doubts: Mutex<Doubts>,
    owner: Mutex<Option<ThreadId>>,
    /// Who is to be woken, and has not been yet. They are here, not with who wakes them, for one of the wakers may block that thread:
    /// who stands in for it then sees to the others (P11).
    due: Mutex<VecDeque<Waker>>,
    /// Somebody waits here, or will soon.
    is_attended: AtomicBool,
    /// Threads that do not wait here have left wakers here.
    has_strangers: AtomicBool,
    /// In a runtime with virtual time: how many removals by other threads the owner has not brought to an end.
    #[cfg(feature = "test-util")]
    removals: Option<AtomicUsize>,
}

/// So many sockets are asked at a time, under the lock.
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
        Reactor {
            hears_of_urgent_data: selector.hears_of_urgent_data(),
            selector,
            table: Mutex::default(),
            doubts: Mutex::default(),
            owner: Mutex::new(None),
            due: Mutex::default(),
            is_attended: AtomicBool::new(true),
            has_strangers: AtomicBool::new(false),
            #[cfg(feature = "test-util")]
            removals: None,
        }
    }

    /// Counts removals by other threads from now on.
    #[cfg(feature = "test-util")]
    pub(crate) fn count_removals(&mut self) {
        self.removals = Some(AtomicUsize::new(0));
    }

    /// Whether there are removals that the owner has to bring to an end. With io_uring the kernel keeps a socket open while it is polled,
    /// so a socket that another thread has closed is not closed for its peer before that.
    #[cfg(feature = "test-util")]
    pub(crate) fn has_removals(&self) -> bool {
        self.removals.as_ref().is_some_and(|removals| removals.load(Ordering::SeqCst) > 0)
    }

    /// By the owner: brings them to an end, and collects what has happened meanwhile. Whether there were any.
    #[cfg(feature = "test-util")]
    pub(crate) fn finish_removals(&self, batch: &mut Batch) -> bool {
        let Some(removals) = &self.removals else { return false };
        let made = removals.load(Ordering::SeqCst);
        if made > 0 {
            let _ = self.reap(batch);
            removals.fetch_sub(made, Ordering::SeqCst);
        }
        made > 0
    }

    /// From now on the calling thread is the one that waits here. What another has registered it lets go of.
    pub(crate) fn adopt(&self) {
        self.is_attended.store(true, Ordering::SeqCst);
        let this = current_thread().id();
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
        *lock(&self.owner) == Some(current_thread().id())
    }

    /// Waits until something has happened. Who is to hear of it is told by [`dispatch`](Reactor::dispatch).
    pub(crate) fn wait(&self, until: Option<Time>, batch: &mut Batch) -> io::Result<()> {
        let doubted = self.ask_doubted(&mut batch.events);
        if batch.events.is_empty() {
            self.selector.wait([until, doubted].into_iter().flatten().min(), &mut batch.events)
        } else {
            self.selector.reap(&mut batch.events)
        }
    }

    /// The same for what has happened already.
    pub(crate) fn reap(&self, batch: &mut Batch) -> io::Result<()> {
        let _later = self.ask_doubted(&mut batch.events);
        self.selector.reap(&mut batch.events)
    }

    /// The same for the owner, who does not come.
    pub(crate) fn reap_for_owner(&self, batch: &mut Batch) -> io::Result<()> {
        let stood_in = self.selector.reap_for_owner(&mut batch.events)?;
        match stood_in {
            StoodIn::Told => {}
            StoodIn::AskSockets => self.ask_awaited(&mut batch.events),
            StoodIn::LetGo => self.evict(),
        }
        self.dispatch(batch);
        // Those whom the owner was to wake.
        self.wake_due();
        Ok(())
    }

    /// Collects the sockets that are ready for what somebody waits for, and takes nothing from the owner. Whether there are any.
    #[cfg(feature = "test-util")]
    pub(crate) fn has_ready(&self, batch: &mut Batch) -> bool {
        self.ask_awaited(&mut batch.events);
        // Not under the lock of the table: a socket that registers has locked itself before the table.
        let get = |event: &Event| lock(&self.table).get(event.token).cloned();
        batch.events.retain(|event| get(event).is_some_and(|readiness| readiness.is_awaited_for(event.ready)));
        !batch.events.is_empty()
    }

    /// Ends the current wait, or the next.
    pub(crate) fn wake(&self) {
        self.selector.wake();
    }

    /// Lets go of every socket, because nobody will wait here for a while. Who waits for one of them tries again, and registers it
    /// where it is then.
    pub(crate) fn evict(&self) {
        let readinesses = lock(&self.table).clear();
        let mut wakers = Vec::new();
        for readiness in readinesses {
            readiness.evicted(&mut wakers);
        }
        wakers.into_iter().for_each(wake);
    }

    fn hears_of_urgent_data(&self) -> bool {
        self.hears_of_urgent_data
    }

    /// By the owner: there may be something to read from a socket, though no event has told. See [`doubts`].
    fn doubt(&self, token: Token) {
        lock(&self.doubts).add(token);
    }

    /// By the owner: asks those sockets, if it is time. When that will be if not.
    fn ask_doubted(&self, events: &mut Vec<Event>) -> Option<Time> {
        let mut doubts = lock(&self.doubts);
        let asked = match doubts.take() {
            Ok(asked) => asked,
            Err(later) => return later,
        };
        for some in asked.chunks(ASKED) {
            let table = lock(&self.table);
            some.iter().filter_map(|token| table.get(*token)).for_each(|readiness| readiness.is_asked());
            table.ask(some, PollFlags::IN | PollFlags::PRI | PollFlags::RDHUP, events);
        }
        doubts.give_back(asked);
        None
    }

    /// What those sockets are ready for that somebody waits for. More events than edges do no harm.
    fn ask_awaited(&self, events: &mut Vec<Event>) {
        let awaited = lock(&self.table).awaited();
        let all = PollFlags::IN | PollFlags::PRI | PollFlags::OUT | PollFlags::RDHUP;
        awaited.chunks(ASKED).for_each(|some| lock(&self.table).ask(some, all, events));
    }

    fn add(&self, readiness: &Arc<Readiness>, fd: BorrowedFd<'_>) -> io::Result<Token> {
        let token = lock(&self.table).insert(Arc::clone(readiness), fd.as_raw_fd())?;
        // What the back end has begun it is to end.
        self.selector.add(token, fd).inspect_err(|_| self.remove(token, fd))?;
        Ok(token)
    }

    fn remove(&self, token: Token, fd: BorrowedFd<'_>) {
        let _removed = lock(&self.table).remove(token);
        self.selector.remove(token, fd);
        #[cfg(feature = "test-util")]
        if let Some(removals) = self.removals.as_ref().filter(|_| !self.is_adopted()) {
            // After the removal, so that the owner ends all that it finds counted; and before the call, so that it looks.
            removals.fetch_add(1, Ordering::SeqCst);
            self.selector.wake();
        }
    }

    /// Wakes who waits for what has happened.
    pub(crate) fn dispatch(&self, batch: &mut Batch) {
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
        if wakers.len() > 1 {
            lock(&self.due).extend(wakers.drain(..));
            self.wake_due();
        } else {
            wakers.drain(..).for_each(wake);
        }
    }

    fn wake_due(&self) {
        let next = || lock(&self.due).pop_front();
        std::iter::from_fn(next).for_each(wake);
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
