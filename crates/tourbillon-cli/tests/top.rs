//! Tests `tourbillon top` and the page of a live view: against a view of this process, against strangers, and in a browser.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tourbillon::Engine;
use tourbillon::inspect::Inspector;
use tourbillon_tools::browser;

/// An engine that arms and cancels timers, and lets some fire, until this is dropped.
struct BusyEngine {
    engine: Engine,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl BusyEngine {
    fn new() -> BusyEngine {
        let engine = Engine::builder().build().expect("a driver thread");
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let (engine, is_over) = (engine.clone(), Arc::clone(&is_over));
            move || {
                while !is_over.load(Ordering::Relaxed) {
                    drop(engine.try_sleep(Duration::from_secs(60)));
                    let fires = engine.try_sleep(Duration::from_millis(1));
                    thread::sleep(Duration::from_millis(4));
                    drop(fires);
                }
            }
        });
        BusyEngine { engine, is_over, thread: Some(thread) }
    }
}

impl Drop for BusyEngine {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().expect("it is taken here only").join().expect("it does not panic");
    }
}

fn top(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tourbillon")).arg("top").args(arguments).output().expect("the program can be run")
}

fn error_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Answers each connection in turn with the next of these texts, closes it, and then listens no more. Returns the address.
fn stranger(answers: Vec<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound").to_string();
    thread::spawn(move || {
        for answer in answers {
            let Ok((mut stream, _)) = listener.accept() else { return };
            let _request = stream.read(&mut [0; 1024]);
            let _gone = stream.write_all(answer.as_bytes());
        }
    });
    address
}

fn stats(protocol: u32) -> String {
    format!(
        "HTTP/1.1 200 OK\r\n\r\n{{\"protocol\":{protocol},\"version\":\"9.9.9\",\"program\":\"shop\",\"pid\":7,\"started_ms\":1,\
         \"elapsed_ns\":1,\"cpu_ns\":0,\"cores\":2,\"engines\":[]}}"
    )
}

#[test]
fn e9_each_look_is_a_line_in_a_pipe_over_tcp_and_over_a_unix_socket() {
    let busy = BusyEngine::new();
    let socket = std::env::temp_dir().join(format!("tourbillon-top-{}.sock", std::process::id()));
    for address in ["127.0.0.1:0", socket.to_str().expect("a path in UTF-8")] {
        if cfg!(not(unix)) && address.contains('/') {
            continue;
        }
        let inspector = Inspector::builder().engine("shop", &busy.engine).serve(address).expect("it is free");
        let output = top(&[&inspector.address().to_string(), "--every", "200ms", "--for", "500ms"]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{text}{}", error_of(&output));
        let lines: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines.len(), 3, "a title and two looks: {text}");
        assert_eq!(lines[0][..5], ["engines", "armed/s", "fired/s", "cancelled/s", "pending"]);
        for line in &lines[1..] {
            let rates = [line[1], line[2], line[3]].map(|rate| rate.replace(',', "").parse::<u64>().expect("a number"));
            assert!(line[0] == "all" && rates[0] > 0 && rates[2] > 0, "{text}");
        }
        assert!(!text.contains('\x1b'));
    }
}

#[test]
fn e9_once_shows_one_look() {
    let busy = BusyEngine::new();
    let inspector = Inspector::builder().engine("shop", &busy.engine).serve("127.0.0.1:0").expect("it is free");
    let url = format!("http://{}/", inspector.address());
    let output = top(&[&url, "--once", "--every", "100ms"]);
    assert_eq!(output.status.code(), Some(0), "{}", error_of(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 2);
}

#[test]
fn e9_p6_where_nobody_listens_the_error_says_how_to_serve_a_view() {
    // An address of this test alone, so that no other test is given the port; all of 127/8 is loopback on Linux.
    let own = if cfg!(target_os = "linux") { "127.83.7.9:0" } else { "127.0.0.1:0" };
    let listener = TcpListener::bind(own).expect("a port");
    let address = listener.local_addr().expect("it is bound").to_string();
    drop(listener);
    for address in [address.as_str(), "/no such folder/shop.sock"] {
        let output = top(&[address]);
        let error = error_of(&output);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(&format!("nobody listens at {address}")) && error.contains("inspect::serve"), "{error}");
    }
}

#[test]
fn e9_p6_another_protocol_a_stranger_and_an_end_are_told_apart() {
    let cases = [
        (vec![stats(2)], "the process has tourbillon 9.9.9, whose view has version 2"),
        (vec!["SSH-2.0-OpenSSH_9.2\r\n".to_owned()], "serves no view of Tourbillon's timers; it answered \"SSH-2.0"),
        (vec!["HTTP/1.1 404 Not Found\r\n\r\nno".to_owned()], "it answered \"HTTP/1.1 404 Not Found\""),
        (vec![stats(1)], "shop (pid 7) has ended"),
    ];
    for (answers, sentence) in cases {
        let output = top(&[&stranger(answers), "--every", "200ms"]);
        let error = error_of(&output);
        assert!(error.contains(sentence), "{sentence}: {error}");
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn e9_p6_bad_usage_is_answered_in_a_sentence_and_exits_with_2() {
    let cases: [(&[&str], &str); 5] = [
        (&["192.168.0.1:80"], "other machines could reach 192.168.0.1:80"),
        (&["7669"], "is no address"),
        (&[], "ADDRESS"),
        (&["127.0.0.1:1", "--every", "1ms"], "a look each 100ms to 1h"),
        (&["127.0.0.1:1", "--for", "10"], "10 of what?"),
    ];
    for (arguments, sentence) in cases {
        let output = top(arguments);
        let error = error_of(&output);
        assert!(error.contains(sentence), "{arguments:?}: {error}");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn e9_what_a_view_answers_is_json() {
    let busy = BusyEngine::new();
    let name = "a \"name\" \\ of\nan engine é";
    let inspector = Inspector::builder().engine(name, &busy.engine).serve("127.0.0.1:0").expect("it is free");
    let mut stream = std::net::TcpStream::connect(inspector.address().to_string()).expect("it listens");
    stream.write_all(b"GET /stats HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let body = answer.split("\r\n\r\n").nth(1).expect("a body");
    let stats: serde_json::Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"));
    assert_eq!(stats["engines"][0]["name"], name);
    assert_eq!(stats["pid"], std::process::id());
    assert!(stats["engines"][0]["lateness"].is_array() && (stats["cpu_ns"].is_u64() || cfg!(not(target_os = "linux"))));
}

#[test]
fn e9_a_browser_shows_the_rates_of_each_engine() {
    let Some(chromium) = browser::chromium("the page of a live view") else { return };
    let busy = BusyEngine::new();
    let inspector = Inspector::builder().engine("shop <b>", &busy.engine).serve("127.0.0.1:0").expect("it is free");
    // The scripts of the page run for ten seconds of the browser's own time, which passes while the page waits.
    let address = format!("http://{}/", inspector.address());
    let dom = browser::dom_of(&chromium, &address, 500, Duration::from_secs(10));
    let program = format!("(pid {})", std::process::id());
    assert!(dom.contains(&program) && dom.contains(">live</span>"), "{dom}");
    assert!(dom.contains("<th scope=\"row\">shop &lt;b&gt;</th>"), "{dom}");
    let armed = dom.split("id=\"now-armed\">").nth(1).and_then(|rest| rest.split('<').next()).unwrap_or_default();
    // The browser's own time runs ahead of the engine's, so a rate may be zero.
    assert!(armed.replace(',', "").parse::<u64>().is_ok(), "armed per second: {armed:?}\n{dom}");
    let drawn = dom.split("<path").skip(1).filter(|path| path.contains(" d=\"M")).count();
    assert_eq!(drawn, 8, "every curve is drawn: {dom}");
}
