//! The body of a gRPC response, which ends at the deadline of the call.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::trailers_at_deadline;
use crate::coop;
use crate::entry::Entry;
use crate::instant::far_future;
use crate::time::error::Elapsed;
use crate::time::{Deadline, poll_delay};

pin_project! {
    /// The body of a response of a [`GrpcDeadline`](super::GrpcDeadline): the service's, until the deadline of the call.
    ///
    /// At the deadline the service's body is dropped, and this one ends with trailers that have the status `DEADLINE_EXCEEDED`.
    pub struct GrpcBody<B> {
        // `None` without a body, and after its end or the deadline.
        #[pin]
        inner: Option<B>,
        // `None` for the response to a request that is no gRPC call: the body has no limit of its own.
        deadline: Option<Deadline>,
        given: Duration,
        // Made when the service's body is pending for the first time.
        delay: Option<Entry>,
        // Whether a frame was ready. The first one may be, also when the deadline has passed.
        has_begun: bool,
    }
}

impl<B> GrpcBody<B> {
    pub(super) fn new(inner: B, deadline: Deadline, given: Duration) -> GrpcBody<B> {
        GrpcBody { deadline: Some(deadline), given, ..GrpcBody::passed(inner) }
    }

    /// Returns the body of a response to a request that is no gRPC call.
    pub(super) fn passed(inner: B) -> GrpcBody<B> {
        GrpcBody::unlimited(Some(inner))
    }

    fn unlimited(inner: Option<B>) -> GrpcBody<B> {
        GrpcBody { inner, deadline: None, given: Duration::MAX, delay: None, has_begun: false }
    }

    pub(super) fn empty() -> GrpcBody<B> {
        GrpcBody::unlimited(None)
    }
}

impl<B: Body> Body for GrpcBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let Some(inner) = this.inner.as_mut().as_pin_mut() else { return Poll::Ready(None) };
        let Some(deadline) = *this.deadline else { return inner.poll_frame(context) };
        let had_budget = coop::has_budget();
        // A stream that is always ready must not go on beyond the deadline.
        let elapsed = if *this.has_begun && deadline.is_past() {
            Elapsed::deadline_reached()
        } else {
            if let Poll::Ready(frame) = deadline.enter(|| inner.poll_frame(context)) {
                *this.has_begun = true;
                // After its trailers or its end, the body must not get the trailers of a deadline that comes later.
                if frame.as_ref().is_none_or(|frame| frame.as_ref().is_ok_and(Frame::is_trailers)) {
                    this.inner.set(None);
                    *this.delay = None;
                }
                return Poll::Ready(frame);
            }
            let deadline = deadline.instant().unwrap_or_else(far_future);
            let delay = this.delay.get_or_insert_with(|| Entry::until(deadline));
            ready!(poll_delay(delay, had_budget, context))
        };
        this.inner.set(None);
        *this.delay = None;
        Poll::Ready(Some(Ok(Frame::trailers(trailers_at_deadline(elapsed, *this.given)))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.inner, self.deadline) {
            (None, _) => SizeHint::with_exact(0),
            (Some(inner), None) => inner.size_hint(),
            // The deadline can end the body earlier, but then with an error: an exact size would be a promise.
            (Some(_), Some(_)) => SizeHint::default(),
        }
    }
}

impl<B: fmt::Debug> fmt::Debug for GrpcBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcBody").field("inner", &self.inner).field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
