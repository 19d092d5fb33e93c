//! Memory and CPU time of a process whose timers are all far: measured in child processes, from outside.

use std::io::BufRead as _;
use std::time::{Duration, Instant};

use tourbillon_durable::Timers;

use super::deliveries::Seen;
use super::place::Place;
use super::stage::{Server, Stage, wait_until};
use super::{DurableOptions, load};
use crate::child_process::ChildProcess;
use crate::report::{BenchReport, Figure};

/// What a child process does before it waits.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ChildTask {
    /// Creates far timers.
    Fill,
    /// Opens the store, and is ready to deliver.
    Wait,
}

/// Arguments of a child process.
#[derive(clap::Args)]
pub(crate) struct DurableChildArgs {
    #[arg(value_enum)]
    task: ChildTask,
    #[arg(value_parser = Place::from_argument)]
    place: Place,
    count: usize,
}

/// Runs a child process until its standard input ends. It answers with the seconds that its task took.
pub(crate) fn run_child(arguments: &DurableChildArgs) {
    let begin = Instant::now();
    let timers = arguments.place.open(Timers::builder());
    if arguments.task == ChildTask::Fill {
        load::create_far(&timers, arguments.count);
    }
    let _seen = Seen::register(&timers);
    wait_until("the ownership of the store", || timers.stats().is_owner);
    println!("{}", begin.elapsed().as_secs_f64());
    for _question in std::io::stdin().lock().lines() {}
}

/// Measures the memory of a process that has created far timers, and of one that has opened the store.
pub(super) fn memory(options: &DurableOptions, stage: &Stage, report: &mut BenchReport) {
    let pending = options.many_pending();
    for backend in options.backends() {
        let Some(place) = stage.place_to_fill(backend, pending) else { continue };
        let case = format!("far,pending={pending}");
        let mut add = |metric, value| report.add(Figure::once(backend.system(), case.clone(), metric, value));
        let mut filling = child(ChildTask::Fill, &place, pending);
        add("s_to_create", filling.answer()[0]);
        add("resident_mb_after_creating", resident(&filling));
        // Without a shutdown, so that opening has to recover.
        drop(filling);
        let mut waiting = child(ChildTask::Wait, &place, 0);
        add("s_to_open", waiting.answer()[0]);
        add("resident_mb_after_opening", resident(&waiting));
        drop(waiting);
        if let Place::Directory(path) = &place {
            add("disk_bytes_per_timer", disk_bytes(path) as f64 / pending as f64);
        }
        stage.keep_filled(backend, pending, place);
    }
}

/// Measures the CPU time of a process with far timers that has nothing to do; and what it asks the server for.
pub(super) fn idle(options: &DurableOptions, stage: &Stage, report: &mut BenchReport) {
    let pending = options.pending(1_000_000, 1_000_000);
    let time = Duration::from_secs(if options.is_quick() { 10 } else { 30 });
    for backend in options.backends() {
        let Some(place) = stage.filled(backend, pending) else { continue };
        let mut process = child(ChildTask::Wait, &place, 0);
        process.answer();
        std::thread::sleep(Duration::from_secs(5));
        let queries = Queries::begin(&place);
        let before = process.usage();
        std::thread::sleep(time);
        let after = process.usage();
        let asked = queries.map(Queries::end);
        let mut add = |metric, value| {
            report.add(Figure::once(backend.system(), format!("idle,pending={pending}"), metric, value));
        };
        add("cpu_percent", 100.0 * (after.cpu - before.cpu).as_secs_f64() / time.as_secs_f64());
        add("sleeps_per_s", (after.sleeps - before.sleeps) as f64 / time.as_secs_f64());
        if let Some(asked) = asked {
            add("queries_per_s", asked / time.as_secs_f64());
        }
    }
}

/// Counts statements of a server.
struct Queries<'a> {
    url: &'a str,
    before: f64,
}

impl<'a> Queries<'a> {
    /// Begins to count; `None` for a store without server.
    fn begin(place: &'a Place) -> Option<Queries<'a>> {
        let Place::Schema { url, .. } = place else { return None };
        Server::run(url, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements");
        Some(Queries { url, before: Queries::count(url) })
    }

    /// Returns how many statements there were, of every kind: `BEGIN` and `SET` count as well.
    fn end(self) -> f64 {
        // One is the count itself.
        Queries::count(self.url) - self.before - 1.0
    }

    fn count(url: &str) -> f64 {
        Server::number(url, "SELECT coalesce(sum(calls), 0)::float8 FROM pg_stat_statements")
    }
}

fn child(task: ChildTask, place: &Place, count: usize) -> ChildProcess {
    let task = match task {
        ChildTask::Fill => "fill",
        ChildTask::Wait => "wait",
    };
    ChildProcess::again("a durable store", ["durable-of", task, &place.to_argument(), &count.to_string()])
}

fn resident(process: &ChildProcess) -> f64 {
    process.usage().resident as f64 / 1e6
}

fn disk_bytes(directory: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
        // Blocks and not the length: journals have holes.
        Ok(metadata) => std::os::unix::fs::MetadataExt::blocks(&metadata) * 512,
        Err(_) => 0,
    };
    entries.map(size).sum()
}
