//! A tower layer that makes the deadline of a gRPC call the current [`Deadline`] of the code that serves it.
//!
//! A gRPC client sends how long it will wait in the header `grpc-timeout`. With [`GrpcDeadlineLayer`] the handler and everything that it
//! calls see the time that is left, and the call ends with the status `DEADLINE_EXCEEDED` when there is none, also in the middle of a stream
//! of responses. It suits tonic and every other gRPC server made of tower services.

mod call_body;
mod timeout_header;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

pub use self::call_body::GrpcBody;
pub use self::timeout_header::{BadGrpcTimeout, grpc_timeout};

use crate::adapters::tower::Limit;
use crate::time::error::Elapsed;
use crate::time::{Deadline, Scope};

/// Puts a [`GrpcDeadline`] in front of a service.
///
/// ```
/// use std::convert::Infallible;
/// use std::time::Duration;
///
/// use http::{Request, Response};
/// use tourbillon::adapters::grpc::GrpcDeadlineLayer;
/// use tourbillon::time::Deadline;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// # futures_lite::future::block_on(async {
/// let service = ServiceBuilder::new().layer(GrpcDeadlineLayer::new(Duration::from_secs(60))).service(service_fn(
///     |_: Request<String>| async move {
///         assert!(Deadline::current().unwrap().remaining() <= Duration::from_millis(5));
///         std::future::pending::<Result<Response<String>, Infallible>>().await
///     },
/// ));
/// let call = Request::post("/shop.Cart/Add").header("grpc-timeout", "5m").body(String::new()).unwrap();
/// assert_eq!(service.oneshot(call).await?.headers()["grpc-status"], "4"); // DEADLINE_EXCEEDED
/// # Ok::<(), Infallible>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug)]
pub struct GrpcDeadlineLayer<L = Duration> {
    limit: L,
}

/// A service whose calls end at the deadline of their client, or at the server's own limit if that is earlier.
///
/// The deadline counts from the call to the end of the response's stream. Before it, the service and the body of its response run in a
/// [deadline scope](Deadline::scope). After it, they are dropped and the client gets `DEADLINE_EXCEEDED`, as trailers if the response has
/// begun. If the engine is shut down, the client gets `UNAVAILABLE`.
///
/// The header is parsed strictly, by the grammar of the gRPC protocol. A call whose header is malformed or repeated does not reach the
/// service: its status is `INVALID_ARGUMENT`. The protocol does not say what a server must do then, and to run the call without a limit
/// would be what its client wants least.
///
/// A request whose content type is there and not `application/grpc`, nor begins with it, such as one to an HTTP route beside the
/// services, passes unchanged, and this layer sets no limit for it.
///
/// # A client that does not read the response
/// The layer cannot end its stream: the server polls a response's body only when its client takes more. The server must, by a limit for
/// writes, `HttpServer::stall` (feature `server`), and by hyper's `keep_alive_interval` if the client has vanished. A client that
/// answers pings and gives a stream no window holds it until its connection ends.
///
/// The server of tonic's feature `transport` reads the header, too, and ends a call with `CANCELLED` by Tokio's timer, up to a millisecond
/// after the deadline. Where both are used, the layer usually ends the call first.
#[derive(Clone, Copy, Debug)]
pub struct GrpcDeadline<S, L = Duration> {
    inner: S,
    limit: L,
}

pin_project! {
    /// The response of a [`GrpcDeadline`].
    ///
    /// # Cancel safety
    /// Dropping it drops the service's own response. As cancel safe as that response.
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    pub struct GrpcDeadlineFuture<F> {
        #[pin]
        state: CallState<F>,
    }
}

pin_project! {
    #[project = CallStateProjection]
    enum CallState<F> {
        Running { #[pin] scope: Scope<F>, given: Duration },
        // The request is no gRPC call.
        Passed { #[pin] future: F },
        Refused { error: BadGrpcTimeout },
    }
}

/// The status of a call that the layer has ended, with its code in the gRPC protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GrpcStatus {
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    Unavailable = 14,
}

impl<L> GrpcDeadlineLayer<L> {
    /// Creates a layer with this limit for calls whose client asks for more or for none: a [`Duration`], or a function of the request.
    /// [`Duration::MAX`] is no limit.
    pub fn new(limit: L) -> GrpcDeadlineLayer<L> {
        GrpcDeadlineLayer { limit }
    }
}

impl Default for GrpcDeadlineLayer {
    /// Creates a layer without a limit of the server's own.
    fn default() -> GrpcDeadlineLayer {
        GrpcDeadlineLayer::new(Duration::MAX)
    }
}

impl<S, L: Clone> Layer<S> for GrpcDeadlineLayer<L> {
    type Service = GrpcDeadline<S, L>;

    fn layer(&self, inner: S) -> GrpcDeadline<S, L> {
        GrpcDeadline { inner, limit: self.limit.clone() }
    }
}

impl<S, L> GrpcDeadline<S, L> {
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

impl<S, L, B, R> Service<Request<B>> for GrpcDeadline<S, L>
where
    S: Service<Request<B>, Response = Response<R>>,
    L: Limit<Request<B>>,
    R: Body,
{
    type Response = Response<GrpcBody<R>>;
    type Error = S::Error;
    type Future = GrpcDeadlineFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if !is_grpc(request.headers()) {
            return GrpcDeadlineFuture { state: CallState::Passed { future: self.inner.call(request) } };
        }
        let asked = match grpc_timeout(request.headers()) {
            Ok(asked) => asked.unwrap_or(Duration::MAX),
            Err(error) => return GrpcDeadlineFuture { state: CallState::Refused { error } },
        };
        let outer = Deadline::current().map_or(Duration::MAX, Deadline::remaining);
        let given = asked.min(self.limit.of(&request)).min(outer);
        // The clock is read before the call, because the time that the service spends in the call counts too.
        let deadline = Deadline::after(given);
        let scope = deadline.scope(deadline.enter(|| self.inner.call(request)));
        GrpcDeadlineFuture { state: CallState::Running { scope, given } }
    }
}

impl<F, R, E> Future for GrpcDeadlineFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body,
{
    type Output = Result<Response<GrpcBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (mut scope, given) = match self.project().state.project() {
            CallStateProjection::Running { scope, given } => (scope, *given),
            CallStateProjection::Passed { future } => {
                return future.poll(context).map_ok(|response| response.map(GrpcBody::passed));
            }
            CallStateProjection::Refused { error } => {
                return Poll::Ready(Ok(refused(GrpcStatus::InvalidArgument.trailers(&error.to_string()))));
            }
        };
        scope.as_mut().poll(context).map(|done| match done {
            Ok(response) => response.map(|response| response.map(|body| GrpcBody::new(body, scope.deadline(), given))),
            Err(elapsed) => Ok(refused(trailers_at_deadline(elapsed, given))),
        })
    }
}

/// Returns whether a request may be a gRPC call: its content type is one of gRPC's, or there is none.
fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_none_or(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// Returns a response without a body whose headers are the trailers of the call.
fn refused<R>(trailers: HeaderMap) -> Response<GrpcBody<R>> {
    let mut response = Response::new(GrpcBody::empty());
    *response.headers_mut() = trailers;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

fn trailers_at_deadline(elapsed: Elapsed, given: Duration) -> HeaderMap {
    if elapsed.is_stopped() {
        GrpcStatus::Unavailable.trailers("the timer engine was shut down")
    } else {
        GrpcStatus::DeadlineExceeded.trailers(&format!("the call did not end within {given:?}"))
    }
}

impl GrpcStatus {
    /// Returns the status as trailers.
    fn trailers(self, message: &str) -> HeaderMap {
        let mut trailers = HeaderMap::with_capacity(3);
        trailers.insert("grpc-status", HeaderValue::from(self as u16));
        trailers.insert("grpc-message", percent_encoded(message));
        trailers
    }
}

/// Encodes a message as the gRPC protocol asks: bytes that are not printable ASCII, and the percent sign, in hexadecimal.
fn percent_encoded(message: &str) -> HeaderValue {
    let mut encoded = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    HeaderValue::from_str(&encoded).expect("printable ASCII is a valid header value")
}

#[cfg(test)]
mod tests {
    use super::percent_encoded;

    #[test]
    fn e4_a_message_is_encoded_so_that_any_text_is_a_header() {
        assert_eq!(percent_encoded("100 µs\n"), "100 %C2%B5s%0A");
        assert_eq!(percent_encoded("5%"), "5%25");
    }
}
