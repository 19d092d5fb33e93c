//! A stream of chunks.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use pin_project_lite::pin_project;

use super::Fuse;
use crate::coop;
use crate::entry::Entry;
use crate::time::error::ZeroChunk;
use crate::time::timeout::poll_delay;

/// The most items for which a chunk reserves memory in advance: the size is a limit, and may be far more than will ever come.
const RESERVED: usize = 1024;

pin_project! {
    /// The stream of [`StreamExt::chunks_timeout`](super::StreamExt::chunks_timeout).
    ///
    /// # Cancel safety
    /// No item is lost if a wait for the next chunk is dropped: it is in the chunk after.
    #[must_use = "streams do nothing unless polled"]
    pub struct ChunksTimeout<S: Stream> {
        #[pin]
        stream: Fuse<S>,
        max_size: usize,
        duration: Duration,
        items: Vec<S::Item>,
        // Armed while there are items.
        delay: Option<Entry>,
    }
}

impl<S: Stream> ChunksTimeout<S> {
    pub(super) fn new(stream: S, max_size: usize, duration: Duration) -> Result<ChunksTimeout<S>, ZeroChunk> {
        if max_size == 0 {
            return Err(ZeroChunk);
        }
        Ok(ChunksTimeout { stream: Fuse::new(stream), max_size, duration, items: Vec::new(), delay: None })
    }

    /// Takes the items of the chunk that is not complete yet.
    pub fn into_remainder(self: Pin<&mut Self>) -> Vec<S::Item> {
        let this = self.project();
        *this.delay = None;
        mem::take(this.items)
    }
}

impl<S: Stream> Stream for ChunksTimeout<S> {
    type Item = Vec<S::Item>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Vec<S::Item>>> {
        let mut this = self.project();
        let had_budget = coop::has_budget();
        loop {
            match this.stream.as_mut().poll_next(cx) {
                Poll::Ready(Some(item)) => {
                    if this.items.is_empty() {
                        *this.delay = Some(Entry::after(*this.duration));
                        this.items.reserve_exact(RESERVED.min(*this.max_size));
                    }
                    this.items.push(item);
                    if this.items.len() >= *this.max_size {
                        break;
                    }
                }
                Poll::Ready(None) if this.items.is_empty() => return Poll::Ready(None),
                Poll::Ready(None) => break,
                Poll::Pending => {
                    let Some(delay) = this.delay else { return Poll::Pending };
                    ready!(poll_delay(delay, had_budget, cx));
                    break;
                }
            }
        }
        *this.delay = None;
        Poll::Ready(Some(mem::take(this.items)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let (items, most) = self.stream.size_hint();
        let collected = self.items.len();
        // Full chunks at the least, single items at the most; what is collected already is in one chunk.
        let chunks = items.saturating_add(collected).div_ceil(self.max_size);
        (chunks, most.and_then(|most| most.checked_add(usize::from(collected > 0))))
    }
}

impl<S: Stream> fmt::Debug for ChunksTimeout<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunksTimeout")
            .field("max_size", &self.max_size)
            .field("duration", &self.duration)
            .field("collected", &self.items.len())
            .finish_non_exhaustive()
    }
}
