//! How fast the store in PostgreSQL is, on a cluster of its own with `fsync` on.
//!
//!     cargo bench -p tourbillon-durable --features postgres --bench postgres
//!
//! `TOURBILLON_TEST_POSTGRES=URL` measures a running server, `TOURBILLON_SECONDS=10` takes longer. Every answer is checked, and after each
//! case the rows in the table are counted: a figure is printed only if they are as many as were acknowledged.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tourbillon_durable::spec::Limits;
use tourbillon_durable::store::{
    CancelOp, ClaimAnswer, ClaimOp, CreateAnswer, CreateOp, DueEntry, DueQuery, FinishOp, Heartbeat, NodeId,
    PostgresOptions, PostgresStore, Reply, ShardId, Store, Target, Verdict, WriteAnswer, WriteOp,
};
use tourbillon_durable::{NewTimer, StoreError, StoreTime, TimerId};
use tourbillon_tools::postgres::Cluster;

const BATCH: u64 = 1000;
const FAR: Duration = Duration::from_secs(1_000_000);

fn main() {
    let url = std::env::var("TOURBILLON_TEST_POSTGRES").unwrap_or_else(|_| {
        let cluster = Cluster::start("-c shared_buffers=512MB -c max_wal_size=4GB").expect("PostgreSQL is installed");
        let url = cluster.url().to_owned();
        std::mem::forget(cluster);
        url
    });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("Tokio runs");
    let schema = format!("bench_{}", std::process::id());
    let options =
        PostgresOptions::new(&url).and_then(|options| options.schema(&*schema)).expect("the address is valid");
    let store = runtime.block_on(PostgresStore::open(options)).expect("the server works");
    let server = Server::connect(runtime, &url, schema);
    print_fdatasync();
    server.print_settings();
    let seconds = std::env::var("TOURBILLON_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    let seconds = Duration::from_secs(seconds);

    for (label, keyed) in [("without key", false), ("with key and name", true)] {
        server.measure(&format!("creates in batches of {BATCH}, {label}"), || {
            let (ops, time) = in_batches(&store, seconds, move |number| vec![create(number, keyed)]);
            Measured { ops, rows: ops as i64, time, note: String::new() }
        });
    }
    server.measure("creates with a key, each cancelled in the same batch", || {
        let (ops, time) = in_batches(&store, seconds, |number| vec![create(number, true), cancel(number)]);
        Measured { ops: ops / 2, rows: 0, time, note: String::new() }
    });
    server.measure("creates by 256 clients in batches of up to 256", || clients(&store, 256, 256, seconds));
    server.measure(&format!("claims and finishes in batches of {BATCH}"), || deliveries(&store, 100_000));
}

/// What a case has done, by the answers of the store.
struct Measured {
    ops: u64,
    /// By how many the rows of the table should be more than before.
    rows: i64,
    time: Duration,
    note: String,
}

/// The server as it is seen past the store.
struct Server {
    runtime: tokio::runtime::Runtime,
    client: tokio_postgres::Client,
    schema: String,
}

impl Server {
    fn connect(runtime: tokio::runtime::Runtime, url: &str, schema: String) -> Server {
        let client = runtime.block_on(async {
            let connected = tokio_postgres::connect(url, tokio_postgres::NoTls).await;
            let (client, connection) = connected.expect("the server works");
            tokio::spawn(connection);
            client
        });
        Server { runtime, client, schema }
    }

    fn number(&self, query: &str) -> i64 {
        self.runtime.block_on(self.client.query_one(query, &[])).expect("the query is right").get(0)
    }

    fn print_settings(&self) {
        let settings = ["server_version", "fsync", "synchronous_commit", "wal_sync_method", "full_page_writes"];
        for setting in settings {
            let query = format!("SELECT current_setting('{setting}')");
            let row = self.runtime.block_on(self.client.query_one(&query, &[])).expect("it is a setting");
            println!("  {setting} = {}", row.get::<_, &str>(0));
        }
    }

    /// Runs a case, and prints its rate if the table has the rows that were acknowledged.
    fn measure(&self, label: &str, case: impl FnOnce() -> Measured) {
        let look = || {
            let rows = self.number(&format!("SELECT count(*) FROM {}.timers", self.schema));
            let wal = self.number("SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint");
            (rows, wal)
        };
        let before = look();
        let done = case();
        let after = look();
        assert_eq!(after.0 - before.0, done.rows, "{label}: the table has other rows than were acknowledged");
        let seconds = done.time.as_secs_f64();
        println!(
            "{label}: {:.0}/s ({} in {seconds:.2} s, rows {:+}, {} B of flushed WAL each){}",
            done.ops as f64 / seconds,
            done.ops,
            after.0 - before.0,
            (after.1 - before.1) / (done.ops as i64).max(1),
            done.note
        );
    }
}

fn create(number: u64, keyed: bool) -> WriteOp {
    let mut timer = NewTimer::after("mail", FAR).payload(vec![7; 256]);
    if keyed {
        timer = timer.key(format!("order {number}")).name(format!("client {}", number / 10));
    }
    let (spec, on_conflict) = timer.check(Limits::default()).expect("the timer is valid");
    WriteOp::Create(CreateOp { id: TimerId::new(), spec: Arc::new(spec), on_conflict })
}

fn cancel(number: u64) -> WriteOp {
    let target = Target::Key { namespace: "default".into(), key: format!("order {number}") };
    WriteOp::Cancel(CancelOp { target })
}

/// Writes batches, as many at a time as the store does, and returns the number of operations and how long they took.
fn in_batches(
    store: &PostgresStore,
    time: Duration,
    ops: impl Fn(u64) -> Vec<WriteOp> + Send + Sync,
) -> (u64, Duration) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..store.traits().parallel_writes {
            scope.spawn(|| {
                while start.elapsed() < time {
                    let first = NEXT.fetch_add(BATCH, Ordering::Relaxed);
                    let batch: Vec<WriteOp> = (first..first + BATCH).flat_map(&ops).take(BATCH as usize).collect();
                    let count = batch.len() as u64;
                    let answers = ask(|reply| store.write(batch, reply)).expect("the store works");
                    assert!(answers.len() as u64 == count && answers.iter().all(is_done), "{:?}", answers.first());
                    done.fetch_add(count, Ordering::Relaxed);
                }
            });
        }
    });
    (done.load(Ordering::Relaxed), start.elapsed())
}

/// Returns whether an operation did what it was to do.
fn is_done(answer: &WriteAnswer) -> bool {
    match answer {
        WriteAnswer::Create(answer) => matches!(answer, CreateAnswer::Created { .. }),
        WriteAnswer::Cancel(counts) => counts.cancelled == 1,
        WriteAnswer::Finish(answer) => answer.is_ok(),
        _ => false,
    }
}

/// What clients wait for: which of them, and since when.
type Waiting = Arc<Mutex<VecDeque<(usize, Instant)>>>;

/// Creates timers for so many clients, each of which waits for its answer.
fn clients(store: &PostgresStore, count: usize, most: usize, time: Duration) -> Measured {
    let waiting: Waiting = Arc::new(Mutex::new((0..count).map(|client| (client, Instant::now())).collect()));
    let (finished, writes) = channel::<(Vec<(usize, Instant)>, Instant)>();
    let (mut latencies, mut running) = (Vec::new(), 0);
    let start = Instant::now();
    let mut number = 1 << 40;
    while start.elapsed() < time || running > 0 {
        while running < store.traits().parallel_writes && start.elapsed() < time {
            let taken: Vec<_> = {
                let mut waiting = waiting.lock().expect("no client panics");
                let count = waiting.len().min(most);
                waiting.drain(..count).collect()
            };
            if taken.is_empty() {
                break;
            }
            let batch = taken
                .iter()
                .map(|_| {
                    number += 1;
                    create(number, true)
                })
                .collect();
            let finished = finished.clone();
            store.write(
                batch,
                Reply::new(move |result: Result<Vec<WriteAnswer>, StoreError>| {
                    assert!(result.expect("the store works").iter().all(is_done));
                    finished.send((taken, Instant::now())).expect("the clients wait");
                }),
            );
            running += 1;
        }
        let (taken, now) = writes.recv().expect("a batch is running");
        running -= 1;
        let mut waiting = waiting.lock().expect("no client panics");
        for (client, since) in taken {
            latencies.push(now - since);
            waiting.push_back((client, now));
        }
    }
    latencies.sort_unstable();
    let at = |share: f64| latencies[(latencies.len() as f64 * share) as usize];
    let note = format!(", answer p50 {:?}, p99 {:?}", at(0.5), at(0.99));
    Measured { ops: latencies.len() as u64, rows: latencies.len() as i64, time: start.elapsed(), note }
}

/// Delivers so many timers, from claim to finish. Their creates are not in the time, but in the WAL.
fn deliveries(store: &PostgresStore, count: u64) -> Measured {
    let node = NodeId(TimerId::new().as_uuid());
    let owned = ask(|reply| store.heartbeat(Heartbeat { node, lease: FAR, release: Vec::new(), kinds: None }, reply))
        .expect("it works");
    let epochs: Vec<u64> = owned.shards.iter().map(|(_, epoch)| *epoch).collect();
    for _ in 0..count / BATCH {
        let due = || {
            let timer = NewTimer::at("due", std::time::SystemTime::UNIX_EPOCH + FAR).payload(vec![7; 256]);
            let (spec, on_conflict) = timer.check(Limits::default()).expect("the timer is valid");
            WriteOp::Create(CreateOp { id: TimerId::new(), spec: Arc::new(spec), on_conflict })
        };
        ask(|reply| store.write((0..BATCH).map(|_| due()).collect(), reply)).expect("the store works");
    }
    let start = Instant::now();
    let mut done = 0;
    loop {
        let query = DueQuery {
            kind: "due".into(),
            shards: (0..256).map(ShardId).collect(),
            after: None,
            until: StoreTime::MAX,
            limit: BATCH as usize,
        };
        // A row that is claimed has its lease as its time: it comes behind those that are not.
        let entries = ask(|reply| store.due(query, reply)).expect("the store works").entries;
        if entries.is_empty() {
            assert_eq!(done, count, "each timer is delivered once");
            return Measured { ops: done, rows: 0, time: start.elapsed(), note: String::new() };
        }
        let claim = |entry: &DueEntry| {
            let epoch = epochs[usize::from(entry.shard.0)];
            WriteOp::Claim(ClaimOp { id: entry.id, version: entry.version, epoch, token: 1, lease: FAR })
        };
        let claimed = ask(|reply| store.write(entries.iter().map(claim).collect(), reply)).expect("the store works");
        let finish = claimed.into_iter().map(|answer| match answer {
            WriteAnswer::Claim(ClaimAnswer::Claimed { row, .. }) => {
                let (attempt, epoch) = (row.attempt, row.epoch);
                WriteOp::Finish(FinishOp { id: row.id, attempt, epoch, verdict: Verdict::Done })
            }
            other => panic!("{other:?}"),
        });
        done += entries.len() as u64;
        let finished = ask(|reply| store.write(finish.collect(), reply)).expect("the store works");
        assert!(finished.iter().all(is_done));
    }
}

fn ask<T: Send + 'static>(call: impl FnOnce(Reply<T>)) -> Result<T, StoreError> {
    let (sender, receiver): (_, Receiver<Result<T, StoreError>>) = channel();
    call(Reply::new(move |result| drop(sender.send(result))));
    receiver.recv().expect("a store replies to each call")
}

/// Prints how long a small write with `fdatasync` takes, on the disk of the cluster.
fn print_fdatasync() {
    let path = std::path::Path::new("/tmp").join(format!("tourbillon-fdatasync-{}", std::process::id()));
    let mut file = File::create(&path).expect("the directory can be written");
    let mut times: Vec<Duration> = (0..1000)
        .map(|_| {
            let start = Instant::now();
            file.write_all(&[7; 8192]).and_then(|()| file.sync_data()).expect("the file can be written");
            start.elapsed()
        })
        .collect();
    std::fs::remove_file(path).expect("the file is there");
    times.sort_unstable();
    let mean = times.iter().sum::<Duration>() / 1000;
    println!("fdatasync of 8 KiB, appended: p50 {:?}, mean {mean:?}, p99 {:?}", times[500], times[990]);
}
