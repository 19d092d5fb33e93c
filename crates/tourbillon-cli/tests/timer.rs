//! Tests `tourbillon timer` against `tourbillon serve`: two processes, as users have them.
#![cfg(all(feature = "client", feature = "serve"))]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A server with a store of its own.
struct Service {
    process: Child,
    address: String,
    _directory: TempDir,
}

impl Service {
    fn start() -> Service {
        let directory = tempfile::tempdir().expect("a directory");
        let store = directory.path().join("timers");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tourbillon"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--store"]).arg(store);
        let mut process = command.stdout(Stdio::piped()).spawn().expect("the server starts");
        let lines = BufReader::new(process.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        let address = lines.into_iter().find_map(|line| {
            let (_, rest) = line.split_once("http://")?;
            Some(format!("http://{}", rest.split('/').next()?))
        });
        Service { process, address: address.expect("the server says where it listens"), _directory: directory }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tourbillon"));
        command.arg("timer").args(arguments).env("TOURBILLON_SERVER", &self.address).env("NO_COLOR", "1");
        command.env_remove("TOURBILLON_API_KEY");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the program can be run")
    }

    /// Runs a command that succeeds, and returns what it prints.
    fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("a text")
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.text(&[arguments, &["--json"]].concat())).expect("JSON")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _ended = self.process.wait();
    }
}

#[test]
fn u1_u2_u3_u4_timers_are_created_found_moved_watched_and_cancelled_from_the_command_line() {
    let service = Service::start();
    let mut watch = service.command(&["watch", "--key", "order 1", "--count", "3", "--json"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().expect("a second command");
    let create = ["create", "--after", "15m", "--queue", "emails", "--key", "order 1", "--payload", "{\"order\":1}"];
    // The events are asked for first; a create before that would not be seen.
    let mut events = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
    std::thread::sleep(std::time::Duration::from_millis(500));
    let created = service.json(&create);
    assert_eq!(created["is_new"], true);
    let id = created["id"].as_str().expect("an id");
    assert!(service.text(&create).starts_with("Already pending"), "the same again");

    let table = service.text(&["list"]);
    assert!(table.contains("order 1") && table.contains("queue emails") && table.contains(id), "{table}");
    assert!(service.text(&["list", "--state", "dead"]).contains("No timers"));
    assert_eq!(service.json(&["list", "--prefix", "order"])["id"], created["id"]);
    let moved = service.json(&["reschedule", id, "--after", "1h", "--if-version", &created["version"].to_string()]);
    assert_ne!(moved["due"], created["due"]);
    let detail = service.text(&["get", id]);
    assert!(detail.contains("armed") && detail.contains("order 1"), "{detail}");

    assert_eq!(service.json(&["cancel", "--key", "order 1"])["cancelled"], 1);
    assert_eq!(service.text(&["cancel", "--key", "order 1"]), "0 cancelled, 0 being delivered, 1 gone\n");
    assert!(service.text(&["get", id]).contains("cancelled"), "its end is remembered");

    let mut seen = Vec::new();
    while let Some(Ok(line)) = events.next() {
        let event: Value = serde_json::from_str(&line).expect("JSON");
        seen.push(event["type"].as_str().expect("a type").to_owned());
        if seen.last().is_some_and(|last| last == "cancelled") {
            break;
        }
    }
    let _ended = watch.kill();
    let _ended = watch.wait();
    assert_eq!(seen.first().map(String::as_str), Some("created"), "{seen:?}");
    assert_eq!(seen.last().map(String::as_str), Some("cancelled"), "{seen:?}");
}

#[test]
fn a_refused_request_says_why_and_is_not_a_success() {
    let service = Service::start();
    for (arguments, why) in [
        (&["create", "--after", "soon", "--queue", "q"][..], "duration"),
        (&["get", "0199f3a2-7c1e-7b5d-9c55-2f2f7a2f1a10"], "timer"),
        (&["create", "--after", "1s", "--webhook", "ftp://x"], "http"),
    ] {
        let output = service.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.contains(why), "{arguments:?}: {error}");
    }
    for arguments in
        [&["create", "--queue", "q"][..], &["create", "--after", "1s"], &["cancel"], &["list", "--limit", "0"]]
    {
        assert_eq!(service.run(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_server_that_is_not_there_is_an_error_that_says_what_to_do() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tourbillon"));
    let output = command.args(["timer", "list", "--server", &format!("http://127.0.0.1:{port}")]).output();
    let output = output.expect("the program can be run");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && error.contains("tourbillon serve"), "{error}");
}
