//! Scenario `contend`: several threads of one runtime create, poll once and drop sleeps at the same time.

use std::pin::Pin;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use tourbillon_tools::Random;

use crate::churn::arm_and_cancel;
use crate::harness::{
    BenchEntry, PendingOptions, RoundLength, WarmUp, arm, far_durations, in_poll, measure_pending, per_operation,
    settle, span,
};
use crate::report::BenchReport;
use crate::systems::async_io::BlockOn;
use crate::systems::tokio::Tokio;
use crate::systems::tourbillon;
use crate::systems::{TaskRunner, async_io, futures_timer, pingora, tokio};

#[derive(clap::Args)]
pub(crate) struct ContendOptions {
    #[command(flatten)]
    pub(crate) pending: PendingOptions,
    /// Only these numbers of threads.
    #[arg(long, value_delimiter = ',')]
    threads: Vec<usize>,
}

const SYSTEMS: &[&str] = &[tourbillon::NAME, tokio::MULTI, async_io::NAME, futures_timer::NAME, pingora::NAME];

const THREADS: &[usize] = &[2, 4];

const PENDING: &[usize] = &[0, 100_000];

/// How long a thread goes on at least. In a much shorter round the kernel may still have two threads on one core: it has just woken both,
/// and moves one of them milliseconds later.
const ROUND: Duration = Duration::from_millis(20);

/// Runs the scenario.
pub(crate) fn run(options: &ContendOptions, report: &mut BenchReport) {
    let choice = &options.pending.choice;
    choice.check(SYSTEMS);
    let operations = if choice.common.quick { 20_000 } else { 50_000 };
    let threads = if options.threads.is_empty() { THREADS } else { &options.threads };
    let pending = options.pending.numbers(PENDING);
    for &threads in threads.iter().filter(|&&threads| threads > 0) {
        let lists = (0..threads).map(|thread| far_durations(operations, &mut Random::new(thread as u64)).into());
        let lists: Vec<_> = lists.collect();
        for &pending in pending {
            let work = ContendWork { pending, lists: lists.clone() };
            measure_pending(entries(&work), choice, choice.rounds(9, 5, RoundLength::Brief), WarmUp::Yes, report);
        }
    }
}

fn entries(work: &ContendWork) -> Vec<BenchEntry> {
    let threads = work.lists.len();
    let multi = move || Tokio::multi_thread(threads);
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
struct ContendWork {
    /// Number of other sleeps that are pending.
    pending: usize,
    /// The durations of every thread's sleeps.
    lists: Vec<Arc<[Duration]>>,
}

/// The work of a task.
enum ContendTask {
    /// Arms the pending sleeps before the rounds.
    Arm(usize),
    /// One thread's share of a round.
    Churn { durations: Arc<[Duration]>, barrier: Arc<Barrier> },
}

/// The result of a task.
enum ContendResult<F> {
    Armed(Vec<Pin<Box<F>>>),
    Churned(ThreadShare),
}

/// What one thread has done in a round.
struct ThreadShare {
    start: Instant,
    end: Instant,
    operations: usize,
}

fn entry<F, R, T>(
    system: &'static str,
    runtime: impl FnOnce() -> R + 'static,
    work: &ContendWork,
    task: impl Fn(ContendTask) -> T + 'static,
) -> BenchEntry
where
    F: Future + 'static,
    R: TaskRunner<T> + 'static,
    T: Future<Output = ContendResult<F>>,
{
    let ContendWork { pending, lists } = work.clone();
    let case = match pending {
        0 => format!("threads={}", lists.len()),
        _ => format!("threads={},pending={pending}", lists.len()),
    };
    let start = move || {
        let mut runtime = runtime();
        let ContendResult::Armed(held) = runtime.run_one(task(ContendTask::Arm(pending))) else {
            unreachable!("the task arms the pending sleeps")
        };
        Box::new(move || {
            let _held_until_the_last_round = &held;
            let barrier = Arc::new(Barrier::new(lists.len()));
            let job = |durations: &Arc<[Duration]>| ContendTask::Churn {
                durations: durations.clone(),
                barrier: barrier.clone(),
            };
            let done = runtime.run(lists.iter().map(|durations| task(job(durations))).collect());
            let shares = done.into_iter().filter_map(|done| match done {
                ContendResult::Armed(_) => None,
                ContendResult::Churned(share) => Some(share),
            });
            let shares: Vec<_> = shares.collect();
            let operations = shares.iter().map(|share| share.operations).sum();
            let times = shares.iter().map(|share| (share.start, share.end));
            vec![("ns_per_op", per_operation(span(times), operations))]
        }) as _
    };
    BenchEntry { system, case, start: Box::new(start) }
}

/// Goes through the list again and again until the round is over.
fn churn<F: Future>(sleep: impl Fn(Duration) -> F, durations: &[Duration]) -> ThreadShare {
    let (start, mut operations) = (Instant::now(), 0);
    loop {
        arm_and_cancel(&sleep, durations);
        operations += durations.len();
        let end = Instant::now();
        if end - start >= ROUND {
            return ThreadShare { start, end, operations };
        }
    }
}

async fn task<F: Future>(sleep: impl Fn(Duration) -> F, job: ContendTask) -> ContendResult<F> {
    match job {
        ContendTask::Arm(pending) => {
            let held = arm(&sleep, &far_durations(pending, &mut Random::new(pending as u64))).await;
            settle(&sleep).await;
            ContendResult::Armed(held)
        }
        ContendTask::Churn { durations, barrier } => {
            in_poll(|_| {
                // Blocks this thread until every thread has a task.
                barrier.wait();
                ContendResult::Churned(churn(&sleep, &durations))
            })
            .await
        }
    }
}
