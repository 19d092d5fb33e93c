//! A non-blocking socket and its readiness.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tourbillon::coop as budget;

use super::current::current;
use super::readiness::{AttemptResult, Readiness, Registration, WaitOutcome};
use super::{Direction, WaiterId};

/// A socket `S` in non-blocking mode, and the tasks that wait for it.
pub(crate) struct IoSource<S: AsFd> {
    io: S,
    readiness: Arc<Readiness>,
}

/// The result of an operation that did not block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IoProgress<T> {
    pub(crate) value: T,
    /// The next operation would block, because a stream gave or took fewer bytes than it could have. This saves the system call that
    /// would find out.
    pub(crate) exhausted: bool,
}

impl<T> IoProgress<T> {
    pub(crate) fn of(value: T) -> IoProgress<T> {
        IoProgress { value, exhausted: false }
    }
}

impl IoProgress<usize> {
    /// Returns the progress of moving `count` bytes of `of`. Zero bytes are the end of a stream, which does not block.
    pub(crate) fn bytes(count: usize, of: usize) -> IoProgress<usize> {
        IoProgress { value: count, exhausted: 0 < count && count < of }
    }
}

impl<S: AsFd> IoSource<S> {
    /// Wraps a socket that is in non-blocking mode.
    pub(crate) fn new(io: S) -> IoSource<S> {
        IoSource { io, readiness: Arc::default() }
    }

    pub(crate) fn io(&self) -> &S {
        &self.io
    }

    /// Tries the operation if the socket may be ready, possibly more than once; otherwise leaves the waker until it is.
    pub(crate) fn poll<T>(
        &self,
        context: &mut Context<'_>,
        direction: Direction,
        waiter: &mut WaiterId,
        mut attempt: impl FnMut(&S) -> io::Result<IoProgress<T>>,
    ) -> Poll<io::Result<T>> {
        ready!(budget::spend(context));
        let mut result = AttemptResult::NotTried;
        loop {
            let snapshot = self.readiness.snapshot();
            if snapshot.is_worth_a_try(direction) {
                match attempt(&self.io) {
                    Ok(progress) => {
                        if progress.exhausted {
                            self.readiness.exhausted(direction, snapshot);
                        }
                        return Poll::Ready(Ok(progress.value));
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.readiness.blocked(direction, snapshot);
                        result = AttemptResult::WouldBlock;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                        ready!(budget::spend(context));
                        continue;
                    }
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
            if !snapshot.is_registered() {
                self.register()?;
            }
            if self.readiness.wait(direction, result, waiter, context.waker()) == WaitOutcome::Waits {
                budget::give_back();
                return Poll::Pending;
            }
        }
    }

    /// Tries the operation, whatever is known of the socket, and returns `None` if it would block.
    pub(crate) fn try_now<T>(&self, mut attempt: impl FnMut(&S) -> io::Result<IoProgress<T>>) -> Option<io::Result<T>> {
        loop {
            match attempt(&self.io) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                // Only a caller with a snapshot of the readiness from before may mark the socket as exhausted.
                result => return Some(result.map(|progress| progress.value)),
            }
        }
    }

    /// Removes the waker that `poll` has left.
    pub(crate) fn stop_waiting(&self, direction: Direction, waiter: WaiterId) {
        if waiter != WaiterId::NONE {
            self.readiness.stop_waiting(direction, waiter);
        }
    }

    /// Registers the socket with the reactor of this thread.
    fn register(&self) -> io::Result<()> {
        let reactor = current()?;
        self.readiness.register(|before| {
            if let Some(registration) = before {
                registration.reactor.remove(registration.token, self.io.as_fd());
            }
            let token = reactor.add(&self.readiness, self.io.as_fd())?;
            Ok(Registration { reactor, token })
        })
    }
}

impl<S: AsFd> AsFd for IoSource<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}

impl<S: AsFd> Drop for IoSource<S> {
    fn drop(&mut self) {
        if let Some(registration) = self.readiness.take_registration() {
            registration.reactor.remove(registration.token, self.io.as_fd());
        }
    }
}

impl<S: AsFd + fmt::Debug> fmt::Debug for IoSource<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.io.fmt(f)
    }
}
