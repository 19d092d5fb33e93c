//! The future of an I/O operation, and its time limit (F8).
//!
//! # What a limit does
//!
//! The future tries the operation before it looks at the time, and once more when the time is over. So an operation that has completed
//! keeps its result and its bytes, however late the future is polled (D5); a limit of zero is one try. If the last try does not succeed
//! either, the future returns [`TimedOut`](io::ErrorKind::TimedOut) (D6), and takes no byte from the socket nor puts one into it
//! afterwards: that happens only while it is polled. A connection attempt ends with its socket, which is closed.
//!
//! The timer is made when an operation first has to wait: one that does not wait costs nothing.

use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tourbillon::Outcome;
use tourbillon::time::{Instant, Sleep, sleep_until};

use crate::clock;
use crate::reactor::{Direction, IoProgress, IoSource, WaiterId};

pin_project! {
    /// An I/O operation. Awaiting it returns its result; [`timeout`](Io::timeout) and [`deadline`](Io::deadline) limit its time.
    ///
    /// # Cancel safety
    /// Dropping it is safe at any time and ends the operation at once: nothing happens on its behalf afterwards. An operation that moves
    /// bytes once has then moved none. After `read_exact` and `write_all`, which move bytes several times, the caller cannot tell how
    /// many bytes they moved.
    #[must_use = "futures do nothing unless they are awaited or polled"]
    #[derive(Debug)]
    pub struct Io<O> {
        operation: O,
        after: Option<Duration>,
        at: Option<Instant>,
        // The timer, once the operation has to wait.
        #[pin]
        timer: Option<Sleep>,
    }
}

/// An operation of an [`Io`]. Not for users: its methods may change.
pub trait Operation: sealed::Sealed {
    /// The result of the operation.
    type Output;

    /// Tries the operation. If it would block, returns pending and wakes the waker when it may not.
    #[doc(hidden)]
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Self::Output>>;

    /// Tries the operation, whatever is known of the socket, and returns `None` if it would block.
    #[doc(hidden)]
    fn last_try(&mut self) -> Option<io::Result<Self::Output>>;

    /// Returns the error of an operation whose time is over.
    #[doc(hidden)]
    fn timed_out(&self) -> io::Error {
        io::Error::new(io::ErrorKind::TimedOut, "the time limit of the operation has passed")
    }
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

impl<O> Io<O> {
    pub(crate) fn new(operation: O) -> Io<O> {
        Io { operation, after: None, at: None, timer: None }
    }

    /// Limits the time of the operation, counted from when it first has to wait. When that is over, the operation returns
    /// [`TimedOut`](io::ErrorKind::TimedOut), unless a last try succeeds.
    ///
    /// ```
    /// use std::io::ErrorKind;
    /// use std::time::Duration;
    /// use tourbillon_rt::{Runtime, net::UdpSocket};
    ///
    /// let runtime = Runtime::builder().workers(1).build()?;
    /// let nothing = runtime.block_on(async {
    ///     let socket = UdpSocket::bind("127.0.0.1:0")?;
    ///     socket.recv(&mut [0; 64]).timeout(Duration::from_millis(2)).await
    /// });
    /// assert_eq!(nothing.unwrap_err().kind(), ErrorKind::TimedOut);
    /// # Ok::<(), tourbillon_rt::BuildError>(())
    /// ```
    pub fn timeout(mut self, after: Duration) -> Io<O> {
        self.after = Some(self.after.map_or(after, |before| before.min(after)));
        self
    }

    /// Limits the operation to end by `at`. With a [`timeout`](Io::timeout) too, the earlier of the two counts.
    pub fn deadline(mut self, at: Instant) -> Io<O> {
        self.at = Some(self.at.map_or(at, |before| before.min(at)));
        self
    }
}

impl<O: Operation> Future for Io<O> {
    type Output = io::Result<O::Output>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Poll::Ready(result) = this.operation.poll(context) {
            return Poll::Ready(result);
        }
        match (&*this.timer, *this.after, *this.at) {
            (None, None, None) => return Poll::Pending,
            (None, Some(after), None) => {
                let (timer, poll) = Sleep::polled(after, context);
                this.timer.set(Some(timer));
                if poll.is_pending() {
                    return Poll::Pending;
                }
            }
            (None, after, Some(at)) => this.timer.set(Some(sleep_until(first(after, at)))),
            (Some(_), ..) => {}
        }
        let Some(mut timer) = this.timer.as_mut().as_pin_mut() else { return Poll::Pending };
        if timer.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        if timer.outcome() == Some(Outcome::Stopped) {
            return Poll::Ready(Err(io::Error::other("the timers of the operation's runtime have been shut down")));
        }
        // The socket may be ready although the reactor has not seen the event yet.
        Poll::Ready(this.operation.last_try().unwrap_or_else(|| Err(this.operation.timed_out())))
    }
}

/// Returns the earlier of `at` and the time `after` from now.
fn first(after: Option<Duration>, at: Instant) -> Instant {
    after.and_then(|after| clock::task_now().checked_add(after)).map_or(at, |after| after.min(at))
}

/// An operation that is tried on a socket until it does not block.
pub(crate) struct Attempts<'a, S: AsFd, F> {
    source: &'a IoSource<S>,
    direction: Direction,
    waiter: WaiterId,
    attempt: F,
}

/// One try of an operation: a closure, or a type that remembers how far the operation has come.
pub(crate) trait Attempt<S> {
    type Output;

    fn attempt(&mut self, io: &S) -> io::Result<IoProgress<Self::Output>>;

    /// Returns the result if there is nothing to do, without a wait for the socket.
    fn without_trying(&self) -> Option<Self::Output> {
        None
    }

    fn timed_out(&self) -> io::Error {
        io::Error::new(io::ErrorKind::TimedOut, "the time limit of the operation has passed")
    }
}

impl<'a, S: AsFd, F: Attempt<S>> Attempts<'a, S, F> {
    pub(crate) fn new(source: &'a IoSource<S>, direction: Direction, attempt: F) -> Attempts<'a, S, F> {
        Attempts { source, direction, waiter: WaiterId::NONE, attempt }
    }
}

impl<S: AsFd, F: Attempt<S>> Operation for Attempts<'_, S, F> {
    type Output = F::Output;

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<F::Output>> {
        if let Some(output) = self.attempt.without_trying() {
            return Poll::Ready(Ok(output));
        }
        self.source.poll(context, self.direction, &mut self.waiter, |io| self.attempt.attempt(io))
    }

    fn last_try(&mut self) -> Option<io::Result<F::Output>> {
        self.source.try_now(|io| self.attempt.attempt(io))
    }

    fn timed_out(&self) -> io::Error {
        self.attempt.timed_out()
    }
}

impl<S: AsFd, F> sealed::Sealed for Attempts<'_, S, F> {}

impl<S: AsFd, F> Drop for Attempts<'_, S, F> {
    fn drop(&mut self) {
        self.source.stop_waiting(self.direction, self.waiter);
    }
}

impl<S, T, F: FnMut(&S) -> io::Result<IoProgress<T>>> Attempt<S> for F {
    type Output = T;

    fn attempt(&mut self, io: &S) -> io::Result<IoProgress<T>> {
        self(io)
    }
}

/// How far an operation that goes on until all is done has come, inside the error with which it ended before that.
///
/// ```
/// # use std::io;
/// fn written(error: &io::Error) -> usize {
///     let incomplete = error.get_ref().and_then(|error| error.downcast_ref::<tourbillon_rt::Incomplete>());
///     incomplete.map_or(0, |incomplete| incomplete.done)
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Incomplete {
    /// The number of bytes that have been read or written.
    pub done: usize,
    /// The number of bytes that were asked for.
    pub of: usize,
    /// The error that ended the operation.
    pub why: io::Error,
}

impl Incomplete {
    pub(crate) fn error(done: usize, of: usize, why: io::Error) -> io::Error {
        io::Error::new(why.kind(), Incomplete { done, of, why })
    }
}

impl std::fmt::Display for Incomplete {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} bytes done: {}", self.done, self.of, self.why)
    }
}

impl std::error::Error for Incomplete {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.why)
    }
}
