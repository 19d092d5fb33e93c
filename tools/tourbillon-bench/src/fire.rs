//! Scenario `fire`: the CPU time of a process while a million sleeps come due over two seconds.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use tourbillon_tools::Random;

use crate::harness::{BenchEntry, PendingOptions, RoundLength, SystemChoice, WarmUp, measure, per_operation};
use crate::process_usage::own_cpu_time;
use crate::report::BenchReport;
use crate::systems::monoio::Monoio;
use crate::systems::smol::Smol;
use crate::systems::tokio::Tokio;
use crate::systems::tourbillon::{self, Slack};
use crate::systems::tourbillon_rt::TourbillonRt;
use crate::systems::{TaskRunner, monoio, native, smol, tokio, tourbillon_rt};

const SYSTEMS: &[&str] = &[
    tourbillon::NAME,
    tourbillon_rt::NAME,
    tokio::CURRENT,
    tokio::MULTI,
    smol::NAME,
    monoio::NAME,
    native::ASIO,
    native::LIBUV,
    native::LIBEVENT,
];

const PENDING: &[usize] = &[1_000_000];

/// All sleeps are due within this time.
const SPREAD: Duration = Duration::from_secs(2);
/// Time from the start of arming until the first sleep is due. It is doubled if it turns out to be too short.
const LEAD: Duration = Duration::from_secs(1);

/// Warm-up before the rounds: fewer sleeps over a shorter time.
const WARM_UP: usize = 10_000;
const WARM_UP_SPREAD: Duration = Duration::from_millis(50);

/// Threads of the multi-threaded runtimes.
const WORKERS: usize = 2;

/// Runs the scenario.
pub(crate) fn run(options: &PendingOptions, report: &mut BenchReport) {
    let choice = &options.choice;
    choice.check(SYSTEMS);
    let pending = options.numbers(PENDING);
    for &pending in pending.iter().filter(|&&pending| pending > 0) {
        let mut entries = entries(pending);
        entries.extend(native(pending, choice));
        measure(entries, choice, choice.rounds(5, 1, RoundLength::Long), WarmUp::No, report);
    }
}

fn entries(pending: usize) -> Vec<BenchEntry> {
    let multi = || Tokio::multi_thread(WORKERS);
    vec![
        ours(",driver=default,rt=multi", pending, multi, || tourbillon::by_default(Slack::adaptive())),
        entry(tokio::MULTI, "", pending, multi, || |job| round(tokio::sleep, job)),
        ours(
            ",driver=default,rt=current",
            pending,
            Tokio::current_thread,
            || tourbillon::by_default(Slack::adaptive()),
        ),
        entry(tokio::CURRENT, "", pending, Tokio::current_thread, || |job| round(tokio::sleep, job)),
        ours(",driver=thread,rt=multi", pending, multi, || tourbillon::on_thread(Slack::adaptive())),
        entry(tourbillon_rt::NAME, "", pending, TourbillonRt::new, || |job| round(tourbillon::sleep, job)),
        entry(smol::NAME, "", pending, || Smol, || |job| round(smol::sleep, job)),
        entry(monoio::NAME, "", pending, Monoio::new, || |job| round(monoio::sleep, job)),
    ]
}

/// Returns Tourbillon with an engine of its own, whose driver is not on the runtime of another entry.
fn ours(
    variant: &'static str,
    pending: usize,
    runtime: impl FnOnce() -> Tokio + 'static,
    engine: impl FnOnce() -> tourbillon::Engine + 'static,
) -> BenchEntry {
    entry(tourbillon::NAME, variant, pending, runtime, || {
        let engine = engine();
        move |job| round(tourbillon::sleep_on(&engine), job)
    })
}

fn native(pending: usize, choice: &SystemChoice) -> Vec<BenchEntry> {
    let arguments = vec![pending, SPREAD.as_nanos() as usize, LEAD.as_nanos() as usize];
    let case = format!("pending={pending}");
    let work = native::NativeWork { scenario: "fire", case, arguments, process: native::ProcessLife::Case };
    native::entries(choice, &work, move |answer| {
        answer.first().map(|nanos| ("cpu_ns_per_fire", nanos / pending as f64)).into_iter().collect()
    })
}

/// The work of a round.
pub(crate) struct FireRound {
    /// When each sleep is due, from the earliest possible deadline on.
    pub(crate) offsets: Arc<[Duration]>,
    /// Time from the start of arming until the first sleep is due.
    pub(crate) lead: Duration,
}

fn entry<R, J, T>(
    system: &'static str,
    variant: &'static str,
    pending: usize,
    runtime: impl FnOnce() -> R + 'static,
    round: impl FnOnce() -> J + 'static,
) -> BenchEntry
where
    R: TaskRunner<T> + 'static,
    J: Fn(FireRound) -> T + 'static,
    T: Future<Output = Option<Duration>>,
{
    let start = move || {
        let mut runtime = runtime();
        let round = round();
        let mut fire = move |offsets: &Arc<[Duration]>, lead: &mut Duration| loop {
            if let Some(cpu) = runtime.run_one(round(FireRound { offsets: offsets.clone(), lead: *lead })) {
                break cpu;
            }
            *lead *= 2;
        };
        fire(&offsets(WARM_UP, WARM_UP_SPREAD), &mut WARM_UP_SPREAD.clone());
        let (offsets, mut lead) = (offsets(pending, SPREAD), LEAD);
        Box::new(move || vec![("cpu_ns_per_fire", per_operation(fire(&offsets, &mut lead), offsets.len()))]) as _
    };
    BenchEntry { system, case: format!("pending={pending}{variant}"), start: Box::new(start) }
}

/// Returns when each sleep of a round is due: at random within a time.
pub(crate) fn offsets(count: usize, spread: Duration) -> Arc<[Duration]> {
    let mut random = Random::new(count as u64);
    (0..count).map(|_| Duration::from_nanos(random.any() % spread.as_nanos() as u64)).collect()
}

/// Arms all sleeps, and waits for the last. Returns the CPU time since all were armed; `None` if the first was due before that.
pub(crate) async fn round<F: Future>(sleep: impl Fn(Duration) -> F, job: FireRound) -> Option<Duration> {
    let countdown = Arc::new(Countdown { left: AtomicUsize::new(job.offsets.len()), task: Mutex::default() });
    let sleeps = arm_all(&sleep, &job, Waker::from(countdown.clone()))?;
    let before = own_cpu_time();
    poll_fn(|cx| countdown.poll(cx)).await;
    let cpu = own_cpu_time() - before;
    drop(sleeps);
    Some(cpu)
}

fn arm_all<F: Future>(sleep: &impl Fn(Duration) -> F, job: &FireRound, waker: Waker) -> Option<Vec<Pin<Box<F>>>> {
    let mut cx = Context::from_waker(&waker);
    let mut sleeps = Vec::with_capacity(job.offsets.len());
    let base = Instant::now() + job.lead;
    for &offset in &*job.offsets {
        let mut sleep = Box::pin(sleep((base + offset).checked_duration_since(Instant::now())?));
        let armed = sleep.as_mut().poll(&mut cx).is_pending();
        sleeps.push(armed.then_some(sleep)?);
    }
    (Instant::now() < base).then_some(sleeps)
}

/// Counts the sleeps that have not fired; the last one wakes the waiting task.
struct Countdown {
    left: AtomicUsize,
    task: Mutex<Option<Waker>>,
}

impl Countdown {
    /// Returns ready when all have fired.
    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        if self.left.load(Ordering::Acquire) == 0 { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Wake for Countdown {
    fn wake(self: Arc<Self>) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            task.wake();
        }
    }
}
