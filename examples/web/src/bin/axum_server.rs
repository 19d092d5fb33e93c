//! An axum server with a time limit for each route, idle connections that are closed, and a graceful shutdown on `SIGTERM`.
//!
//!     cargo run -p tourbillon-web-examples --bin axum_server
//!
//! The program is its own client: it checks what it shows, and ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::{get, put};
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tourbillon::adapters::http::HttpTimeoutLayer;
use tourbillon::time::{Deadline, Instant, sleep};
use tourbillon_web_examples::{IDLE, exchange, server, terminate, terminated};

/// The routes, each with its own limit. `reports` is notified when a report begins.
fn routes(reports: Arc<Notify>) -> Router {
    let quote = get(quote).layer(HttpTimeoutLayer::new(Duration::from_millis(50)));
    let report = get(report).layer(HttpTimeoutLayer::new(Duration::from_secs(5)));
    let upload_limit = HttpTimeoutLayer::new(Duration::from_secs(5)).body_idle(Duration::from_millis(50));
    Router::new()
        .route("/quote", quote)
        .route("/report", report)
        .route("/upload", put(upload).layer(upload_limit))
        // A limit for whatever else there is; the stricter of two counts.
        .layer(HttpTimeoutLayer::new(Duration::from_secs(10)))
        .with_state(reports)
}

/// Asks another service, which does not answer.
async fn quote() -> &'static str {
    std::future::pending().await
}

/// Takes a while, but not too long for its route. The limit is in force in every function that it calls.
async fn report(State(reports): State<Arc<Notify>>) -> String {
    reports.notify_one();
    sleep(Duration::from_millis(100)).await;
    let left = Deadline::current().expect("the layer sets the deadline").remaining();
    assert!(left <= Duration::from_millis(4900), "{left:?}");
    "the report\n".to_owned()
}

async fn upload(body: Bytes) -> String {
    format!("{} bytes\n", body.len())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let reports = Arc::new(Notify::new());
    let server = tokio::spawn(server().serve(listener, routes(Arc::clone(&reports)), terminated()?));

    slow_handler(address).await?;
    slow_client(address).await?;
    idle_connection(address).await?;
    shutdown(address, &reports).await?;
    assert_eq!(server.await?, 0, "no request was cut off");
    println!("shutdown: the request in flight was answered, the server has ended");
    Ok(())
}

async fn slow_handler(server: SocketAddr) -> std::io::Result<()> {
    let answer = exchange(server, "GET /quote HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n").await?;
    assert!(answer.starts_with("HTTP/1.1 504 Gateway Timeout\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nno response within 50ms\n"), "{answer}");
    println!("slow handler: 504, no response within 50ms");
    Ok(())
}

async fn slow_client(server: SocketAddr) -> std::io::Result<()> {
    let head = "PUT /upload HTTP/1.1\r\nhost: here\r\ncontent-length: 10\r\n";
    let whole = exchange(server, &format!("{head}connection: close\r\n\r\n0123456789")).await?;
    assert!(whole.ends_with("\r\n\r\n10 bytes\n"), "{whole}");

    // Five bytes of ten. The server says what it was waiting for, and closes the connection itself.
    let half = exchange(server, &format!("{head}\r\n01234")).await?;
    assert!(half.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{half}");
    assert!(half.contains("\r\nconnection: close\r\n"), "{half}");
    assert!(half.ends_with("\r\n\r\nno part of the request body came within 50ms\n"), "{half}");
    println!("slow client: 408, no part of the request body came within 50ms");
    Ok(())
}

async fn idle_connection(server: SocketAddr) -> std::io::Result<()> {
    for request in ["", "GET /report HTTP/1.1\r\nhost: here\r\n\r\n"] {
        let start = Instant::now();
        let answer = exchange(server, request).await?;
        assert_eq!(answer.is_empty(), request.is_empty(), "{answer}");
        assert!(start.elapsed() >= IDLE, "closed too early");
    }
    println!("idle connections: closed, with and without a request before");
    Ok(())
}

async fn shutdown(server: SocketAddr, reports: &Notify) -> Result<(), Box<dyn std::error::Error>> {
    // The request before has left a permit.
    reports.notified().await;
    let request = tokio::spawn(async move { exchange(server, "GET /report HTTP/1.1\r\nhost: here\r\n\r\n").await });
    reports.notified().await;
    terminate()?;
    let answer = request.await??;
    assert!(answer.ends_with("\r\n\r\nthe report\n"), "{answer}");
    Ok(())
}
