//! Case `cancel-named`: all timers of one name are cancelled, and the last of their callbacks has run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::Instant;

use tourbillon::{NamedTimers, Outcome};

use super::JobsOptions;
use crate::harness::{BenchEntry, FAR, RoundLength, WarmUp, measure_pending};
use crate::report::BenchReport;
use crate::systems::tourbillon::{NAME, Slack, on_thread};

const TIMERS: &[usize] = &[100_000, 1_000_000];

/// The name of all timers.
const ONE_NAME: &str = "session";

/// Runs the case.
pub(super) fn run(options: &JobsOptions, report: &mut BenchReport) {
    let choice = &options.choice;
    let entries = options.jobs(TIMERS).map(entry).collect();
    measure_pending(entries, choice, choice.rounds(7, 3, RoundLength::Long), WarmUp::Yes, report);
}

fn entry(timers: usize) -> BenchEntry {
    let start = move || {
        let engine = on_thread(Slack::adaptive());
        let named = NamedTimers::on(&engine);
        Box::new(move || {
            let _until_the_last_round = &engine;
            vec![("cancels_per_s", round(&named, timers))]
        }) as _
    };
    BenchEntry { system: NAME, case: format!("cancel-named={timers}"), start: Box::new(start) }
}

/// Starts timers and cancels them. Returns cancels per second, callbacks included.
fn round(named: &NamedTimers, timers: usize) -> f64 {
    let callbacks = Arc::new(Callbacks::new(timers));
    for _ in 0..timers {
        let callbacks = callbacks.clone();
        named.start(ONE_NAME, FAR, move |outcome| callbacks.count_one(outcome)).expect("a timer can be started");
    }
    let start = Instant::now();
    assert_eq!(named.cancel(ONE_NAME), timers, "none has fired");
    callbacks.wait();
    let time = start.elapsed();
    assert_eq!(callbacks.not_cancelled.load(Ordering::Relaxed), 0, "every callback is called with Cancelled");
    timers as f64 / time.as_secs_f64()
}

/// The callbacks that have not run, and the thread that waits for them.
struct Callbacks {
    left: AtomicUsize,
    /// Callbacks with another outcome.
    not_cancelled: AtomicUsize,
    waiting: Thread,
}

impl Callbacks {
    fn new(count: usize) -> Callbacks {
        Callbacks { left: AtomicUsize::new(count), not_cancelled: AtomicUsize::new(0), waiting: std::thread::current() }
    }

    fn count_one(&self, outcome: Outcome) {
        if outcome != Outcome::Cancelled {
            self.not_cancelled.fetch_add(1, Ordering::Relaxed);
        }
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.waiting.unpark();
        }
    }

    fn wait(&self) {
        while self.left.load(Ordering::Acquire) > 0 {
            std::thread::park();
        }
    }
}
