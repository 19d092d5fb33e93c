//! A timeout for every request to a service, as a layer for tower.
//!
//! It does what `tower::timeout` does, under any executor: tower's own needs Tokio's timer.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::time::{Deadline, Scope};

/// The error of a service behind a [`Timeout`]: the service's own, or [`Elapsed`](crate::time::error::Elapsed).
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Puts a [`Timeout`] in front of a service.
///
/// ```
/// use std::convert::Infallible;
/// use std::time::Duration;
///
/// use tourbillon::adapters::tower::TimeoutLayer;
/// use tourbillon::time::{error::Elapsed, sleep};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// # futures_lite::future::block_on(async {
/// let service = ServiceBuilder::new().layer(TimeoutLayer::new(Duration::from_millis(5))).service(service_fn(
///     |patience: Duration| async move {
///         sleep(patience).await;
///         Ok::<_, Infallible>("answer")
///     },
/// ));
///
/// assert_eq!(service.clone().oneshot(Duration::ZERO).await.unwrap(), "answer");
/// let error = service.oneshot(Duration::from_secs(60)).await.unwrap_err();
/// assert!(error.is::<Elapsed>());
/// # });
/// ```
///
/// # A limit for each request
/// What takes a request and gives a [`Duration`] can be the limit:
///
/// ```
/// # use std::time::Duration;
/// # use tourbillon::adapters::tower::TimeoutLayer;
/// struct Request {
///     is_upload: bool,
/// }
///
/// let layer = TimeoutLayer::new(|request: &Request| Duration::from_secs(if request.is_upload { 600 } else { 5 }));
/// # let _ = layer;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TimeoutLayer<L = Duration> {
    limit: L,
}

/// A service whose responses are given up when they take too long.
///
/// The time of a request begins with the call. Waiting for the service to become ready is not part of it, as in tower's own.
///
/// A response is awaited in a [deadline scope](Deadline::scope): what works on it can ask [`Deadline::current`] how much time is
/// left, and if the caller has a deadline that is earlier, that one counts.
#[derive(Clone, Copy, Debug)]
pub struct Timeout<S, L = Duration> {
    inner: S,
    limit: L,
}

/// How long the response to a request may take: a [`Duration`] for all of them, or a function of the request.
/// [`Duration::MAX`] is no limit.
pub trait Limit<Request> {
    /// For this request.
    fn of(&self, request: &Request) -> Duration;
}

impl<Request> Limit<Request> for Duration {
    fn of(&self, _: &Request) -> Duration {
        *self
    }
}

impl<Request, F: Fn(&Request) -> Duration> Limit<Request> for F {
    fn of(&self, request: &Request) -> Duration {
        self(request)
    }
}

pin_project! {
    /// The response of a [`Timeout`].
    ///
    /// # Cancel safety
    /// Dropping it drops the service's own response. It is as cancel safe as that is.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    pub struct ResponseFuture<F> {
        #[pin]
        scope: Scope<F>,
    }
}

impl<L> TimeoutLayer<L> {
    /// No response may take longer than that.
    pub fn new(limit: L) -> TimeoutLayer<L> {
        TimeoutLayer { limit }
    }
}

impl<S, L: Clone> Layer<S> for TimeoutLayer<L> {
    type Service = Timeout<S, L>;

    fn layer(&self, inner: S) -> Timeout<S, L> {
        Timeout::new(inner, self.limit.clone())
    }
}

impl<S, L> Timeout<S, L> {
    /// No response of this service may take longer than that.
    pub fn new(inner: S, limit: L) -> Timeout<S, L> {
        Timeout { inner, limit }
    }

    /// The service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service, to change it.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The service alone.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, L, Request> Service<Request> for Timeout<S, L>
where
    S: Service<Request>,
    S::Error: Into<BoxError>,
    L: Limit<Request>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request) -> ResponseFuture<S::Future> {
        // The clock is read before the service gets its hands on the request: what it does in the call counts too.
        let deadline = Deadline::after(self.limit.of(&request));
        ResponseFuture { scope: deadline.scope(self.inner.call(request)) }
    }
}

impl<F, T, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<T, E>>,
    E: Into<BoxError>,
{
    type Output = Result<T, BoxError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match ready!(self.project().scope.poll(context)) {
            Ok(response) => response.map_err(Into::into),
            Err(elapsed) => Err(elapsed.into()),
        })
    }
}
