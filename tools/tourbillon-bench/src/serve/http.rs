//! A small HTTP/1.1 client and a host for webhooks, which cost less than what they measure.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use jiff::Timestamp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A connection that sends one request after the other.
pub(super) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(super) async fn open(address: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, buffer: Vec::with_capacity(1 << 16) })
    }

    /// Sends a request with a JSON body, and returns the status and the body of the answer.
    pub(super) async fn send(&mut self, method: &str, path: &str, body: &str) -> io::Result<(u16, Vec<u8>)> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await?;
        let (head, body) =
            read_message(&mut self.stream, &mut self.buffer).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let status = head.get(9..12).and_then(|status| status.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
        Ok((status, body))
    }
}

/// Reads a head and a body of the length that the head names; `None` at the end of the connection.
async fn read_message(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<(String, Vec<u8>)>> {
    loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
            let length = header(&head, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
            let whole = end + 4 + length;
            while buffer.len() < whole {
                if stream.read_buf(buffer).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            let body = buffer[end + 4..whole].to_vec();
            buffer.drain(..whole);
            return Ok(Some((head, body)));
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// A host that acknowledges every webhook, and records how late it is.
#[derive(Clone, Default)]
pub(super) struct Sink(Arc<Mutex<Vec<Arrival>>>);

/// A webhook that came.
#[derive(Clone, Copy)]
pub(super) struct Arrival {
    pub(super) at: SystemTime,
    /// Nanoseconds after it was due.
    pub(super) late: u64,
}

impl Sink {
    /// Listens on loopback.
    pub(super) async fn start() -> io::Result<(Sink, SocketAddr)> {
        let (sink, listener) = (Sink::default(), TcpListener::bind("127.0.0.1:0").await?);
        let address = listener.local_addr()?;
        let accepting = sink.clone();
        tokio::task::spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::task::spawn_local(accepting.clone().serve(stream));
            }
        });
        Ok((sink, address))
    }

    async fn serve(self, mut stream: TcpStream) {
        let mut buffer = Vec::with_capacity(1 << 12);
        let _not_needed = stream.set_nodelay(true);
        while let Ok(Some((head, _))) = read_message(&mut stream, &mut buffer).await {
            let at = SystemTime::now();
            let due =
                header(&head, "tourbillon-due").and_then(|due| due.parse::<Timestamp>().ok()).map(SystemTime::from);
            let late = due.and_then(|due| at.duration_since(due).ok()).unwrap_or_default();
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arrival { at, late: late.as_nanos() as u64 });
            if stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.is_err() {
                return;
            }
        }
    }

    /// Returns what has come so far.
    pub(super) fn arrivals(&self) -> Vec<Arrival> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns how many have come so far.
    pub(super) fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}
