//! What the programs of the peers measure, with the same loops and clocks for each: `PROGRAM CASE MODE SERVER NUMBER...` prints a metric and its
//! value on each line.
//!
//! - `clients MODE SERVER CLIENTS SECONDS`: clients add a job each and wait for the answer
//! - `batches MODE SERVER SECONDS`: jobs are added a thousand at a time
//! - `lateness MODE SERVER PENDING PER_SECOND SECONDS`: jobs that become due beside others that are far
//!
//! `SERVER` is `host=DIRECTORY user=USER dbname=DATABASE` or `postgres://...`, or the directory of an embedded queue. `MODE` is `shipped`, with the defaults of the
//! library, or `tuned`, with what its documents offer for many small jobs.

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// An error of any of the libraries.
pub type AnyError = Box<dyn Error + Send + Sync>;

/// Jobs in a batch.
const BATCH: u64 = 1_000;

/// Batches that are added at the same time.
const BATCH_CLIENTS: u64 = 4;

/// How long the pending jobs of `lateness` may take.
const LONGEST_FILL: Duration = Duration::from_secs(300);

/// How long after the last due time jobs are waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Microseconds from the due time of each job to the call of its handler.
static LATE: Mutex<Vec<i64>> = Mutex::new(Vec::new());

/// What a job carries: its due time, in microseconds since 1970, and 256 bytes.
#[derive(Clone, Serialize, Deserialize)]
pub struct Fire {
    pub due: i64,
    pub payload: String,
}

impl Fire {
    fn at(due: i64) -> Fire {
        Fire { due, payload: "7".repeat(256) }
    }

    fn far() -> Fire {
        Fire::at(now() + 30 * 86_400_000_000)
    }

    fn far_batch() -> Vec<Fire> {
        (0..BATCH).map(|_| Fire::far()).collect()
    }

    /// Notes that the handler of the job was called.
    pub fn note(&self) {
        let late = now() - self.due;
        LATE.lock().unwrap().push(late);
    }
}

/// A queue of jobs.
pub trait Queue: Clone + Send + Sync + 'static {
    /// Adds a job, and returns when it is kept.
    fn add(&self, fire: Fire) -> impl Future<Output = Result<(), AnyError>> + Send;

    /// Adds a batch of jobs, and returns when they are kept.
    fn add_batch(&self, fires: Vec<Fire>) -> impl Future<Output = Result<(), AnyError>> + Send;

    /// Runs jobs, each of which calls [`Fire::note`], and does not return.
    fn work(self) -> impl Future<Output = Result<(), AnyError>> + Send;
}

/// What this program is asked for.
pub struct Request {
    pub is_tuned: bool,
    pub server: String,
    case: String,
    numbers: Vec<u64>,
}

impl Request {
    /// Parses the arguments of this program.
    ///
    /// # Errors
    /// They are not those at the head of this module.
    pub fn from_arguments() -> Result<Request, AnyError> {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let [case, mode, server, numbers @ ..] = &*arguments else {
            return Err("the arguments are CASE MODE SERVER NUMBER...".into());
        };
        let numbers = numbers.iter().map(|number| number.parse()).collect::<Result<_, _>>()?;
        Ok(Request { is_tuned: mode == "tuned", server: server.clone(), case: case.clone(), numbers })
    }

    /// Runs the case, and prints its figures.
    ///
    /// # Errors
    /// The queue has failed, or there is no such case.
    pub async fn measure(&self, queue: impl Queue) -> Result<(), AnyError> {
        match (self.case.as_str(), &*self.numbers) {
            ("clients", &[clients, seconds]) => by_clients(queue, clients, Duration::from_secs(seconds)).await,
            ("batches", &[seconds]) => in_batches(queue, Duration::from_secs(seconds)).await,
            ("lateness", &[pending, per_second, seconds]) => lateness(queue, pending, per_second, seconds).await,
            (case, numbers) => Err(format!("there is no case {case} with {} numbers", numbers.len()).into()),
        }
    }
}

async fn by_clients(queue: impl Queue, clients: u64, time: Duration) -> Result<(), AnyError> {
    let is_over = Arc::new(AtomicBool::new(false));
    let begin = Instant::now();
    let tasks: Vec<_> = (0..clients)
        .map(|_| {
            let (queue, is_over) = (queue.clone(), Arc::clone(&is_over));
            tokio::spawn(async move {
                let mut micros = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    let fire = Fire::far();
                    let begin = Instant::now();
                    queue.add(fire).await?;
                    micros.push(begin.elapsed().as_micros() as i64);
                }
                Ok::<_, AnyError>(micros)
            })
        })
        .collect();
    tokio::time::sleep(time).await;
    is_over.store(true, Ordering::Relaxed);
    let mut micros = Vec::new();
    for task in tasks {
        micros.extend(task.await??);
    }
    println!("creates_per_s {}", micros.len() as f64 / begin.elapsed().as_secs_f64());
    println!("answer_p50_ms {}", quantile(&mut micros, 0.5) / 1e3);
    println!("answer_p99_ms {}", quantile(&mut micros, 0.99) / 1e3);
    Ok(())
}

async fn in_batches(queue: impl Queue, time: Duration) -> Result<(), AnyError> {
    let begin = Instant::now();
    let added = add_batches(&queue, move |_| begin.elapsed() < time).await?;
    println!("creates_per_s {}", added as f64 / begin.elapsed().as_secs_f64());
    Ok(())
}

async fn lateness(queue: impl Queue, pending: u64, per_second: u64, seconds: u64) -> Result<(), AnyError> {
    let begin = Instant::now();
    let added = add_batches(&queue, move |before| before < pending && begin.elapsed() < LONGEST_FILL).await?;
    if added < pending {
        return Err(format!("only {added} of {pending} jobs could be added in {LONGEST_FILL:?}").into());
    }
    eprintln!("{pending} jobs in {:.0} s", begin.elapsed().as_secs_f64());
    let begin = now() + 5_000_000;
    for second in 0..seconds {
        let due = |index: u64| begin + (second * 1_000_000 + index * 1_000_000 / per_second) as i64;
        queue.add_batch((0..per_second).map(|index| Fire::at(due(index))).collect()).await?;
    }
    if now() > begin {
        eprintln!("warning: some jobs were due before they were added");
    }
    let expected = (per_second * seconds) as usize;
    let working = tokio::spawn(queue.work());
    let limit = Instant::now() + Duration::from_secs(5 + seconds) + LONGEST_WAIT;
    while LATE.lock().unwrap().len() < expected && Instant::now() < limit {
        if working.is_finished() {
            return working.await?.and(Err("the workers have ended".into()));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    working.abort();
    let mut late = LATE.lock().unwrap().clone();
    // A queue that delivered nothing has no lateness.
    if !late.is_empty() {
        println!("p50_us {}", quantile(&mut late, 0.5));
        println!("p99_us {}", quantile(&mut late, 0.99));
        println!("max_us {}", quantile(&mut late, 1.0));
    }
    println!("delivered {}", late.len());
    println!("expected {expected}");
    Ok(())
}

/// Adds batches of far jobs, some at the same time, while `goes_on` is true for the number of jobs before. Returns how many were added.
async fn add_batches(
    queue: &impl Queue,
    goes_on: impl Fn(u64) -> bool + Clone + Send + 'static,
) -> Result<u64, AnyError> {
    let begun = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..BATCH_CLIENTS)
        .map(|_| {
            let (queue, begun, goes_on) = (queue.clone(), Arc::clone(&begun), goes_on.clone());
            tokio::spawn(async move {
                let mut added = 0;
                while goes_on(begun.fetch_add(BATCH, Ordering::Relaxed)) {
                    queue.add_batch(Fire::far_batch()).await?;
                    added += BATCH;
                }
                Ok::<_, AnyError>(added)
            })
        })
        .collect();
    let mut added = 0;
    for task in tasks {
        added += task.await??;
    }
    Ok(added)
}

/// Returns the microseconds since 1970.
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

fn quantile(values: &mut [i64], quantile: f64) -> f64 {
    values.sort_unstable();
    let last = values.len().saturating_sub(1);
    values.get((last as f64 * quantile) as usize).copied().unwrap_or_default() as f64
}
