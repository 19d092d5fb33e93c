//! A TCP proxy: it connects each client to a server and copies in both directions, with a limit for the connect and one for idle connections.
//!
//! If one side has said all, the other side is told so and can still answer (half-close). A connection is idle when no byte has moved in
//! either direction for a while: a long download in which the client says nothing is not idle.
//!
//!     cargo run -p tourbillon-rt --example tcp_proxy

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_lite::future::try_zip;
use tourbillon_rt::net::{ListenOptions, TcpListener, TcpStream};
use tourbillon_rt::time::{Instant, sleep};
use tourbillon_rt::{Runtime, spawn};

const MS: Duration = Duration::from_millis(1);

#[derive(Clone, Copy)]
struct Limits {
    connect: Duration,
    idle: Duration,
}

/// Accepts clients for ever, and connects each to `server`.
async fn proxy(listener: TcpListener, server: SocketAddr, limits: Limits) {
    loop {
        match listener.accept().await {
            Ok((client, peer)) => {
                spawn(async move {
                    match serve(&client, server, limits).await {
                        Ok((up, down)) => println!("proxy: {peer} has sent {up} bytes and got {down}"),
                        Err(error) => println!("proxy: {peer} is disconnected: {error}"),
                    }
                });
            }
            // Out of file descriptors, perhaps: there will be some again.
            Err(error) => {
                eprintln!("cannot accept: {error}");
                sleep(100 * MS).await;
            }
        }
    }
}

/// Serves one client. Both connections are closed when this returns, also if it was one direction that failed.
async fn serve(client: &TcpStream, server: SocketAddr, limits: Limits) -> io::Result<(u64, u64)> {
    let server = TcpStream::connect(server).timeout(limits.connect).await?;
    let activity = Activity::new(limits.idle);
    try_zip(copy(client, &server, &activity), copy(&server, client, &activity)).await
}

/// Copies until `from` has said all, and tells `to`. Returns how many bytes there were.
async fn copy(from: &TcpStream, to: &TcpStream, activity: &Activity) -> io::Result<u64> {
    let (mut buffer, mut bytes) = (vec![0; 16 * 1024], 0);
    loop {
        let length = match from.read(&mut buffer).deadline(activity.idle_at()).await {
            Ok(0) => {
                to.shutdown(Shutdown::Write)?;
                return Ok(bytes);
            }
            Ok(length) => length,
            // The other direction has moved meanwhile.
            Err(error) if error.kind() == io::ErrorKind::TimedOut && activity.idle_at() > Instant::now() => continue,
            Err(error) => return Err(error),
        };
        activity.note();
        to.write_all(&buffer[..length]).timeout(activity.limit).await?;
        activity.note();
        bytes += length as u64;
    }
}

/// When a byte moved last, in either direction.
struct Activity {
    start: Instant,
    /// In nanoseconds after the start.
    last: AtomicU64,
    limit: Duration,
}

impl Activity {
    fn new(limit: Duration) -> Activity {
        Activity { start: Instant::now(), last: AtomicU64::new(0), limit }
    }

    fn note(&self) {
        self.last.store(self.start.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }

    fn idle_at(&self) -> Instant {
        self.start + Duration::from_nanos(self.last.load(Ordering::Relaxed)) + self.limit
    }
}

/// Starts a proxy to this server and returns its address.
fn start_proxy(server: SocketAddr, limits: Limits) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    spawn(proxy(listener, server, limits));
    Ok(address)
}

/// A server that reads all that its client has to say, and then sends it back.
async fn repeat_all(listener: TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        spawn(async move {
            let all = read_all(&stream).await?;
            stream.write_all(&all).await
        });
    }
}

async fn read_all(stream: &TcpStream) -> io::Result<Vec<u8>> {
    let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(all),
            length => all.extend_from_slice(&buffer[..length]),
        }
    }
}

/// Returns a listener that accepts no connection and has no room left: a client that connects now waits.
async fn full() -> io::Result<(TcpListener, Vec<TcpStream>)> {
    let listener = ListenOptions::new().backlog(0).bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect(address).timeout(100 * MS).await {
        waiting.push(stream);
    }
    Ok((listener, waiting))
}

/// Waits until the proxy closes a connection, and returns after how long.
async fn closed_after(proxy: SocketAddr) -> io::Result<Duration> {
    let start = Instant::now();
    let client = TcpStream::connect(proxy).await?;
    let end = client.read(&mut [0; 16]).timeout(30_000 * MS).await?;
    assert_eq!(end, 0, "the proxy hangs up");
    Ok(start.elapsed())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Runtime::builder().workers(2).build()?;
    println!("on {}", runtime.backend());
    runtime.block_on(async {
        let patient = Limits { connect: 30_000 * MS, idle: 30_000 * MS };
        let server = TcpListener::bind("127.0.0.1:0")?;
        let server_address = server.local_addr()?;
        spawn(repeat_all(server));

        // The server answers only after the client has said all: the proxy passes that on, and the answer comes back.
        let client = TcpStream::connect(start_proxy(server_address, patient)?).await?;
        let question: Vec<u8> = (0..1_000_000_u32).map(|byte| byte as u8).collect();
        client.write_all(&question).await?;
        client.shutdown(Shutdown::Write)?;
        assert!(read_all(&client).await? == question);

        let idle = Limits { idle: 50 * MS, ..patient };
        let after = closed_after(start_proxy(server_address, idle)?).await?;
        println!("a silent client was disconnected after {after:?}");
        assert!(after >= idle.idle);

        let (crowded, _waiting) = full().await?;
        let hasty = Limits { connect: 100 * MS, ..patient };
        let after = closed_after(start_proxy(crowded.local_addr()?, hasty)?).await?;
        println!("the client of a server that cannot be reached was disconnected after {after:?}");
        assert!(after >= hasty.connect);
        Ok(())
    })
}
