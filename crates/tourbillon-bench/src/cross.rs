//! Scenario `cross`: one thread creates sleeps and polls each once, another drops them.

use std::pin::Pin;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Barrier};
use std::task::Context;
use std::time::{Duration, Instant};

use crate::harness::{Choice, Entry, WarmUp, far_durations, in_poll, measure, per_operation, span};
use crate::random::Random;
use crate::report::Report;
use crate::systems::async_io::BlockOn;
use crate::systems::tokio::Tokio;
#[cfg(feature = "tourbillon")]
use crate::systems::tourbillon;
use crate::systems::{Runtime, async_io, futures_timer, pingora, tokio};

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) choice: Choice,
}

const SYSTEMS: &[&str] = &[
    #[cfg(feature = "tourbillon")]
    tourbillon::NAME,
    tokio::MULTI,
    async_io::NAME,
    futures_timer::NAME,
    pingora::NAME,
];

/// Sleeps that are handed over at once.
const BATCH: usize = 256;
/// Batches that are on their way at most.
const BATCHES: usize = 8;

/// One thread arms, the other drops.
const THREADS: usize = 2;

/// Runs the scenario.
pub(crate) fn run(options: &Options, report: &mut Report) {
    let choice = &options.choice;
    choice.check(SYSTEMS);
    let operations = if choice.common.quick { 200 * BATCH } else { 1_000 * BATCH };
    let durations: Arc<[Duration]> = far_durations(operations, &mut Random(0)).into();
    measure(entries(&durations), choice, choice.rounds(9, 5), WarmUp::Yes, report);
}

fn entries(durations: &Arc<[Duration]>) -> Vec<Entry> {
    let multi = || Tokio::multi_thread(THREADS);
    vec![
        #[cfg(feature = "tourbillon")]
        entry(tourbillon::NAME, multi, durations, |job| task(tourbillon::sleep, job)),
        entry(tokio::MULTI, multi, durations, |job| task(tokio::sleep, job)),
        entry(async_io::NAME, || BlockOn, durations, |job| task(async_io::sleep, job)),
        entry(futures_timer::NAME, multi, durations, |job| task(futures_timer::sleep, job)),
        entry(pingora::NAME, multi, durations, |job| task(pingora::sleep, job)),
    ]
}

type Batch<F> = Vec<Pin<Box<F>>>;

/// What one of the two threads is to do.
struct Job<F> {
    barrier: Arc<Barrier>,
    role: Role<F>,
}

/// Full batches go from the one to the other, empty ones come back.
enum Role<F> {
    Arm { durations: Arc<[Duration]>, empty: Receiver<Batch<F>>, full: SyncSender<Batch<F>> },
    Drop { full: Receiver<Batch<F>>, empty: SyncSender<Batch<F>> },
}

fn jobs<F>(durations: &Arc<[Duration]>) -> Vec<Job<F>> {
    let barrier = Arc::new(Barrier::new(THREADS));
    let (to_drop, full) = sync_channel(BATCHES);
    let (give_back, empty) = sync_channel(BATCHES);
    for _ in 0..BATCHES {
        give_back.send(Vec::with_capacity(BATCH)).expect("there is room for all batches");
    }
    let arm = Role::Arm { durations: durations.clone(), empty, full: to_drop };
    let drop = Role::Drop { full, empty: give_back };
    [arm, drop].map(|role| Job { barrier: barrier.clone(), role }).into()
}

fn entry<F, R, T>(
    system: &'static str,
    runtime: impl FnOnce() -> R + 'static,
    durations: &Arc<[Duration]>,
    task: impl Fn(Job<F>) -> T + 'static,
) -> Entry
where
    R: Runtime<T> + 'static,
    T: Future<Output = (Instant, Instant)>,
{
    let durations = durations.clone();
    let start = move || {
        let mut runtime = runtime();
        Box::new(move || {
            let times = runtime.run(jobs(&durations).into_iter().map(&task).collect());
            vec![("ns_per_op", per_operation(span(times), durations.len()))]
        }) as _
    };
    Entry { system, case: format!("threads={THREADS},batch={BATCH}"), start: Box::new(start) }
}

/// Blocks its thread until both have one, then does its share.
async fn task<F: Future>(sleep: impl Fn(Duration) -> F, job: Job<F>) -> (Instant, Instant) {
    in_poll(|cx| {
        job.barrier.wait();
        let start = Instant::now();
        match job.role {
            Role::Arm { durations, empty, full } => arm(cx, &sleep, &durations, &empty, &full),
            Role::Drop { full, empty } => drop_all(&full, &empty),
        }
        (start, Instant::now())
    })
    .await
}

fn arm<F: Future>(
    cx: &mut Context<'_>,
    sleep: &impl Fn(Duration) -> F,
    durations: &[Duration],
    empty: &Receiver<Batch<F>>,
    full: &SyncSender<Batch<F>>,
) {
    for durations in durations.chunks(BATCH) {
        let mut batch = empty.recv().expect("the other thread is there until it has got all");
        for &duration in durations {
            let mut sleep = Box::pin(sleep(duration));
            assert!(sleep.as_mut().poll(cx).is_pending());
            batch.push(sleep);
        }
        full.send(batch).expect("the other thread is there until it has got all");
    }
}

fn drop_all<F>(full: &Receiver<Batch<F>>, empty: &SyncSender<Batch<F>>) {
    for mut batch in full {
        batch.clear();
        // At the end nobody wants it back.
        let _ = empty.send(batch);
    }
}
