//! A tower layer that puts a timeout on every request to a service.
//!
//! Like `tower::timeout`, which needs Tokio's timer, but under any executor. It also sets the current deadline of the request. For HTTP
//! servers, `adapters::http` (feature `http`) has a layer that makes a response of a timeout.

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
/// The limit can be a function that takes the request and returns a [`Duration`]:
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

/// A service whose responses must not take longer than a limit.
///
/// The time of a request begins with the call. It does not include the wait for the service to become ready, as with tower's own.
///
/// A response is awaited in a [deadline scope](Deadline::scope): the code that produces it reads [`Deadline::current`] to see how much
/// time is left, and an earlier deadline of the caller has precedence.
#[derive(Clone, Copy, Debug)]
pub struct Timeout<S, L = Duration> {
    inner: S,
    limit: L,
}

/// How long the response to a request may take: the same [`Duration`] for all requests, or a function of the request.
/// [`Duration::MAX`] is no limit.
pub trait Limit<Request> {
    /// Returns the limit for this request.
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
    /// Dropping it drops the service's own response. As cancel safe as that response.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    pub struct ResponseFuture<F> {
        #[pin]
        scope: Scope<F>,
    }
}

impl<L> TimeoutLayer<L> {
    /// Creates a layer with this limit for each response.
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
    /// Wraps a service with this limit for each response.
    pub fn new(inner: S, limit: L) -> Timeout<S, L> {
        Timeout { inner, limit }
    }

    /// Returns a reference to the service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns a mutable reference to the service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the service.
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
        // The clock is read before the call, because the time that the service spends in the call counts too.
        let deadline = Deadline::after(self.limit.of(&request));
        let response = deadline.enter(|| self.inner.call(request));
        ResponseFuture { scope: deadline.scope(response) }
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
