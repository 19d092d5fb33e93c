//! Case `echo`: messages of 64 bytes on 100 connections, each sent when the echo of the last one has arrived.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::server_client::ServerClient;
use super::server_process::IoService;
use super::{OURS, cores};
use crate::harness::{BenchEntry, RoundLength, SystemChoice, WarmUp, measure, per_operation};
use crate::report::BenchReport;
use crate::systems::tokio;

const CONNECTIONS: usize = 100;
const MESSAGE: [u8; 64] = [7; 64];

const RATE: &str = "requests_per_s";
const CPU: &str = "cpu_ns_per_request";

/// The cases and their services.
const PLAIN: (&str, IoService) = ("echo,timeout=none", IoService::Echo);
const TIMED: (&str, IoService) = ("echo,timeout=30s", IoService::EchoTimed);

pub(super) fn run(systems: &[&'static str], choice: &SystemChoice, report: &mut BenchReport) {
    let time = Duration::from_millis(100);
    let cases = [PLAIN, TIMED].into_iter();
    let entries = cases.flat_map(|case| systems.iter().map(move |system| entry(system, case, time))).collect();
    measure(entries, choice, choice.rounds(45, 9, RoundLength::Short), WarmUp::Yes, report);
    for &ours in OURS {
        report.add_percent("rate_percent_of_untimed", RATE, (ours, TIMED.0), (ours, PLAIN.0));
        report.add_percent("rate_percent_of_tokio", RATE, (ours, PLAIN.0), (tokio::CURRENT, PLAIN.0));
        report.add_percent("rate_percent_of_tokio", RATE, (ours, TIMED.0), (tokio::CURRENT, TIMED.0));
        report.add_percent("cpu_percent_of_untimed", CPU, (ours, TIMED.0), (ours, PLAIN.0));
        report.add_percent("cpu_percent_of_tokio", CPU, (ours, PLAIN.0), (tokio::CURRENT, PLAIN.0));
        report.add_percent("cpu_percent_of_tokio", CPU, (ours, TIMED.0), (tokio::CURRENT, TIMED.0));
    }
}

fn entry(system: &'static str, (case, service): (&'static str, IoService), time: Duration) -> BenchEntry {
    let start = move || {
        let server = ServerClient::start(system, service);
        let mut connections: Vec<_> = (0..CONNECTIONS).map(|_| server.connect()).collect();
        Box::new(move || {
            let before = server.usage().cpu;
            let (requests, took) = std::thread::scope(|scope| {
                let load = scope.spawn(|| load(&mut connections, time));
                load.join().expect("the load does not panic")
            });
            let cpu = server.usage().cpu - before;
            vec![(RATE, requests as f64 / took.as_secs_f64()), (CPU, per_operation(cpu, requests))]
        }) as _
    };
    BenchEntry { system, case: case.to_owned(), start: Box::new(start) }
}

/// Keeps every connection busy for `time`. Returns the number of echoes, and the time that they took.
///
/// One thread takes the connections in turn, and waits for the echo on each before it sends the next message there. This is the
/// cheapest load, and it follows the order in which a server answers.
fn load(connections: &mut [TcpStream], time: Duration) -> (usize, Duration) {
    cores::pin_to_load_core();
    let start = Instant::now();
    let mut requests = 0;
    connections.iter_mut().for_each(send);
    while start.elapsed() < time {
        for connection in connections.iter_mut() {
            receive(connection);
            send(connection);
        }
        requests += connections.len();
    }
    connections.iter_mut().for_each(receive);
    requests += connections.len();
    (requests, start.elapsed())
}

fn send(connection: &mut TcpStream) {
    connection.write_all(&MESSAGE).expect("the server takes a message");
}

fn receive(connection: &mut TcpStream) {
    let mut echo = [0; MESSAGE.len()];
    connection.read_exact(&mut echo).expect("the server answers");
    assert_eq!(echo, MESSAGE);
}
