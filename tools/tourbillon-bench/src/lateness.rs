//! Scenario `lateness`: how long after its deadline a task runs again, and what that costs.

use std::time::{Duration, Instant};

use tourbillon_tools::Random;

use crate::harness::{BenchEntry, Metrics, RoundLength, SystemChoice, WarmUp, measure, per_operation};
use crate::percentiles::{self, histogram, micros};
use crate::process_usage::own_cpu_time_between;
use crate::report::BenchReport;
use crate::systems::monoio::Monoio;
use crate::systems::smol::Smol;
use crate::systems::tokio::Tokio;
use crate::systems::tourbillon::{self, NamedSlack, Slack};
use crate::systems::tourbillon_rt::TourbillonRt;
use crate::systems::{TaskRunner, clock_nanosleep, monoio, native, smol, tokio, tourbillon_rt};

#[derive(clap::Args)]
pub(crate) struct LatenessOptions {
    #[command(flatten)]
    pub(crate) choice: SystemChoice,
    /// Only these numbers of tasks.
    #[arg(long, value_delimiter = ',')]
    tasks: Vec<usize>,
}

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
    clock_nanosleep::NAME,
];

const TASKS: &[usize] = &[1, 1_000];

/// Time at the start of a round that is not counted.
const WARM_UP: Duration = Duration::from_millis(50);

/// Threads of the multi-threaded runtimes.
const WORKERS: usize = 2;

/// A Tokio runtime with its name.
type NamedRuntime = (&'static str, fn() -> Tokio);

/// The runtimes in which Tokio and Tourbillon are measured.
const RUNTIMES: [NamedRuntime; 2] = [("current", Tokio::current_thread), ("multi", || Tokio::multi_thread(WORKERS))];

/// The slack of an engine unless it is told otherwise.
const DEFAULT_SLACK: &str = "adaptive";

/// Runs the scenario.
pub(crate) fn run(options: &LatenessOptions, report: &mut BenchReport) {
    let choice = &options.choice;
    choice.check(SYSTEMS);
    let time = Duration::from_millis(if choice.common.quick { 150 } else { 800 });
    let tasks = if options.tasks.is_empty() { TASKS } else { &options.tasks };
    for &tasks in tasks.iter().filter(|&&tasks| tasks > 0) {
        measure(
            entries(LatenessSize { tasks, time }, choice),
            choice,
            choice.rounds(3, 3, RoundLength::Short),
            WarmUp::No,
            report,
        );
    }
}

/// Number of sleeping tasks, and the time that is counted.
#[derive(Clone, Copy)]
struct LatenessSize {
    tasks: usize,
    time: Duration,
}

impl LatenessSize {
    /// Returns the shortest and the longest sleep, in nanoseconds.
    fn sleeps(self) -> (u64, u64) {
        if self.tasks == 1 { (100_000, 5_000_000) } else { (1_000_000, 50_000_000) }
    }

    fn case(self, variant: &str) -> String {
        format!("tasks={}{variant}", self.tasks)
    }
}

fn entries(size: LatenessSize, choice: &SystemChoice) -> Vec<BenchEntry> {
    let multi = || Tokio::multi_thread(WORKERS);
    let default: NamedSlack = (DEFAULT_SLACK, Slack::adaptive);
    let mut entries = vec![
        by_default(size, default, RUNTIMES[0]),
        entry(tokio::CURRENT, String::new(), size, Tokio::current_thread, || |job| task(tokio::sleep_until, job)),
        by_default(size, default, RUNTIMES[1]),
        entry(tokio::MULTI, String::new(), size, multi, || |job| task(tokio::sleep_until, job)),
    ];
    entries.extend(variants(size));
    entries.extend(on_our_runtime(size));
    entries.extend([
        entry(smol::NAME, String::new(), size, || Smol, || |job| task(smol::sleep_until, job)),
        entry(monoio::NAME, String::new(), size, Monoio::new, || |job| task(monoio::sleep_until, job)),
    ]);
    entries.extend(native(size, choice));
    if size.tasks == 1 {
        entries.push(floor(size));
    }
    entries
}

/// Returns Tourbillon with an engine of its own, whose default driver is on the runtime of this entry.
fn by_default(size: LatenessSize, (name, slack): NamedSlack, (flavour, runtime): NamedRuntime) -> BenchEntry {
    let variant = format!(",slack={name},driver=default,rt={flavour}");
    entry(tourbillon::NAME, variant, size, runtime, move || {
        let engine = tourbillon::by_default(slack());
        move |job| task(tourbillon::sleep_until_on(&engine), job)
    })
}

/// Returns Tourbillon with a driver thread.
fn on_thread(size: LatenessSize, (name, slack): NamedSlack, (flavour, runtime): NamedRuntime) -> BenchEntry {
    let variant = format!(",slack={name},driver=thread,rt={flavour}");
    entry(tourbillon::NAME, variant, size, runtime, move || {
        let engine = tourbillon::on_thread(slack());
        move |job| task(tourbillon::sleep_until_on(&engine), job)
    })
}

/// Returns Tourbillon with every slack that is not the default, and with a driver thread in the multi-thread runtime.
fn variants(size: LatenessSize) -> Vec<BenchEntry> {
    let mut entries = Vec::new();
    for slack in slacks(size) {
        if slack.0 != DEFAULT_SLACK {
            entries.extend(RUNTIMES.map(|runtime| by_default(size, slack, runtime)));
        }
        entries.push(on_thread(size, slack, RUNTIMES[1]));
    }
    entries
}

/// Returns the slacks for a number of tasks. The precise one spins before every fire, which suits a few timers, not a thousand.
fn slacks(size: LatenessSize) -> impl Iterator<Item = NamedSlack> {
    tourbillon::SLACKS.into_iter().filter(move |(name, _)| *name != tourbillon::PRECISE || size.tasks == 1)
}

/// Returns Tourbillon on its own runtime, whose worker turns the timers.
fn on_our_runtime(size: LatenessSize) -> Vec<BenchEntry> {
    let entries = slacks(size).map(|(name, slack)| {
        entry(tourbillon_rt::NAME, format!(",slack={name}"), size, TourbillonRt::new, move || {
            move |job| task(tourbillon::sleep_until_with(slack()), job)
        })
    });
    entries.collect()
}

/// Returns the programs in C and C++; libevent with each of its clocks.
fn native(size: LatenessSize, choice: &SystemChoice) -> Vec<BenchEntry> {
    let (shortest, longest) = size.sleeps();
    let times = [shortest as usize, longest as usize, WARM_UP.as_nanos() as usize, size.time.as_nanos() as usize];
    let entries = |variant: &str, precise: usize| {
        let arguments = [&[size.tasks], &times[..], &[precise]].concat();
        let case = size.case(variant);
        let work = native::NativeWork { scenario: "lateness", case, arguments, process: native::ProcessLife::Case };
        native::entries(choice, &work, |answer| {
            let Some((cpu, lateness)) = answer.split_first() else { return Vec::new() };
            figures(lateness.iter().map(|nanos| *nanos as i64), Duration::from_nanos(*cpu as u64))
        })
    };
    let mut all = entries("", 0);
    all.extend(entries(",timer=precise", 1).into_iter().filter(|entry| entry.system == native::LIBEVENT));
    all
}

/// The work of a task: sleeps until `end` or a little longer, of which those that are due from `begin` to `end` count.
#[derive(Clone, Copy)]
struct SleepTask {
    seed: u64,
    sleeps: (u64, u64),
    begin: Instant,
    end: Instant,
}

fn entry<R, J, T>(
    system: &'static str,
    variant: String,
    size: LatenessSize,
    runtime: impl FnOnce() -> R + 'static,
    task: impl FnOnce() -> J + 'static,
) -> BenchEntry
where
    R: TaskRunner<T> + 'static,
    J: Fn(SleepTask) -> T + 'static,
    T: Future<Output = Vec<i64>>,
{
    let start = move || {
        let mut runtime = runtime();
        let task = task();
        Box::new(move || {
            let begin = Instant::now() + WARM_UP;
            let end = begin + size.time;
            let job = |seed| SleepTask { seed, sleeps: size.sleeps(), begin, end };
            let tasks = (0..size.tasks as u64).map(|seed| task(job(seed))).collect();
            let (lateness, cpu) = with_cpu(begin, end, || runtime.run(tasks));
            figures(lateness.into_iter().flatten(), cpu)
        }) as _
    };
    BenchEntry { system, case: size.case(&variant), start: Box::new(start) }
}

/// Sleeps again and again. Returns by how many nanoseconds each sleep was late; negative if early.
async fn task<F: Future>(sleep_until: impl Fn(Instant) -> F, job: SleepTask) -> Vec<i64> {
    let mut random = Random::new(job.seed);
    let (shortest, longest) = job.sleeps;
    // Large enough for all values, so that the loop allocates nothing.
    let mut lateness = Vec::with_capacity((job.end - job.begin).as_nanos() as usize / shortest as usize + 1);
    while Instant::now() < job.end {
        let deadline = Instant::now() + Duration::from_nanos(shortest + random.any() % (longest - shortest));
        sleep_until(deadline).await;
        let now = Instant::now();
        if (job.begin..job.end).contains(&deadline) {
            let early = deadline.saturating_duration_since(now).as_nanos() as i64;
            lateness.push(now.saturating_duration_since(deadline).as_nanos() as i64 - early);
        }
    }
    lateness
}

/// Returns the bare system call, on a thread of its own.
fn floor(size: LatenessSize) -> BenchEntry {
    let round = move || {
        let begin = clock_nanosleep::now() + WARM_UP.as_nanos() as u64;
        let end = begin + size.time.as_nanos() as u64;
        let count = Instant::now() + WARM_UP;
        let (lateness, cpu) = with_cpu(count, count + size.time, || {
            let thread = std::thread::spawn(move || sleep_on_thread(begin, end, size));
            thread.join().expect("the thread does not panic")
        });
        figures(lateness, cpu)
    };
    let case = size.case("");
    BenchEntry { system: clock_nanosleep::NAME, case, start: Box::new(move || Box::new(round)) }
}

/// Does the work of [`task`] on a blocking thread.
fn sleep_on_thread(begin: u64, end: u64, size: LatenessSize) -> Vec<i64> {
    clock_nanosleep::without_slack();
    let (shortest, longest) = size.sleeps();
    let (mut random, mut lateness) = (Random::new(0), Vec::with_capacity(((end - begin) / shortest) as usize + 1));
    while clock_nanosleep::now() < end {
        let deadline = clock_nanosleep::now() + shortest + random.any() % (longest - shortest);
        clock_nanosleep::sleep_until(deadline);
        let now = clock_nanosleep::now();
        if (begin..end).contains(&deadline) {
            lateness.push(now as i64 - deadline as i64);
        }
    }
    lateness
}

/// Runs a function, and also returns the CPU time that the process used between two instants.
fn with_cpu<T>(begin: Instant, end: Instant, run: impl FnOnce() -> T) -> (T, Duration) {
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| own_cpu_time_between(begin, end));
        (run(), watch.join().expect("the thread does not panic"))
    })
}

/// Computes the metrics. Early fires count as on time in the percentiles.
fn figures(lateness: impl IntoIterator<Item = i64>, cpu: Duration) -> Metrics {
    let (mut early, mut late) = (0, Vec::new());
    for nanos in lateness {
        early += usize::from(nanos < 0);
        late.push(nanos.max(0) as u64);
    }
    let fires = late.len().max(1);
    let histogram = histogram(&late);
    let mut metrics: Metrics =
        percentiles::known(&histogram).map(|(metric, quantile)| (metric, micros(&histogram, quantile))).collect();
    metrics.push(("early_percent", 100.0 * early as f64 / fires as f64));
    metrics.push(("cpu_ns_per_fire", per_operation(cpu, fires)));
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fire_before_its_deadline_is_counted_as_early_and_not_as_late() {
        let figures = figures([-5_000, 1_000, 2_000, 3_000], Duration::from_nanos(400));
        let value = |metric| figures.iter().find(|(name, _)| *name == metric).map(|(_, value)| *value);
        assert_eq!(value("early_percent"), Some(25.0));
        assert_eq!(value("p50_us"), Some(1.0));
        assert_eq!(value("cpu_ns_per_fire"), Some(100.0));
    }
}
