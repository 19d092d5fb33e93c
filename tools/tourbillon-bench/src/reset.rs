//! Scenario `reset`: the deadline of a pending sleep is pushed later and later.

use std::pin::Pin;
use std::time::{Duration, Instant};

use tourbillon_tools::Random;

use crate::harness::{
    BenchEntry, FAR, PendingOptions, RoundLength, SystemChoice, WarmUp, arm, far_durations, in_poll, measure_pending,
    per_operation, settle,
};
use crate::report::BenchReport;
use crate::systems::async_io::BlockOn;
use crate::systems::tokio::Tokio;
use crate::systems::tourbillon;
use crate::systems::{TaskRunner, async_io, native, tokio};

const SYSTEMS: &[&str] =
    &[tourbillon::NAME, tokio::CURRENT, tokio::MULTI, async_io::NAME, native::ASIO, native::LIBUV, native::LIBEVENT];

const PENDING: &[usize] = &[0, 100_000];

/// By how much each deadline is later than the one before.
const STEP: Duration = Duration::from_micros(1);

/// Threads of the multi-threaded runtimes. One of them does the work.
const WORKERS: usize = 2;

/// Runs the scenario.
pub(crate) fn run(options: &PendingOptions, report: &mut BenchReport) {
    let choice = &options.choice;
    choice.check(SYSTEMS);
    let operations = if choice.common.quick { 100_000 } else { 500_000 };
    let pending = options.numbers(PENDING);
    for &pending in pending {
        let mut on_others = entries(pending, operations);
        on_others.extend(native(pending, operations, choice));
        for entries in [on_current_thread(pending, operations), on_others] {
            measure_pending(entries, choice, choice.rounds(9, 5, RoundLength::Brief), WarmUp::Yes, report);
        }
    }
}

/// Returns the entries on a current-thread runtime, which run before the others: the driver of the global engine is on one
/// runtime at a time.
fn on_current_thread(pending: usize, operations: usize) -> Vec<BenchEntry> {
    let (size, runtime) = ((pending, operations), Tokio::current_thread);
    let mut ours = entry(tourbillon::NAME, runtime, size, tourbillon::instant, |job| {
        round(tourbillon::sleep, tourbillon::reset, job)
    });
    ours.case += tourbillon::ON_CURRENT;
    vec![ours, entry(tokio::CURRENT, runtime, size, Into::into, |job| round(tokio::sleep, tokio::reset, job))]
}

fn entries(pending: usize, operations: usize) -> Vec<BenchEntry> {
    let size = (pending, operations);
    let multi = || Tokio::multi_thread(WORKERS);
    vec![
        entry(tourbillon::NAME, multi, size, tourbillon::instant, |job| {
            round(tourbillon::sleep, tourbillon::reset, job)
        }),
        entry(tokio::MULTI, multi, size, Into::into, |job| round(tokio::sleep, tokio::reset, job)),
        entry(async_io::NAME, || BlockOn, size, |it| it, |job| round(async_io::sleep, async_io::reset, job)),
    ]
}

fn native(pending: usize, operations: usize, choice: &SystemChoice) -> Vec<BenchEntry> {
    let arguments = vec![FAR.as_nanos() as usize, pending, operations, STEP.as_nanos() as usize];
    let work =
        native::NativeWork { scenario: "reset", case: case(pending), arguments, process: native::ProcessLife::Case };
    native::entries(choice, &work, move |answer| {
        answer.first().map(|nanos| ("ns_per_op", nanos / operations as f64)).into_iter().collect()
    })
}

fn case(pending: usize) -> String {
    format!("pending={pending}")
}

/// The work of a round. `I` is the system's type for an instant.
struct ResetRound<F, I> {
    /// Number of other sleeps that are pending.
    pending: usize,
    deadlines: Vec<I>,
    /// The sleep that is reset, then the other pending ones; empty before the first round.
    held: Vec<Pin<Box<F>>>,
}

fn entry<F, I, R, T>(
    system: &'static str,
    runtime: impl FnOnce() -> R + 'static,
    (pending, operations): (usize, usize),
    convert: impl Fn(Instant) -> I + 'static,
    round: impl Fn(ResetRound<F, I>) -> T + 'static,
) -> BenchEntry
where
    F: Future + 'static,
    I: 'static,
    R: TaskRunner<T> + 'static,
    T: Future<Output = (f64, ResetRound<F, I>)>,
{
    let start = move || {
        let mut runtime = runtime();
        let mut job = Some(ResetRound { pending, deadlines: Vec::with_capacity(operations), held: Vec::new() });
        // Later than the longest pending sleep.
        let mut deadline = Instant::now() + 3 * FAR;
        Box::new(move || {
            let mut next = job.take().expect("every round returns it");
            next.deadlines.clear();
            for _ in 0..operations {
                deadline += STEP;
                next.deadlines.push(convert(deadline));
            }
            let (nanos, again) = runtime.run_one(round(next));
            job = Some(again);
            vec![("ns_per_op", nanos)]
        }) as _
    };
    BenchEntry { system, case: case(pending), start: Box::new(start) }
}

async fn round<F: Future, I: Copy>(
    sleep: impl Fn(Duration) -> F,
    reset: impl Fn(Pin<&mut F>, I),
    mut job: ResetRound<F, I>,
) -> (f64, ResetRound<F, I>) {
    if job.held.is_empty() {
        job.held = arm(&sleep, &far_durations(1 + job.pending, &mut Random::new(1))).await;
    }
    settle(&sleep).await;
    let nanos = in_poll(|_| push_later(job.held[0].as_mut(), &reset, &job.deadlines)).await;
    (nanos, job)
}

/// Runs the timed part: gives a sleep one deadline after the other. Returns nanoseconds per operation.
pub(crate) fn push_later<F, I: Copy>(mut sleep: Pin<&mut F>, reset: &impl Fn(Pin<&mut F>, I), deadlines: &[I]) -> f64 {
    let start = Instant::now();
    for &deadline in deadlines {
        reset(sleep.as_mut(), deadline);
    }
    per_operation(start.elapsed(), deadlines.len())
}
