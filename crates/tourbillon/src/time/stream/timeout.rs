//! Streams whose items have a time limit.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use pin_project_lite::pin_project;

use super::Fuse;
use crate::coop;
use crate::entry::Entry;
use crate::time::error::Elapsed;
use crate::time::interval::Interval;
use crate::time::timeout::poll_delay;

pin_project! {
    /// The stream of [`StreamExt::timeout`](super::StreamExt::timeout).
    ///
    /// # Cancel safety
    /// No item is lost if a wait for the next one is dropped.
    #[must_use = "streams do nothing unless polled"]
    pub struct StreamTimeout<S> {
        #[pin]
        stream: Fuse<S>,
        delay: Entry,
        duration: Duration,
        // Whether the limit of the next item has not been reached yet.
        is_armed: bool,
    }
}

pin_project! {
    /// The stream of [`StreamExt::timeout_repeating`](super::StreamExt::timeout_repeating).
    ///
    /// # Cancel safety
    /// No item is lost if a wait for the next one is dropped.
    #[must_use = "streams do nothing unless polled"]
    pub struct StreamTimeoutRepeating<S> {
        #[pin]
        stream: Fuse<S>,
        interval: Interval,
        // Whether there was an error since the last item because the engine was shut down.
        is_stopped: bool,
    }
}

impl<S> StreamTimeout<S> {
    pub(super) fn new(stream: S, duration: Duration) -> StreamTimeout<S> {
        StreamTimeout { stream: Fuse::new(stream), delay: Entry::after(duration), duration, is_armed: true }
    }
}

impl<S: Stream> Stream for StreamTimeout<S> {
    type Item = Result<S::Item, Elapsed>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.project();
        let had_budget = coop::has_budget();
        if let Poll::Ready(next) = this.stream.poll_next(cx) {
            if next.is_some() {
                this.delay.reset(this.delay.now() + *this.duration);
                *this.is_armed = true;
            } else {
                this.delay.disarm();
            }
            return Poll::Ready(next.map(Ok));
        }
        if !*this.is_armed {
            return Poll::Pending;
        }
        let elapsed = ready!(poll_delay(this.delay, had_budget, cx));
        *this.is_armed = false;
        Poll::Ready(Some(Err(elapsed)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let (items, most) = self.stream.size_hint();
        // One error at most before each item, and one before the end.
        (items, most.and_then(|most| most.checked_mul(2)?.checked_add(1)))
    }
}

impl<S> StreamTimeoutRepeating<S> {
    pub(super) fn new(stream: S, interval: Interval) -> StreamTimeoutRepeating<S> {
        StreamTimeoutRepeating { stream: Fuse::new(stream), interval, is_stopped: false }
    }
}

impl<S: Stream> Stream for StreamTimeoutRepeating<S> {
    type Item = Result<S::Item, Elapsed>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.project();
        let had_budget = coop::has_budget();
        if let Poll::Ready(next) = this.stream.poll_next(cx) {
            if next.is_some() {
                this.interval.reset();
                *this.is_stopped = false;
            }
            return Poll::Ready(next.map(Ok));
        }
        // Without an engine every tick is ready at once, and the errors would never end.
        if *this.is_stopped {
            return Poll::Pending;
        }
        ready!(this.interval.poll_tick_beside(had_budget, cx));
        *this.is_stopped = this.interval.is_stopped();
        Poll::Ready(Some(Err(if *this.is_stopped { Elapsed::engine_stopped() } else { Elapsed::deadline_reached() })))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // Any number of errors can come between the items.
        (self.stream.size_hint().0, None)
    }
}

impl<S> fmt::Debug for StreamTimeout<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let deadline = self.is_armed.then(|| self.delay.deadline());
        f.debug_struct("StreamTimeout")
            .field("duration", &self.duration)
            .field("deadline", &deadline)
            .finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for StreamTimeoutRepeating<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamTimeoutRepeating").field("interval", &self.interval).finish_non_exhaustive()
    }
}
