//! Scenario `churn`: one thread creates, polls once and drops sleeps, beside others that are pending.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Context;
use std::time::{Duration, Instant};

use crate::harness::{Choice, Entry, WarmUp, arm, far_durations, in_poll, measure_pending, per_operation, settle};
use crate::random::Random;
use crate::report::Report;
use crate::systems::async_io::BlockOn;
use crate::systems::monoio::Monoio;
use crate::systems::tokio::Tokio;
use crate::systems::tourbillon;
use crate::systems::{Runtime, async_io, futures_timer, monoio, pingora, tokio};

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Only these numbers of pending timers.
    #[arg(long, value_delimiter = ',')]
    pending: Vec<usize>,
}

const SYSTEMS: &[&str] =
    &[tourbillon::NAME, tokio::CURRENT, tokio::MULTI, async_io::NAME, futures_timer::NAME, monoio::NAME, pingora::NAME];

const PENDING: &[usize] = &[0, 100_000, 1_000_000];

/// Threads of the runtimes that have more than one. One of them does the work.
const WORKERS: usize = 2;

/// Runs the scenario.
pub(crate) fn run(options: &Options, report: &mut Report) {
    let choice = &options.choice;
    choice.check(SYSTEMS);
    let operations = if choice.common.quick { 100_000 } else { 300_000 };
    let durations: Arc<[Duration]> = far_durations(operations, &mut Random(0)).into();
    let pending = if options.pending.is_empty() { PENDING } else { &options.pending };
    for &pending in pending {
        measure_pending(entries(pending, &durations), choice, choice.rounds(9, 5), WarmUp::Yes, report);
    }
}

fn entries(pending: usize, durations: &Arc<[Duration]>) -> Vec<Entry> {
    let work = &Work { pending, durations: durations.clone() };
    let multi = || Tokio::multi_thread(WORKERS);
    vec![
        entry(tourbillon::NAME, multi, work, |work, held| round(tourbillon::sleep, work, held)),
        entry(tokio::CURRENT, Tokio::current_thread, work, |work, held| round(tokio::sleep, work, held)),
        entry(tokio::MULTI, multi, work, |work, held| round(tokio::sleep, work, held)),
        entry(async_io::NAME, || BlockOn, work, |work, held| round(async_io::sleep, work, held)),
        entry(futures_timer::NAME, multi, work, |work, held| round(futures_timer::sleep, work, held)),
        entry(monoio::NAME, Monoio::new, work, |work, held| round(monoio::sleep, work, held)),
        entry(pingora::NAME, multi, work, |work, held| round(pingora::sleep, work, held)),
    ]
}

/// What a round is to do.
#[derive(Clone)]
struct Work {
    /// So many others are pending.
    pending: usize,
    durations: Arc<[Duration]>,
}

/// The sleeps that are pending; none before the first round.
type Held<F> = Vec<Pin<Box<F>>>;

fn entry<F, R, T>(
    system: &'static str,
    runtime: impl FnOnce() -> R + 'static,
    work: &Work,
    round: impl Fn(Work, Held<F>) -> T + 'static,
) -> Entry
where
    F: Future + 'static,
    R: Runtime<T> + 'static,
    T: Future<Output = (f64, Held<F>)>,
{
    let work = work.clone();
    let case = format!("pending={}", work.pending);
    let start = move || {
        let (mut held, mut runtime) = (Vec::new(), runtime());
        Box::new(move || {
            let (nanos, still_held) = runtime.run_one(round(work.clone(), std::mem::take(&mut held)));
            held = still_held;
            vec![("ns_per_op", nanos)]
        }) as _
    };
    Entry { system, case, start: Box::new(start) }
}

async fn round<F: Future>(sleep: impl Fn(Duration) -> F, work: Work, mut held: Held<F>) -> (f64, Held<F>) {
    if held.len() < work.pending {
        held = arm(&sleep, &far_durations(work.pending, &mut Random(1))).await;
    }
    settle(&sleep).await;
    let nanos = in_poll(|cx| arm_and_cancel(cx, &sleep, &work.durations)).await;
    (nanos, held)
}

/// The timed part: nanoseconds an operation.
pub(crate) fn arm_and_cancel<F: Future>(
    cx: &mut Context<'_>,
    sleep: &impl Fn(Duration) -> F,
    durations: &[Duration],
) -> f64 {
    let start = Instant::now();
    for &duration in durations {
        let sleep = pin!(sleep(duration));
        assert!(sleep.poll(cx).is_pending());
    }
    per_operation(start.elapsed(), durations.len())
}
