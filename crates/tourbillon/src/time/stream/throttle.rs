//! A stream that is slowed down.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use pin_project_lite::pin_project;

use crate::entry::Entry;

pin_project! {
    /// The stream of [`StreamExt::throttle`](super::StreamExt::throttle).
    ///
    /// # Cancel safety
    /// No item is lost if a wait for the next one is dropped.
    #[must_use = "streams do nothing unless polled"]
    pub struct Throttle<S> {
        #[pin]
        stream: S,
        duration: Duration,
        // The time before which no item may come; `None` before the first.
        delay: Option<Entry>,
        // Whether that time is still to come.
        is_held: bool,
    }
}

impl<S> Throttle<S> {
    pub(super) fn new(stream: S, duration: Duration) -> Throttle<S> {
        Throttle { stream, duration, delay: None, is_held: false }
    }

    /// Returns a reference to the stream.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// Returns a mutable reference to the stream. An item that is taken from it directly is not counted.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Returns the stream.
    pub fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: Stream> Stream for Throttle<S> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let this = self.project();
        if let Some(delay) = this.delay.as_mut().filter(|_| *this.is_held) {
            ready!(delay.poll_cooperatively(cx));
            *this.is_held = false;
        }
        let next = ready!(this.stream.poll_next(cx));
        if next.is_some() && !this.duration.is_zero() {
            match this.delay {
                Some(delay) => delay.reset(delay.now() + *this.duration),
                None => *this.delay = Some(Entry::after(*this.duration)),
            }
            *this.is_held = true;
        }
        Poll::Ready(next)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.stream.size_hint()
    }
}

impl<S: fmt::Debug> fmt::Debug for Throttle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttle")
            .field("stream", &self.stream)
            .field("duration", &self.duration)
            .finish_non_exhaustive()
    }
}
