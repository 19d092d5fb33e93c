//! Timeouts, throttling and chunks for streams, as methods of every stream.

mod chunks_timeout;
mod throttle;
mod timeout;

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use pin_project_lite::pin_project;

pub use self::chunks_timeout::ChunksTimeout;
pub use self::throttle::Throttle;
pub use self::timeout::{StreamTimeout, StreamTimeoutRepeating};

use super::error::ZeroChunk;
use super::interval::Interval;

/// Timeouts, throttling and chunks for every [`Stream`], with the names and meanings of the crate `tokio-stream`.
///
/// Nothing here allocates, but [`chunks_timeout`](StreamExt::chunks_timeout) one vector for each chunk. All of them are `Unpin` if the
/// stream is.
///
/// ```
/// use std::time::Duration;
///
/// use futures_lite::{StreamExt as _, pin, stream};
/// use tourbillon::time::StreamExt as _;
///
/// # futures_lite::future::block_on(async {
/// let messages = stream::iter(1..=7);
/// let chunks: Vec<_> = messages.chunks_timeout(3, Duration::from_secs(1)).collect().await;
/// assert_eq!(chunks, [vec![1, 2, 3], vec![4, 5, 6], vec![7]]);
///
/// let silent = stream::once("hello").chain(stream::pending()).timeout(Duration::from_millis(5));
/// pin!(silent);
/// assert_eq!(silent.next().await, Some(Ok("hello")));
/// assert!(silent.next().await.unwrap().is_err());
/// # });
/// ```
pub trait StreamExt: Stream {
    /// Gives each item a time limit: the stream yields `Ok(item)`, or [`Err(Elapsed)`](super::error::Elapsed) if the next item does not
    /// come within `duration` of the item before it, or of this call.
    ///
    /// After an error the stream can be polled on. There is one error at most between two items; for more see
    /// [`timeout_repeating`](StreamExt::timeout_repeating). An item that is ready wins over a limit that has passed. A limit of zero means
    /// that the stream must never be pending.
    ///
    /// If the engine is shut down, a pending item is an error that [says so](super::error::Elapsed::is_stopped).
    fn timeout(self, duration: Duration) -> StreamTimeout<Self>
    where
        Self: Sized,
    {
        StreamTimeout::new(self, duration)
    }

    /// Yields `Ok(item)`, and [`Err(Elapsed)`](super::error::Elapsed) at each tick of the interval while no item comes.
    ///
    /// Each item [resets](Interval::reset) the interval. An interval whose first tick is at once, as with
    /// [`interval`](super::interval()), makes an error at once if the first item is not ready.
    ///
    /// If the engine is shut down, there is one error that [says so](super::error::Elapsed::is_stopped) for each item that has to be
    /// waited for.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use futures_lite::{StreamExt as _, pin, stream};
    /// use tourbillon::time::{StreamExt as _, interval};
    ///
    /// # futures_lite::future::block_on(async {
    /// let silent = stream::pending::<u32>().timeout_repeating(interval(Duration::from_millis(1)));
    /// pin!(silent);
    /// for _ in 0..3 {
    ///     assert!(silent.next().await.unwrap().is_err());
    /// }
    /// # });
    /// ```
    fn timeout_repeating(self, interval: Interval) -> StreamTimeoutRepeating<Self>
    where
        Self: Sized,
    {
        StreamTimeoutRepeating::new(self, interval)
    }

    /// Slows the stream down: each item comes `duration` or more after the one before it. A duration of zero changes nothing.
    ///
    /// After a shutdown of the engine items are no longer held back.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use futures_lite::{StreamExt as _, stream};
    /// use tourbillon::time::{Instant, StreamExt as _};
    ///
    /// # futures_lite::future::block_on(async {
    /// let start = Instant::now();
    /// assert_eq!(stream::iter(0..3).throttle(Duration::from_millis(2)).count().await, 3);
    /// assert!(start.elapsed() >= Duration::from_millis(4));
    /// # });
    /// ```
    fn throttle(self, duration: Duration) -> Throttle<Self>
    where
        Self: Sized,
    {
        Throttle::new(self, duration)
    }

    /// Collects items into chunks of at most `max_size`. A chunk is complete when it is full, when `duration` has passed since its first
    /// item, or at the end of the stream. No chunk is empty.
    ///
    /// A duration of zero ends a chunk as soon as the stream is pending. After a shutdown of the engine, every duration does.
    ///
    /// # Panics
    /// If `max_size` is zero. [`try_chunks_timeout`](StreamExt::try_chunks_timeout) returns an error instead.
    #[track_caller]
    fn chunks_timeout(self, max_size: usize, duration: Duration) -> ChunksTimeout<Self>
    where
        Self: Sized,
    {
        match self.try_chunks_timeout(max_size, duration) {
            Ok(chunks) => chunks,
            Err(zero) => panic!("{zero}"),
        }
    }

    /// Collects items into chunks as [`chunks_timeout`](StreamExt::chunks_timeout) does, with an error instead of the panic.
    ///
    /// # Errors
    /// [`ZeroChunk`] if `max_size` is zero.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use futures_lite::stream;
    /// use tourbillon::time::StreamExt as _;
    ///
    /// assert!(stream::iter(0..3).try_chunks_timeout(0, Duration::from_secs(1)).is_err());
    /// assert!(stream::iter(0..3).try_chunks_timeout(1, Duration::from_secs(1)).is_ok());
    /// ```
    fn try_chunks_timeout(self, max_size: usize, duration: Duration) -> Result<ChunksTimeout<Self>, ZeroChunk>
    where
        Self: Sized,
    {
        ChunksTimeout::new(self, max_size, duration)
    }
}

impl<S: Stream + ?Sized> StreamExt for S {}

pin_project! {
    /// A stream that is dropped when it has ended, and stays ended.
    struct Fuse<S> {
        #[pin]
        stream: Option<S>,
    }
}

impl<S> Fuse<S> {
    fn new(stream: S) -> Fuse<S> {
        Fuse { stream: Some(stream) }
    }
}

impl<S: Stream> Stream for Fuse<S> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let mut this = self.project();
        let Some(stream) = this.stream.as_mut().as_pin_mut() else { return Poll::Ready(None) };
        let next = stream.poll_next(cx);
        if let Poll::Ready(None) = next {
            this.stream.set(None);
        }
        next
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.stream.as_ref().map_or((0, Some(0)), Stream::size_hint)
    }
}
