//! Measures rustqueue, embedded, on its durable store (redb): see `durable-peers-measure` for the arguments.
//!
//! `shipped` is `RustQueue::redb(..).build()` with `run_worker`, whose answers are durable. `tuned` is as durable, and has what its documents
//! offer for throughput: creates at the same time share a commit, jobs are pulled and acknowledged in batches, and due jobs are looked for 20
//! times a second.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use durable_peers_measure::{AnyError, Fire, Queue, Request};
use rustqueue::config::RetentionConfig;
use rustqueue::engine::queue::{BatchAckItem, BatchPushItem};
use rustqueue::engine::scheduler::start_scheduler;
use rustqueue::storage::{BufferedRedbConfig, BufferedRedbStorage, RedbStorage};
use rustqueue::{JobOptions, QueueManager, RustQueue, StorageBackend};
use serde_json::{from_value, to_value};

/// The queue of all jobs.
const QUEUE: &str = "bench";

/// How creates of a tuned queue share a commit: at once if there are so many, otherwise within so many milliseconds.
const COALESCING: BufferedRedbConfig = BufferedRedbConfig { interval_ms: 2, max_batch: 100 };

/// How often a tuned worker looks for jobs.
const LOOK: Duration = Duration::from_millis(50);

/// Jobs that a tuned worker pulls at a time.
const PULLED: u32 = 1_000;

/// The time without a heartbeat after which a job counts as stalled: the default.
const STALL_MS: u64 = 30_000;

#[derive(Clone)]
struct Embedded {
    /// The engine below `RustQueue`, which also takes batches.
    manager: Arc<QueueManager>,
    path: PathBuf,
    is_tuned: bool,
}

impl Embedded {
    fn open(path: PathBuf, is_tuned: bool) -> Result<Embedded, AnyError> {
        let store: Arc<dyn StorageBackend> = Arc::new(RedbStorage::new(&path)?);
        let store = if is_tuned { Arc::new(BufferedRedbStorage::new(store, COALESCING)) } else { store };
        Ok(Embedded { manager: Arc::new(QueueManager::new(store)), path, is_tuned })
    }

    /// Pulls and acknowledges batches.
    async fn work_in_batches(self) -> Result<(), AnyError> {
        let _ticks =
            start_scheduler(Arc::clone(&self.manager), LOOK.as_millis() as u64, STALL_MS, RetentionConfig::default());
        loop {
            let jobs = self.manager.pull(QUEUE, PULLED).await?;
            if jobs.is_empty() {
                tokio::time::sleep(LOOK).await;
                continue;
            }
            let mut done = Vec::with_capacity(jobs.len());
            for job in jobs {
                from_value::<Fire>(job.data)?.note();
                done.push(BatchAckItem { id: job.id, result: None });
            }
            self.manager.ack_batch(done).await?;
        }
    }
}

impl Queue for Embedded {
    async fn add(&self, fire: Fire) -> Result<(), AnyError> {
        self.manager.push(QUEUE, "fire", to_value(&fire)?, options(&fire)).await?;
        Ok(())
    }

    async fn add_batch(&self, fires: Vec<Fire>) -> Result<(), AnyError> {
        let jobs = fires
            .iter()
            .map(|fire| Ok(BatchPushItem { name: "fire".to_owned(), data: to_value(fire)?, options: options(fire) }));
        self.manager.push_batch(QUEUE, jobs.collect::<Result<_, AnyError>>()?).await?;
        Ok(())
    }

    async fn work(self) -> Result<(), AnyError> {
        if self.is_tuned {
            return self.work_in_batches().await;
        }
        // Only one handle can have the file open.
        drop(self.manager);
        let queue = RustQueue::redb(&self.path)?.build()?;
        let handler = async |job: rustqueue::Job| from_value::<Fire>(job.data).map(|fire| fire.note());
        Ok(queue.run_worker(QUEUE, handler).await?)
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let measured = measure().await;
    if let Err(error) = &measured {
        eprintln!("error: rustqueue: {error}");
    }
    // A tick that reads all jobs would be waited for otherwise.
    std::process::exit(i32::from(measured.is_err()));
}

async fn measure() -> Result<(), AnyError> {
    let request = Request::from_arguments()?;
    let path = Path::new(&request.server).join(format!("rustqueue-{}", std::process::id()));
    let queue = Embedded::open(path.clone(), request.is_tuned)?;
    let measured = request.measure(queue).await;
    std::fs::remove_file(path)?;
    measured
}

fn options(fire: &Fire) -> Option<JobOptions> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64);
    // Rounded up: a job may not be early.
    let delay_ms = u64::try_from(fire.due - now).map_or(0, |micros| micros.div_ceil(1_000));
    // A timer is gone when it has fired.
    Some(JobOptions { delay_ms: Some(delay_ms), remove_on_complete: Some(true), ..JobOptions::default() })
}
