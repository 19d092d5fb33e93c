//! Debounce by key: however many changes come in for a file, it is indexed once, when it has been quiet for a while.
//!
//! It uses a `Scheduler`: a job under each key, which runs once and is gone. A change that comes in before that gives the job
//! another plan, in one step and without making it anew; so two threads with changes of the same file cannot end up with two jobs.
//! And what the job does may take its time: it has threads of its own, and never runs beside itself.
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

/// So long there must have been no change.
const QUIET: Duration = Duration::from_millis(300);

/// What was done.
#[derive(Debug)]
struct Indexed {
    file: String,
    changes: u32,
    /// Since the last of the changes.
    after: Duration,
}

struct Debounce {
    jobs: Scheduler<String>,
    /// What has changed since it was last indexed: how often, and when last.
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
        // One of the two works, unless another thread, or the job's end, has come between them.
        while !self.put_off(file) && !self.begin(file) {}
    }

    /// Pushes back the job of a file, if there is one.
    fn put_off(&self, file: &str) -> bool {
        match self.jobs.reschedule(file, Plan::once(QUIET)) {
            Ok(()) => true,
            Err(ScheduleErrorKind::Unknown) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Makes a job for a file, if there is none.
    fn begin(&self, file: &str) -> bool {
        let (changed, report) = (Arc::clone(&self.changed), self.report.clone());
        let scheduled = self.jobs.schedule(file.to_owned(), Plan::once(QUIET), move |run| {
            let file = run.key().clone();
            // A change during the last run may have been dealt with by it.
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

    // Two threads, each with a hundred changes of each file, a millisecond apart.
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
