//! Scenario `lateness`: how long after its deadline a task runs again, and what that costs.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::harness::{Choice, Entry, WarmUp, measure, per_operation, process_cpu};
use crate::random::Random;
use crate::report::Report;
use crate::systems::monoio::Monoio;
use crate::systems::smol::Smol;
use crate::systems::tokio::Tokio;
use crate::systems::tourbillon;
use crate::systems::{Runtime, clock_nanosleep, monoio, smol, tokio};

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Only these numbers of tasks.
    #[arg(long, value_delimiter = ',')]
    tasks: Vec<usize>,
}

const SYSTEMS: &[&str] =
    &[tourbillon::NAME, tokio::CURRENT, tokio::MULTI, smol::NAME, monoio::NAME, clock_nanosleep::NAME];

const TASKS: &[usize] = &[1, 1_000];

/// A round begins with a time that does not count.
const WARM_UP: Duration = Duration::from_millis(50);

/// Threads of the runtimes that have more than one.
const WORKERS: usize = 2;

/// Runs the scenario.
pub(crate) fn run(options: &Options, report: &mut Report) {
    let choice = &options.choice;
    choice.check(SYSTEMS);
    let time = Duration::from_millis(if choice.common.quick { 150 } else { 800 });
    let tasks = if options.tasks.is_empty() { TASKS } else { &options.tasks };
    for &tasks in tasks.iter().filter(|&&tasks| tasks > 0) {
        measure(entries(Size { tasks, time }), choice, choice.rounds(3, 3), WarmUp::No, report);
    }
}

/// How many tasks sleep, and for how long they go on.
#[derive(Clone, Copy)]
struct Size {
    tasks: usize,
    time: Duration,
}

impl Size {
    /// The shortest and the longest sleep, in nanoseconds.
    fn sleeps(self) -> (u64, u64) {
        if self.tasks == 1 { (100_000, 5_000_000) } else { (1_000_000, 50_000_000) }
    }
}

fn entries(size: Size) -> Vec<Entry> {
    let multi = || Tokio::multi_thread(WORKERS);
    let mut entries = Vec::new();
    entries.extend(ours(size));
    entries.extend([
        entry(tokio::CURRENT, String::new(), size, Tokio::current_thread, |_| |job| task(tokio::sleep_until, job)),
        entry(tokio::MULTI, String::new(), size, multi, |_| |job| task(tokio::sleep_until, job)),
        entry(smol::NAME, String::new(), size, || Smol, |_| |job| task(smol::sleep_until, job)),
        entry(monoio::NAME, String::new(), size, Monoio::new, |_| |job| task(monoio::sleep_until, job)),
    ]);
    if size.tasks == 1 {
        entries.push(floor(size));
    }
    entries
}

/// Ours with every slack and every driver, in the runtimes that Tokio itself is measured in.
fn ours(size: Size) -> Vec<Entry> {
    type Flavour = (&'static str, fn() -> Tokio);
    let runtimes: [Flavour; 2] = [("current", Tokio::current_thread), ("multi", || Tokio::multi_thread(WORKERS))];
    let mut entries = Vec::new();
    for (name, slack) in tourbillon::SLACKS {
        // It spins before every fire: for a few timers, not for a thousand.
        if name == tourbillon::PRECISE && size.tasks > 1 {
            continue;
        }
        for (flavour, runtime) in runtimes {
            let variant = |driver| format!(",slack={name},driver={driver},rt={flavour}");
            entries.push(entry(tourbillon::NAME, variant("thread"), size, runtime, move |_| {
                let engine = tourbillon::on_thread(slack());
                move |job| task(tourbillon::sleep_until_on(&engine), job)
            }));
            entries.push(entry(tourbillon::NAME, variant("tokio"), size, runtime, move |runtime| {
                let engine = tourbillon::on_tokio(runtime, slack());
                move |job| task(tourbillon::sleep_until_on(&engine), job)
            }));
        }
    }
    entries
}

/// What one of the tasks is to do: sleep until `end` or a little longer; what is due from `begin` until then counts.
#[derive(Clone, Copy)]
struct Job {
    seed: u64,
    sleeps: (u64, u64),
    begin: Instant,
    end: Instant,
}

fn entry<R, J, T>(
    system: &'static str,
    variant: String,
    size: Size,
    runtime: impl FnOnce() -> R + 'static,
    task: impl FnOnce(&R) -> J + 'static,
) -> Entry
where
    R: Runtime<T> + 'static,
    J: Fn(Job) -> T + 'static,
    T: Future<Output = Vec<u64>>,
{
    let start = move || {
        let mut runtime = runtime();
        let task = task(&runtime);
        Box::new(move || {
            let begin = Instant::now() + WARM_UP;
            let end = begin + size.time;
            let job = |seed| Job { seed, sleeps: size.sleeps(), begin, end };
            let tasks = (0..size.tasks as u64).map(|seed| task(job(seed))).collect();
            let (lateness, cpu) = with_cpu(begin, end, || runtime.run(tasks));
            figures(lateness.iter().flatten(), cpu)
        }) as _
    };
    Entry { system, case: format!("tasks={}{variant}", size.tasks), start: Box::new(start) }
}

/// Sleeps again and again, and returns by how many nanoseconds each was late.
async fn task<F: Future>(sleep_until: impl Fn(Instant) -> F, job: Job) -> Vec<u64> {
    let mut random = Random(job.seed);
    let (shortest, longest) = job.sleeps;
    // Enough for all: nothing is allocated on the way.
    let mut lateness = Vec::with_capacity((job.end - job.begin).as_nanos() as usize / shortest as usize + 1);
    while Instant::now() < job.end {
        let deadline = Instant::now() + Duration::from_nanos(shortest + random.next() % (longest - shortest));
        sleep_until(deadline).await;
        let late = Instant::now().saturating_duration_since(deadline);
        if (job.begin..job.end).contains(&deadline) {
            lateness.push(late.as_nanos() as u64);
        }
    }
    lateness
}

/// The bare system call, on a thread of its own.
fn floor(size: Size) -> Entry {
    let round = move || {
        let thread = std::thread::spawn(move || {
            clock_nanosleep::without_slack();
            let (mut random, mut lateness) = (Random(0), Vec::new());
            let (shortest, longest) = size.sleeps();
            let (begin, before) = (clock_nanosleep::now(), process_cpu());
            let end = begin + size.time.as_nanos() as u64;
            while clock_nanosleep::now() < end {
                let deadline = clock_nanosleep::now() + shortest + random.next() % (longest - shortest);
                clock_nanosleep::sleep_until(deadline);
                lateness.push(clock_nanosleep::now().saturating_sub(deadline));
            }
            figures(&lateness, process_cpu() - before)
        });
        thread.join().expect("the thread does not panic")
    };
    let case = format!("tasks={}", size.tasks);
    Entry { system: clock_nanosleep::NAME, case, start: Box::new(move || Box::new(round)) }
}

/// Runs something, and returns the CPU time that the process used between two instants.
fn with_cpu<T>(begin: Instant, end: Instant, run: impl FnOnce() -> T) -> (T, Duration) {
    let wait = |until: Instant| std::thread::sleep(until.saturating_duration_since(Instant::now()));
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            wait(begin);
            let before = process_cpu();
            wait(end);
            process_cpu() - before
        });
        (run(), watch.join().expect("the thread does not panic"))
    })
}

fn figures<'a>(lateness: impl IntoIterator<Item = &'a u64>, cpu: Duration) -> Vec<(&'static str, f64)> {
    let mut histogram = Histogram::<u64>::new(3).expect("three digits can be kept");
    for &nanos in lateness {
        histogram.record(nanos).expect("it grows by itself");
    }
    let micros = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
    vec![
        ("p50_us", micros(0.5)),
        ("p99_us", micros(0.99)),
        ("cpu_ns_per_fire", per_operation(cpu, (histogram.len() as usize).max(1))),
    ]
}
