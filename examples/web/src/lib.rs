//! What the web examples share: the limits of a server, `SIGTERM`, and a client that sends plain text.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tourbillon::adapters::server::HttpServer;
use tourbillon::time::timeout;

/// How long the client waits for an answer. The examples end with an error and do not hang.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long a connection may be without a request.
pub const IDLE: Duration = Duration::from_millis(200);

/// Returns a server with its limits for slow, silent and vanished clients, and for the shutdown.
pub fn server() -> HttpServer {
    HttpServer::new()
        .head(Duration::from_secs(5))
        .idle(IDLE)
        .stall(Duration::from_secs(30))
        .ping(Duration::from_secs(20))
        .drain(Duration::from_secs(10))
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
