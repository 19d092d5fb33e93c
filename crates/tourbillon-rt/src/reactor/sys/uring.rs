//! The io_uring back end of a worker: a ring that only its own thread enters.
//!
//! Each socket is watched by one multishot poll, and the wait takes the deadline. Since only the owner enters the ring, the kernel
//! can prepare completions when the owner asks for them, all at once (`SINGLE_ISSUER`, `DEFER_TASKRUN`; Linux 6.1), and not at the
//! end of every system call. Older kernels get a ring without these flags: see [`RingSetup`]. Threads that are not workers use
//! [`Epoll`](super::Epoll).
//!
//! # Removals by other threads
//!
//! Another thread leaves a removal in a list and signals the eventfd: see [`removals`](super::removals). While a socket is polled
//! the kernel keeps it open, even after its descriptor is closed. So if the owner is blocked, and the monitor finds the same
//! removals pending at two looks in a row, the monitor drops the ring. That ends all polls, and every socket is registered again, by
//! the owner or on the thread where its task runs meanwhile. The owner builds a new ring when it is no longer blocked.
//!
//! # While the owner is blocked
//!
//! Its events are in the kernel, and no other thread can take them. But any thread can poll the sockets themselves: see
//! `Reactor::poll_awaited`. That takes nothing from the owner, which gets the same events again.
//!
//! # No thread is in the ring when it is dropped
//!
//! 1. The owner holds the ring's lock whenever it uses the ring, also while it waits.
//! 2. The monitor only tries the lock. If it is taken, the owner is using the ring and so is not blocked.
//!
//! # When the completion queue is full
//!
//! The kernel keeps the completions that do not fit, and ends their polls. The last completion of a poll says so; the reactor
//! evicts the socket, and the next task that waits for it registers it again.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::TryLockError;
use std::time::Duration;

use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};
use rustix::event::PollFlags;
use rustix::io::Errno;
use tourbillon::Time;

use super::eventfd::EventFd;
use super::removals::{PendingRemovals, RemovalRoute, RemovalsOverdue};
use super::{ReadyFlags, Selector, SocketEvent, TakeoverOutcome, Token, WakeSeen};
use crate::clock;
use crate::sync::{Mutex, lock};

pub(crate) struct Uring {
    setup: RingSetup,
    /// The owner's. `None`: the monitor has dropped it, or the system refused one.
    ring: Mutex<Option<Ring>>,
    removals: PendingRemovals,
    /// A new poll of it sees at once that it was signalled before.
    eventfd: EventFd,
}

struct Ring {
    ring: IoUring,
    /// The eventfd has to be watched again.
    eventfd_ended: bool,
}

/// When the kernel prepares the completions of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RingSetup {
    /// When the owner enters the ring (Linux 6.1).
    DeferTaskrun,
    /// When the owner is in the kernel anyway (Linux 5.19).
    CoopTaskrun,
    /// At any time: the kernel interrupts the owner.
    Interrupting,
}

const EVENTFD: Token = Token::reserved(1);

/// The token of a cancellation, whose completion is ignored.
const CANCEL: Token = Token::reserved(0);

/// The number of entries that the kernel takes at a time.
const SUBMISSIONS: u32 = 64;
const COMPLETIONS: u32 = 4096;

/// The number of completions that the kernel prepares each time that it is entered, unless it prepares all that there are.
const PREPARED: usize = 20;

/// The number of times that one call enters the kernel at most. The rest is left to the next call.
const ENTERS: u32 = 16;

/// The events that a socket is watched for. Not urgent data: io_uring sets that flag on every event that comes with data.
const SOCKET: PollFlags = PollFlags::IN.union(PollFlags::OUT).union(PollFlags::RDHUP);

impl Uring {
    /// Returns a ring of a kind that has been tried and works.
    ///
    /// # Errors
    /// The kernel's error, or `Unsupported` if its rings cannot do all that is needed.
    pub(crate) fn new() -> io::Result<Uring> {
        let mut result = Uring::with_setup(RingSetup::DeferTaskrun);
        for older in [RingSetup::CoopTaskrun, RingSetup::Interrupting] {
            match result {
                // The kernel does not know one of the flags.
                Err(error) if is_errno(&error, Errno::INVAL) => result = Uring::with_setup(older),
                _ => break,
            }
        }
        result
    }

    fn with_setup(setup: RingSetup) -> io::Result<Uring> {
        Uring::disabled(setup)?.try_out()?;
        Uring::disabled(setup)
    }

    fn disabled(setup: RingSetup) -> io::Result<Uring> {
        let ring = Mutex::new(Some(Ring::disabled(setup)?));
        Ok(Uring { setup, ring, removals: PendingRemovals::default(), eventfd: EventFd::new()? })
    }

    /// Signals the eventfd and looks for the completion: whether multishot polls work cannot be queried.
    fn try_out(&self) -> io::Result<()> {
        self.adopt();
        self.wake();
        let (seen, has_ended) = self.with_ring(|ring| {
            ring.watch_eventfd(&self.eventfd)?;
            ring.wait(Some(clock::now() + tourbillon::Span::from_secs(1)))?;
            Ok((ring.take(&mut Vec::new()), ring.eventfd_ended))
        })?;
        match (seen, has_ended) {
            (WakeSeen::Yes, false) => Ok(()),
            (WakeSeen::Yes, true) => Err(unsupported("this kernel's io_uring has no multishot poll (Linux 5.13)")),
            (WakeSeen::No, _) => Err(unsupported("io_uring does not complete a poll")),
        }
    }

    /// Called by the owner: runs `f` with the ring, and builds a new one if there is none.
    fn with_ring<R>(&self, f: impl FnOnce(&mut Ring) -> io::Result<R>) -> io::Result<R> {
        let mut ring = lock(&self.ring);
        match &mut *ring {
            Some(ring) => f(ring),
            none => {
                let new = Ring::disabled(self.setup)?;
                new.enable()?;
                f(none.insert(new))
            }
        }
    }

    /// Called by the owner: carries out the removals that other threads have left.
    fn finish_removals(&self, ring: &mut Ring) -> io::Result<()> {
        self.removals.finish(|token| ring.push(&cancel(token)))
    }
}

impl Selector for Uring {
    fn reports_urgent_data(&self) -> bool {
        false
    }

    fn adopt(&self) {
        let before = self.removals.adopt();
        let mut ring = lock(&self.ring);
        // A ring is bound to the thread that enables it. If that was another, or it fails, the first use builds a new ring.
        let is_ours = before.is_none() && ring.as_ref().is_some_and(|ring| ring.enable().is_ok());
        if !is_ours {
            *ring = None;
        }
    }

    fn add(&self, token: Token, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.with_ring(|ring| {
            ring.push(&watch(token, fd, SOCKET))?;
            ring.submit()
        })
    }

    fn remove(&self, token: Token, _fd: BorrowedFd<'_>) {
        if self.removals.remove(token) == RemovalRoute::Queued {
            return self.wake();
        }
        // If the monitor has dropped the ring, the poll has ended with it.
        if let Some(ring) = &mut *lock(&self.ring) {
            // An entry that the kernel does not take now stays in the queue until the next wait.
            let _ = ring.push(&cancel(token)).and_then(|()| ring.submit()).and_then(|()| ring.catch_up());
        }
    }

    fn wait(&self, until: Option<Time>, events: &mut Vec<SocketEvent>) -> io::Result<()> {
        self.with_ring(|ring| {
            let prepared = ring.watch_eventfd(&self.eventfd).and_then(|()| self.finish_removals(ring));
            let waited = prepared.and_then(|()| ring.wait(until));
            let is_behind = ring.ring.completion().len() >= PREPARED;
            let caught_up = if is_behind { ring.catch_up() } else { Ok(()) };
            // The completions are taken even after an error: they may be its cause.
            let _seen_by_owner = ring.take(events);
            waited.and(caught_up)
        })
    }

    fn reap(&self, events: &mut Vec<SocketEvent>) -> io::Result<()> {
        self.with_ring(|ring| {
            let removed = self.finish_removals(ring);
            let is_submitted = ring.ring.submission().is_empty();
            let submitted = if is_submitted { Ok(()) } else { ring.submit() };
            let caught_up = ring.catch_up();
            let _seen_by_owner = ring.take(events);
            removed.and(submitted).and(caught_up)
        })
    }

    fn reap_for_owner(&self, _events: &mut Vec<SocketEvent>) -> io::Result<TakeoverOutcome> {
        let mut ring = match self.ring.try_lock() {
            Ok(ring) => ring,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(TakeoverOutcome::Collected),
        };
        match self.removals.check_overdue() {
            RemovalsOverdue::No => Ok(TakeoverOutcome::PollSockets),
            RemovalsOverdue::Yes => {
                *ring = None;
                Ok(TakeoverOutcome::RingDropped)
            }
        }
    }

    fn wake(&self) {
        self.eventfd.signal();
    }
}

impl Ring {
    /// Returns a ring that will belong to the thread that enables it.
    fn disabled(setup: RingSetup) -> io::Result<Ring> {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_cqsize(COMPLETIONS).setup_r_disabled();
        match setup {
            RingSetup::DeferTaskrun => {
                builder.setup_submit_all().setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
            }
            RingSetup::CoopTaskrun => _ = builder.setup_coop_taskrun().setup_taskrun_flag(),
            RingSetup::Interrupting => {}
        }
        let ring = builder.build(SUBMISSIONS)?;
        require(&ring)?;
        Ok(Ring { ring, eventfd_ended: true })
    }

    fn enable(&self) -> io::Result<()> {
        self.ring.submitter().register_enable_rings()
    }

    /// Queues an entry. It goes to the kernel with the next submission or wait.
    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        if self.ring.submission().is_full() {
            self.submit()?;
        }
        // SAFETY: an entry must point to memory that lives until the kernel is done with it. The callers pass polls and
        // cancellations, which point to no memory.
        unsafe { self.ring.submission().push(entry) }.map_err(|_| io::Error::from(Errno::BUSY))
    }

    /// Watches the eventfd again if need be. Before a wait: then the wait sees also an earlier signal.
    fn watch_eventfd(&mut self, eventfd: &EventFd) -> io::Result<()> {
        if self.eventfd_ended {
            self.push(&watch(EVENTFD, eventfd.as_fd(), PollFlags::IN))?;
            self.eventfd_ended = false;
        }
        Ok(())
    }

    /// Gives the queued entries to the kernel. Those that it does not take now stay in the queue.
    fn submit(&self) -> io::Result<()> {
        self.ring.submit().map(drop).or_else(ignore_harmless)
    }

    fn wait(&self, until: Option<Time>) -> io::Result<()> {
        let left = until.map(|until| types::Timespec::from(Duration::from(until - clock::now())));
        let args = types::SubmitArgs::new();
        let args = left.as_ref().map_or(args, |left| args.timespec(left));
        self.ring.submitter().submit_with_args(1, &args).map(drop).or_else(ignore_harmless)
    }

    /// Has the kernel prepare the completions that there are. A cancelled poll releases its socket here.
    fn catch_up(&mut self) -> io::Result<()> {
        for _ in 0..ENTERS {
            let queue = self.ring.submission();
            let is_behind = queue.taskrun() || queue.cq_overflow();
            drop(queue);
            let before = self.ring.completion().len();
            if !is_behind || self.ring.completion().is_full() {
                return Ok(());
            }
            self.submit()?;
            // The few that have come in meanwhile can wait until tasks have run.
            if self.ring.completion().len() < before + PREPARED {
                return Ok(());
            }
        }
        Ok(())
    }

    fn take(&mut self, events: &mut Vec<SocketEvent>) -> WakeSeen {
        let mut seen = WakeSeen::No;
        for completion in self.ring.completion() {
            let (token, ended) = (Token(completion.user_data()), !cqueue::more(completion.flags()));
            if !token.is_reserved() {
                events.push(SocketEvent { token, ready: ready(completion.result()), ended });
            } else if token == EVENTFD {
                seen = WakeSeen::Yes;
                self.eventfd_ended |= ended;
            }
        }
        seen
    }
}

/// Returns the entry that watches a descriptor.
fn watch(token: Token, fd: BorrowedFd<'_>, flags: PollFlags) -> squeue::Entry {
    opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), u32::from(flags.bits())).multi(true).build().user_data(token.0)
}

/// Returns the entry that ends a poll. `POLL_REMOVE` would not do: it gives up on a poll of which the kernel is just preparing an event.
/// A cancellation leaves a mark that the poll sees.
fn cancel(token: Token) -> squeue::Entry {
    opcode::AsyncCancel::new(token.0).build().user_data(CANCEL.0)
}

/// Checks the features of a ring that can be queried.
fn require(ring: &IoUring) -> io::Result<()> {
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    if ![opcode::PollAdd::CODE, opcode::AsyncCancel::CODE].into_iter().all(|code| probe.is_supported(code)) {
        return Err(unsupported("this kernel's io_uring has no poll operations"));
    }
    if !(ring.params().is_feature_nodrop() && ring.params().is_feature_ext_arg()) {
        return Err(unsupported("this kernel's io_uring drops completions or cannot wait until a time (Linux 5.11)"));
    }
    Ok(())
}

fn unsupported(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, why)
}

/// Translates the result of a poll. One that has failed, or was cancelled when its thread ended, counts as ready: the task tries its
/// operation, and the socket itself says what is wrong.
fn ready(result: i32) -> ReadyFlags {
    u32::try_from(result).map_or(ReadyFlags::READ | ReadyFlags::WRITE, ReadyFlags::from_poll)
}

/// Ignores errors that say that the time is over, that a signal came, or that completions have to be taken first.
fn ignore_harmless(error: io::Error) -> io::Result<()> {
    let harmless = [Errno::TIME, Errno::INTR, Errno::BUSY, Errno::AGAIN];
    if harmless.iter().any(|errno| is_errno(&error, *errno)) { Ok(()) } else { Err(error) }
}

fn is_errno(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::os::unix::net::{UnixDatagram, UnixStream};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use tourbillon::Span;

    use super::*;

    /// Runs a test with a ring of each setup, owned by the calling thread, where it is not refused.
    fn with_each_setup(test: impl Fn(Uring)) {
        for setup in [RingSetup::DeferTaskrun, RingSetup::CoopTaskrun, RingSetup::Interrupting] {
            match Uring::with_setup(setup) {
                Ok(ring) => {
                    ring.adopt();
                    test(ring);
                }
                Err(why) => println!("NOT TESTED ON io_uring, {setup:?}: it is refused here ({why})"),
            }
        }
    }

    fn in_good_time() -> Time {
        clock::now() + Span::from_secs(20)
    }

    /// Returns two ends, of which the second notices within a time whether the first is closed.
    fn ends() -> (UnixStream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        (ours, theirs)
    }

    #[test]
    fn a_full_completion_queue_loses_no_socket() {
        with_each_setup(|ring| {
            let pairs: Vec<_> = (0..200).map(|_| UnixDatagram::pair().unwrap()).collect();
            for (index, (a, _)) in pairs.iter().enumerate() {
                ring.add(Token(index as u64), a.as_fd()).unwrap();
            }
            let mut events = Vec::new();
            ring.reap(&mut events).unwrap();
            events.clear();
            // Many more edges than the queue has room for, and no thread takes the completions.
            for _ in 0..3 * COMPLETIONS as usize / pairs.len() {
                for (a, b) in &pairs {
                    b.send(b"x").unwrap();
                    a.recv(&mut [0; 1]).unwrap();
                    // Each is an edge of its own only if the kernel prepares completions in between.
                    let _ = lock(&ring.ring).as_mut().unwrap().submit();
                }
            }
            pairs.iter().for_each(|(_, b)| _ = b.send(b"last").unwrap());
            let mut is_reported = vec![false; pairs.len()];
            let until = in_good_time();
            while is_reported.contains(&false) {
                assert!(clock::now() < until, "a socket was forgotten");
                ring.wait(Some(until), &mut events).unwrap();
                events.drain(..).for_each(|event| is_reported[event.token.0 as usize] = true);
            }
        });
    }

    #[test]
    fn a_socket_that_its_owner_removes_is_free_at_once() {
        with_each_setup(|ring| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            ring.add(Token(7), listener.as_fd()).unwrap();
            assert!(TcpListener::bind(address).is_err());
            ring.remove(Token(7), listener.as_fd());
            drop(listener);
            TcpListener::bind(address).unwrap();
        });
    }

    #[test]
    fn a_socket_that_another_thread_removes_is_closed_by_its_sleeping_owner() {
        with_each_setup(|ring| {
            for number in 0..20 {
                let (ours, mut theirs) = ends();
                ring.add(Token(number), ours.as_fd()).unwrap();
                let (mut events, is_closed) = (Vec::new(), AtomicBool::new(false));
                thread::scope(|scope| {
                    let peer = scope.spawn(|| {
                        ring.remove(Token(number), ours.as_fd());
                        drop(ours);
                        let read = theirs.read_to_end(&mut Vec::new());
                        is_closed.store(true, Ordering::SeqCst);
                        ring.wake();
                        read
                    });
                    while !is_closed.load(Ordering::SeqCst) {
                        ring.wait(None, &mut events).unwrap();
                    }
                    assert_eq!(peer.join().unwrap().unwrap(), 0);
                });
            }
        });
    }

    #[test]
    fn p11_a_blocked_owner_keeps_no_socket_open_and_gets_a_new_ring() {
        with_each_setup(|ring| {
            let (ours, mut theirs) = ends();
            let (other, _peer) = ends();
            ring.add(Token(1), ours.as_fd()).unwrap();
            ring.add(Token(2), other.as_fd()).unwrap();
            let mut events = Vec::new();
            thread::scope(|scope| {
                let monitor = scope.spawn(|| {
                    let mut none = Vec::new();
                    assert_eq!(ring.reap_for_owner(&mut none).unwrap(), TakeoverOutcome::PollSockets);
                    assert_eq!(ring.reap_for_owner(&mut none).unwrap(), TakeoverOutcome::PollSockets);
                    ring.remove(Token(1), ours.as_fd());
                    drop(ours);
                    assert_eq!(ring.reap_for_owner(&mut none).unwrap(), TakeoverOutcome::PollSockets);
                    assert_eq!(ring.reap_for_owner(&mut none).unwrap(), TakeoverOutcome::RingDropped);
                    assert_eq!(ring.reap_for_owner(&mut none).unwrap(), TakeoverOutcome::PollSockets);
                    theirs.read_to_end(&mut Vec::new())
                });
                assert_eq!(monitor.join().unwrap().unwrap(), 0);
            });
            ring.add(Token(3), other.as_fd()).unwrap();
            ring.reap(&mut events).unwrap();
            assert!(events.iter().any(|event| event.token == Token(3)), "{events:?}");
            // The new ring sees wake-ups, too.
            let until = in_good_time();
            ring.wait(Some(until), &mut events).unwrap();
            ring.wake();
            ring.wait(Some(until), &mut events).unwrap();
            assert!(clock::now() < until);
        });
    }

    #[test]
    fn the_monitor_does_not_take_over_from_an_owner_that_waits() {
        with_each_setup(|ring| {
            thread::scope(|scope| {
                let owner = scope.spawn(|| {
                    ring.adopt();
                    ring.wait(Some(in_good_time()), &mut Vec::new()).unwrap();
                });
                // Sooner or later the owner waits.
                while ring.reap_for_owner(&mut Vec::new()).unwrap() != TakeoverOutcome::Collected {
                    assert!(!owner.is_finished());
                    thread::yield_now();
                }
                ring.wake();
            });
        });
    }

    #[test]
    fn a_ring_that_changes_threads_is_built_again() {
        with_each_setup(|ring| {
            thread::scope(|scope| {
                scope.spawn(|| {
                    ring.adopt();
                    let (socket, _peer) = ends();
                    ring.add(Token(1), socket.as_fd()).unwrap();
                    let mut events = Vec::new();
                    ring.wait(Some(in_good_time()), &mut events).unwrap();
                    assert!(events.iter().any(|event| event.token == Token(1)), "{events:?}");
                });
            });
        });
    }

    #[test]
    fn a_wake_up_is_seen_also_by_a_thread_that_adopts_the_ring_of_another() {
        with_each_setup(|ring| {
            let wait = || {
                ring.wake();
                // Without the wake-up it would take until then.
                ring.wait(Some(in_good_time()), &mut Vec::new()).unwrap();
            };
            let start = std::time::Instant::now();
            for _ in 0..3 {
                thread::scope(|scope| {
                    scope.spawn(|| {
                        ring.adopt();
                        wait();
                    });
                });
            }
            ring.adopt();
            (0..10).for_each(|_| wait());
            assert!(start.elapsed() < Duration::from_secs(15));
        });
    }
}
