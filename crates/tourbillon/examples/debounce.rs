//! Debounce by key: after any number of changes, a file is indexed once, when it has not changed for a while.
//!
//! It uses a `Scheduler`, with a job under each key that runs once and is removed. A change before that run gives the job another
//! plan, in one atomic step; so two threads that change the same file cannot create two jobs. A job may take long: the scheduler has
//! threads of its own, and never runs a job twice at the same time.
//!
//!     cargo run -p tourbillon --example debounce

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{io, thread};

use tourbillon::scheduler::{Plan, ScheduleErrorKind, Scheduler};
use tourbillon::time::Instant;

const MS: Duration = Duration::from_millis(1);

/// A file is indexed after this long without a change.
const QUIET: Duration = Duration::from_millis(300);

/// One run of the indexer.
#[derive(Debug)]
struct Indexed {
    file: String,
    changes: u32,
    /// How long after the last change.
    after: Duration,
}

struct Debounce {
    jobs: Scheduler<String>,
    /// The files that have changed since they were indexed: how often, and when last.
    changed: Arc<Mutex<HashMap<String, (u32, Instant)>>>,
    report: Sender<Indexed>,
}

impl Debounce {
    fn new() -> io::Result<(Debounce, Receiver<Indexed>)> {
        let (report, indexed) = channel();
        let jobs = Scheduler::builder().threads(2).build()?;
        Ok((Debounce { jobs, changed: Arc::default(), report }, indexed))
    }

    fn change(&self, file: &str) {
        {
            let mut changed = self.changed.lock().unwrap();
            let (count, last) = changed.entry(file.to_owned()).or_insert((0, Instant::now()));
            (*count, *last) = (*count + 1, Instant::now());
        }
        // One of the two succeeds, unless another thread or the end of the job comes in between.
        while !self.postpone(file) && !self.begin(file) {}
    }

    /// Postpones the job of a file, if there is one.
    fn postpone(&self, file: &str) -> bool {
        match self.jobs.reschedule(file, Plan::once(QUIET)) {
            Ok(()) => true,
            Err(ScheduleErrorKind::Unknown) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Schedules a job for a file, if there is none.
    fn begin(&self, file: &str) -> bool {
        let (changed, report) = (Arc::clone(&self.changed), self.report.clone());
        let scheduled = self.jobs.schedule(file.to_owned(), Plan::once(QUIET), move |run| {
            let file = run.key().clone();
            // The previous run may have handled a change that came while it ran.
            let Some((changes, last)) = changed.lock().unwrap().remove(&file) else { return };
            report.send(Indexed { file, changes, after: last.elapsed() }).unwrap();
        });
        match scheduled {
            Ok(_) => true,
            Err(error) if error.kind == ScheduleErrorKind::Duplicate => false,
            Err(error) => panic!("{error}"),
        }
    }
}

fn main() -> io::Result<()> {
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
        assert_eq!((indexed.file.as_str(), indexed.changes), (file, 200), "once, for all changes");
        assert!(indexed.after >= QUIET, "not before it was quiet");
    }

    // One more change is one more run.
    debounce.change("notes.md");
    let last = indexed.recv().expect("the debouncer is there");
    println!("{last:?}");
    assert_eq!((last.file.as_str(), last.changes), ("notes.md", 1));

    assert_eq!(debounce.jobs.stats().runs, 4, "four runs for six hundred and one changes");
    Ok(())
}
