//! Since when a connection is idle: no request is in flight and no byte waits to be sent.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::instant::Instant;

/// How many requests of a connection are in flight, whether it waits for its peer to take bytes, and when either ended.
#[derive(Clone, Debug)]
pub(super) struct Activity(Arc<Counters>);

#[derive(Debug)]
struct Counters {
    start: Instant,
    in_flight: AtomicUsize,
    /// A request has begun at some time.
    has_begun: AtomicBool,
    /// Only the task of the connection uses it.
    is_writing: AtomicBool,
    /// In nanoseconds after the start.
    last_end: AtomicU64,
}

/// A request in flight.
#[derive(Debug)]
pub(super) struct InFlight(Activity);

pin_project! {
    /// The body of a response. Its request is in flight until the body is dropped.
    #[derive(Debug)]
    pub(super) struct CountedBody<B> {
        #[pin]
        inner: B,
        in_flight: InFlight,
    }
}

impl Activity {
    pub(super) fn new() -> Activity {
        Activity(Arc::new(Counters {
            start: Instant::now(),
            in_flight: AtomicUsize::new(0),
            has_begun: AtomicBool::new(false),
            is_writing: AtomicBool::new(false),
            last_end: AtomicU64::new(0),
        }))
    }

    pub(super) fn begin(&self) -> InFlight {
        self.0.in_flight.fetch_add(1, Ordering::Relaxed);
        self.0.has_begun.store(true, Ordering::Relaxed);
        InFlight(self.clone())
    }

    /// Returns whether the client has sent the head of a request.
    pub(super) fn has_begun(&self) -> bool {
        self.0.has_begun.load(Ordering::Relaxed)
    }

    /// Notes whether bytes wait for the peer. A response can be in hyper's buffer after its request has ended.
    pub(super) fn set_writing(&self, is_writing: bool) {
        self.0.is_writing.store(is_writing, Ordering::Relaxed);
    }

    /// Notes that a request has ended now, or that the peer has taken bytes.
    pub(super) fn note_end(&self) {
        let end = u64::try_from(self.0.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.0.last_end.fetch_max(end, Ordering::Relaxed);
    }

    /// Returns since when the connection is idle; `None` if it is not.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        // Acquire: the time of the end that made the number zero is visible, or a later one.
        let is_idle = self.0.in_flight.load(Ordering::Acquire) == 0 && !self.0.is_writing.load(Ordering::Relaxed);
        is_idle.then(|| self.0.start + Duration::from_nanos(self.0.last_end.load(Ordering::Relaxed)))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.note_end();
        self.0.0.in_flight.fetch_sub(1, Ordering::Release);
    }
}

impl<B> CountedBody<B> {
    pub(super) fn new(inner: B, in_flight: InFlight) -> CountedBody<B> {
        CountedBody { inner, in_flight }
    }
}

impl<B: Body> Body for CountedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.project().inner.poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
