//! An HTTP server, hyper on this runtime, that answers each request after the delay that it asks for (W10): `GET /250` after a quarter of
//! a second. A request that waits is a timer and a future. It holds no thread: one worker waits with hundreds of them at once, as the
//! client here checks.
//!
//!     cargo run -p tourbillon-rt --all-features --example delayed_reply

use std::convert::Infallible;
use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, client, server};
use tourbillon::adapters::hyper::TourbillonTimer;
use tourbillon_rt::net::{TcpListener, TcpStream};
use tourbillon_rt::time::{Instant, sleep};
use tourbillon_rt::{JoinHandle, Runtime, spawn};

/// The longest delay that a client may ask for.
const LONGEST: Duration = Duration::from_secs(60);

/// The time that a client has to send its request.
const HEADERS: Duration = Duration::from_secs(5);

const MS: Duration = Duration::from_millis(1);

type Failure = Box<dyn Error + Send + Sync>;

/// Accepts connections for ever.
async fn serve(listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                spawn(talk(stream));
            }
            // Out of file descriptors, perhaps: there will be some again.
            Err(error) => {
                eprintln!("cannot accept: {error}");
                sleep(100 * MS).await;
            }
        }
    }
}

/// Answers the requests of one connection, until it is closed.
async fn talk(stream: TcpStream) {
    let mut builder = server::conn::http1::Builder::new();
    builder.timer(TourbillonTimer::new()).header_read_timeout(HEADERS);
    if let Err(error) = builder.serve_connection(stream, service_fn(reply)).await {
        eprintln!("a connection has ended: {error}");
    }
}

async fn reply(request: Request<Incoming>) -> Result<Response<String>, Infallible> {
    let millis = request.uri().path().strip_prefix('/').and_then(|millis| millis.parse().ok());
    let Some(delay) = millis.map(Duration::from_millis).filter(|delay| *delay <= LONGEST) else {
        let mut refusal = Response::new(format!("ask for /0 to /{} milliseconds\n", LONGEST.as_millis()));
        *refusal.status_mut() = StatusCode::BAD_REQUEST;
        return Ok(refusal);
    };
    sleep(delay).await;
    Ok(Response::new(format!("{} ms\n", delay.as_millis())))
}

/// Asks for a path, on a connection of its own. Returns how long the answer took, and its text.
async fn ask(address: SocketAddr, path: String) -> Result<(Duration, StatusCode, String), Failure> {
    let stream = TcpStream::connect(address).timeout(3000 * MS).await?;
    let (mut sender, connection) = client::conn::http1::handshake(stream).await?;
    spawn(connection);
    let request = Request::get(path).header("host", address.to_string()).body(String::new())?;
    let asked = Instant::now();
    let response = sender.send_request(request).await?;
    let took = asked.elapsed();
    let (status, mut body) = (response.status(), response.into_body());
    let mut text = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        text.extend_from_slice(frame?.data_ref().map_or(&[][..], |data| data));
    }
    Ok((took, status, String::from_utf8(text)?))
}

/// Returns the number of threads of this process.
fn threads() -> io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}

fn main() -> Result<(), Failure> {
    let runtime = Runtime::builder().workers(1).build()?;
    println!("on {}", runtime.backend());
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        spawn(serve(listener));

        // Three hundred requests at once, of 200 to 499 ms.
        let (start, before) = (Instant::now(), threads()?);
        let delays = (200..500).map(|millis| millis * MS);
        let asked: Vec<(Duration, JoinHandle<_>)> =
            delays.map(|delay| (delay, spawn(ask(address, format!("/{}", delay.as_millis()))))).collect();
        sleep(100 * MS).await;
        let (waiting, more) = (asked.len(), threads()?.saturating_sub(before));
        println!("{:>4} ms  {waiting} requests wait, on {more} threads more", start.elapsed().as_millis());
        assert_eq!(more, 0);

        for (delay, answer) in asked {
            let (took, status, text) = answer.await??;
            assert_eq!((status, text), (StatusCode::OK, format!("{} ms\n", delay.as_millis())));
            assert!(took >= delay, "an answer after {took:?} that was to take {delay:?}");
        }
        println!("{:>4} ms  all are answered, none early", start.elapsed().as_millis());

        let (_, status, text) = ask(address, "/tomorrow".into()).await?;
        println!("{:>4} ms  /tomorrow: {status}, {}", start.elapsed().as_millis(), text.trim());
        assert_eq!(status, StatusCode::BAD_REQUEST);
        Ok(())
    })
}
