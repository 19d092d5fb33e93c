//! What the web examples share: a server that closes idle connections and shuts down gracefully, and a client that sends plain text.
//!
//! [`serve`] takes any tower service, such as an axum `Router` or tonic's `Routes`. hyper-util runs its connections, HTTP/1 and HTTP/2, and
//! all their timers are Tourbillon's.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tourbillon::adapters::hyper::TourbillonTimer;
use tourbillon::time::{Instant, sleep, sleep_until, timeout};
use tower::{Service, ServiceExt};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How long the client waits for an answer. The examples end with an error and do not hang.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The limits of a server's connections.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// The head of an HTTP/1 request must be complete after this time.
    pub head: Duration,
    /// A connection without a request is closed after this time.
    pub idle: Duration,
    /// After a shutdown has begun, requests have this time to finish.
    pub drain: Duration,
}

/// Serves connections until `shutdown` is ready. Then the server accepts no more, lets requests finish, and returns how many connections it
/// had to cut off because they were not done in time.
pub async fn serve<S, B>(
    listener: TcpListener,
    service: S,
    limits: ConnectionLimits,
    shutdown: impl Future<Output = ()>,
) -> usize
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let (stop, stopping) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve_connection(stream, service.clone(), limits, stopping.clone()));
                }
                // Out of file descriptors, for example: other connections may end meanwhile.
                Err(error) => {
                    eprintln!("cannot accept a connection: {error}");
                    sleep(Duration::from_millis(100)).await;
                }
            },
            // Takes the results of connections that have ended.
            Some(_) = connections.join_next() => {}
            () = shutdown.as_mut() => break,
        }
    }
    drop(listener);
    stop.send_replace(());
    let drained = timeout(limits.drain, async { while connections.join_next().await.is_some() {} }).await;
    if drained.is_err() { connections.len() } else { 0 }
}

/// Serves one connection until it ends, has been idle too long, or has finished its requests after a shutdown.
async fn serve_connection<S, B>(
    stream: TcpStream,
    service: S,
    limits: ConnectionLimits,
    mut stopping: watch::Receiver<()>,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let activity = Activity::new();
    let counter = activity.clone();
    let counted = service_fn(move |request| {
        let (service, in_flight) = (service.clone(), counter.begin());
        async move {
            let response = service.oneshot(request).await?;
            // The request is in flight until its body has been sent: the closure owns the guard.
            Ok::<_, Infallible>(response.map(|body| {
                body.map_frame(move |frame| {
                    let _ = &in_flight;
                    frame
                })
            }))
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TourbillonTimer::new()).header_read_timeout(limits.head);
    builder.http2().timer(TourbillonTimer::new());
    let mut connection = pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), counted));
    let mut idle = pin!(sleep(limits.idle));
    let mut end = End::NotYet;
    loop {
        tokio::select! {
            // An error here is that of one client: it has gone away, or was too slow with its head.
            _ = connection.as_mut() => return,
            () = idle.as_mut(), if end != End::Shutdown => match activity.idle_since() {
                // The client has not even confirmed the end.
                Some(_) if end == End::Idle => return,
                Some(since) if since.elapsed() >= limits.idle => {
                    end = End::Idle;
                    idle.set(sleep(limits.drain));
                }
                Some(since) => idle.set(sleep_until(since + limits.idle)),
                None => idle.set(sleep(limits.idle)),
            },
            _ = stopping.changed(), if end != End::Shutdown => end = End::Shutdown,
        }
        if end != End::NotYet {
            connection.as_mut().graceful_shutdown();
        }
    }
}

/// Why the server ends a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    NotYet,
    Idle,
    Shutdown,
}

/// How many requests of a connection are in flight, and since when there is none.
#[derive(Clone)]
struct Activity(Arc<Mutex<(usize, Instant)>>);

/// A request in flight.
struct InFlight(Activity);

impl Activity {
    fn new() -> Activity {
        Activity(Arc::new(Mutex::new((0, Instant::now()))))
    }

    fn begin(&self) -> InFlight {
        self.0.lock().unwrap().0 += 1;
        InFlight(self.clone())
    }

    /// Returns since when no request is in flight; `None` if one is.
    fn idle_since(&self) -> Option<Instant> {
        let (in_flight, since) = *self.0.lock().unwrap();
        (in_flight == 0).then_some(since)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut activity = self.0.0.lock().unwrap();
        activity.0 -= 1;
        activity.1 = Instant::now();
    }
}

/// Is ready when the process is asked to end, with `SIGTERM`.
///
/// # Errors
/// If the signal cannot be watched.
pub fn terminated() -> io::Result<impl Future<Output = ()>> {
    let mut signal = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    Ok(async move {
        signal.recv().await;
    })
}

/// Sends `SIGTERM` to this process, as an operator would.
///
/// # Errors
/// If the kernel refuses.
pub fn terminate() -> io::Result<()> {
    Ok(rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM)?)
}

/// Sends text over a new connection and returns what comes back until the server closes it.
///
/// # Errors
/// What the connection says, and `TimedOut` if the server does not close it in time.
pub async fn exchange(server: SocketAddr, text: &str) -> io::Result<String> {
    timeout(PATIENCE, async {
        let mut stream = TcpStream::connect(server).await?;
        stream.write_all(text.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    })
    .await?
}

/// Compiles the code in the guide, which uses the same frameworks.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../docs/guide/timeouts-in-web-services.md")]
    struct TimeoutsInWebServices;
}
