//! Debounce by key: after any number of changes, a file is indexed once, when it has not changed for a while.
//!
//! It uses a `Scheduler`, with a job under each key that runs once and is removed. A change inserts that job or replaces it, in one atomic
//! step; so two threads that change the same file cannot create two jobs. A job may take long: the scheduler has threads of its
//! own, and never runs a job twice at the same time.
//!
//!     cargo run -p tourbillon --example debounce

use std::error::Error;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use tourbillon::scheduler::{Plan, Run, Scheduler};
use tourbillon::time::Instant;

const MS: Duration = Duration::from_millis(1);

/// A file is indexed after this long without a change.
const QUIET: Duration = Duration::from_millis(300);

/// One run of the indexer.
#[derive(Debug)]
struct Indexed {
    file: String,
    /// How long after the last change.
    after: Duration,
}

struct Debounce {
    jobs: Scheduler<String>,
    report: Sender<Indexed>,
}

impl Debounce {
    fn new() -> io::Result<(Debounce, Receiver<Indexed>)> {
        let (report, indexed) = channel();
        let jobs = Scheduler::builder().threads(2).build()?;
        Ok((Debounce { jobs, report }, indexed))
    }

    /// Has a file indexed when it has not changed for a while.
    fn change(&self, file: &str) {
        let (report, last) = (self.report.clone(), Instant::now());
        let index = move |run: &Run<String>| report.send(Indexed { file: run.key().clone(), after: last.elapsed() });
        self.jobs.upsert(file.to_owned(), Plan::once(QUIET), index).expect("the scheduler is open and has room");
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (debounce, indexed) = Debounce::new()?;
    let files = ["lib.rs", "main.rs", "notes.md"];

    // Two threads change each file a hundred times, a millisecond apart.
    let burst = || {
        for _ in 0..100 {
            files.iter().for_each(|file| debounce.change(file));
            thread::sleep(MS);
        }
    };
    thread::scope(|scope| {
        scope.spawn(burst);
        scope.spawn(burst);
    });
    let mut first: Vec<_> = indexed.iter().take(files.len()).collect();
    first.sort_by(|one, other| one.file.cmp(&other.file));
    for (indexed, file) in first.iter().zip(files) {
        println!("{indexed:?}");
        assert_eq!(indexed.file, file, "once, for all changes");
        assert!(indexed.after >= QUIET, "not before it was quiet");
    }

    // One more change is one more run.
    debounce.change("notes.md");
    let last = indexed.recv()?;
    println!("{last:?}");
    assert_eq!(last.file, "notes.md");

    assert_eq!(debounce.jobs.stats().runs, 4, "four runs for six hundred and one changes");
    Ok(())
}
