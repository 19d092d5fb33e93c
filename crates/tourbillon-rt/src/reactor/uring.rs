//! The io_uring back end: each socket is watched by one multishot poll, and the wait takes the deadline.
//!
//! This is the ring of threads that come and go, and of everybody on kernels before 6.1; a worker's is an
//! [`OwnRing`](super::OwnRing).
//!
//! # Who may do what
//!
//! A poll belongs to the thread that submitted it: what it completes with is prepared on that thread, and when the thread
//! ends, the kernel cancels it. So only the owner adds; and who becomes the owner watches the bell anew. Anybody may remove, wake, and read the completion queue. Each submission
//! is made and given to the kernel under one lock, so the submission queue is empty whenever nobody holds it: it is never
//! full (D7), and nobody submits for somebody else.
//!
//! # When the completion queue is full
//!
//! The kernel keeps what does not fit and ends the polls concerned. Their last completion says so, the sockets are evicted, and
//! registered anew by who waits for them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};
use rustix::event::PollFlags;
use rustix::io::Errno;
use tourbillon::Time;

use super::bell::Bell;
use super::{Event, Heard, Ready, Selector, StoodIn, Token};
use crate::clock;
use crate::sync::{Mutex, lock};

pub(crate) struct Uring {
    ring: IoUring,
    submitting: Mutex<()>,
    completing: Mutex<()>,
    bell: Bell,
    /// Which poll of the bell is the current one.
    bell_poll: AtomicU32,
    /// It has ended, and the owner is to watch the bell anew.
    bell_ended: AtomicBool,
}

/// What comes of a removal is of no interest.
const REMOVAL: Token = Token::reserved(0);

/// Submissions are given to the kernel one by one.
const SUBMISSIONS: u32 = 8;
pub(super) const COMPLETIONS: u32 = 4096;

/// What a socket is watched for. Not for urgent data: of that every event speaks that comes with data, whether there is any or not.
pub(super) const SOCKET: PollFlags = PollFlags::IN.union(PollFlags::OUT).union(PollFlags::RDHUP);

impl Uring {
    /// A ring that works: it has been tried.
    ///
    /// # Errors
    /// What the kernel says, or `Unsupported` if it lets us have a ring that cannot do what is needed.
    pub(crate) fn new() -> io::Result<Uring> {
        let ring = build()?;
        require(&ring)?;
        let bell = Bell::new()?;
        let (bell_poll, bell_ended) = (AtomicU32::new(0), AtomicBool::new(false));
        let uring = Uring { ring, submitting: Mutex::new(()), completing: Mutex::new(()), bell, bell_poll, bell_ended };
        uring.watch_bell()?;
        uring.try_out()?;
        Ok(uring)
    }

    /// Rings the bell and looks for the answer: whether a multishot poll works cannot be asked for.
    fn try_out(&self) -> io::Result<()> {
        self.wake();
        let soon = types::Timespec::from(Duration::from_secs(1));
        let heard = self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&soon));
        heard.map_err(|error| unsupported(&format!("io_uring does not complete a poll: {error}")))?;
        let mut answer = None;
        self.completions(|completion| answer = Some((completion.result(), cqueue::more(completion.flags()))));
        match answer {
            Some((1.., true)) => Ok(()),
            _ => Err(unsupported("this kernel's io_uring has no multishot poll (Linux 5.13)")),
        }
    }

    /// By the owner. That an earlier poll of the bell ends does not count from now on.
    fn watch_bell(&self) -> io::Result<()> {
        let number = self.bell_poll.load(Ordering::Relaxed).wrapping_add(1).max(1);
        self.bell_poll.store(number, Ordering::Relaxed);
        self.submit(&watch(Token::reserved(number), self.bell.as_fd(), PollFlags::IN))
    }

    fn submit(&self, entry: &squeue::Entry) -> io::Result<()> {
        let _submitting = lock(&self.submitting);
        {
            // SAFETY: with the lock we are the only one who has the submission queue.
            let mut queue = unsafe { self.ring.submission_shared() };
            // SAFETY: a poll, or the removal of one, points to no memory.
            unsafe { queue.push(entry) }.map_err(|_| io::Error::from(Errno::BUSY))?;
        }
        loop {
            match self.ring.submit() {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The completion queue is full. It stays in the queue, and goes with the next wait, which comes after a
                // look at the completions.
                Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn completions(&self, each: impl FnMut(cqueue::Entry)) {
        let _completing = lock(&self.completing);
        // SAFETY: with the lock we are the only one who has the completion queue.
        unsafe { self.ring.completion_shared() }.for_each(each);
    }

    fn take(&self, events: &mut Vec<Event>) -> Heard {
        let mut heard = Heard::Nothing;
        self.completions(|completion| {
            let (token, ended) = (Token(completion.user_data()), !cqueue::more(completion.flags()));
            if !token.is_reserved() {
                events.push(Event { token, ready: ready(completion.result()), ended });
            } else if token != REMOVAL {
                // Of whichever poll of the bell: who stands in may be here while another thread becomes the owner. But only the current one's
                // end matters.
                heard = Heard::Call;
                let bell = Token::reserved(self.bell_poll.load(Ordering::Relaxed));
                self.bell_ended.fetch_or(ended && token == bell, Ordering::Relaxed);
            }
        });
        heard
    }

    /// Whether there is something to be had from the kernel that is not in the queue.
    fn is_behind(&self) -> bool {
        let _submitting = lock(&self.submitting);
        // SAFETY: with the lock we are the only one who has the submission queue.
        let queue = unsafe { self.ring.submission_shared() };
        queue.taskrun() || queue.cq_overflow()
    }
}

impl Selector for Uring {
    fn hears_of_urgent_data(&self) -> bool {
        false
    }

    fn adopt(&self) {
        let before = Token::reserved(self.bell_poll.load(Ordering::Relaxed));
        self.bell_ended.store(self.watch_bell().is_err(), Ordering::Relaxed);
        let _ = self.submit(&end(before));
    }

    fn add(&self, token: Token, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.submit(&watch(token, fd, SOCKET))
    }

    fn remove(&self, token: Token, _fd: BorrowedFd<'_>) {
        // As long as it is polled the kernel keeps the socket open.
        let _ = self.submit(&end(token));
    }

    fn wait(&self, until: Option<Time>, events: &mut Vec<Event>) -> io::Result<()> {
        // Before the wait: a call that has come in between is heard at once, since the bell is never taken back.
        if self.bell_ended.swap(false, Ordering::Relaxed)
            && let Err(error) = self.watch_bell()
        {
            self.bell_ended.store(true, Ordering::Relaxed);
            return Err(error);
        }
        let left = until.map(|until| types::Timespec::from(Duration::from(until - clock::now())));
        let args = types::SubmitArgs::new();
        let args = left.as_ref().map_or(args, |left| args.timespec(left));
        let waited = self.ring.submitter().submit_with_args(1, &args);
        let _its_own = self.take(events);
        match waited {
            Err(error) if !is_harmless(&error) => Err(error),
            _ => Ok(()),
        }
    }

    fn reap(&self, events: &mut Vec<Event>) -> io::Result<()> {
        if self.is_behind() {
            match self.ring.submit() {
                Err(error) if !is_harmless(&error) => return Err(error),
                _ => {}
            }
        }
        let _its_own = self.take(events);
        Ok(())
    }

    fn reap_for_owner(&self, events: &mut Vec<Event>) -> io::Result<StoodIn> {
        // Only what is there: to enter the kernel is the owner's, and would not help here.
        if self.take(events) == Heard::Call {
            self.wake();
            // Nobody watches the bell if that was its poll's last word, and the owner may be in its wait by now. What ends that, too, is the
            // completion of anything.
            if self.bell_ended.load(Ordering::Relaxed) {
                let _ = self.submit(&end(REMOVAL));
            }
        }
        Ok(StoodIn::Told)
    }

    fn wake(&self) {
        self.bell.ring();
    }
}

/// Watches a descriptor from now on.
pub(super) fn watch(token: Token, fd: BorrowedFd<'_>, flags: PollFlags) -> squeue::Entry {
    opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), flags.bits() as u32).multi(true).build().user_data(token.0)
}

/// Ends that. `POLL_REMOVE` would not do: it gives up on a poll of which an event is just being prepared. A cancellation leaves a mark
/// that the poll will see.
pub(super) fn end(token: Token) -> squeue::Entry {
    opcode::AsyncCancel::new(token.0).build().user_data(REMOVAL.0)
}

fn build() -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.dontfork().setup_cqsize(COMPLETIONS);
    // Completions wait until the thread is in the kernel anyway. Kernels before 5.19 interrupt it instead.
    let quiet = builder.clone().setup_coop_taskrun().setup_taskrun_flag().build(SUBMISSIONS);
    match quiet {
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => builder.build(SUBMISSIONS),
        built => built,
    }
}

/// What can be asked for.
pub(super) fn require(ring: &IoUring) -> io::Result<()> {
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

pub(super) fn unsupported(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, why)
}

/// A poll that failed, or was cancelled when its thread ended, is no news; that it is watched no longer is, and who waits will
/// hear from the socket what is wrong with it.
pub(super) fn ready(result: i32) -> Ready {
    u32::try_from(result).map_or(Ready::READ | Ready::WRITE, Ready::from_poll)
}

/// The time is over, a signal came, or there are completions to be taken first.
pub(super) fn is_harmless(error: &io::Error) -> bool {
    let harmless = [Errno::TIME, Errno::INTR, Errno::BUSY, Errno::AGAIN];
    harmless.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    /// A ring, unless it is refused here.
    fn ring() -> Option<Uring> {
        let ring = Uring::new();
        if let Err(why) = &ring {
            println!("NOT TESTED ON io_uring: it is refused here ({why})");
        }
        ring.ok()
    }

    #[test]
    fn a_full_completion_queue_loses_no_socket() {
        let Some(ring) = ring() else { return };
        ring.adopt();
        let pairs: Vec<_> = (0..200).map(|_| UnixDatagram::pair().unwrap()).collect();
        for (index, (a, _)) in pairs.iter().enumerate() {
            ring.add(Token(index as u64), a.as_fd()).unwrap();
        }
        let mut events = Vec::new();
        ring.reap(&mut events).unwrap();
        events.clear();
        // Many more edges than the queue has room for, and nobody looks.
        for _ in 0..3 * COMPLETIONS as usize / pairs.len() {
            for (a, b) in &pairs {
                b.send(b"x").unwrap();
                a.recv(&mut [0; 1]).unwrap();
            }
        }
        pairs.iter().for_each(|(_, b)| _ = b.send(b"last").unwrap());
        let mut told = vec![false; pairs.len()];
        let until = clock::now() + tourbillon::Span::from_secs(10);
        while told.contains(&false) {
            assert!(clock::now() < until, "a socket was forgotten");
            ring.wait(Some(until), &mut events).unwrap();
            for event in events.drain(..) {
                // It is readable still; a socket that is watched no longer would be registered anew.
                told[event.token.0 as usize] = true;
            }
        }
    }

    #[test]
    fn a_call_is_heard_also_by_who_takes_the_ring_over_from_another_thread() {
        let Some(ring) = std::thread::spawn(ring).join().unwrap() else { return };
        let mut events = Vec::new();
        for _ in 0..3 {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    ring.adopt();
                    ring.wake();
                    // Without the call it would take until then.
                    ring.wait(Some(clock::now() + tourbillon::Span::from_secs(20)), &mut events).unwrap();
                });
            });
        }
        let start = std::time::Instant::now();
        ring.adopt();
        for _ in 0..10 {
            ring.wake();
            ring.wait(Some(clock::now() + tourbillon::Span::from_secs(20)), &mut events).unwrap();
        }
        assert!(start.elapsed() < std::time::Duration::from_secs(15));
    }

    /// A wait that has begun, as `wait` does it.
    fn is_woken(ring: &Uring) -> bool {
        let long = types::Timespec::from(Duration::from_secs(5));
        ring.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&long)).is_ok()
    }

    /// The kernel ends a poll of the bell when the completion queue is full. Who stands in takes the last that it says when the owner
    /// has just looked whether the bell is watched, and is about to wait.
    #[test]
    fn d39_a_call_that_who_stands_in_has_taken_is_heard_also_if_nobody_watches_the_bell_any_more() {
        let Some(ring) = ring() else { return };
        ring.adopt();
        ring.submit(&end(Token::reserved(ring.bell_poll.load(Ordering::Relaxed)))).unwrap();
        assert!(!ring.bell_ended.load(Ordering::Relaxed));
        while !ring.bell_ended.load(Ordering::Relaxed) {
            assert_eq!(ring.reap_for_owner(&mut Vec::new()).unwrap(), StoodIn::Told);
        }
        assert!(is_woken(&ring), "the call is lost");
        // From the next wait on it is watched again.
        ring.wait(Some(clock::now() + tourbillon::Span::from_secs(5)), &mut Vec::new()).unwrap();
        ring.wake();
        assert!(is_woken(&ring));
    }

    #[test]
    fn d39_who_stands_in_while_another_thread_becomes_the_owner_takes_no_call_from_it() {
        let Some(ring) = ring() else { return };
        ring.adopt();
        ring.reap(&mut Vec::new()).unwrap();
        ring.wake();
        // What is current changes between the call and the look.
        ring.bell_poll.fetch_add(1, Ordering::Relaxed);
        let until = clock::now() + tourbillon::Span::from_secs(20);
        while ring.take(&mut Vec::new()) == Heard::Nothing {
            assert!(clock::now() < until, "the call is lost");
            let _ = ring.ring.submit();
        }
    }
}
