//! The live view of a process: its answers, the requests that it refuses, and the addresses at which it listens.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use support::eventually;
use tourbillon::inspect::{Address, InspectError, Inspector, serve};
use tourbillon::{Clock, Engine};

fn tcp_of(inspector: &Inspector) -> std::net::SocketAddr {
    match inspector.address() {
        Address::Tcp(address) => *address,
        other => panic!("{other} is no TCP address"),
    }
}

/// Sends a request and returns the whole answer.
fn ask(mut stream: impl Read + Write, request: &str) -> String {
    stream.write_all(request.as_bytes()).expect("the view reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the view answers");
    answer
}

fn stats(inspector: &Inspector) -> String {
    ask(TcpStream::connect(tcp_of(inspector)).expect("it listens"), "GET /stats HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

/// An engine with one timer fired, one cancelled and one pending.
fn used_engine() -> (Engine, impl Sized) {
    let engine = Engine::builder().clock(Clock::manual()).build().expect("it needs nothing");
    let fires = engine.try_sleep(Duration::from_secs(1));
    drop(engine.try_sleep(Duration::from_secs(60)));
    let pending = engine.try_sleep(Duration::from_secs(3600));
    engine.advance(Duration::from_secs(2));
    (engine, (fires, pending))
}

#[test]
fn e9_b5_a_look_shows_the_counts_of_an_engine_and_does_not_keep_it_running() {
    let (engine, timers) = used_engine();
    let inspector = Inspector::builder().engine("shop", &engine).engine("shop", &engine).serve("127.0.0.1:0").unwrap();
    let answer = stats(&inspector);
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("Content-Type: application/json\r\n"),
        "{answer}"
    );
    let counts = r#""is_shut_down":false,"armed":3,"fired":1,"cancelled":1,"stopped":0,"pending":1,"#;
    assert!(answer.contains(counts) && answer.contains(r#""protocol":1,"#), "{answer}");
    assert!(
        answer.contains(r#""name":"shop","#) && answer.contains(r#""name":"shop 2","#),
        "names are told apart: {answer}"
    );
    assert!(answer.contains(r#""lateness":[[0,1]]"#), "{answer}");
    drop(engine);
    let answer = stats(&inspector);
    assert!(answer.contains(r#""is_shut_down":true,"#) && answer.contains(r#""stopped":1,"pending":0"#), "{answer}");
    drop(timers);
}

#[test]
fn e9_a_view_shows_the_global_engine_once_it_is_used_and_does_not_start_it() {
    let inspector = serve("127.0.0.1:0").unwrap();
    assert!(stats(&inspector).ends_with("\"engines\":[]}\n"), "no test of this program has used it");
    let engine = Engine::builder().build().unwrap();
    engine.install().expect("the view has not started a global engine");
    let answer = stats(&inspector);
    assert!(answer.contains(r#""name":"global","clock":"Clock::monotonic","#), "{answer}");
}

#[test]
fn e9_the_page_comes_with_a_policy_that_allows_only_itself() {
    let inspector = Inspector::builder().serve("127.0.0.1:0").unwrap();
    let connect = || TcpStream::connect(tcp_of(&inspector)).unwrap();
    let page = ask(connect(), "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    assert!(page.starts_with("HTTP/1.1 200 OK") && page.contains("<!DOCTYPE html>"), "{page}");
    assert!(page.contains("Content-Security-Policy: default-src 'none'; connect-src 'self';"), "{page}");
    assert!(!page.to_lowercase().contains("access-control"), "other origins get no permission: {page}");
    let head = ask(connect(), "HEAD / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.ends_with("\r\n\r\n"), "{head}");
    let rebound = ask(connect(), "GET /stats HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert!(rebound.starts_with("HTTP/1.1 421 ") && !rebound.contains("engines"), "{rebound}");
    let write = ask(connect(), "DELETE /stats HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    assert!(write.starts_with("HTTP/1.1 405 ") && write.contains("Allow: GET, HEAD\r\n"), "{write}");
}

#[test]
fn e9_p6_an_address_that_cannot_be_served_is_a_typed_error_that_says_what_to_use() {
    for address in ["0.0.0.0:7669", "[::]:7669", "192.168.0.1:7669", "8.8.8.8:80", "[2001:db8::1]:7669"] {
        let Err(error @ InspectError::NotLoopback(_)) = serve(address) else { panic!("{address} was accepted") };
        assert!(error.to_string().contains("use a loopback address"), "{error}");
    }
    for text in [
        "",
        "7669",
        ":7669",
        "127.0.0.1",
        "localhost",
        "localhost:http",
        "localhost:66666",
        "shop.example:7669",
        "shop.sock",
        "http://",
    ] {
        let Err(error @ InspectError::NoAddress(_)) = serve(text) else { panic!("{text:?} was accepted") };
        assert!(error.to_string().contains("127.0.0.1:7669"), "{error}");
    }
    let first = serve("127.0.0.1:0").unwrap();
    let taken = first.address().to_string();
    let Err(error @ InspectError::InUse(_)) = serve(&taken) else { panic!("{taken} was served twice") };
    assert!(error.to_string().contains(&taken), "{error}");
}

#[test]
fn e9_when_an_inspector_is_dropped_its_address_is_free() {
    // An address of this test alone, so that no other test is given the port in between; all of 127/8 is loopback on Linux.
    let own = if cfg!(tourbillon_proc) { "127.83.7.9:0" } else { "127.0.0.1:0" };
    let address = serve(own).unwrap().address().to_string();
    assert!(TcpStream::connect(&address).is_err(), "nobody listens any more");
    drop(serve(&address).expect("the address is free"));
}

#[test]
fn e9_slow_clients_do_not_hold_up_others_and_are_limited_in_number() {
    let inspector = serve("127.0.0.1:0").unwrap();
    let connect = || TcpStream::connect(tcp_of(&inspector)).unwrap();
    let mut slow: Vec<_> = (0..8).map(|_| connect()).collect();
    slow.iter_mut().for_each(|stream| stream.write_all(b"GET /st").unwrap());
    assert!(stats(&inspector).starts_with("HTTP/1.1 200 OK"));
    // The view accepts connections in order. When the last of these is closed at once, all before it are counted.
    let mut more: Vec<_> = (0..16).map(|_| connect()).collect();
    let last = more.last_mut().unwrap();
    assert_eq!(last.read(&mut [0]).unwrap_or(0), 0, "a connection too many is closed");
    drop((slow, more));
    eventually("places are free again", || {
        let mut stream = connect();
        let mut answer = String::new();
        let asked = stream.write_all(b"GET /stats HTTP/1.1\r\nHost: localhost\r\n\r\n");
        asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200 OK")
    });
}

#[test]
fn e9_p6_a_request_without_an_end_is_refused_and_not_kept() {
    let inspector = serve("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(tcp_of(&inspector)).unwrap();
    // The view closes the connection in the middle, so the rest may be refused.
    let _ = stream.write_all(&[b'a'; 17_000]);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431 "), "{}", String::from_utf8_lossy(&answer));
    assert!(stats(&inspector).starts_with("HTTP/1.1 200 OK"));
}

#[cfg(tourbillon_unix_sockets)]
mod unix {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::PathBuf;

    use super::{Address, InspectError, ask, serve};

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("tourbillon-{}-{name}.sock", std::process::id()))
    }

    #[test]
    fn e9_a_unix_socket_is_for_its_owner_and_is_removed_at_the_end() {
        let path = path("plain");
        let inspector = serve(path.to_str().unwrap()).unwrap();
        assert_eq!(inspector.address(), &Address::Unix(path.clone()));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let answer = ask(UnixStream::connect(&path).unwrap(), "GET /stats HTTP/1.0\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("\"engines\":["), "{answer}");
        drop(inspector);
        assert!(!path.exists());
    }

    #[test]
    fn e9_a_socket_that_a_process_left_behind_is_replaced_and_one_in_use_is_not() {
        let path = path("stale");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a listener does not remove its file");
        let inspector = serve(path.to_str().unwrap()).expect("nobody listens there");
        assert!(matches!(serve(path.to_str().unwrap()), Err(InspectError::InUse(_))));
        assert!(path.exists(), "the refused one has not removed the file");
        drop(inspector);
    }

    #[test]
    fn e9_p6_a_file_is_not_overwritten_and_a_path_that_cannot_be_is_refused() {
        let path = path("file");
        fs::write(&path, "mine").unwrap();
        assert!(matches!(serve(path.to_str().unwrap()), Err(InspectError::NotASocket(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        fs::remove_file(&path).unwrap();
        assert!(matches!(serve("/no such folder/a.sock"), Err(InspectError::Refused(..))));
        let long = format!("/tmp/{}", "a".repeat(200));
        let Err(error @ InspectError::PathTooLong { longest: 100..110, .. }) = serve(&long) else { panic!("{long}") };
        assert!(error.to_string().contains("has 205 bytes") && error.to_string().contains("127.0.0.1:7669"), "{error}");
    }

    #[test]
    fn e9_the_socket_of_another_process_at_the_same_path_is_left_alone() {
        let path = path("taken");
        let inspector = serve(path.to_str().unwrap()).unwrap();
        fs::remove_file(&path).unwrap();
        let other = UnixListener::bind(&path).unwrap();
        drop(inspector);
        assert!(path.exists(), "it belongs to the other listener");
        drop(other);
        fs::remove_file(&path).unwrap();
    }
}
