//! Asks a process for its counts: `GET /stats` over a loopback address or a Unix socket.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;
use tourbillon::inspect::{Address, PROTOCOL};

use super::counts::Look;
use crate::text::clean;

/// The reason why a look failed.
#[derive(Debug)]
pub(crate) enum LookError {
    /// No process listens at the address.
    NobodyListens { address: Address, error: io::Error },
    /// The system refuses this user the connection, or it broke.
    Connection { address: Address, error: io::Error },
    /// A process listens, and does not answer as a view does.
    NoView { address: Address, answer: String },
    /// The process has another version of the crate, with another protocol.
    OtherProtocol { theirs: u64, version: String },
}

/// How long a process may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest answer; one with a hundred engines has about a megabyte.
const LONGEST: u64 = 16 << 20;
/// What is shown of an answer that is not ours.
const SHOWN: usize = 60;

const REQUEST: &str = "GET /stats HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Looks once.
pub(crate) fn look(address: &Address) -> Result<Look, LookError> {
    let answer = ask(address).map_err(|error| {
        let address = address.clone();
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => LookError::NobodyListens { address, error },
            _ => LookError::Connection { address, error },
        }
    })?;
    read_answer(&answer).unwrap_or_else(|| {
        let answer = String::from_utf8_lossy(&answer);
        let first = answer.lines().next().unwrap_or_default().chars().take(SHOWN).collect();
        Err(LookError::NoView { address: address.clone(), answer: first })
    })
}

fn ask(address: &Address) -> io::Result<Vec<u8>> {
    match address {
        Address::Tcp(address) => {
            let stream = TcpStream::connect_timeout(address, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            exchange(stream)
        }
        #[cfg(unix)]
        Address::Unix(path) => {
            let stream = connect_unix(path.clone())?;
            stream.set_read_timeout(Some(PATIENCE))?;
            exchange(stream)
        }
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Connects on a thread of its own: a process that hangs accepts nothing, and a `connect` to a Unix socket has no time limit.
#[cfg(unix)]
fn connect_unix(path: std::path::PathBuf) -> io::Result<std::os::unix::net::UnixStream> {
    let (sender, connected) = std::sync::mpsc::channel();
    // An error says that the wait below has ended.
    std::thread::Builder::new().spawn(move || _ = sender.send(std::os::unix::net::UnixStream::connect(path)))?;
    connected.recv_timeout(PATIENCE).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Sends the request and reads the answer to its end, all within the time limit.
fn exchange(mut stream: impl Read + Write) -> io::Result<Vec<u8>> {
    let ends = Instant::now() + PATIENCE;
    stream.write_all(REQUEST.as_bytes())?;
    let mut answer = Vec::new();
    let mut part = [0; 16 * 1024];
    loop {
        let length = match stream.read(&mut part) {
            Ok(length) => length,
            // A stranger may close the connection rudely after its answer.
            Err(_) if !answer.is_empty() => 0,
            Err(error) => return Err(error),
        };
        answer.extend_from_slice(&part[..length]);
        if length == 0 || answer.len() as u64 > LONGEST {
            return Ok(answer);
        }
        if Instant::now() > ends {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

/// Returns the counts or the protocol that does not match; `None` if this is not an answer of a view.
fn read_answer(answer: &[u8]) -> Option<Result<Look, LookError>> {
    let text = str::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let is_good = head.split(' ').nth(1) == Some("200");
    let value: Value = serde_json::from_str(body).ok().filter(|_| is_good)?;
    let theirs = value["protocol"].as_u64()?;
    if theirs != u64::from(PROTOCOL) {
        let version = clean(value["version"].as_str().unwrap_or("unknown"));
        return Some(Err(LookError::OtherProtocol { theirs, version }));
    }
    serde_json::from_value(value).ok().map(Ok)
}

impl fmt::Display for LookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LookError::NobodyListens { address, error } => write!(
                f,
                "nobody listens at {address} ({error}). The process to watch needs the feature `inspect` of the crate tourbillon, and the \
                 line `let _inspector = tourbillon::inspect::serve({:?})?;`",
                address.to_string()
            ),
            LookError::Connection { address, error } => match error.kind() {
                io::ErrorKind::PermissionDenied => write!(
                    f,
                    "{address} may be opened only by the user that the process runs as: run this command as that user"
                ),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    write!(f, "the process at {address} does not answer within {} s", PATIENCE.as_secs())
                }
                _ => write!(f, "the connection to {address} failed: {error}"),
            },
            LookError::NoView { address, answer } => {
                write!(f, "the process at {address} serves no view of Tourbillon's timers; it answered {answer:?}")
            }
            LookError::OtherProtocol { theirs, version } => write!(
                f,
                "the process has tourbillon {version}, whose view has version {theirs}; this command knows version {PROTOCOL}: use the \
                 command of tourbillon {version}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(body: &str) -> Option<Result<Look, LookError>> {
        read_answer(format!("HTTP/1.1 200 OK\r\nA: b\r\n\r\n{body}").as_bytes())
    }

    #[test]
    fn e9_an_answer_is_counts_another_protocol_or_not_of_a_view() {
        let counts = r#"{"protocol":1,"version":"0.1.0","program":"a","pid":7,"started_ms":1,"elapsed_ns":5,"cpu_ns":null,
            "cores":2,"engines":[],"a field of the future":[]}"#;
        assert!(matches!(answer(counts), Some(Ok(Look { pid: 7, cpu_ns: None, .. }))));
        let other = answer(r#"{"protocol":2,"version":"9.0.0"}"#);
        let Some(Err(error @ LookError::OtherProtocol { theirs: 2, .. })) = other else { panic!("{other:?}") };
        assert!(error.to_string().contains("tourbillon 9.0.0"), "{error}");
        for stranger in ["", "hello", "{}", r#"{"protocol":"one"}"#, r#"{"protocol":1}"#, "[1]"] {
            assert!(answer(stranger).is_none(), "{stranger}");
        }
        assert!(read_answer(b"HTTP/1.1 404 Not Found\r\n\r\n{\"protocol\":2}").is_none());
        assert!(read_answer(b"\xff\xff").is_none() && read_answer(b"SSH-2.0-OpenSSH").is_none());
    }
}
