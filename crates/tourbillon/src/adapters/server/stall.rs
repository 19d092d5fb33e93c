//! A connection that fails if its peer takes no byte for a while.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ::hyper::rt::{Read, ReadBufCursor, Write};

use super::activity::Activity;
use crate::coop;
use crate::entry::Entry;
use crate::time::poll_delay;

/// A connection whose writes fail with `TimedOut` if the peer takes no byte for the limit. Reads have no limit.
pub(super) struct StallLimit<I> {
    inner: I,
    limit: Duration,
    activity: Activity,
    // Armed while a write waits for the peer.
    delay: Option<Entry>,
}

impl<I> StallLimit<I> {
    pub(super) fn new(inner: I, limit: Duration, activity: Activity) -> StallLimit<I> {
        StallLimit { inner, limit, activity, delay: None }
    }
}

impl<I: Unpin> StallLimit<I> {
    /// Polls a write, and notes that the peer has taken bytes.
    fn poll_limited_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut I>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let written = self.as_mut().poll_limited(context, write);
        if written.is_ready() {
            self.activity.note_end();
        }
        written
    }

    /// Polls an operation that gives bytes to the peer.
    fn poll_limited<T>(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        operation: impl FnOnce(Pin<&mut I>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let this = &mut *self;
        let had_budget = coop::has_budget();
        if let Poll::Ready(done) = operation(Pin::new(&mut this.inner), context) {
            this.delay = None;
            this.activity.set_writing(false);
            return Poll::Ready(done);
        }
        this.activity.set_writing(true);
        if this.limit == Duration::MAX {
            return Poll::Pending;
        }
        let delay = this.delay.get_or_insert_with(|| Entry::after(this.limit));
        match poll_delay(delay, had_budget, context) {
            // The engine was shut down, so that no limit can be kept. The write has left its waker.
            Poll::Ready(elapsed) if elapsed.is_stopped() => Poll::Pending,
            ended => ended.map(|elapsed| Err(io::Error::new(io::ErrorKind::TimedOut, elapsed))),
        }
    }
}

impl<I: Read + Unpin> Read for StallLimit<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<I: Write + Unpin> Write for StallLimit<I> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_limited_write(context, |inner, context| inner.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_limited_write(context, |inner, context| inner.poll_write_vectored(context, buffers))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_limited(context, Write::poll_flush)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_limited(context, Write::poll_shutdown)
    }
}
