//! Scenario `cross`: one thread creates sleeps and polls each once, another drops them.

use std::pin::Pin;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Barrier};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use tourbillon_tools::Random;

use crate::harness::{
    self, BenchEntry, PendingOptions, RoundLength, WarmUp, far_durations, in_poll, measure_pending, per_operation,
    settle, span,
};
use crate::report::BenchReport;
use crate::systems::async_io::BlockOn;
use crate::systems::tokio::Tokio;
use crate::systems::tourbillon;
use crate::systems::{TaskRunner, async_io, futures_timer, pingora, tokio};

const SYSTEMS: &[&str] = &[tourbillon::NAME, tokio::MULTI, async_io::NAME, futures_timer::NAME, pingora::NAME];

/// Number of sleeps in a batch.
const BATCH: usize = 256;
/// Most batches in the channels.
const BATCHES: usize = 8;

const PENDING: &[usize] = &[0, 100_000];

/// One thread arms, the other drops.
const THREADS: usize = 2;

/// Runs the scenario.
pub(crate) fn run(options: &PendingOptions, report: &mut BenchReport) {
    let choice = &options.choice;
    choice.check(SYSTEMS);
    let operations = if choice.common.quick { 200 * BATCH } else { 1_000 * BATCH };
    let durations: Arc<[Duration]> = far_durations(operations, &mut Random::new(0)).into();
    let pending = options.numbers(PENDING);
    for &pending in pending {
        let work = CrossWork { pending, durations: durations.clone() };
        measure_pending(entries(&work), choice, choice.rounds(9, 5, RoundLength::Brief), WarmUp::Yes, report);
    }
}

fn entries(work: &CrossWork) -> Vec<BenchEntry> {
    let multi = || Tokio::multi_thread(THREADS);
    vec![
        entry(tourbillon::NAME, multi, work, |job| task(tourbillon::sleep, job)),
        entry(tokio::MULTI, multi, work, |job| task(tokio::sleep, job)),
        entry(async_io::NAME, || BlockOn, work, |job| task(async_io::sleep, job)),
        entry(futures_timer::NAME, multi, work, |job| task(futures_timer::sleep, job)),
        entry(pingora::NAME, multi, work, |job| task(pingora::sleep, job)),
    ]
}

/// The work of a round.
#[derive(Clone)]
struct CrossWork {
    /// Number of other sleeps that are pending.
    pending: usize,
    durations: Arc<[Duration]>,
}

type Batch<F> = Vec<Pin<Box<F>>>;

/// The work of a task. Full batches go from the arming thread to the dropping one, and empty ones come back.
enum CrossTask<F> {
    /// Arms the pending sleeps before the rounds.
    Hold(usize),
    Arm {
        barrier: Arc<Barrier>,
        durations: Arc<[Duration]>,
        empty: Receiver<Batch<F>>,
        full: SyncSender<Batch<F>>,
    },
    Drop {
        barrier: Arc<Barrier>,
        full: Receiver<Batch<F>>,
        empty: SyncSender<Batch<F>>,
    },
}

/// The result of a task.
enum CrossResult<F> {
    Held(Vec<Pin<Box<F>>>),
    Crossed(Instant, Instant),
}

/// Returns the two tasks of a round.
fn jobs<F>(durations: &Arc<[Duration]>) -> [CrossTask<F>; THREADS] {
    let barrier = Arc::new(Barrier::new(THREADS));
    let (to_drop, full) = sync_channel(BATCHES);
    let (give_back, empty) = sync_channel(BATCHES);
    for _ in 0..BATCHES {
        give_back.send(Vec::with_capacity(BATCH)).expect("the channel has room for all batches");
    }
    [
        CrossTask::Arm { barrier: barrier.clone(), durations: durations.clone(), empty, full: to_drop },
        CrossTask::Drop { barrier, full, empty: give_back },
    ]
}

fn entry<F, R, T>(
    system: &'static str,
    runtime: impl FnOnce() -> R + 'static,
    work: &CrossWork,
    task: impl Fn(CrossTask<F>) -> T + 'static,
) -> BenchEntry
where
    F: Future + 'static,
    R: TaskRunner<T> + 'static,
    T: Future<Output = CrossResult<F>>,
{
    let CrossWork { pending, durations } = work.clone();
    let start = move || {
        let mut runtime = runtime();
        let CrossResult::Held(held) = runtime.run_one(task(CrossTask::Hold(pending))) else {
            unreachable!("the task holds the pending sleeps")
        };
        Box::new(move || {
            let _held_until_the_last_round = &held;
            let done = runtime.run(jobs(&durations).into_iter().map(&task).collect());
            let times = done.into_iter().filter_map(|done| match done {
                CrossResult::Held(_) => None,
                CrossResult::Crossed(start, end) => Some((start, end)),
            });
            vec![("ns_per_op", per_operation(span(times), durations.len()))]
        }) as _
    };
    BenchEntry { system, case: format!("pending={pending}"), start: Box::new(start) }
}

async fn task<F: Future>(sleep: impl Fn(Duration) -> F, job: CrossTask<F>) -> CrossResult<F> {
    match job {
        CrossTask::Hold(pending) => {
            let held = harness::arm(&sleep, &far_durations(pending, &mut Random::new(1))).await;
            settle(&sleep).await;
            CrossResult::Held(held)
        }
        CrossTask::Arm { barrier, durations, empty, full } => {
            crossing(&barrier, move || arm(&sleep, &durations, &empty, &full)).await
        }
        CrossTask::Drop { barrier, full, empty } => crossing(&barrier, move || drop_all(&full, &empty)).await,
    }
}

/// Blocks the thread until the other one arrives, then does its share.
async fn crossing<F>(barrier: &Barrier, share: impl FnOnce()) -> CrossResult<F> {
    in_poll(|_| {
        barrier.wait();
        let start = Instant::now();
        share();
        CrossResult::Crossed(start, Instant::now())
    })
    .await
}

/// Arms sleeps with a waker that does nothing, as in `churn`.
fn arm<F: Future>(
    sleep: &impl Fn(Duration) -> F,
    durations: &[Duration],
    empty: &Receiver<Batch<F>>,
    full: &SyncSender<Batch<F>>,
) {
    let cx = &mut Context::from_waker(Waker::noop());
    for durations in durations.chunks(BATCH) {
        let mut batch = empty.recv().expect("the other thread runs until it has received all batches");
        for &duration in durations {
            let mut sleep = Box::pin(sleep(duration));
            assert!(sleep.as_mut().poll(cx).is_pending());
            batch.push(sleep);
        }
        full.send(batch).expect("the other thread runs until it has received all batches");
    }
}

fn drop_all<F>(full: &Receiver<Batch<F>>, empty: &SyncSender<Batch<F>>) {
    for mut batch in full {
        batch.clear();
        // At the end the arming thread has gone.
        let _ = empty.send(batch);
    }
}
