//! Scenario `serve`: what the service costs over HTTP, on loopback, on the embedded store. The README of this crate defines the cases.

mod http;
mod process;

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use clap::ValueEnum;
use jiff::Timestamp;
use serde_json::{Value, json};
use tourbillon_durable::{NewTimer, Timers};

use self::http::{Connection, Sink};
use self::process::ServerProcess;
pub(crate) use self::process::{ServeProcessArgs, serve_until_input_ends};
use crate::harness::{RoundLength, SystemChoice};
use crate::percentiles::{histogram, micros};
use crate::process_usage::ProcessUsage;
use crate::report::{BenchReport, Figure};

/// The service, and the library in this process.
const SERVICE: &str = "tourbillon-serve";
const LIBRARY: &str = "tourbillon-durable";

/// Timers of a batch.
const BATCH: usize = 1_000;

/// Connections that send batches at the same time.
const BATCH_CONNECTIONS: usize = 4;

#[derive(clap::Args)]
pub(crate) struct ServeBenchOptions {
    #[command(flatten)]
    pub(crate) choice: SystemChoice,
    /// Only these cases.
    #[arg(long, value_enum, value_delimiter = ',')]
    case: Vec<ServeCase>,
}

/// The cases, which the README defines.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ServeCase {
    Create,
    Batch,
    Webhooks,
    Pull,
    Page,
    Idle,
}

/// Runs the scenario: in each round every case once, each with a server on an empty store.
pub(crate) fn run(options: &ServeBenchOptions, report: &mut BenchReport) {
    options.choice.check(&[SERVICE, LIBRARY]);
    let cases = if options.case.is_empty() { ServeCase::value_variants() } else { &options.case };
    let mut rounds = RoundFigures::default();
    for round in 0..options.choice.rounds(5, 3, RoundLength::Long).others {
        for case in cases {
            let bench = ServeBench::new(options.choice.common.quick);
            let measured = match case {
                ServeCase::Create => bench.creates(&mut rounds),
                ServeCase::Batch => bench.batches(&mut rounds, round),
                ServeCase::Webhooks => bench.webhooks(&mut rounds),
                ServeCase::Pull => bench.pulls(&mut rounds),
                ServeCase::Page => bench.page(&mut rounds),
                ServeCase::Idle => bench.idle(&mut rounds),
            };
            if let Err(error) = measured {
                eprintln!("error: the server cannot be measured: {error}");
                std::process::exit(1);
            }
        }
    }
    rounds.report(report);
}

/// The values of all rounds, by system, case and metric, in the order of their first round.
#[derive(Default)]
struct RoundFigures(Vec<(&'static str, String, &'static str, Vec<f64>)>);

impl RoundFigures {
    fn add(&mut self, system: &'static str, case: &str, metric: &'static str, value: f64) {
        let known = self.0.iter_mut().find(|known| (known.0, known.1.as_str(), known.2) == (system, case, metric));
        match known {
            Some((.., values)) => values.push(value),
            None => self.0.push((system, case.to_owned(), metric, vec![value])),
        }
    }

    fn report(self, report: &mut BenchReport) {
        for (system, case, metric, values) in self.0 {
            report.add(Figure::of_rounds(system, case, metric, values));
        }
    }
}

/// A server on an empty store.
struct ServeBench {
    server: ServerProcess,
    directory: tempfile::TempDir,
    is_quick: bool,
}

fn far(number: usize) -> Value {
    json!({"key": format!("k{number}"), "after": "720h", "payload": "x".repeat(200), "deliver": {"queue": "far"}})
}

fn fail(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

impl ServeBench {
    fn new(is_quick: bool) -> ServeBench {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let server = ServerProcess::start(&directory.path().join("store")).unwrap_or_else(|error| {
            eprintln!("error: {error}");
            std::process::exit(1);
        });
        ServeBench { server, directory, is_quick }
    }

    fn time(&self) -> Duration {
        Duration::from_secs(if self.is_quick { 1 } else { 5 })
    }

    /// Creates timers one by one, over several numbers of connections.
    fn creates(&self, rounds: &mut RoundFigures) -> io::Result<()> {
        let mut first = 0;
        for connections in [1, 64, 256] {
            let answers = block_on(create_one_by_one(self.server.address, connections, self.time(), first))?;
            first += answers.len();
            let case = format!("create,connections={connections}");
            let rate = answers.len() as f64 / self.time().as_secs_f64();
            let answers = histogram(&answers);
            rounds.add(SERVICE, &case, "creates_per_s", rate);
            rounds.add(SERVICE, &case, "answer_p50_ms", micros(&answers, 0.5) / 1e3);
            rounds.add(SERVICE, &case, "answer_p99_ms", micros(&answers, 0.99) / 1e3);
        }
        Ok(())
    }

    /// Creates timers in batches, over HTTP and by the library, in every other round in the reverse order. While the library is measured, there
    /// is no server.
    fn batches(self, rounds: &mut RoundFigures, round: usize) -> io::Result<()> {
        let (case, time) = (format!("create,batch={BATCH}"), self.time());
        let ServeBench { server, directory, is_quick } = self;
        let store = directory.path().join("library");
        let with_library = || block_on(create_with_library(&store, time));
        let (service, library) = if round.is_multiple_of(2) {
            let service = block_on(create_batches(server.address, time))?;
            drop(server);
            (service, with_library()?)
        } else {
            drop(server);
            let library = with_library()?;
            (block_on(create_batches(ServeBench::new(is_quick).server.address, time))?, library)
        };
        let (service, library) = (service as f64 / time.as_secs_f64(), library as f64 / time.as_secs_f64());
        rounds.add(SERVICE, &case, "creates_per_s", service);
        rounds.add(LIBRARY, &case, "creates_per_s", library);
        rounds.add(SERVICE, &case, "rate_percent_of_library", 100.0 * service / library);
        Ok(())
    }

    /// Delivers webhooks to a host in this process: at an even rate, and as many as are due at once.
    fn webhooks(&self, rounds: &mut RoundFigures) -> io::Result<()> {
        let seconds = if self.is_quick { 2 } else { 10 };
        for (case, count, spread) in [
            ("webhooks,due_per_s=2000", 2_000 * seconds, Duration::from_secs(seconds as u64)),
            ("webhooks,due_at_once=20000", 20_000, Duration::ZERO),
        ] {
            let arrivals = block_on(deliver_webhooks(self.server.address, count, spread))?;
            let first = arrivals.iter().map(|arrival| arrival.at).min().unwrap_or(SystemTime::UNIX_EPOCH);
            let last = arrivals.iter().map(|arrival| arrival.at).max().unwrap_or(SystemTime::UNIX_EPOCH);
            let took = last.duration_since(first).unwrap_or_default();
            let late: Vec<u64> = arrivals.iter().map(|arrival| arrival.late).collect();
            let late = histogram(&late);
            rounds.add(SERVICE, case, "webhooks_per_s", count as f64 / took.as_secs_f64());
            rounds.add(SERVICE, case, "p50_us", micros(&late, 0.5));
            rounds.add(SERVICE, case, "p99_us", micros(&late, 0.99));
        }
        Ok(())
    }

    /// Pulls and acknowledges due timers.
    fn pulls(&self, rounds: &mut RoundFigures) -> io::Result<()> {
        let count = if self.is_quick { 20_000 } else { 100_000 };
        for max in [10, 500] {
            let took = block_on(pull_all(self.server.address, count, max))?;
            let rate = count as f64 / took.as_secs_f64();
            rounds.add(SERVICE, &format!("pull,max={max}"), "pulls_per_s", rate);
        }
        Ok(())
    }

    /// Loads the first page of the dashboard.
    fn page(&self, rounds: &mut RoundFigures) -> io::Result<()> {
        let address = self.server.address;
        let (times, size) = block_on(async move {
            let mut connection = Connection::open(address).await?;
            let (mut times, mut size) = (Vec::new(), 0);
            for _ in 0..21 {
                let began = Instant::now();
                let (status, page) = connection.send("GET", "/", "").await?;
                times.push(began.elapsed().as_nanos() as u64);
                (status == 200).then_some(()).ok_or_else(|| fail(format!("the page is answered with {status}")))?;
                size = page.len();
            }
            Ok((times, size))
        })?;
        let times = histogram(&times);
        rounds.add(SERVICE, "page", "answer_p50_ms", micros(&times, 0.5) / 1e3);
        rounds.add(SERVICE, "page", "page_kb", size as f64 / 1e3);
        Ok(())
    }

    /// Measures a server with many far timers and nothing to do.
    fn idle(&self, rounds: &mut RoundFigures) -> io::Result<()> {
        let pending = if self.is_quick { 100_000 } else { 1_000_000 };
        block_on(fill(self.server.address, pending))?;
        std::thread::sleep(Duration::from_secs(3));
        let (before, began) = (ProcessUsage::at(self.server.id()), Instant::now());
        std::thread::sleep(Duration::from_secs(if self.is_quick { 3 } else { 20 }));
        let after = ProcessUsage::at(self.server.id());
        let cpu = (after.cpu - before.cpu).as_secs_f64() / began.elapsed().as_secs_f64();
        let case = format!("idle,pending={pending}");
        rounds.add(SERVICE, &case, "cpu_percent", 100.0 * cpu);
        rounds.add(SERVICE, &case, "resident_mb", after.resident as f64 / 1e6);
        Ok(())
    }
}

/// Runs clients on one thread, so that the server has the other cores.
fn block_on<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

/// Creates timers until the time is over, and returns the times of the answers in nanoseconds.
async fn create_one_by_one(
    address: SocketAddr,
    connections: usize,
    time: Duration,
    first: usize,
) -> io::Result<Vec<u64>> {
    let answers = Rc::new(RefCell::new(Vec::new()));
    let (next, end) = (Rc::new(RefCell::new(first)), Instant::now() + time);
    let clients: Vec<_> = (0..connections)
        .map(|_| {
            let (answers, next) = (Rc::clone(&answers), Rc::clone(&next));
            tokio::task::spawn_local(async move {
                let mut connection = Connection::open(address).await?;
                while Instant::now() < end {
                    let number = next.replace_with(|number| *number + 1);
                    let (body, began) = (far(number).to_string(), Instant::now());
                    let (status, body) = connection.send("POST", "/v1/timers", &body).await?;
                    if status != 201 {
                        return Err(fail(format!("{status}: {}", String::from_utf8_lossy(&body))));
                    }
                    answers.borrow_mut().push(began.elapsed().as_nanos() as u64);
                }
                Ok(())
            })
        })
        .collect();
    for client in clients {
        client.await.map_err(fail)??;
    }
    Ok(answers.take())
}

/// Sends a batch, and returns an error unless all of it was created.
async fn send_batch(connection: &mut Connection, timers: Vec<Value>) -> io::Result<()> {
    let body = json!({"timers": timers}).to_string();
    let (status, body) = connection.send("POST", "/v1/timers/batch", &body).await?;
    if status == 200 { Ok(()) } else { Err(fail(format!("{status}: {}", String::from_utf8_lossy(&body)))) }
}

/// Creates batches until the time is over, and returns how many timers were created. The bodies are made before: a client is not measured.
async fn create_batches(address: SocketAddr, time: Duration) -> io::Result<usize> {
    let clients: Vec<_> = (0..BATCH_CONNECTIONS)
        .map(|_| {
            tokio::task::spawn_local(async move {
                let mut connection = Connection::open(address).await?;
                let timer = json!({"after": "720h", "payload": "x".repeat(200), "deliver": {"queue": "far"}});
                let body = json!({"timers": vec![timer; BATCH]}).to_string();
                let (mut count, end) = (0, Instant::now() + time);
                while Instant::now() < end {
                    let (status, _) = connection.send("POST", "/v1/timers/batch", &body).await?;
                    (status == 200).then_some(()).ok_or_else(|| fail(status))?;
                    count += BATCH;
                }
                io::Result::Ok(count)
            })
        })
        .collect();
    let mut count = 0;
    for client in clients {
        count += client.await.map_err(fail)??;
    }
    Ok(count)
}

/// Creates the same timers in the same batches as [`create_batches`] does over HTTP.
async fn create_with_library(store: &std::path::Path, time: Duration) -> io::Result<usize> {
    let timers = Timers::open(store).await.map_err(fail)?;
    let clients: Vec<_> = (0..BATCH_CONNECTIONS)
        .map(|_| {
            let timers = timers.clone();
            tokio::task::spawn_local(async move {
                let (mut count, end) = (0, Instant::now() + time);
                while Instant::now() < end {
                    let month = Duration::from_secs(720 * 3600);
                    let payload = format!("\"{}\"", "x".repeat(200));
                    let timer = || NewTimer::after("queue:default/far", month).content_type("application/json");
                    let batch: Vec<_> = (0..BATCH).map(|_| timer().payload(payload.as_bytes())).collect();
                    count += timers.create_all(batch).await.map_err(fail)?.len();
                }
                io::Result::Ok(count)
            })
        })
        .collect();
    let mut count = 0;
    for client in clients {
        count += client.await.map_err(fail)??;
    }
    timers.shutdown(Duration::from_secs(5)).await.map_err(fail)?;
    Ok(count)
}

/// Creates timers for webhooks that are due within `spread`, and returns when they came.
async fn deliver_webhooks(address: SocketAddr, count: usize, spread: Duration) -> io::Result<Vec<http::Arrival>> {
    let (sink, host) = Sink::start().await?;
    let mut connection = Connection::open(address).await?;
    // Long enough for all of them to be created before the first is due.
    let start = SystemTime::now() + Duration::from_secs(3) + Duration::from_micros(count as u64 * 60);
    let webhook = json!({"webhook": {"url": format!("http://{host}/hook")}});
    for first in (0..count).step_by(BATCH) {
        let timers = (first..(first + BATCH).min(count)).map(|number| {
            let at = start + spread.mul_f64(number as f64 / count as f64);
            let at = Timestamp::try_from(at).map(|at| at.to_string()).unwrap_or_default();
            json!({"at": at, "payload": {"number": number}, "deliver": webhook})
        });
        send_batch(&mut connection, timers.collect()).await?;
    }
    if SystemTime::now() > start {
        eprintln!("NOTE: the first timers were due before the last were created");
    }
    let limit = Instant::now() + Duration::from_secs(60) + spread;
    while sink.len() < count {
        if Instant::now() > limit {
            return Err(fail(format!("{} of {count} webhooks came within the time limit", sink.len())));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(sink.arrivals())
}

/// Fills the store with far timers.
async fn fill(address: SocketAddr, count: usize) -> io::Result<()> {
    let mut connection = Connection::open(address).await?;
    for first in (0..count).step_by(BATCH) {
        send_batch(&mut connection, (first..first + BATCH).map(far).collect()).await?;
    }
    Ok(())
}

/// Pulls and acknowledges `count` due timers by several workers, and returns how long that took.
async fn pull_all(address: SocketAddr, count: usize, max: usize) -> io::Result<Duration> {
    let mut connection = Connection::open(address).await?;
    for _ in (0..count).step_by(BATCH) {
        let timer = json!({"after": "0s", "payload": "x".repeat(200), "deliver": {"queue": "work"}});
        send_batch(&mut connection, vec![timer; BATCH]).await?;
    }
    let (done, began) = (Rc::new(RefCell::new(0)), Instant::now());
    let took = Rc::new(RefCell::new(Duration::ZERO));
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let (done, took) = (Rc::clone(&done), Rc::clone(&took));
            tokio::task::spawn_local(async move {
                let mut connection = Connection::open(address).await?;
                let request = json!({"max": max, "wait": "1s", "lease": "60s"}).to_string();
                while *done.borrow() < count {
                    let (_, body) = connection.send("POST", "/v1/queues/work/pull", &request).await?;
                    let page: Value = serde_json::from_slice(&body).map_err(fail)?;
                    let timers = page["timers"].as_array().cloned().unwrap_or_default();
                    if timers.is_empty() {
                        continue;
                    }
                    let receipts: Vec<&Value> = timers.iter().map(|timer| &timer["receipt"]).collect();
                    let (_, body) = connection
                        .send("POST", "/v1/queues/work/ack", &json!({"receipts": receipts}).to_string())
                        .await?;
                    let answer: Value = serde_json::from_slice(&body).map_err(fail)?;
                    *done.borrow_mut() += answer["accepted"].as_u64().unwrap_or_default() as usize;
                    took.replace(began.elapsed());
                }
                io::Result::Ok(())
            })
        })
        .collect();
    for worker in workers {
        worker.await.map_err(fail)??;
    }
    Ok(took.take())
}
