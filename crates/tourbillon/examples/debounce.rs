//! Debounce by key: after any number of changes, a file is indexed once, when it has not changed for a while.
//!
//! It uses a `Scheduler`, with a job under each key that runs once and is removed. A change inserts that job or replaces it, in one atomic
//! step; so two threads that change the same file cannot create two jobs. A job may take long: the scheduler has threads of its
//! own, and never runs a job twice at the same time.
//!
//!     cargo run -p tourbillon --example debounce

use std::error::Error;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use tourbillon::scheduler::{Plan, Run, Scheduler, SchedulerBuildError};
use tourbillon::time::Instant;

const MS: Duration = Duration::from_millis(1);

/// A file is indexed after this long without a change.
const QUIET: Duration = Duration::from_millis(300);

/// How often each of two threads changes each file.
const CHANGES: u32 = 100;
/// The number of the last change of each file.
const LAST: u32 = CHANGES + 1;

/// One run of the indexer.
#[derive(Debug)]
struct Indexed {
    file: String,
    /// Which change it indexes.
    change: u32,
    /// How long after that change.
    after: Duration,
}

struct Debounce {
    jobs: Scheduler<String>,
    report: Sender<Indexed>,
}

impl Debounce {
    fn new() -> Result<(Debounce, Receiver<Indexed>), SchedulerBuildError> {
        let (report, indexed) = channel();
        let jobs = Scheduler::builder().threads(2).build()?;
        Ok((Debounce { jobs, report }, indexed))
    }

    /// Has a file indexed when it has not changed for a while.
    fn change(&self, file: &str, change: u32) {
        let (report, changed) = (self.report.clone(), Instant::now());
        let index =
            move |run: &Run<String>| report.send(Indexed { file: run.key().clone(), change, after: changed.elapsed() });
        self.jobs.upsert(file.to_owned(), Plan::once(QUIET), index).expect("the scheduler is open and has room");
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (debounce, indexed) = Debounce::new()?;
    let files = ["lib.rs", "main.rs", "notes.md"];

    // Two threads change each file a hundred times, a millisecond apart. Then each is changed a last time.
    let burst = || {
        for change in 1..=CHANGES {
            files.iter().for_each(|file| debounce.change(file, change));
            thread::sleep(MS);
        }
    };
    thread::scope(|scope| {
        scope.spawn(burst);
        scope.spawn(burst);
    });
    files.iter().for_each(|file| debounce.change(file, LAST));

    // One run for each file, unless the machine is so busy that a thread pauses for longer than `QUIET`.
    let (mut runs, mut waiting) = (0, files.to_vec());
    while !waiting.is_empty() {
        let indexed = indexed.recv()?;
        println!("{indexed:?}");
        assert!(indexed.after >= QUIET, "not before it was quiet");
        runs += 1;
        if indexed.change == LAST {
            waiting.retain(|file| *file != indexed.file);
        }
    }

    // One more change is one more run.
    debounce.change("notes.md", LAST + 1);
    let last = indexed.recv()?;
    println!("{last:?}");
    assert_eq!((last.file.as_str(), last.change), ("notes.md", LAST + 1));
    assert_eq!(debounce.jobs.stats().runs, runs + 1, "each run has reported");
    println!("{} runs for {} changes", runs + 1, files.len() as u32 * (2 * CHANGES + 1) + 1);
    Ok(())
}
