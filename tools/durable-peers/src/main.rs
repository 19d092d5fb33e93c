//! Measures graphile_worker on a PostgreSQL server: `durable-peers CASE MODE SERVER NUMBER...` prints a metric and its value on each line.
//!
//! - `clients MODE SERVER CLIENTS SECONDS`: clients add a job each and wait for the answer
//! - `batches MODE SERVER SECONDS`: jobs are added a thousand at a time
//! - `lateness MODE SERVER PENDING PER_SECOND SECONDS`: jobs that become due beside others that are far
//!
//! `SERVER` is `host=DIRECTORY user=USER dbname=DATABASE`. `MODE` is `shipped`, with the defaults of the library, or `tuned`, with what its guide
//! offers for many small jobs: jobs are fetched in batches, and looked for 20 times a second.

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, JobSpecBuilder, LocalQueueConfig, TaskHandler, Worker, WorkerContext, WorkerOptions,
    WorkerUtils,
};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

/// Microseconds from the due time of each job to the call of its handler.
static LATE: Mutex<Vec<i64>> = Mutex::new(Vec::new());

const BATCH: usize = 1_000;

#[derive(Clone, Serialize, Deserialize)]
struct Fire {
    due: i64,
    payload: String,
}

impl TaskHandler for Fire {
    const IDENTIFIER: &'static str = "fire";

    async fn run(self, _context: WorkerContext) -> impl IntoTaskHandlerResult {
        LATE.lock().unwrap().push(Utc::now().timestamp_micros() - self.due);
        Ok::<(), String>(())
    }
}

impl Fire {
    fn at(due: DateTime<Utc>) -> (Fire, JobSpec) {
        let fire = Fire { due: due.timestamp_micros(), payload: "7".repeat(256) };
        (fire, JobSpecBuilder::new().run_at(due).build())
    }

    fn far() -> (Fire, JobSpec) {
        Fire::at(Utc::now() + TimeDelta::days(30))
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [case, mode, server, numbers @ ..] = &*arguments else { return Err("see the head of this program".into()) };
    let numbers: Vec<u64> = numbers.iter().map(|number| number.parse()).collect::<Result<_, _>>()?;
    let worker = worker(server, mode == "tuned").await?;
    let utils = worker.create_utils();
    match (case.as_str(), &*numbers) {
        ("clients", &[clients, seconds]) => add_by_clients(&utils, clients, seconds).await,
        ("batches", &[seconds]) => add_in_batches(&utils, seconds).await,
        ("lateness", &[pending, per_second, seconds]) => lateness(worker, pending, per_second, seconds).await,
        _ => Err("see the head of this program".into()),
    }
}

async fn worker(server: &str, tuned: bool) -> Result<Worker, Box<dyn Error>> {
    let mut options = PgConnectOptions::new();
    for (name, value) in server.split(' ').filter_map(|part| part.split_once('=')) {
        options = match name {
            "host" => options.socket(value),
            "user" => options.username(value),
            "dbname" => options.database(value),
            _ => options,
        };
    }
    let pool = PgPoolOptions::new().max_connections(16).connect_with(options).await?;
    let schema = format!("graphile_{}", std::process::id());
    let mut worker = WorkerOptions::default().schema(schema.as_str()).define_job::<Fire>().pg_pool(pool);
    if tuned {
        let queue = LocalQueueConfig::default().with_size(500);
        worker = worker.concurrency(32).poll_interval(Duration::from_millis(50)).local_queue(queue);
        worker = worker.complete_job_batch_delay(Duration::from_millis(5));
    }
    Ok(worker.init().await?)
}

async fn add_by_clients(utils: &WorkerUtils, clients: u64, seconds: u64) -> Result<(), Box<dyn Error>> {
    let (is_over, nanos) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let begin = Instant::now();
    let tasks: Vec<_> = (0..clients)
        .map(|_| {
            let (utils, is_over, nanos) = (utils.clone(), Arc::clone(&is_over), Arc::clone(&nanos));
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let (fire, spec) = Fire::far();
                    let begin = Instant::now();
                    utils.add_job(fire, spec).await.expect("the job is added");
                    nanos.lock().unwrap().push(begin.elapsed().as_micros() as i64);
                }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await?;
    }
    let mut micros = nanos.lock().unwrap().clone();
    println!("creates_per_s {}", micros.len() as f64 / begin.elapsed().as_secs_f64());
    println!("answer_p50_ms {}", quantile(&mut micros, 0.5) / 1e3);
    println!("answer_p99_ms {}", quantile(&mut micros, 0.99) / 1e3);
    Ok(())
}

async fn add_in_batches(utils: &WorkerUtils, seconds: u64) -> Result<(), Box<dyn Error>> {
    let begin = Instant::now();
    let count = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let (utils, count) = (utils.clone(), Arc::clone(&count));
            tokio::spawn(async move {
                while begin.elapsed() < Duration::from_secs(seconds) {
                    add(&utils, (0..BATCH).map(|_| Fire::far()).collect()).await;
                    count.fetch_add(BATCH as u64, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await?;
    }
    println!("creates_per_s {}", count.load(Ordering::Relaxed) as f64 / begin.elapsed().as_secs_f64());
    Ok(())
}

async fn lateness(worker: Worker, pending: u64, per_second: u64, seconds: u64) -> Result<(), Box<dyn Error>> {
    let utils = worker.create_utils();
    let batches = Arc::new(AtomicU64::new(pending / BATCH as u64));
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let (utils, batches) = (utils.clone(), Arc::clone(&batches));
            tokio::spawn(async move {
                let less = |left: u64| left.checked_sub(1);
                while batches.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
                    add(&utils, (0..BATCH).map(|_| Fire::far()).collect()).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await?;
    }
    // As our store in PostgreSQL, whose table is analysed by the same daemon.
    let begin = Utc::now() + TimeDelta::seconds(5);
    for second in 0..seconds {
        let due = |index: u64| begin + TimeDelta::microseconds((second * 1_000_000 + index * 1_000_000 / per_second) as i64);
        add(&utils, (0..per_second).map(|index| Fire::at(due(index))).collect()).await;
    }
    if Utc::now() > begin {
        eprintln!("warning: some jobs were due before they were added");
    }
    let expected = (per_second * seconds) as usize;
    let running = tokio::spawn(async move { worker.run().await.map_err(|error| error.to_string()) });
    let limit = Instant::now() + Duration::from_secs(seconds + 60);
    while LATE.lock().unwrap().len() < expected && Instant::now() < limit && !running.is_finished() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    running.abort();
    let mut late = LATE.lock().unwrap().clone();
    println!("p50_us {}", quantile(&mut late, 0.5));
    println!("p99_us {}", quantile(&mut late, 0.99));
    println!("max_us {}", quantile(&mut late, 1.0));
    println!("delivered {}", late.len());
    println!("expected {expected}");
    Ok(())
}

async fn add(utils: &WorkerUtils, jobs: Vec<(Fire, JobSpec)>) {
    let jobs: Vec<(Fire, &JobSpec)> = jobs.iter().map(|(fire, spec)| (fire.clone(), spec)).collect();
    utils.add_jobs::<Fire>(&jobs).await.expect("the jobs are added");
}

fn quantile(values: &mut [i64], quantile: f64) -> f64 {
    values.sort_unstable();
    let last = values.len().saturating_sub(1);
    values.get((last as f64 * quantile) as usize).copied().unwrap_or_default() as f64
}
