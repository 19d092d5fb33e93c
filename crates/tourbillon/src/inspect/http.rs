//! As much of HTTP/1.1 as a live view needs: one request for each connection, `GET` and `HEAD` only.

use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::inspect::{Address, Inspected};

/// A connection whose reads can be limited in time.
pub(crate) trait Stream: Read + Write {
    /// Makes each read and write fail after this time.
    fn limit(&self, time: Duration) -> io::Result<()>;

    /// Tells the client that the answer is complete.
    fn finish(&self) -> io::Result<()>;
}

/// An answer: its status line, the type of its body, and the body.
#[derive(PartialEq, Eq, Debug)]
struct Answer {
    status: &'static str,
    kind: &'static str,
    body: String,
}

/// Longest head of a request; browsers send about one kilobyte.
const LONGEST_HEAD: usize = 16 * 1024;
/// How long a client may take to send its request.
const PATIENCE: Duration = Duration::from_secs(5);

/// How much of a request is read, and for how long, after the answer.
const LONGEST_REST: usize = 1 << 20;
const FAREWELL: Duration = Duration::from_secs(1);

const PAGE: &str = include_str!("page.html");
const TEXT: &str = "text/plain; charset=utf-8";

/// Headers of every answer. The page is its own only source of scripts and styles, and no other page may read or frame it.
const HEADERS: &str = "Connection: close\r\n\
    Cache-Control: no-store\r\n\
    Content-Security-Policy: default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
    Cross-Origin-Resource-Policy: same-origin\r\n\
    Referrer-Policy: no-referrer\r\n\
    X-Content-Type-Options: nosniff\r\n";

/// Answers one request. Errors mean that the client has gone or was too slow, and are of no interest to the process.
pub(crate) fn answer_one(stream: &mut impl Stream, address: &Address, inspected: &Inspected) -> io::Result<()> {
    let head = read_head(stream)?;
    let answer = answer(&head, address, || inspected.json());
    let allow = if answer.status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let length = answer.body.len();
    let head_only = head.starts_with(b"HEAD ");
    let body = if head_only { "" } else { &answer.body };
    let text = format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {length}\r\n{allow}{HEADERS}\r\n{body}",
        answer.status, answer.kind
    );
    stream.limit(PATIENCE)?;
    stream.write_all(text.as_bytes())?;
    stream.finish()?;
    read_rest(stream)
}

/// Reads what the client still sends, as the body of a request that is refused. A socket that is closed with unread bytes resets the
/// connection, and the client may lose the answer.
fn read_rest(stream: &mut impl Stream) -> io::Result<()> {
    let ends = Instant::now() + FAREWELL;
    let mut part = [0; 2048];
    let mut rest = 0;
    stream.limit(FAREWELL)?;
    while rest < LONGEST_REST && Instant::now() < ends {
        match stream.read(&mut part)? {
            0 => break,
            length => rest += length,
        }
    }
    Ok(())
}

/// Reads up to the empty line that ends a head. Returns what was read if the head is too long.
fn read_head(stream: &mut impl Stream) -> io::Result<Vec<u8>> {
    let ends = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let mut part = [0; 2048];
    while !is_whole(&head) && head.len() <= LONGEST_HEAD {
        // A limit of zero would be none.
        stream.limit(ends.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)))?;
        match stream.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ if Instant::now() > ends => return Err(io::ErrorKind::TimedOut.into()),
            length => head.extend_from_slice(&part[..length]),
        }
    }
    Ok(head)
}

fn is_whole(head: &[u8]) -> bool {
    head.windows(4).any(|bytes| bytes == b"\r\n\r\n")
}

fn answer(head: &[u8], address: &Address, stats: impl FnOnce() -> String) -> Answer {
    if !is_whole(head) {
        return refusal("431 Request Header Fields Too Large", "The request is too long.");
    }
    let Some((method, path)) = request_line(head) else {
        return refusal("400 Bad Request", "This is not a request of HTTP/1.");
    };
    if !has_local_host(head, address) {
        return refusal(
            "421 Misdirected Request",
            "The request must name localhost or a loopback address as its host: this view is for this machine only.",
        );
    }
    if !["GET", "HEAD"].contains(&method) {
        return refusal("405 Method Not Allowed", "This view is read only: GET or HEAD.");
    }
    match path.split('?').next() {
        Some("/") => Answer { status: "200 OK", kind: "text/html; charset=utf-8", body: PAGE.to_owned() },
        Some("/stats") => Answer { status: "200 OK", kind: "application/json", body: stats() },
        _ => refusal("404 Not Found", "There is / for a browser, and /stats for a program."),
    }
}

fn refusal(status: &'static str, why: &str) -> Answer {
    Answer { status, kind: TEXT, body: format!("{why}\n") }
}

/// Returns the method and the path.
fn request_line(head: &[u8]) -> Option<(&str, &str)> {
    let line = str::from_utf8(head).ok()?.lines().next()?;
    let mut words = line.split(' ');
    let (method, path, version) = (words.next()?, words.next()?, words.next()?);
    (version.starts_with("HTTP/1.") && words.next().is_none()).then_some((method, path))
}

/// Returns whether the request names this machine. A browser that was led here by a name of a stranger, rebound to 127.0.0.1, names that
/// stranger's host. A Unix socket cannot be reached from a web page, so its requests may name any host.
fn has_local_host(head: &[u8], address: &Address) -> bool {
    if let Address::Unix(_) = address {
        return true;
    }
    let text = String::from_utf8_lossy(head);
    let fields = text.lines().skip(1).filter_map(|line| line.split_once(':'));
    let mut hosts = fields.filter(|(name, _)| name.eq_ignore_ascii_case("host")).map(|(_, host)| host.trim());
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => is_local(host),
        _ => false,
    }
}

/// Returns whether a `Host` header, with or without a port, names this machine.
fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, _)) => name,
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(|ip: IpAddr| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(head: &str) -> Answer {
        answer(head.as_bytes(), &"127.0.0.1:1".parse().unwrap(), || "{}".to_owned())
    }

    #[test]
    fn e9_only_a_request_that_names_this_machine_is_answered() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:7669",
            "localhost:8080",
            "LocalHost",
            "[::1]:1",
            "127.8.8.8:1",
            "[::ffff:127.0.0.1]",
        ] {
            assert_eq!(asked(&format!("GET /stats HTTP/1.1\r\nHost: {host}\r\n\r\n")).status, "200 OK", "{host}");
        }
        for host in [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example:7669",
            "10.0.0.1",
            "",
            "[::2]:1",
            "[evil]",
        ] {
            let answer = asked(&format!("GET /stats HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert_eq!(answer.status, "421 Misdirected Request", "{host}");
        }
        assert_eq!(asked("GET /stats HTTP/1.1\r\n\r\n").status, "421 Misdirected Request");
        let twice = "GET /stats HTTP/1.1\r\nHost: localhost\r\nhost: evil.example\r\n\r\n";
        assert_eq!(asked(twice).status, "421 Misdirected Request");
    }

    #[cfg(tourbillon_unix_sockets)]
    #[test]
    fn e9_a_unix_socket_needs_no_host() {
        let path = Address::Unix("/tmp/a".into());
        let answer = answer(b"GET /stats HTTP/1.1\r\n\r\n", &path, || "{}".to_owned());
        assert_eq!((answer.status, answer.body.as_str()), ("200 OK", "{}"));
    }

    #[test]
    fn e9_the_view_is_read_only() {
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "get"] {
            let answer = asked(&format!("{method} /stats HTTP/1.1\r\nHost: localhost\r\n\r\n"));
            assert_eq!(answer.status, "405 Method Not Allowed", "{method}");
        }
        assert_eq!(asked("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n").status, "200 OK");
    }

    #[test]
    fn e9_p6_what_is_no_request_is_refused() {
        let cases = [
            ("GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n", "404 Not Found"),
            ("GET /stats?at=1 HTTP/1.1\r\nHost: localhost\r\n\r\n", "200 OK"),
            ("GET / HTTP/2\r\nHost: localhost\r\n\r\n", "400 Bad Request"),
            ("GET /\r\nHost: localhost\r\n\r\n", "400 Bad Request"),
            ("\r\n\r\n", "400 Bad Request"),
            ("\u{0}\u{1}\r\n\r\n", "400 Bad Request"),
            ("GET / HTTP/1.1\r\nHost: localhost", "431 Request Header Fields Too Large"),
        ];
        for (head, status) in cases {
            assert_eq!(asked(head).status, status, "{head:?}");
        }
    }
}
