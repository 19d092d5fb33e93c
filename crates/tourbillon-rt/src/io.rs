//! The future of an I/O operation, and its time limit (F8).
//!
//! # What a limit does
//!
//! The operation is tried before the time is looked at, and once more when the time is over. So what has completed keeps its
//! result and its bytes, however late it is seen (D5); a limit of zero is a try. If that does not succeed either, the wait in the
//! kernel has nobody left to wait for it, the caller gets [`TimedOut`](io::ErrorKind::TimedOut) (D6), and no byte
//! will be taken from the socket or put into it on its behalf: that happens only while the future is polled. A connection attempt is
//! ended by closing its socket.
//!
//! The timer is made when an operation first has to wait: one that does not costs nothing.

use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tourbillon::Outcome;
use tourbillon::time::{Instant, Sleep, sleep_until};

use crate::reactor::{Direction, IoProgress, IoSource, WaiterId};

pin_project! {
    /// An I/O operation. Awaiting it gives its result; [`timeout`](Io::timeout) and [`deadline`](Io::deadline) limit its time.
    ///
    /// # Cancel safety
    /// Dropping it is safe at any time and ends the operation at once: nothing happens on its behalf afterwards. An operation
    /// that moves bytes once has then moved none. Of those that go on until all is done (`read_exact`, `write_all`) it is not
    /// known how far they came.
    #[must_use = "futures do nothing unless they are awaited or polled"]
    #[derive(Debug)]
    pub struct Io<O> {
        operation: O,
        after: Option<Duration>,
        at: Option<Instant>,
        // The timer, once it has to wait.
        #[pin]
        timer: Option<Sleep>,
    }
}

/// What an [`Io`] does. Not for users: its methods may change.
pub trait Operation: sealed::Sealed {
    /// What it gives.
    type Output;

    /// Tries it; pending if it would block, and then the waker is woken when it may not any more.
    #[doc(hidden)]
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Self::Output>>;

    /// Tries it, whatever is known of the socket; `None` if it would block.
    #[doc(hidden)]
    fn last_try(&mut self) -> Option<io::Result<Self::Output>>;

    /// What its end before it has succeeded is called.
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

    /// Gives it so much time, counted from when it first has to wait. Afterwards it is cancelled and gives
    /// [`TimedOut`](io::ErrorKind::TimedOut), unless it has succeeded by then.
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

    /// Gives it until `at`. With a [`timeout`](Io::timeout) too, what comes first counts.
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
        // Something may have happened that the reactor has not heard of yet.
        Poll::Ready(this.operation.last_try().unwrap_or_else(|| Err(this.operation.timed_out())))
    }
}

/// When the time is over of an operation that has to be done by `at`, and `after` that time from now.
fn first(after: Option<Duration>, at: Instant) -> Instant {
    after.and_then(|after| Instant::now().checked_add(after)).map_or(at, |after| after.min(at))
}

/// An operation that is tried on a socket until it does not block.
pub(crate) struct Attempts<'a, S: AsFd, F> {
    source: &'a IoSource<S>,
    direction: Direction,
    waiter: WaiterId,
    attempt: F,
}

/// What is tried: a closure, or something that knows how far it has come.
pub(crate) trait Attempt<S> {
    type Output;

    fn attempt(&mut self, io: &S) -> io::Result<IoProgress<Self::Output>>;

    /// What it gives if there is nothing to do: then nobody waits for the socket.
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

/// How far an operation has come that goes on until all is done: in the error with which it ends before that.
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
    /// So many bytes have been read or written.
    pub done: usize,
    /// Of so many.
    pub of: usize,
    /// What happened then.
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
