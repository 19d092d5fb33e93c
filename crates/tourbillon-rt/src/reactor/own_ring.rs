//! The io_uring back end of a thread that stays: a ring that nobody else touches (`SINGLE_ISSUER`, `DEFER_TASKRUN`).
//!
//! What a poll completes with is prepared when the owner asks for it, all of it in one go, and not at the end of whatever system
//! call it happens to be in. The price is that the kernel lets nobody else enter the ring. So this one is for workers;
//! threads that come and go have a [`Uring`](super::Uring).
//!
//! # Removals by others
//!
//! are left in a list, and the bell is rung. The owner sees to the list before each wait and each look, so what is left before that is
//! seen; what is left afterwards is followed by the ring of a bell that the wait hears. As long as a socket is polled the kernel
//! keeps it open, though it is closed for us. So who stands in for an owner that has been blocked for two looks, with the
//! same removals left undone, takes its ring away: with it go all polls, and all sockets are registered anew, by the owner or
//! where their tasks run meanwhile. The owner makes itself a new ring when it comes back.
//!
//! # Standing in
//!
//! A blocked owner's events are in the kernel, out of reach. But sockets can be asked by anybody: see `Reactor::ask_sockets`.
//! That takes nothing from the owner, who will hear it all again.
//!
//! # Why no one is in the ring when it goes
//!
//! The owner has it under a lock, also while it waits. Who stands in only tries the lock: if it is taken, the owner is at its ring and
//! not blocked.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::TryLockError;
use std::time::Duration;

use io_uring::{IoUring, cqueue, squeue, types};
use rustix::event::PollFlags;
use rustix::io::Errno;
use tourbillon::Time;

use super::bell::Bell;
use super::left::{Left, Overdue, Removal};
use super::uring::{COMPLETIONS, SOCKET, end, is_harmless, ready, require, unsupported, watch};
use super::{Event, Heard, Selector, StoodIn, Token};
use crate::clock;
use crate::sync::{Mutex, lock};

pub(crate) struct OwnRing {
    /// The owner's. `None`: it has been taken away, or the system refused one.
    ring: Mutex<Option<Ring>>,
    left: Left,
    /// A new poll hears at once that it was rung before.
    bell: Bell,
}

struct Ring {
    ring: IoUring,
    /// The bell is to be watched, anew.
    bell_ended: bool,
}

const BELL: Token = Token::reserved(1);

/// How many can be given to the kernel at a time.
const SUBMISSIONS: u32 = 64;

/// The kernel prepares so many completions each time it is entered, or all that there are.
const PREPARED: usize = 20;

/// How often it is entered in one go. What is left is for the next.
const ENTERS: u32 = 16;

impl OwnRing {
    /// One that works: its like has been tried.
    ///
    /// # Errors
    /// What the kernel says, or `Unsupported` if it has no such rings (they came with Linux 6.1).
    pub(crate) fn new() -> io::Result<OwnRing> {
        OwnRing::disabled()?.try_out()?;
        OwnRing::disabled()
    }

    fn disabled() -> io::Result<OwnRing> {
        Ok(OwnRing { ring: Mutex::new(Some(Ring::disabled()?)), left: Left::default(), bell: Bell::new()? })
    }

    /// Rings the bell and looks for the answer.
    fn try_out(&self) -> io::Result<()> {
        self.adopt();
        self.wake();
        let heard = self.with_ring(|ring| {
            ring.watch_bell(&self.bell)?;
            ring.wait(Some(clock::now() + tourbillon::Span::from_secs(1)))?;
            Ok(ring.take(&mut Vec::new()))
        })?;
        if heard == Heard::Call { Ok(()) } else { Err(unsupported("io_uring does not complete a poll")) }
    }

    /// By the owner.
    fn with_ring<R>(&self, f: impl FnOnce(&mut Ring) -> io::Result<R>) -> io::Result<R> {
        let mut ring = lock(&self.ring);
        match &mut *ring {
            Some(ring) => f(ring),
            none => {
                let new = Ring::disabled()?;
                new.enable()?;
                f(none.insert(new))
            }
        }
    }

    /// By the owner: what others have left.
    fn see_to_removals(&self, ring: &mut Ring) -> io::Result<()> {
        self.left.see_to(|token| ring.push(&end(token)))
    }
}

impl Selector for OwnRing {
    fn hears_of_urgent_data(&self) -> bool {
        false
    }

    fn adopt(&self) {
        let before = self.left.adopt();
        let mut ring = lock(&self.ring);
        // It is bound to the thread that enables it. If it was another's, or cannot be had, the first use makes a new one.
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
        if self.left.remove(token) == Removal::IsLeft {
            return self.wake();
        }
        // With a ring that has been taken away the poll has ended.
        if let Some(ring) = &mut *lock(&self.ring) {
            // What cannot be given to the kernel now stays in the queue, and goes with the next wait.
            let _ = ring.push(&end(token)).and_then(|()| ring.submit()).and_then(|()| ring.catch_up());
        }
    }

    fn wait(&self, until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()> {
        self.with_ring(|ring| {
            let prepared = ring.watch_bell(&self.bell).and_then(|()| self.see_to_removals(ring));
            let waited = prepared.and_then(|()| ring.wait(until));
            let is_behind = ring.ring.completion().len() >= PREPARED;
            let caught_up = if is_behind { ring.catch_up() } else { Ok(()) };
            // Also if something went wrong: they may be what is in the way.
            let _its_own = ring.take(events);
            waited.and(caught_up)
        })
    }

    fn reap(&self, events: &mut Vec<Event>) -> io::Result<()> {
        self.with_ring(|ring| {
            let seen_to = self.see_to_removals(ring);
            let is_submitted = ring.ring.submission().is_empty();
            let submitted = if is_submitted { Ok(()) } else { ring.submit() };
            let caught_up = ring.catch_up();
            let _its_own = ring.take(events);
            seen_to.and(submitted).and(caught_up)
        })
    }

    fn reap_for_owner(&self, _events: &mut Vec<Event>) -> io::Result<StoodIn> {
        let mut ring = match self.ring.try_lock() {
            Ok(ring) => ring,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(StoodIn::Told),
        };
        match self.left.look_for_owner() {
            Overdue::No => Ok(StoodIn::AskSockets),
            Overdue::Yes => {
                *ring = None;
                Ok(StoodIn::LetGo)
            }
        }
    }

    fn wake(&self) {
        self.bell.ring();
    }
}

impl Ring {
    /// It belongs to the thread that will enable it.
    fn disabled() -> io::Result<Ring> {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_cqsize(COMPLETIONS).setup_submit_all().setup_r_disabled();
        let ring = builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().build(SUBMISSIONS)?;
        require(&ring)?;
        Ok(Ring { ring, bell_ended: true })
    }

    fn enable(&self) -> io::Result<()> {
        self.ring.submitter().register_enable_rings()
    }

    /// It goes to the kernel with the next submission or wait.
    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        if self.ring.submission().is_full() {
            self.submit()?;
        }
        // SAFETY: a poll, or the removal of one, points to no memory.
        unsafe { self.ring.submission().push(entry) }.map_err(|_| io::Error::from(Errno::BUSY))
    }

    /// Before a wait: a call that has come in between is heard at once.
    fn watch_bell(&mut self, bell: &Bell) -> io::Result<()> {
        if self.bell_ended {
            self.push(&watch(BELL, bell.as_fd(), PollFlags::IN))?;
            self.bell_ended = false;
        }
        Ok(())
    }

    /// What the kernel does not take now stays in the queue.
    fn submit(&self) -> io::Result<()> {
        self.ring.submit().map(drop).or_else(unless_harmless)
    }

    fn wait(&self, until: Option<Time>) -> io::Result<()> {
        let left = until.map(|until| types::Timespec::from(Duration::from(until - clock::now())));
        let args = types::SubmitArgs::new();
        let args = left.as_ref().map_or(args, |left| args.timespec(left));
        self.ring.submitter().submit_with_args(1, &args).map(drop).or_else(unless_harmless)
    }

    /// Has the kernel prepare what is to be had. A poll that was cancelled before lets go of its socket here.
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
            // What has come in meanwhile, by ones and twos, can wait until the tasks have had their turn.
            if self.ring.completion().len() < before + PREPARED {
                return Ok(());
            }
        }
        Ok(())
    }

    fn take(&mut self, events: &mut Vec<Event>) -> Heard {
        let mut heard = Heard::Nothing;
        for completion in self.ring.completion() {
            let (token, ended) = (Token(completion.user_data()), !cqueue::more(completion.flags()));
            if !token.is_reserved() {
                events.push(Event { token, ready: ready(completion.result()), ended });
            } else if token == BELL {
                heard = Heard::Call;
                self.bell_ended |= ended;
            }
        }
        heard
    }
}

fn unless_harmless(error: io::Error) -> io::Result<()> {
    if is_harmless(&error) { Ok(()) } else { Err(error) }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::os::unix::net::{UnixDatagram, UnixStream};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use tourbillon::Span;

    use super::*;

    /// A ring of this thread's, unless it is refused here.
    fn ring() -> Option<OwnRing> {
        let ring = OwnRing::new();
        match &ring {
            Ok(ring) => ring.adopt(),
            Err(why) => println!("NOT TESTED ON a ring of one's own: it is refused here ({why})"),
        }
        ring.ok()
    }

    fn in_good_time() -> Time {
        clock::now() + Span::from_secs(20)
    }

    /// Two ends, of which the second notices within a time whether the first is closed.
    fn ends() -> (UnixStream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        (ours, theirs)
    }

    #[test]
    fn a_full_completion_queue_loses_no_socket_of_ones_own_ring() {
        let Some(ring) = ring() else { return };
        let pairs: Vec<_> = (0..200).map(|_| UnixDatagram::pair().unwrap()).collect();
        for (index, (a, _)) in pairs.iter().enumerate() {
            ring.add(Token(index as u64), a.as_fd()).unwrap();
        }
        let mut events = Vec::new();
        ring.reap(&mut events).unwrap();
        events.clear();
        for _ in 0..3 * COMPLETIONS as usize / pairs.len() {
            for (a, b) in &pairs {
                b.send(b"x").unwrap();
                a.recv(&mut [0; 1]).unwrap();
                // So that each is an edge of its own; what they complete with is not looked at.
                let _ = lock(&ring.ring).as_mut().unwrap().submit();
            }
        }
        pairs.iter().for_each(|(_, b)| _ = b.send(b"last").unwrap());
        let mut told = vec![false; pairs.len()];
        let until = in_good_time();
        while told.contains(&false) {
            assert!(clock::now() < until, "a socket was forgotten");
            ring.wait(Some(until), &mut events).unwrap();
            events.drain(..).for_each(|event| told[event.token.0 as usize] = true);
        }
    }

    #[test]
    fn a_socket_that_its_owner_removes_is_free_at_once() {
        let Some(ring) = ring() else { return };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        ring.add(Token(7), listener.as_fd()).unwrap();
        assert!(TcpListener::bind(address).is_err());
        ring.remove(Token(7), listener.as_fd());
        drop(listener);
        TcpListener::bind(address).unwrap();
    }

    #[test]
    fn a_socket_that_another_thread_removes_is_closed_by_its_owner_who_sleeps() {
        let Some(ring) = ring() else { return };
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
    }

    #[test]
    fn p11_a_blocked_owner_keeps_no_socket_open_and_gets_a_new_ring() {
        let Some(ring) = ring() else { return };
        let (ours, mut theirs) = ends();
        let (other, _peer) = ends();
        ring.add(Token(1), ours.as_fd()).unwrap();
        ring.add(Token(2), other.as_fd()).unwrap();
        let mut events = Vec::new();
        thread::scope(|scope| {
            let stand_in = scope.spawn(|| {
                let mut none = Vec::new();
                assert_eq!(ring.reap_for_owner(&mut none).unwrap(), StoodIn::AskSockets);
                assert_eq!(ring.reap_for_owner(&mut none).unwrap(), StoodIn::AskSockets);
                ring.remove(Token(1), ours.as_fd());
                drop(ours);
                assert_eq!(ring.reap_for_owner(&mut none).unwrap(), StoodIn::AskSockets);
                assert_eq!(ring.reap_for_owner(&mut none).unwrap(), StoodIn::LetGo);
                assert_eq!(ring.reap_for_owner(&mut none).unwrap(), StoodIn::AskSockets);
                theirs.read_to_end(&mut Vec::new())
            });
            assert_eq!(stand_in.join().unwrap().unwrap(), 0);
        });
        ring.add(Token(3), other.as_fd()).unwrap();
        ring.reap(&mut events).unwrap();
        assert!(events.iter().any(|event| event.token == Token(3)), "{events:?}");
        // The new one hears the bell, too.
        let until = in_good_time();
        ring.wait(Some(until), &mut events).unwrap();
        ring.wake();
        ring.wait(Some(until), &mut events).unwrap();
        assert!(clock::now() < until);
    }

    #[test]
    fn nobody_stands_in_for_an_owner_at_its_ring() {
        let Some(ring) = OwnRing::new().ok() else { return };
        thread::scope(|scope| {
            let owner = scope.spawn(|| {
                ring.adopt();
                ring.wait(Some(in_good_time()), &mut Vec::new()).unwrap();
            });
            // Sooner or later it waits.
            while ring.reap_for_owner(&mut Vec::new()).unwrap() != StoodIn::Told {
                assert!(!owner.is_finished());
                thread::yield_now();
            }
            ring.wake();
        });
    }

    #[test]
    fn a_ring_that_changes_threads_is_made_anew() {
        let Some(ring) = ring() else { return };
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
    }
}
