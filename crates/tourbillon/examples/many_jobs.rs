//! Ten thousand repeating jobs on four threads: how often and how late they ran, and why runs were not made.
//!
//!     cargo run -p tourbillon --example many_jobs

use std::collections::HashSet;
use std::sync::mpsc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use tourbillon::scheduler::{Plan, Run, Scheduler};
use tourbillon::time::Instant;

const MS: Duration = Duration::from_millis(1);
const JOBS: u32 = 10_000;
const TIMES: u64 = 5;
const THREADS: usize = 4;

/// A report of one run.
struct Note {
    /// `None` if the run began before it was due, which must not happen.
    late: Option<Duration>,
    thread: ThreadId,
}

impl Note {
    fn of<K>(run: &Run<K>) -> Note {
        Note { late: Instant::now().checked_duration_since(run.due()), thread: thread::current().id() }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scheduler =
        Scheduler::builder().threads(THREADS).on_failure(|failure| println!("a run that failed: {failure}")).build()?;

    // Each job runs every 100 to 400 ms, five times, and is removed.
    let (sender, notes) = mpsc::channel();
    let begun = Instant::now();
    for job in 0..JOBS {
        let sender = sender.clone();
        let plan = Plan::every((100 + job % 301) * MS).times(TIMES);
        scheduler
            .schedule(format!("check {job}"), plan, move |run| sender.send(Note::of(run)).map_err(drop).unwrap())?;
    }
    println!("{JOBS} jobs scheduled in {:?}", begun.elapsed());

    // Two jobs with problems. They stay until they are removed.
    scheduler.schedule("slow".to_owned(), Plan::every(50 * MS), |_| thread::sleep(175 * MS))?;
    scheduler.schedule("broken".to_owned(), Plan::every(700 * MS), |_| Err("no such table"))?;

    // A removed job has dropped its closure, so the channel ends with the last of the ten thousand jobs.
    drop(sender);
    let notes: Vec<Note> = notes.iter().collect();
    println!("{} runs in {:?}, on {} threads", notes.len(), begun.elapsed(), threads(&notes));
    assert_eq!(notes.len() as u64, u64::from(JOBS) * TIMES, "each job ran as often as planned");
    assert!(threads(&notes) <= THREADS);
    print_lateness(&notes);

    let slow = scheduler.report("slow").expect("it is there until it is removed");
    println!("slow: {} runs; {} were not made, as the one before had not ended", slow.runs, slow.overlapped);
    assert!(slow.overlapped > 0);
    let broken = scheduler.report("broken").expect("its failures do not end it");
    println!("broken: {} runs, {} failed, the last: {:?}", broken.runs, broken.failed, broken.last_failure);
    assert!(broken.failed > 0);

    assert!(scheduler.remove("slow") && scheduler.remove("broken"));
    assert!(scheduler.is_empty());
    println!("{:#?}", scheduler.stats());
    Ok(())
}

fn threads(notes: &[Note]) -> usize {
    notes.iter().map(|note| note.thread).collect::<HashSet<_>>().len()
}

/// Prints how long after their due times the runs began.
fn print_lateness(notes: &[Note]) {
    let mut late: Vec<_> = notes.iter().map(|note| note.late.expect("never early")).collect();
    late.sort_unstable();
    let quantile = |percent: usize| late[(late.len() - 1) * percent / 100];
    println!("late: median {:?}, 99% {:?}, at most {:?}", quantile(50), quantile(99), quantile(100));
}
