//! Measures awa on a PostgreSQL server, in a database of its own: see `durable-peers-measure` for the arguments.
//!
//! `shipped` has the defaults of awa and of the pool of its README. `tuned` has what its documents and benchmarks offer for many small jobs:
//! producers that copy into the tables of the workers, 256 jobs at a time without a deadline each, and looks for jobs 20 times a second. Looks for
//! due times keep their default of 250 ms.

use std::sync::Arc;
use std::time::Duration;

use awa::model::insert::params_with;
use awa::{Client, InsertOpts, JobArgs, JobResult, QueueConfig, QueueStorage, QueueStorageConfig};
use chrono::DateTime;
use durable_peers_measure::{AnyError, Fire, Queue, Request};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

/// The queue of all jobs.
const QUEUE: &str = "bench";

/// Connections of a tuned pool.
const CONNECTIONS: u32 = 64;

/// How often a tuned worker looks for jobs.
const LOOK: Duration = Duration::from_millis(50);

/// How often a tuned leader looks for due times: the default, which awa's benchmarks also use. If three looks in a row take longer than one and a
/// half intervals, the leader leaves out the next 120.
const LOOK_FOR_DUE: Duration = Duration::from_millis(250);

#[derive(Serialize, Deserialize, JobArgs)]
#[serde(transparent)]
struct FireJob(Fire);

#[derive(Clone)]
struct Awa {
    pool: PgPool,
    /// The tables of the workers, which a tuned producer writes directly.
    store: Option<Arc<QueueStorage>>,
}

impl Queue for Awa {
    async fn add(&self, fire: Fire) -> Result<(), AnyError> {
        let options = options(&fire)?;
        awa::insert_with(&self.pool, &FireJob(fire), options).await?;
        Ok(())
    }

    async fn add_batch(&self, fires: Vec<Fire>) -> Result<(), AnyError> {
        let jobs = fires
            .into_iter()
            .map(|fire| Ok(params_with(&FireJob(fire.clone()), options(&fire)?)?))
            .collect::<Result<Vec<_>, AnyError>>()?;
        match &self.store {
            Some(store) => drop(store.enqueue_params_copy(&self.pool, &jobs).await?),
            None => drop(awa::insert_many_copy_from_pool(&self.pool, &jobs).await?),
        }
        Ok(())
    }

    async fn work(self) -> Result<(), AnyError> {
        let is_tuned = self.store.is_some();
        let mut queue = QueueConfig::default();
        if is_tuned {
            queue = QueueConfig { max_workers: 256, poll_interval: LOOK, deadline_duration: Duration::ZERO, ..queue };
        }
        let mut client =
            Client::builder(self.pool).queue(QUEUE, queue).register::<FireJob, _, _>(|job, _| async move {
                job.0.note();
                Ok(JobResult::Completed)
            });
        if is_tuned {
            client = client.promote_interval(LOOK_FOR_DUE);
        }
        let client = client.build()?;
        client.start().await?;
        std::future::pending().await
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), AnyError> {
    let request = Request::from_arguments()?;
    let server = server(&request.server)?;
    // awa's schema has a fixed name, so each run has a database.
    let database = format!("awa_{}", std::process::id());
    let outside = PgPoolOptions::new().max_connections(1).connect_with(server.clone()).await?;
    sqlx::query(&format!("CREATE DATABASE {database}")).execute(&outside).await?;
    let measured = measure(&request, server.database(&database)).await;
    sqlx::query(&format!("DROP DATABASE {database} WITH (FORCE)")).execute(&outside).await?;
    measured
}

async fn measure(request: &Request, database: PgConnectOptions) -> Result<(), AnyError> {
    let mut pool = PgPoolOptions::new();
    if request.is_tuned {
        pool = pool.max_connections(CONNECTIONS);
    }
    let pool = pool.connect_with(database).await?;
    awa::migrations::run(&pool).await?;
    // A worker would do this when it starts. Here jobs are added before.
    let store = QueueStorage::new(QueueStorageConfig::default())?;
    store.install(&pool).await?;
    request.measure(Awa { pool, store: request.is_tuned.then(|| Arc::new(store)) }).await
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

fn options(fire: &Fire) -> Result<InsertOpts, AnyError> {
    let due = DateTime::from_timestamp_micros(fire.due).ok_or("a due time is beyond all times")?;
    Ok(InsertOpts { queue: QUEUE.to_owned(), run_at: Some(due), ..InsertOpts::default() })
}
