//! Scenario `churn`: one thread creates, polls once and drops sleeps, beside others that are pending.
//!
//! A sleep is dropped at once, or after a window of later ones has been created. The runtime's driver has turned since the
//! pending sleeps were armed, or it has not: some systems notify their driver of every new sleep until it has.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use tourbillon_tools::Random;

use crate::harness::{
    BenchEntry, FAR, Metrics, PendingOptions, RoundLength, SystemChoice, WarmUp, arm, far_durations, in_poll, measure,
    measure_pending, per_operation, settle, wait_until_quiet,
};
use crate::process_usage::own_cpu_time;
use crate::report::BenchReport;
use crate::systems::async_io::BlockOn;
use crate::systems::monoio::Monoio;
use crate::systems::tokio::Tokio;
use crate::systems::tourbillon;
use crate::systems::tourbillon_rt::TourbillonRt;
use crate::systems::{TaskRunner, async_io, futures_timer, monoio, native, pingora, tokio, tourbillon_rt};

#[derive(clap::Args)]
pub(crate) struct ChurnOptions {
    #[command(flatten)]
    pub(crate) pending: PendingOptions,
    /// Only these numbers of live sleeps, in the cases where a sleep is not dropped at once.
    #[arg(long, value_delimiter = ',')]
    window: Vec<usize>,
}

const SYSTEMS: &[&str] = &[
    tourbillon::NAME,
    tourbillon_rt::NAME,
    tokio::CURRENT,
    tokio::MULTI,
    async_io::NAME,
    futures_timer::NAME,
    monoio::NAME,
    pingora::NAME,
    native::ASIO,
    native::LIBUV,
    native::LIBEVENT,
];

const PENDING: &[usize] = &[0, 1_000, 10_000, 100_000, 1_000_000];
const PENDING_QUICK: &[usize] = &[0, 100_000, 1_000_000];

const WALL: &str = "ns_per_op";
const CPU: &str = "cpu_ns_per_op";

const WINDOW: &[usize] = &[1_000];

/// Pending timers in the cases with a window.
const WINDOW_PENDING: usize = 100_000;

/// Threads of the multi-threaded runtimes. One of them does the work.
const WORKERS: usize = 2;

/// Runs the scenario.
pub(crate) fn run(options: &ChurnOptions, report: &mut BenchReport) {
    let choice = &options.pending.choice;
    choice.check(SYSTEMS);
    let operations = if choice.common.quick { 100_000 } else { 300_000 };
    let durations: Arc<[Duration]> = far_durations(operations, &mut Random::new(0)).into();
    let pending = options.pending.numbers(if choice.common.quick { PENDING_QUICK } else { PENDING });
    let window = if options.window.is_empty() { WINDOW } else { &options.window };
    for &pending in pending {
        let work = ChurnWork { pending, window: 0, driver: DriverState::Fresh, durations: durations.clone() };
        // After the first case everything is warm.
        let warm_up = if pending == 0 { WarmUp::Yes } else { WarmUp::No };
        // The pending sleeps are armed again for each round.
        for entries in [on_current_thread(&work), entries(&work, choice)] {
            measure(entries, choice, choice.rounds(7, 3, RoundLength::Short), warm_up, report);
        }
    }
    let turned = pending.iter().map(|&pending| (0, pending));
    let windows = window.iter().map(|&window| (window, WINDOW_PENDING));
    for (window, pending) in turned.chain(windows) {
        let work = ChurnWork { pending, window, driver: DriverState::Turned, durations: durations.clone() };
        for entries in [on_current_thread(&work), entries(&work, choice)] {
            measure_pending(entries, choice, choice.rounds(9, 3, RoundLength::Short), WarmUp::Yes, report);
        }
    }
}

/// Returns the entries on a current-thread runtime, which run before the others: the driver of the global engine is on one
/// runtime at a time.
fn on_current_thread(work: &ChurnWork) -> Vec<BenchEntry> {
    let mut ours =
        entry(tourbillon::NAME, Tokio::current_thread, work, |work, held| round(tourbillon::sleep, work, held));
    ours.case += tourbillon::ON_CURRENT;
    let theirs = entry(tokio::CURRENT, Tokio::current_thread, work, |work, held| round(tokio::sleep, work, held));
    vec![ours, theirs]
}

fn entries(work: &ChurnWork, choice: &SystemChoice) -> Vec<BenchEntry> {
    let multi = || Tokio::multi_thread(WORKERS);
    let mut entries = vec![
        entry(tourbillon::NAME, multi, work, |work, held| round(tourbillon::sleep, work, held)),
        entry(tokio::MULTI, multi, work, |work, held| round(tokio::sleep, work, held)),
        entry(tourbillon_rt::NAME, TourbillonRt::new, work, |work, held| round(tourbillon::sleep, work, held)),
        entry(async_io::NAME, || BlockOn, work, |work, held| round(async_io::sleep, work, held)),
        entry(futures_timer::NAME, multi, work, |work, held| round(futures_timer::sleep, work, held)),
        entry(monoio::NAME, Monoio::new, work, |work, held| round(monoio::sleep, work, held)),
        entry(pingora::NAME, multi, work, |work, held| round(pingora::sleep, work, held)),
    ];
    entries.extend(native(work, choice));
    entries
}

fn native(work: &ChurnWork, choice: &SystemChoice) -> Vec<BenchEntry> {
    let (operations, turned) = (work.durations.len(), usize::from(work.driver == DriverState::Turned));
    let arguments = vec![FAR.as_nanos() as usize, work.pending, operations, work.window, turned];
    let work =
        native::NativeWork { scenario: "churn", case: work.case(), arguments, process: native::ProcessLife::Case };
    native::entries(choice, &work, move |answer| {
        let metrics = [WALL, CPU].into_iter().zip(answer);
        metrics.map(|(metric, nanos)| (metric, nanos / operations as f64)).collect()
    })
}

/// The work of a round.
#[derive(Clone)]
struct ChurnWork {
    /// Number of other sleeps that are pending.
    pending: usize,
    /// A sleep is dropped when so many others have been created after it; 0 drops it at once.
    window: usize,
    driver: DriverState,
    durations: Arc<[Duration]>,
}

/// The state of the driver before a round is timed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DriverState {
    /// It is new, and has only armed the pending sleeps.
    Fresh,
    /// It has turned since they were armed, as in a server that has run for a while.
    Turned,
}

impl ChurnWork {
    fn case(&self) -> String {
        match (self.driver, self.window) {
            (DriverState::Fresh, _) => format!("pending={}", self.pending),
            (DriverState::Turned, 0) => format!("pending={},driver=turned", self.pending),
            (DriverState::Turned, window) => format!("pending={},driver=turned,window={window}", self.pending),
        }
    }
}

/// The pending sleeps; none before the first round.
type Held<F> = Vec<Pin<Box<F>>>;

fn entry<F, R, T>(
    system: &'static str,
    runtime: impl Fn() -> R + 'static,
    work: &ChurnWork,
    round: impl Fn(ChurnWork, Held<F>) -> T + 'static,
) -> BenchEntry
where
    F: Future + 'static,
    R: TaskRunner<T> + 'static,
    T: Future<Output = (Metrics, Held<F>)>,
{
    let work = work.clone();
    let case = work.case();
    let start = move || {
        let (mut held, mut kept) = (Vec::new(), None);
        Box::new(move || {
            let mut runtime = kept.take().unwrap_or_else(&runtime);
            let (metrics, still_held) = runtime.run_one(round(work.clone(), std::mem::take(&mut held)));
            if work.driver == DriverState::Turned {
                (held, kept) = (still_held, Some(runtime));
            }
            metrics
        }) as _
    };
    BenchEntry { system, case, start: Box::new(start) }
}

async fn round<F: Future>(sleep: impl Fn(Duration) -> F, work: ChurnWork, mut held: Held<F>) -> (Metrics, Held<F>) {
    if held.len() < work.pending {
        held = arm(&sleep, &far_durations(work.pending, &mut Random::new(1))).await;
    }
    if work.driver == DriverState::Turned {
        settle(&sleep).await;
    }
    let before = own_cpu_time();
    let nanos = in_poll(|_| match work.window {
        0 => arm_and_cancel(&sleep, &work.durations),
        window => arm_and_cancel_oldest(&sleep, &work.durations, window),
    });
    let nanos = nanos.await;
    // The CPU time includes work on background threads.
    wait_until_quiet();
    let cpu = per_operation(own_cpu_time() - before, work.durations.len());
    (vec![(WALL, nanos), (CPU, cpu)], held)
}

/// Runs the timed part, in which each sleep is dropped at once. Returns nanoseconds per operation.
///
/// The waker does nothing: the cost of cloning and dropping a task's waker belongs to the executor, not to the timer.
pub(crate) fn arm_and_cancel<F: Future>(sleep: &impl Fn(Duration) -> F, durations: &[Duration]) -> f64 {
    let cx = &mut Context::from_waker(Waker::noop());
    let start = Instant::now();
    for &duration in durations {
        let sleep = pin!(sleep(duration));
        assert!(sleep.poll(cx).is_pending());
    }
    per_operation(start.elapsed(), durations.len())
}

/// Runs the timed part with a window: each new sleep replaces the oldest one.
fn arm_and_cancel_oldest<F: Future>(sleep: &impl Fn(Duration) -> F, durations: &[Duration], window: usize) -> f64 {
    let cx = &mut Context::from_waker(Waker::noop());
    let mut replace = |mut place: Pin<&mut Option<F>>, duration| {
        place.set(None);
        place.set(Some(sleep(duration)));
        assert!(place.as_pin_mut().is_some_and(|sleep| sleep.poll(cx).is_pending()));
    };
    let mut ring: Vec<Pin<Box<Option<F>>>> = (0..window).map(|_| Box::pin(None)).collect();
    for (place, &duration) in ring.iter_mut().zip(durations) {
        replace(place.as_mut(), duration);
    }
    let mut oldest = 0;
    let start = Instant::now();
    for &duration in durations {
        replace(ring[oldest].as_mut(), duration);
        oldest = if oldest + 1 == window { 0 } else { oldest + 1 };
    }
    per_operation(start.elapsed(), durations.len())
}
