//! An HTTP server for any tower service, such as an axum `Router` or tonic's `Routes`, with a limit for everything that a client can delay.
//!
//! [`HttpServer`] takes the place of `axum::serve`, which has none of these limits. hyper-util runs the connections, HTTP/1 and HTTP/2, on Tokio.
//!
//! | limit | what it ends |
//! |---|---|
//! | [`head`](HttpServer::head) | a connection whose client says nothing, or an HTTP/1 client that does not send the whole head of a request |
//! | [`idle`](HttpServer::idle) | a connection without a request |
//! | [`stall`](HttpServer::stall) | a connection whose client does not read its response |
//! | [`ping`](HttpServer::ping) | an HTTP/2 connection whose client has vanished |
//! | [`drain`](HttpServer::drain) | requests that are still running some time after a shutdown has begun |
//!
//! The time of handlers and of request bodies is limited by a layer: `adapters::http`, `adapters::grpc`.

mod activity;
mod stall;

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ::http::{Request, Response};
use ::hyper::body::Incoming;
use ::hyper::rt::{Read, Write};
use ::hyper::service::service_fn;
use http_body::Body;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower_service::Service;

use self::activity::{Activity, CountedBody};
use self::stall::StallLimit;
use crate::adapters::hyper::TourbillonTimer;
use crate::adapters::tower::BoxError;
use crate::entry::Entry;
use crate::instant::Instant;
use crate::outcome::Outcome;
use crate::time::{sleep, timeout};

/// A limit from here on is no limit: a century.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The shortest time between two looks at whether a connection is idle.
const SHORTEST: Duration = Duration::from_millis(1);

/// How long the server waits after it could not accept a connection, for example because there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The limits of an HTTP server, and the server: see [the module](self). [`Duration::MAX`], or any other century, is no limit. A limit for idle
/// connections below a millisecond counts as a millisecond.
///
/// ```
/// use std::convert::Infallible;
/// use std::time::Duration;
///
/// use http::{Request, Response};
/// use tourbillon::adapters::server::HttpServer;
/// use tower::service_fn;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let app = service_fn(|_: Request<_>| async { Ok::<_, Infallible>(Response::new("hello".to_owned())) }); // or an axum `Router`
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// let shutdown = async { /* wait for SIGTERM */ };
/// let cut_off = HttpServer::new()
///     .idle(Duration::from_secs(60))
///     .drain(Duration::from_secs(10))
///     .serve(listener, app, shutdown)
///     .await;
/// assert_eq!(cut_off, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "a server does nothing until `serve` is called"]
pub struct HttpServer {
    head: Duration,
    idle: Duration,
    stall: Duration,
    ping: Duration,
    drain: Duration,
}

/// Why the server ends a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    NotYet,
    /// It was idle, and the client was told so then.
    Idle(Instant),
    /// It was idle, and the client has not confirmed the end in time.
    Unconfirmed,
    Shutdown,
}

/// What the loop that accepts connections goes on with.
enum Event {
    Accepted(io::Result<TcpStream>),
    Shutdown,
}

impl HttpServer {
    /// Returns a server whose limits are 30 seconds each, and for idle connections a minute.
    pub fn new() -> HttpServer {
        let limit = Duration::from_secs(30);
        HttpServer { head: limit, idle: 2 * limit, stall: limit, ping: limit, drain: limit }
    }

    /// Sets the time in which a client must have sent the head of its first request, and an HTTP/1 client that of each further one. It counts
    /// from the beginning of the connection, and then from the end of the last response: so over HTTP/1 a connection between two requests
    /// ends after the shorter of this limit and the [idle](HttpServer::idle) one.
    pub fn head(mut self, limit: Duration) -> HttpServer {
        self.head = limit;
        self
    }

    /// Sets how long a connection may be without a request. Over HTTP/1 a request lasts until the socket has taken its whole response; over
    /// HTTP/2 until its last part is in hyper's buffer, and the socket takes bytes after that.
    pub fn idle(mut self, limit: Duration) -> HttpServer {
        self.idle = limit;
        self
    }

    /// Sets how long the socket of a client may take no byte of a response.
    ///
    /// An HTTP/2 client can let a single stream wait and go on with others, by flow control: this limit does not notice that.
    pub fn stall(mut self, limit: Duration) -> HttpServer {
        self.stall = limit;
        self
    }

    /// Sets how often an HTTP/2 client is asked whether it is there. It has 20 seconds to answer.
    pub fn ping(mut self, interval: Duration) -> HttpServer {
        self.ping = interval;
        self
    }

    /// Sets how long requests may take after a shutdown has begun, and how long a client may take to confirm the end of an idle connection.
    pub fn drain(mut self, limit: Duration) -> HttpServer {
        self.drain = limit;
        self
    }

    /// Serves connections until `shutdown` is ready. Then the server accepts no more and lets requests finish. Returns how many connections
    /// it had to cut off because they were not done in time. Shut the server down before the [engine](crate::Engine::shutdown): without an
    /// engine it keeps no limit, and waits for the last connection.
    ///
    /// A connection that was upgraded, to a WebSocket for example, belongs to the handler that upgraded it: a shutdown does not wait for it.
    ///
    /// # Cancel safety
    /// Dropping the future closes the listener and all connections.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub async fn serve<S, B>(self, listener: TcpListener, service: S, shutdown: impl Future<Output = ()>) -> usize
    where
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Into<BoxError>,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        let (stop, stopping) = watch::channel(());
        let mut connections = JoinSet::new();
        let mut shutdown = pin!(shutdown);
        loop {
            match poll_fn(|context| poll_event(&listener, &mut connections, shutdown.as_mut(), context)).await {
                Event::Accepted(Ok(stream)) => {
                    let mut stopping = stopping.clone();
                    // An error says that the server's future was dropped, and this task will be, too.
                    // A connection that uses up the task's budget in every poll must still notice the shutdown.
                    let stopped = tokio::task::unconstrained(async move { _ = stopping.changed().await });
                    connections.spawn(self.serve_connection(TokioIo::new(stream), service.clone(), stopped));
                }
                Event::Accepted(Err(error)) if is_of_the_client(&error) => {}
                // Other connections may end meanwhile, and free what is missing.
                Event::Accepted(Err(_)) => sleep(ACCEPT_PAUSE).await,
                Event::Shutdown => break,
            }
        }
        drop(listener);
        stop.send_replace(());
        match timeout(self.drain, join_all(&mut connections)).await {
            Ok(()) => 0,
            Err(elapsed) if elapsed.is_stopped() => {
                join_all(&mut connections).await;
                0
            }
            Err(_) => connections.len(),
        }
    }

    /// Serves one connection, for example one with TLS, until it ends, reaches a limit, or has finished its requests after `shutdown` is
    /// ready. The [drain limit](HttpServer::drain) after a shutdown is for the caller to set, with a `timeout`.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub async fn serve_connection<I, S, B>(self, io: I, service: S, shutdown: impl Future<Output = ()>)
    where
        I: Read + Write + Unpin + Send + 'static,
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Into<BoxError>,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        let activity = Activity::new();
        let counter = activity.clone();
        let counted = service_fn(move |request| {
            let (mut service, in_flight) = (service.clone(), counter.begin());
            async move {
                poll_fn(|context| service.poll_ready(context)).await?;
                let response = service.call(request).await?;
                Ok::<_, S::Error>(response.map(|body| CountedBody::new(body, in_flight)))
            }
        });
        let builder = self.builder();
        let io = StallLimit::new(io, self.stall, activity.clone());
        let mut connection = pin!(builder.serve_connection_with_upgrades(io, counted));
        let (mut shutdown, mut timer) = (pin!(shutdown), Entry::after(self.idle_limit(&activity)));
        let mut end = End::NotYet;
        poll_fn(|context| {
            loop {
                // An error here is that of one client: it has gone away, or was too slow.
                if connection.as_mut().poll(context).is_ready() {
                    return Poll::Ready(());
                }
                match ready!(self.poll_end(end, &activity, shutdown.as_mut(), &mut timer, context)) {
                    End::Unconfirmed => return Poll::Ready(()),
                    reason => end = reason,
                }
                connection.as_mut().graceful_shutdown();
            }
        })
        .await;
    }

    fn builder(self) -> auto::Builder<TokioExecutor> {
        // hyper adds the limit to an instant of the standard library, and panics if there is no such instant.
        let limit = |limit: Duration| (limit < FAR).then_some(limit);
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TourbillonTimer::new()).header_read_timeout(limit(self.head));
        builder.http2().timer(TourbillonTimer::new()).keep_alive_interval(limit(self.ping));
        builder
    }

    /// Returns how long the connection may be without a request now. (hyper's own limit for heads begins when the client has said which version of
    /// HTTP it speaks.)
    fn idle_limit(self, activity: &Activity) -> Duration {
        let limit = if activity.has_begun() { self.idle } else { self.idle.min(self.head) };
        limit.max(SHORTEST)
    }

    /// Waits for a reason to end the connection, or for another reason than `end`, which the client has been told.
    fn poll_end(
        self,
        end: End,
        activity: &Activity,
        shutdown: Pin<&mut impl Future<Output = ()>>,
        timer: &mut Entry,
        context: &mut Context<'_>,
    ) -> Poll<End> {
        if end == End::Shutdown {
            return Poll::Pending;
        }
        if shutdown.poll(context).is_ready() {
            return Poll::Ready(End::Shutdown);
        }
        loop {
            // Not by the task's budget: a connection that uses it up in every poll must still reach its limit.
            if ready!(timer.poll(context)) == Outcome::Stopped {
                // Without an engine no limit can be kept: the connection takes no more requests.
                return Poll::Ready(End::Shutdown);
            }
            let (now, limit) = (Instant::now(), self.idle_limit(activity));
            let next = match (activity.idle_since(), end) {
                // A client that has never sent a head gets no time to confirm the end.
                (Some(_), End::Idle(_)) if !activity.has_begun() => return Poll::Ready(End::Unconfirmed),
                (Some(since), End::Idle(told)) if now >= since.max(told) + self.drain => {
                    return Poll::Ready(End::Unconfirmed);
                }
                (Some(since), End::Idle(told)) => since.max(told) + self.drain,
                (Some(since), _) if now >= since + limit => return Poll::Ready(End::Idle(now)),
                (Some(since), _) => since + limit,
                (None, _) => now + limit,
            };
            timer.reset(next);
        }
    }
}

impl Default for HttpServer {
    fn default() -> HttpServer {
        HttpServer::new()
    }
}

async fn join_all(connections: &mut JoinSet<()>) {
    while connections.join_next().await.is_some() {}
}

/// Returns whether only the connection that was to be accepted is affected.
fn is_of_the_client(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
}

/// Waits for a connection or the shutdown, and takes the results of connections that have ended.
fn poll_event(
    listener: &TcpListener,
    connections: &mut JoinSet<()>,
    shutdown: Pin<&mut impl Future<Output = ()>>,
    context: &mut Context<'_>,
) -> Poll<Event> {
    if shutdown.poll(context).is_ready() {
        return Poll::Ready(Event::Shutdown);
    }
    while let Poll::Ready(Some(_)) = connections.poll_join_next(context) {}
    listener.poll_accept(context).map(|accepted| Event::Accepted(accepted.map(|(stream, _)| stream)))
}
