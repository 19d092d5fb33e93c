//! Measures graphile_worker on a PostgreSQL server: see `durable-peers-measure` for the arguments.
//!
//! `shipped` has the defaults of the library. `tuned` has what its guide offers for many small jobs: jobs are fetched in batches, and looked for
//! 20 times a second.

use std::sync::Arc;
use std::time::Duration;

use chrono::DateTime;
use durable_peers_measure::{AnyError, Fire, Queue, Request};
use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, JobSpecBuilder, LocalQueueConfig, TaskHandler, Worker, WorkerContext,
    WorkerOptions, WorkerUtils,
};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
struct FireJob(Fire);

impl TaskHandler for FireJob {
    const IDENTIFIER: &'static str = "fire";

    async fn run(self, _context: WorkerContext) -> impl IntoTaskHandlerResult {
        self.0.note();
        Ok::<(), String>(())
    }
}

#[derive(Clone)]
struct Graphile {
    worker: Arc<Worker>,
    utils: WorkerUtils,
}

impl Queue for Graphile {
    async fn add(&self, fire: Fire) -> Result<(), AnyError> {
        let spec = spec(&fire)?;
        self.utils.add_job(FireJob(fire), spec).await?;
        Ok(())
    }

    async fn add_batch(&self, fires: Vec<Fire>) -> Result<(), AnyError> {
        let specs = fires.iter().map(spec).collect::<Result<Vec<_>, _>>()?;
        let jobs: Vec<_> = fires.into_iter().map(FireJob).zip(&specs).collect();
        self.utils.add_jobs::<FireJob>(&jobs).await?;
        Ok(())
    }

    async fn work(self) -> Result<(), AnyError> {
        Ok(self.worker.run().await?)
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), AnyError> {
    let request = Request::from_arguments()?;
    let worker = worker(&request.server, request.is_tuned).await?;
    request.measure(Graphile { utils: worker.create_utils(), worker: Arc::new(worker) }).await
}

async fn worker(server: &str, is_tuned: bool) -> Result<Worker, AnyError> {
    let pool = PgPoolOptions::new().max_connections(16).connect_with(self::server(server)?).await?;
    let schema = format!("graphile_{}", std::process::id());
    let mut worker = WorkerOptions::default().schema(schema.as_str()).define_job::<FireJob>().pg_pool(pool);
    if is_tuned {
        let queue = LocalQueueConfig::default().with_size(500);
        worker = worker.concurrency(32).poll_interval(Duration::from_millis(50)).local_queue(queue);
        worker = worker.complete_job_batch_delay(Duration::from_millis(5));
    }
    Ok(worker.init().await?)
}

/// Reads an address of either form that PostgreSQL's own programs take.
fn server(address: &str) -> Result<PgConnectOptions, AnyError> {
    if address.contains("://") {
        return Ok(address.parse()?);
    }
    let mut options = PgConnectOptions::new();
    for word in address.split_whitespace() {
        let (name, value) = word.split_once('=').ok_or_else(|| format!("{word:?} in {address:?} is no name=value"))?;
        options = match name {
            "host" if value.starts_with('/') => options.socket(value),
            "host" => options.host(value),
            "port" => options.port(value.parse()?),
            "user" => options.username(value),
            "password" => options.password(value),
            "dbname" => options.database(value),
            _ => return Err(format!("{name:?} in the address of the server is not known").into()),
        };
    }
    Ok(options)
}

fn spec(fire: &Fire) -> Result<JobSpec, AnyError> {
    let due = DateTime::from_timestamp_micros(fire.due).ok_or("a due time is beyond all times")?;
    Ok(JobSpecBuilder::new().run_at(due).build())
}
