//! Case `delayed`: each connection sends a message and gets its reply some time later; the server waits for all of them at once.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tourbillon_tools::Random;

use super::server_client::ServerClient;
use super::server_process::IoService;
use super::{OURS, cores, limits};
use crate::harness::{BenchEntry, Metrics, RoundLength, SystemChoice, WarmUp, measure, per_operation};
use crate::report::BenchReport;
use crate::systems::{clock_nanosleep, tokio};

/// The work of a round.
#[derive(Clone, Copy)]
struct DelayedWork {
    connections: usize,
    /// Time from a message to its reply. The messages are sent at random times within the same time.
    delay: Duration,
}

const CONNECTIONS: u32 = 10_000;
const DELAY: Duration = Duration::from_secs(1);

/// The same rate as in a full run.
const QUICK_CONNECTIONS: u32 = 2_500;
const QUICK_DELAY: Duration = Duration::from_millis(250);

/// Most connections that wait to be accepted.
const BATCH: usize = 64;

/// An upper bound for the usual lateness of replies, in nanoseconds.
const GRACE: u64 = 50_000_000;

const P99: &str = "p99_us";
const CPU: &str = "cpu_ns_per_reply";

pub(super) fn run(systems: &[&'static str], connections: Option<u32>, choice: &SystemChoice, report: &mut BenchReport) {
    limits::raise();
    let (default, delay) = if choice.common.quick { (QUICK_CONNECTIONS, QUICK_DELAY) } else { (CONNECTIONS, DELAY) };
    let asked = connections.unwrap_or(default) as usize;
    let connections = limits::affordable(asked);
    if connections < asked {
        eprintln!("warning: {connections} connections instead of {asked}: the limit on file descriptors is too low");
    }
    let work = DelayedWork { connections, delay };
    let entries = systems.iter().map(|system| entry(system, work)).collect();
    measure(entries, choice, choice.rounds(3, 1, RoundLength::Long), WarmUp::No, report);
    for &ours in OURS {
        let (this, that) = ((ours, &*work.case()), (tokio::CURRENT, &*work.case()));
        report.add_percent("p99_percent_of_tokio", P99, this, that);
        report.add_percent("cpu_percent_of_tokio", CPU, this, that);
    }
}

impl DelayedWork {
    fn case(self) -> String {
        format!("delayed,connections={}", self.connections)
    }

    /// Returns when each connection sends its message, in order, in nanoseconds.
    fn times(self) -> Vec<u64> {
        let (mut random, spread) = (Random::new(3), self.delay.as_nanos() as u64);
        let mut times: Vec<u64> = (0..self.connections).map(|_| random.any() % spread).collect();
        times.sort_unstable();
        times
    }
}

fn entry(system: &'static str, work: DelayedWork) -> BenchEntry {
    let round = move || std::thread::spawn(move || round(system, work)).join().expect("the load does not panic");
    BenchEntry { system, case: work.case(), start: Box::new(move || Box::new(round)) }
}

/// Runs a round with a new server, whose memory is as at its start.
fn round(system: &'static str, work: DelayedWork) -> Metrics {
    let mut server = ServerClient::start(system, IoService::Delayed);
    cores::pin_to_load_core();
    clock_nanosleep::without_slack();
    let first = connect(&server, 1);
    let fresh = server.usage();
    let mut connections = connect(&server, work.connections);
    let before = server.usage();
    let start = clock_nanosleep::now();
    for (connection, at) in connections.iter_mut().zip(work.times()) {
        clock_nanosleep::sleep_until(start + at);
        send(connection, work.delay);
    }
    let waiting = server.usage();
    // The load sleeps until all replies have arrived, so that no server pays for waking it.
    clock_nanosleep::sleep_until(start + 2 * work.delay.as_nanos() as u64 + GRACE);
    connections.iter_mut().for_each(receive);
    let after = server.usage();
    let cpu = after.cpu - before.cpu;
    let (p50, p99) = server.lateness();
    drop(first);
    let grown = waiting.resident.saturating_sub(fresh.resident) as f64;
    vec![
        ("p50_us", p50),
        (P99, p99),
        (CPU, per_operation(cpu, work.connections)),
        ("sleeps_per_reply", (after.sleeps - before.sleeps) as f64 / work.connections as f64),
        ("resident_bytes", grown / work.connections as f64),
    ]
}

/// Opens connections, and waits after each batch until the server has accepted it.
fn connect(server: &ServerClient, count: usize) -> Vec<TcpStream> {
    let mut connections = Vec::with_capacity(count);
    while connections.len() < count {
        let batch = BATCH.min(count - connections.len());
        connections.extend((0..batch).map(|_| server.connect()));
        if let Some(last) = connections.last_mut() {
            send(last, Duration::ZERO);
            receive(last);
        }
    }
    connections
}

/// Sends a message, which contains the microseconds until its reply is due.
fn send(connection: &mut TcpStream, delay: Duration) {
    connection.write_all(&(delay.as_micros() as u64).to_le_bytes()).expect("the server takes a message");
}

fn receive(connection: &mut TcpStream) {
    connection.read_exact(&mut [0; 8]).expect("the server answers");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_sent_in_order_and_before_the_first_reply_is_due() {
        let work = DelayedWork { connections: 1_000, delay: DELAY };
        let times = work.times();
        assert!(times.is_sorted() && times[0] < times[999] && times[999] < DELAY.as_nanos() as u64);
    }
}
