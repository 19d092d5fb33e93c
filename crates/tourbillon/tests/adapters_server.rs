//! `HttpServer`: the limits of connections, in virtual time.
#![cfg(all(feature = "server", feature = "test-util"))]

mod support;

use std::convert::Infallible;
use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use support::hello;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tourbillon::adapters::server::HttpServer;
use tourbillon::time::{Instant, advance, sleep};
use tower::{Service, service_fn};

const SECOND: Duration = Duration::from_secs(1);

/// The length of the response to `/large`.
const LARGE: usize = 100_000;

/// Limits that differ, so that a test sees which one ended the connection.
fn server() -> HttpServer {
    HttpServer::new().head(10 * SECOND).idle(7 * SECOND).stall(5 * SECOND).drain(3 * SECOND)
}

/// A service that answers "hello"; `/minute` after a minute, `/large` with many bytes, `/never` not at all.
fn app()
-> impl Service<Request<Incoming>, Response = Response<String>, Error = Infallible, Future: Send> + Clone + Send + 'static
{
    service_fn(|request: Request<Incoming>| async move {
        match request.uri().path() {
            "/minute" => sleep(60 * SECOND).await,
            "/large" => return Ok(Response::new("x".repeat(LARGE))),
            "/never" => pending().await,
            _ => {}
        }
        Ok(Response::new("hello".to_owned()))
    })
}

/// Opens a connection whose pipe holds this many bytes.
fn connect_with_room(
    room: usize,
    server: HttpServer,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> (DuplexStream, JoinHandle<()>) {
    let (ours, theirs) = duplex(room);
    (ours, tokio::spawn(server.serve_connection(TokioIo::new(theirs), app(), shutdown)))
}

fn connect(server: HttpServer) -> (DuplexStream, JoinHandle<()>) {
    connect_with_room(4096, server, pending())
}

async fn ask(stream: &mut DuplexStream, path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: here\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn e4_a_connection_without_a_request_is_closed_at_the_idle_limit() {
    for requests in 0..3 {
        let (mut stream, connection) = connect(server());
        for _ in 0..requests {
            sleep(6 * SECOND).await;
            ask(&mut stream, "/").await;
            hello(&mut stream).await;
        }
        let start = Instant::now();
        assert_eq!(stream.read(&mut [0; 16]).await.unwrap(), 0);
        assert_eq!(start.elapsed(), 7 * SECOND, "{requests} requests before");
        connection.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn e4_a_connection_is_not_idle_while_its_request_runs() {
    let (mut stream, connection) = connect(server());
    let start = Instant::now();
    ask(&mut stream, "/minute").await;
    hello(&mut stream).await;
    assert_eq!(start.elapsed(), 60 * SECOND);
    assert_eq!(stream.read(&mut [0; 16]).await.unwrap(), 0);
    assert_eq!(start.elapsed(), 67 * SECOND, "the idle time begins with the end of the request");
    connection.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn e4_a_client_that_does_not_finish_its_head_is_disconnected() {
    let (mut stream, connection) = connect(server().idle(Duration::MAX));
    let start = Instant::now();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: this client says no more").await.unwrap();
    connection.await.unwrap();
    assert_eq!(start.elapsed(), 10 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn e4_a_client_that_says_nothing_or_too_little_is_disconnected_at_the_head_limit() {
    for said in [&b""[..], b"P", b"GET /", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let (mut stream, connection) = connect(server().head(2 * SECOND).drain(SECOND));
        let start = Instant::now();
        stream.write_all(said).await.unwrap();
        connection.await.unwrap();
        assert_eq!(start.elapsed(), 2 * SECOND, "{said:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn e4_a_client_that_begins_late_has_no_more_time_for_its_head() {
    let (mut stream, connection) = connect(server().head(5 * SECOND));
    let start = Instant::now();
    sleep(4 * SECOND).await;
    stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    connection.await.unwrap();
    assert_eq!(start.elapsed(), 5 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn e4_limits_of_zero_and_of_centuries_serve_requests() {
    let far = Duration::from_secs(u64::MAX);
    let (mut stream, connection) = connect(HttpServer::new().head(far).idle(Duration::ZERO).stall(far).ping(far));
    ask(&mut stream, "/minute").await;
    hello(&mut stream).await;
    connection.await.unwrap();
}

/// A client that speaks HTTP/2, makes no request, and never stops confirming pings: each poll of its connection uses up the task's budget.
struct Babbler {
    /// What is left of the frame that it is sending.
    rest: &'static [u8],
}

const PREFACE_AND_SETTINGS: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
const CONFIRMED_PING: &[u8] = b"\x00\x00\x08\x06\x01\x00\x00\x00\x0012345678";

impl hyper::rt::Read for Babbler {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let unit = ready!(tokio::task::coop::poll_proceed(context));
        let (said, rest) = self.rest.split_at(self.rest.len().min(buffer.remaining()));
        buffer.put_slice(said);
        self.rest = if rest.is_empty() { CONFIRMED_PING } else { rest };
        unit.made_progress();
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Babbler {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn e4_t12_a_client_that_uses_up_the_budget_of_its_task_is_closed_at_the_idle_limit() {
    let babbler = Babbler { rest: PREFACE_AND_SETTINGS };
    let connection = tokio::spawn(server().serve_connection(babbler, app(), pending()));
    let polls = async || {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    };
    polls().await;
    advance(6 * SECOND).await;
    polls().await;
    assert!(!connection.is_finished(), "the limit is 7 seconds");
    advance(SECOND).await;
    polls().await;
    assert!(connection.is_finished(), "the connection went on after its limit");
    connection.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn e4_a_client_that_reads_nothing_is_disconnected_and_a_slow_one_is_not() {
    let (mut stream, connection) = connect_with_room(1000, server(), pending());
    ask(&mut stream, "/large").await;
    let start = Instant::now();
    let (mut bytes, mut buffer) = (0, [0; 1000]);
    while bytes < LARGE / 2 {
        sleep(4 * SECOND).await;
        let count = stream.read(&mut buffer).await.unwrap();
        assert!(count > 0, "the connection has ended after {bytes} bytes");
        bytes += count;
    }
    assert!(start.elapsed() > 100 * SECOND, "much longer than the limit");
    let stalled = Instant::now();
    connection.await.unwrap();
    assert_eq!(stalled.elapsed(), 5 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn e4_a_shutdown_lets_a_request_finish_and_ends_an_idle_connection_at_once() {
    let after = || sleep(2 * SECOND);
    let (mut busy, busy_connection) = connect_with_room(4096, server(), after());
    let (_idle, idle_connection) = connect_with_room(4096, server(), after());
    let start = Instant::now();
    ask(&mut busy, "/minute").await;
    idle_connection.await.unwrap();
    assert_eq!(start.elapsed(), 2 * SECOND);
    hello(&mut busy).await;
    busy_connection.await.unwrap();
    assert_eq!(start.elapsed(), 60 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn e4_a_server_without_limits_answers_and_waits() {
    let max = Duration::MAX;
    let without = HttpServer::new().head(max).idle(max).stall(max).ping(max).drain(max);
    let (mut stream, connection) = connect(without);
    for _ in 0..2 {
        sleep(3600 * SECOND).await;
        ask(&mut stream, "/").await;
        hello(&mut stream).await;
    }
    drop(stream);
    connection.await.unwrap();
}

#[tokio::test]
async fn e4_a_shutdown_cuts_off_requests_at_the_drain_limit_and_counts_them() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let begun = Arc::new(Notify::new());
    let notify = Arc::clone(&begun);
    let hangs = service_fn(move |_: Request<Incoming>| {
        notify.notify_one();
        pending::<Result<Response<String>, Infallible>>()
    });
    let shutdown = async move { begun.notified().await };
    let served = tokio::spawn(HttpServer::new().drain(Duration::from_millis(10)).serve(listener, hangs, shutdown));
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
    assert_eq!(served.await.unwrap(), 1);
    assert_eq!(stream.read(&mut [0; 16]).await.unwrap(), 0, "the connection is closed");
}
