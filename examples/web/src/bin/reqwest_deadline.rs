//! reqwest under a `Deadline`: one limit for a whole operation, however many requests and retries it makes.
//!
//!     cargo run -p tourbillon-web-examples --bin reqwest_deadline
//!
//! The server of this program does not answer its first request, and answers the second.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tourbillon::adapters::server::HttpServer;
use tourbillon::time::{Deadline, Instant, sleep, timeout};

/// Fetches a page. A request that has no answer within `attempt` is made again, until the deadline of the caller.
async fn fetch(client: &reqwest::Client, url: &str, attempt: Duration) -> reqwest::Result<String> {
    loop {
        let answer = timeout(attempt, async { client.get(url).send().await?.text().await }).await;
        match answer {
            Ok(done) => return done,
            Err(_) => sleep(Duration::from_millis(1)).await,
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let server = listener.local_addr()?;
    let requests = Arc::new(AtomicUsize::new(0));
    let routes = routes(Arc::clone(&requests));
    tokio::spawn(HttpServer::new().serve(listener, routes, std::future::pending()));
    // No limits of reqwest's own: it would need Tokio's timers for them.
    let client = reqwest::Client::builder().no_proxy().build()?;
    retried(&client, server, &requests).await?;
    given_up(&client, server).await;
    Ok(())
}

fn routes(requests: Arc<AtomicUsize>) -> Router {
    let flaky = move || async move {
        if requests.fetch_add(1, Ordering::Relaxed) == 0 {
            std::future::pending::<()>().await;
        }
        "page"
    };
    Router::new().route("/flaky", get(flaky)).route("/never", get(std::future::pending::<&'static str>))
}

async fn retried(
    client: &reqwest::Client,
    server: SocketAddr,
    requests: &AtomicUsize,
) -> Result<(), Box<dyn std::error::Error>> {
    let url = format!("http://{server}/flaky");
    let deadline = Deadline::after(Duration::from_secs(30));
    let page = deadline.scope(fetch(client, &url, Duration::from_millis(500))).await??;
    assert_eq!(page, "page");
    println!(
        "the page came with request {}, {:?} before the deadline",
        requests.load(Ordering::Relaxed),
        deadline.remaining()
    );
    assert!(requests.load(Ordering::Relaxed) >= 2, "the first request has no answer");
    Ok(())
}

async fn given_up(client: &reqwest::Client, server: SocketAddr) {
    let url = format!("http://{server}/never");
    let start = Instant::now();
    let limit = Duration::from_millis(100);
    let elapsed = Deadline::after(limit).scope(fetch(client, &url, Duration::from_millis(30))).await.unwrap_err();
    assert!(start.elapsed() >= limit, "given up too early");
    println!("a server that never answers: {elapsed}, after {:?}", start.elapsed());
}
