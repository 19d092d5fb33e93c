//! A tower layer for HTTP servers that answers slow requests itself: 504 for a slow handler, 408 for a slow client.
//!
//! It suits every server made of tower services: axum, hyper with hyper-util, and others. Unlike [`tower::TimeoutLayer`], it has no error
//! of its own that the program must turn into a response.
//!
//! | what happened | status | what the body says, for example |
//! |---|---|---|
//! | the service had no response at the limit | 504 Gateway Timeout | `no response within 5s` |
//! | at the limit, the service was waiting for the request's body | 408 Request Timeout | `the request body was not complete within 5s` |
//! | the client sent no part of the body for the [idle limit](HttpTimeoutLayer::body_idle) | 408 Request Timeout | `no part of the request body came within 2s` |
//! | the engine was shut down | 503 Service Unavailable | `the timer engine was shut down` |
//!
//! [`tower::TimeoutLayer`]: crate::adapters::tower::TimeoutLayer

mod request_body;
mod response_body;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use ::http::{Request, Response, StatusCode, Version};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

pub use self::request_body::{BodyTimeout, RequestBody};
pub use self::response_body::ResponseBody;

use self::request_body::BodyProgress;
use crate::adapters::tower::Limit;
use crate::time::error::Elapsed;
use crate::time::{Deadline, Scope};

/// Puts an [`HttpTimeout`] in front of a service.
///
/// ```
/// use std::convert::Infallible;
/// use std::time::Duration;
///
/// use http::{Request, Response, StatusCode};
/// use tourbillon::adapters::http::{HttpTimeoutLayer, RequestBody};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// # futures_lite::future::block_on(async {
/// let service = ServiceBuilder::new().layer(HttpTimeoutLayer::new(Duration::from_millis(5))).service(service_fn(
///     |request: Request<RequestBody<String>>| async move {
///         if request.uri().path() == "/slow" {
///             std::future::pending::<()>().await;
///         }
///         Ok::<_, Infallible>(Response::new(String::from("answer")))
///     },
/// ));
///
/// let request = |path: &str| Request::get(path).body(String::new()).unwrap();
/// assert_eq!(service.clone().oneshot(request("/")).await?.status(), StatusCode::OK);
/// assert_eq!(service.oneshot(request("/slow")).await?.status(), StatusCode::GATEWAY_TIMEOUT);
/// # Ok::<(), Infallible>(())
/// # }).unwrap();
/// ```
///
/// # A limit for each route
/// A framework with routes puts a layer of its own on each, such as axum with `MethodRouter::route_layer`. Without one the limit can be a
/// function of the request:
///
/// ```
/// # use std::time::Duration;
/// # use tourbillon::adapters::http::HttpTimeoutLayer;
/// use http::Request;
///
/// fn limit<B>(request: &Request<B>) -> Duration {
///     Duration::from_secs(if request.uri().path().starts_with("/upload/") { 600 } else { 5 })
/// }
///
/// let layer = HttpTimeoutLayer::new(limit::<String>).body_idle(Duration::from_secs(10));
/// # let _ = layer;
/// ```
///
/// If two layers are nested, the shorter limit counts.
#[derive(Clone, Copy, Debug)]
pub struct HttpTimeoutLayer<L = Duration> {
    limit: L,
    body_idle: Duration,
}

/// A service that answers by itself when a request takes too long: see [the module](self).
///
/// The limit counts from the call to the response's head; a body that the service streams afterwards has as much time as it needs.
/// The service runs in a [deadline scope](Deadline::scope): its code reads [`Deadline::current`] to see how much time is left, and an
/// earlier deadline of the caller has precedence.
///
/// At the limit the service's future is dropped. If the client was slow with its body the status is 408, also if the service has made
/// a response of the error that it read from the body. Over HTTP/1 that response has `Connection: close`: the server will not wait for the
/// rest of the body, so the connection cannot carry another request. Over HTTP/2 only the stream ends.
///
/// # A client that does not read the response
/// The layer cannot end it: the server polls a response's body only when its client takes more. The server must, by a limit for
/// writes: `HttpServer::stall` (feature `server`), the socket option `TCP_USER_TIMEOUT`, or for an HTTP/2 client that has vanished
/// hyper's `keep_alive_interval`.
#[derive(Clone, Copy, Debug)]
pub struct HttpTimeout<S, L = Duration> {
    inner: S,
    layer: HttpTimeoutLayer<L>,
}

pin_project! {
    /// The response of an [`HttpTimeout`].
    ///
    /// # Cancel safety
    /// Dropping it drops the service's own response. As cancel safe as that response.
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    pub struct HttpTimeoutFuture<F> {
        #[pin]
        scope: Scope<F>,
        // The time that the request was given: the limit, or what its caller had left.
        given: Duration,
        body_idle: Duration,
        // `None` for a request without a body.
        body: Option<Arc<BodyProgress>>,
        version: Version,
    }
}

/// Why a request was not answered by the service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    SlowService { limit: Duration },
    SlowBody { limit: Duration },
    IdleBody { limit: Duration },
    EngineStopped,
}

impl<L> HttpTimeoutLayer<L> {
    /// Creates a layer with this limit for each response: a [`Duration`], or a function of the request. [`Duration::MAX`] is no limit.
    pub fn new(limit: L) -> HttpTimeoutLayer<L> {
        HttpTimeoutLayer { limit, body_idle: Duration::MAX }
    }

    /// Sets how long the service may wait for the next part of a request's body before the client is answered 408.
    ///
    /// The limit counts while the service waits for the client, and begins anew with each part of the body that comes, however small: a
    /// client that sends a byte now and then is bounded only by the limit of the whole. A service that does not read the body, or pauses
    /// between two reads, does not use up the client's time. Without this call there is no such limit.
    #[must_use]
    pub fn body_idle(mut self, limit: Duration) -> HttpTimeoutLayer<L> {
        self.body_idle = limit;
        self
    }
}

impl<S, L: Clone> Layer<S> for HttpTimeoutLayer<L> {
    type Service = HttpTimeout<S, L>;

    fn layer(&self, inner: S) -> HttpTimeout<S, L> {
        HttpTimeout { inner, layer: self.clone() }
    }
}

impl<S, L> HttpTimeout<S, L> {
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

impl<S, L, B, R> Service<Request<B>> for HttpTimeout<S, L>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>>,
    L: Limit<Request<B>>,
    B: Body,
    R: Body<Data: From<String>>,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = HttpTimeoutFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The clock is read before the call, because the time that the service spends in the call counts too.
        let limit = self.layer.limit.of(&request);
        let outer = Deadline::current().map_or(Duration::MAX, Deadline::remaining);
        let deadline = Deadline::after(limit);

        let version = request.version();
        let body_idle = self.layer.body_idle;
        let (head, body) = request.into_parts();
        let (body, progress) = RequestBody::new(body, body_idle);
        let response = deadline.enter(|| self.inner.call(Request::from_parts(head, body)));
        HttpTimeoutFuture {
            scope: deadline.scope(response),
            given: limit.min(outer),
            body_idle,
            body: progress,
            version,
        }
    }
}

impl<F, R, E> Future for HttpTimeoutFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body<Data: From<String>>,
{
    type Output = Result<Response<ResponseBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = this.scope.poll(context);
        let body = this.body.as_ref();
        let cause = match &response {
            // The service may have swallowed the error of the body, or made a response of it.
            _ if body.is_some_and(|body| body.has_timed_out()) => Cause::IdleBody { limit: *this.body_idle },
            Poll::Ready(Err(elapsed)) => at_limit(*elapsed, *this.given, body),
            Poll::Ready(Ok(_)) | Poll::Pending => {
                return response.map(|done| match done {
                    Ok(answer) => answer.map(|answer| answer.map(ResponseBody::of_service)),
                    Err(_) => unreachable!("the arm above answers a timeout"),
                });
            }
        };
        Poll::Ready(Ok(cause.response(*this.version)))
    }
}

/// Returns the cause for a limit that was reached: the service or the client was slow, or the engine was stopped.
fn at_limit(elapsed: Elapsed, limit: Duration, body: Option<&Arc<BodyProgress>>) -> Cause {
    // The service may have dropped the body while it waited for it: then this is the last reference.
    let is_awaited = |body: &Arc<BodyProgress>| body.is_awaited() && Arc::strong_count(body) > 1;
    if elapsed.is_stopped() {
        Cause::EngineStopped
    } else if body.is_some_and(is_awaited) {
        Cause::SlowBody { limit }
    } else {
        Cause::SlowService { limit }
    }
}

impl Cause {
    fn status(self) -> StatusCode {
        match self {
            Cause::SlowService { .. } => StatusCode::GATEWAY_TIMEOUT,
            Cause::SlowBody { .. } | Cause::IdleBody { .. } => StatusCode::REQUEST_TIMEOUT,
            Cause::EngineStopped => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn text(self) -> String {
        match self {
            Cause::SlowService { limit } => format!("no response within {limit:?}\n"),
            Cause::SlowBody { limit } => format!("the request body was not complete within {limit:?}\n"),
            Cause::IdleBody { limit } => format!("no part of the request body came within {limit:?}\n"),
            Cause::EngineStopped => "the timer engine was shut down\n".to_owned(),
        }
    }

    fn response<R>(self, version: Version) -> Response<ResponseBody<R>> {
        let mut response = Response::new(ResponseBody::of_text(self.text()));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        // HTTP/2 and later forbid the header.
        if self.status() == StatusCode::REQUEST_TIMEOUT && version <= Version::HTTP_11 {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
