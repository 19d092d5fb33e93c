//! hyper-util's pooled client with Tourbillon's timer: connections that are idle too long leave the pool and are closed.
//!
//!     cargo run -p tourbillon-web-examples --bin pooled_client
//!
//! The server of this program counts the connections that it gets, and those that end.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tourbillon::adapters::hyper::TourbillonTimer;
use tourbillon::time::{Instant, timeout};
use tourbillon_web_examples::PATIENCE;

const POOL_IDLE: Duration = Duration::from_millis(150);

/// What happens to a connection, as the server sees it.
#[derive(PartialEq, Eq, Debug)]
enum Connection {
    Opened,
    Closed,
}

async fn count_connections(listener: TcpListener, events: UnboundedSender<Connection>) {
    while let Ok((stream, _)) = listener.accept().await {
        let events = events.clone();
        let _ = events.send(Connection::Opened);
        tokio::spawn(async move {
            let hello = service_fn(|_| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello"))) });
            let _ =
                http1::Builder::new().timer(TourbillonTimer::new()).serve_connection(TokioIo::new(stream), hello).await;
            let _ = events.send(Connection::Closed);
        });
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let uri: http::Uri = format!("http://{}/", listener.local_addr()?).parse()?;
    let (events, mut seen) = unbounded_channel();
    tokio::spawn(count_connections(listener, events));

    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new())
        .timer(TourbillonTimer::new())
        .pool_timer(TourbillonTimer::new())
        .pool_idle_timeout(POOL_IDLE)
        .build_http();

    for _ in 0..3 {
        let response = timeout(PATIENCE, client.get(uri.clone())).await??;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.into_body().collect().await?.to_bytes(), "hello");
    }
    assert_eq!(seen.recv().await, Some(Connection::Opened));
    assert!(seen.is_empty(), "three requests, one connection");
    println!("three requests used one connection");

    // Nobody uses the client now. The pool's timer alone closes the connection.
    let start = Instant::now();
    assert_eq!(timeout(PATIENCE, seen.recv()).await?, Some(Connection::Closed));
    println!("the pool has closed it after {:?} without a request", start.elapsed());

    timeout(PATIENCE, client.get(uri)).await??;
    assert_eq!(seen.recv().await, Some(Connection::Opened));
    println!("the next request has opened another");
    Ok(())
}
