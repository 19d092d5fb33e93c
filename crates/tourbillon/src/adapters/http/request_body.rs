//! The body of a request, which notices that the client has stopped sending.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::adapters::tower::BoxError;
use crate::coop;
use crate::entry::Entry;
use crate::time::poll_delay;

pin_project! {
    /// The body of a request behind an [`HttpTimeout`](super::HttpTimeout).
    ///
    /// It has the frames of the client's body. If the client sends nothing for longer than the
    /// [idle limit](super::HttpTimeoutLayer::body_idle) while the service waits, reading it gives a [`BodyTimeout`] and then its end. After a
    /// shutdown of the engine a read that has to wait gives [`Elapsed`](crate::time::error::Elapsed), and then the end, too.
    pub struct RequestBody<B> {
        #[pin]
        inner: B,
        idle: Duration,
        // Armed while the service waits for the client.
        delay: Option<Entry>,
        // `None` if the body was at its end from the beginning.
        progress: Option<Arc<BodyProgress>>,
    }
}

/// The client sent no part of a request's body for the idle limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BodyTimeout {
    limit: Duration,
}

/// What the response's future must know of the request's body, which the service may read in another task.
///
/// One word that is read for its own value and protects no other data, so relaxed loads and stores suffice.
#[derive(Debug)]
pub(super) struct BodyProgress(AtomicU8);

/// The service has what it has asked for, or has not asked.
const IDLE: u8 = 0;
/// The service waits for the client.
const AWAITED: u8 = 1;
/// The idle limit was reached.
const TIMED_OUT: u8 = 2;
/// The engine was shut down while the service waited.
const STOPPED: u8 = 3;

impl BodyProgress {
    /// Returns whether the service waits for the client.
    pub(super) fn is_awaited(&self) -> bool {
        self.0.load(Ordering::Relaxed) == AWAITED
    }

    /// Returns whether the idle limit was reached.
    pub(super) fn has_timed_out(&self) -> bool {
        self.0.load(Ordering::Relaxed) == TIMED_OUT
    }

    /// Returns whether the body has ended with an error of its own.
    fn has_failed(&self) -> bool {
        matches!(self.0.load(Ordering::Relaxed), TIMED_OUT | STOPPED)
    }

    fn set(&self, progress: u8) {
        self.0.store(progress, Ordering::Relaxed);
    }
}

impl BodyTimeout {
    /// Returns the idle limit.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.limit
    }
}

impl fmt::Display for BodyTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no part of the request body came within {:?}", self.limit)
    }
}

impl Error for BodyTimeout {}

impl<B: Body> RequestBody<B> {
    /// Wraps a body. A body that is at its end, as that of a `GET`, has no progress to watch and allocates nothing.
    pub(super) fn new(inner: B, idle: Duration) -> (RequestBody<B>, Option<Arc<BodyProgress>>) {
        let progress = (!inner.is_end_stream()).then(|| Arc::new(BodyProgress(AtomicU8::new(IDLE))));
        (RequestBody { inner, idle, delay: None, progress: progress.clone() }, progress)
    }
}

impl<B> Body for RequestBody<B>
where
    B: Body<Error: Into<BoxError>>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let this = self.project();
        let Some(progress) = this.progress else {
            return this.inner.poll_frame(context).map(|frame| frame.map(|frame| frame.map_err(Into::into)));
        };
        if progress.has_failed() {
            return Poll::Ready(None);
        }
        let had_budget = coop::has_budget();
        if let Poll::Ready(frame) = this.inner.poll_frame(context) {
            *this.delay = None;
            progress.set(IDLE);
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        progress.set(AWAITED);
        if *this.idle == Duration::MAX {
            return Poll::Pending;
        }
        let delay = this.delay.get_or_insert_with(|| Entry::after(*this.idle));
        match poll_delay(delay, had_budget, context) {
            // After a shutdown of the engine the response's future, which has a timer of its own, answers.
            Poll::Ready(elapsed) if elapsed.is_stopped() => {
                *this.delay = None;
                progress.set(STOPPED);
                Poll::Ready(Some(Err(elapsed.into())))
            }
            Poll::Ready(_) => {
                *this.delay = None;
                progress.set(TIMED_OUT);
                Poll::Ready(Some(Err(BodyTimeout { limit: *this.idle }.into())))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.progress.as_ref().is_some_and(|progress| progress.has_failed()) || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // After its own error the body has ended, but bytes of the client's are missing: no size would be true.
        let has_failed = self.progress.as_ref().is_some_and(|progress| progress.has_failed());
        if has_failed { SizeHint::default() } else { self.inner.size_hint() }
    }
}

impl<B: fmt::Debug> fmt::Debug for RequestBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").field("inner", &self.inner).field("idle", &self.idle).finish_non_exhaustive()
    }
}
