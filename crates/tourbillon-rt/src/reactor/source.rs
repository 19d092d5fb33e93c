//! A socket that does not block, and its readiness.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::readiness::{Found, Home, Readiness, Wait};
use super::{Direction, Waiter};
use crate::runtime::{budget, context};

/// A socket `S`, in non-blocking mode, and who waits for it.
pub(crate) struct Source<S: AsFd> {
    io: S,
    readiness: Arc<Readiness>,
}

/// What an operation that did not block has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Progress<T> {
    pub(crate) value: T,
    /// There is nothing left to do: the next one would block. (A stream gave fewer bytes than were asked for, or took fewer.) It
    /// saves the system call that would find out.
    pub(crate) exhausted: bool,
}

impl<T> Progress<T> {
    pub(crate) fn of(value: T) -> Progress<T> {
        Progress { value, exhausted: false }
    }
}

impl Progress<usize> {
    /// So many bytes of so many that there was room for. None at all is the end of a stream, which does not block.
    pub(crate) fn bytes(count: usize, of: usize) -> Progress<usize> {
        Progress { value: count, exhausted: 0 < count && count < of }
    }
}

impl<S: AsFd> Source<S> {
    /// Of a socket that is in non-blocking mode.
    pub(crate) fn new(io: S) -> Source<S> {
        Source { io, readiness: Arc::default() }
    }

    pub(crate) fn io(&self) -> &S {
        &self.io
    }

    /// Tries the operation while it is worth it; else leaves the waker until it is.
    ///
    /// It is given as `FnMut` since it may have to be tried more than once.
    pub(crate) fn poll<T>(
        &self,
        context: &mut Context<'_>,
        direction: Direction,
        waiter: &mut Waiter,
        mut attempt: impl FnMut(&S) -> io::Result<Progress<T>>,
    ) -> Poll<io::Result<T>> {
        ready!(budget::spend(context));
        let mut found = Found::Nothing;
        loop {
            let seen = self.readiness.see();
            if seen.is_worth_a_try(direction) {
                match attempt(&self.io) {
                    Ok(progress) => {
                        if progress.exhausted {
                            self.readiness.exhausted(direction, seen);
                        }
                        return Poll::Ready(Ok(progress.value));
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.readiness.blocked(direction, seen);
                        found = Found::Blocks;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                        ready!(budget::spend(context));
                        continue;
                    }
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
            if !seen.is_registered() {
                self.register()?;
            }
            if self.readiness.wait(direction, found, waiter, context.waker()) == Wait::Waits {
                budget::give_back();
                return Poll::Pending;
            }
        }
    }

    /// Tries the operation, worth it or not. `None`: it would block.
    pub(crate) fn try_now<T>(&self, mut attempt: impl FnMut(&S) -> io::Result<Progress<T>>) -> Option<io::Result<T>> {
        loop {
            match attempt(&self.io) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                // That it is exhausted is for those to say who have seen the readiness before.
                result => return Some(result.map(|progress| progress.value)),
            }
        }
    }

    /// Takes the waker back that `poll` has left.
    pub(crate) fn stop_waiting(&self, direction: Direction, waiter: Waiter) {
        if waiter != Waiter::NONE {
            self.readiness.stop_waiting(direction, waiter);
        }
    }

    /// With the reactor of this thread.
    fn register(&self) -> io::Result<()> {
        let reactor = context::reactor()?;
        self.readiness.register(|before| {
            if let Some(home) = before {
                home.reactor.remove(home.token, self.io.as_fd());
            }
            let token = reactor.add(&self.readiness, self.io.as_fd())?;
            Ok(Home { reactor, token })
        })
    }
}

impl<S: AsFd> AsFd for Source<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}

impl<S: AsFd> Drop for Source<S> {
    fn drop(&mut self) {
        if let Some(home) = self.readiness.take_home() {
            home.reactor.remove(home.token, self.io.as_fd());
        }
    }
}

impl<S: AsFd + fmt::Debug> fmt::Debug for Source<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.io.fmt(f)
    }
}
