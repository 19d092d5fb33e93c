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
use tourbillon::time::{Instant, sleep, timeout};
use tourbillon_web_examples::PATIENCE;

const POOL_IDLE: Duration = Duration::from_millis(150);
const REQUESTS: usize = 10;

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

    for _ in 0..REQUESTS {
        let response = timeout(PATIENCE, client.get(uri.clone())).await??;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.into_body().collect().await?.to_bytes(), "hello");
        // The connection goes back into the pool a moment after the response was read.
        sleep(Duration::from_millis(5)).await;
    }
    let (mut opened, mut closed) = (0, 0);
    while let Ok(event) = seen.try_recv() {
        *(if event == Connection::Opened { &mut opened } else { &mut closed }) += 1;
    }
    assert!(opened < REQUESTS, "no connection was used twice");
    println!("{REQUESTS} requests, connections opened: {opened}");

    // The program does not use the client now. The pool's timer alone closes what is in the pool.
    let start = Instant::now();
    while closed < opened {
        assert_eq!(timeout(PATIENCE, seen.recv()).await?, Some(Connection::Closed));
        closed += 1;
    }
    println!("the pool has closed all of them, after {:?} without a request", start.elapsed());

    timeout(PATIENCE, client.get(uri)).await??;
    assert_eq!(timeout(PATIENCE, seen.recv()).await?, Some(Connection::Opened));
    println!("the next request has opened another");
    Ok(())
}
