//! Timers as the cases need them, and clients that create them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use tourbillon_durable::{NewTimer, Timers, TimersError};

use super::place::{Place, close, fail, runtime};

/// The kind of all timers.
pub(super) const KIND: &str = "bench";

/// Bytes of a payload.
const PAYLOAD: usize = 256;

/// Timers in one request, where a case creates many.
pub(super) const BATCH: usize = 1_000;

/// When timers are due that are not to fire.
const FAR: Duration = Duration::from_secs(30 * 86_400);

/// Requests that a client which fills a store has under way.
const FILLERS: usize = 4;

/// Returns a timer that is due in some weeks, with a key and a name of ten.
pub(super) fn far(number: u64) -> NewTimer {
    // Spread over a day, so that the index of times has different entries.
    let at = FAR + Duration::from_millis(number.wrapping_mul(7_919) % 86_400_000);
    named(NewTimer::after(KIND, at), number)
}

/// Returns a timer that is due at a time.
pub(super) fn due(number: u64, at: SystemTime) -> NewTimer {
    named(NewTimer::at(KIND, at), number)
}

fn named(timer: NewTimer, number: u64) -> NewTimer {
    timer.key(key(number)).name(format!("customer {}", number / 10)).payload(vec![7; PAYLOAD])
}

/// Returns the key of a timer.
pub(super) fn key(number: u64) -> String {
    format!("order {number}")
}

/// Returns numbers that no other call in this process or in another one returns.
pub(super) fn numbers(count: u64) -> std::ops::Range<u64> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let process = u64::from(std::process::id()) << 36;
    let first = process + NEXT.fetch_add(count, Ordering::Relaxed);
    first..first + count
}

/// Fills a store with timers that are due in some weeks.
pub(super) fn fill(place: &Place, count: usize) {
    let timers = place.open(Timers::builder());
    create_far(&timers, count);
    close(&timers);
}

/// Creates timers that are due in some weeks, and tells after each tenth of them how many there are.
pub(super) fn create_far(timers: &Timers, count: usize) {
    let (begin, created) = (Instant::now(), AtomicU64::new(0));
    let (count, step) = (count as u64, (count as u64).div_ceil(10).max(1));
    create_and_tell(timers, count as usize, far, move |batch| {
        let before = created.fetch_add(batch, Ordering::Relaxed);
        if before / step < (before + batch) / step {
            eprintln!("{} of {count} timers in {:.0} s", before + batch, begin.elapsed().as_secs_f64());
        }
    });
}

/// Creates timers in batches, some at the same time, and returns how long that took.
pub(super) fn create(
    timers: &Timers,
    count: usize,
    timer: impl Fn(u64) -> NewTimer + Clone + Send + Sync + 'static,
) -> Duration {
    create_and_tell(timers, count, timer, |_| {})
}

/// Creates timers as [`create`] does, and calls `tell` with the size of each batch that was created.
fn create_and_tell(
    timers: &Timers,
    count: usize,
    timer: impl Fn(u64) -> NewTimer + Clone + Send + Sync + 'static,
    tell: impl Fn(u64) + Send + Sync + 'static,
) -> Duration {
    let (begin, tell) = (Instant::now(), Arc::new(tell));
    let left = Arc::new(AtomicU64::new(count as u64));
    let clients: Vec<_> = (0..FILLERS)
        .map(|_| {
            let (timers, left, timer, tell) = (timers.clone(), Arc::clone(&left), timer.clone(), Arc::clone(&tell));
            runtime().spawn(async move {
                while let Some(batch) = take(&left) {
                    create_batch(&timers, batch, &timer).await;
                    tell(batch);
                }
            })
        })
        .collect();
    for client in clients {
        runtime().block_on(client).unwrap_or_else(|error| fail(&error.to_string()));
    }
    begin.elapsed()
}

/// Takes up to a batch from what is left.
fn take(left: &AtomicU64) -> Option<u64> {
    let less = |left: u64| (left > 0).then(|| left.saturating_sub(BATCH as u64));
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok().map(|left| left.min(BATCH as u64))
}

/// Creates one batch. Exits this program if a timer was not created.
pub(super) async fn create_batch(timers: &Timers, count: u64, timer: &(impl Fn(u64) -> NewTimer + Send + Sync)) {
    let created = timers.create_all(numbers(count).map(timer)).await;
    let all = created.and_then(|created| created.into_iter().collect::<Result<Vec<_>, TimersError>>());
    if let Err(error) = all {
        fail(&error.to_string());
    }
}

/// Cancels timers, many at the same time. Exits this program if one was not pending.
pub(super) fn cancel(timers: &Timers, numbers: Vec<u64>) {
    let cancels: Vec<_> = numbers
        .into_iter()
        .map(|number| {
            let timers = timers.clone();
            runtime().spawn(async move { timers.cancel(key(number)).await })
        })
        .collect();
    for cancel in cancels {
        let counts = runtime().block_on(cancel).unwrap_or_else(|error| fail(&error.to_string()));
        match counts {
            Ok(counts) if counts.cancelled == 1 => {}
            Ok(counts) => fail(&format!("a cancel of a pending timer counted {counts:?}")),
            Err(error) => fail(&error.to_string()),
        }
    }
}

/// What clients have done in some time.
pub(super) struct ClientsWork {
    /// Operations per second.
    pub(super) rate: f64,
    /// The nanoseconds of each answer.
    pub(super) answers: Vec<u64>,
}

/// Runs clients for some time. `work` does something durable for the client once, adds how long each answer took, and is called again.
pub(super) fn clients<W, F>(count: usize, time: Duration, work: W) -> ClientsWork
where
    W: Fn(Vec<u64>) -> F + Clone + Send + 'static,
    F: Future<Output = Vec<u64>> + Send + 'static,
{
    let is_over = Arc::new(AtomicBool::new(false));
    let begin = Instant::now();
    let tasks: Vec<_> = (0..count)
        .map(|_| {
            let (work, is_over) = (work.clone(), Arc::clone(&is_over));
            runtime().spawn(async move {
                let mut answers = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    answers = work(answers).await;
                }
                answers
            })
        })
        .collect();
    std::thread::sleep(time);
    is_over.store(true, Ordering::Relaxed);
    let mut answers = Vec::new();
    for task in tasks {
        answers.extend(runtime().block_on(task).unwrap_or_else(|error| fail(&error.to_string())));
    }
    ClientsWork { rate: answers.len() as f64 / begin.elapsed().as_secs_f64(), answers }
}
