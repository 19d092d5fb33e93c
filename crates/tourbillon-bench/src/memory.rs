//! Scenario `memory`: what a pending sleep takes.
//!
//! Every figure comes from a process of its own, which is this program again with the subcommand `memory-of`: no system
//! finds memory that another has left.

use std::process::Command;
use std::time::Duration;

use crate::harness::{Choice, Entry, WarmUp, arm, far_durations, measure};
use crate::random::Random;
use crate::report::Report;
use crate::systems::async_io::BlockOn;
use crate::systems::monoio::Monoio;
use crate::systems::tokio::Tokio;
use crate::systems::tourbillon;
use crate::systems::{Runtime, async_io, futures_timer, monoio, pingora, tokio};

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Only these numbers of pending timers.
    #[arg(long, value_delimiter = ',')]
    pending: Vec<usize>,
}

/// For the process that is measured.
#[derive(clap::Args)]
pub(crate) struct Of {
    system: String,
    pending: usize,
}

const SYSTEMS: &[&str] =
    &[tourbillon::NAME, tokio::CURRENT, tokio::MULTI, async_io::NAME, futures_timer::NAME, monoio::NAME, pingora::NAME];

const PENDING: &[usize] = &[1_000_000];

/// Threads of the runtimes that have more than one. One of them does the work.
const WORKERS: usize = 2;

/// Time for threads in the background to take over what was armed.
const SETTLE: Duration = Duration::from_millis(500);

/// Runs the scenario.
pub(crate) fn run(options: &Options, report: &mut Report) {
    let choice = &options.choice;
    choice.check(SYSTEMS);
    let pending = if options.pending.is_empty() { PENDING } else { &options.pending };
    for &pending in pending.iter().filter(|&&pending| pending > 0) {
        let entries = SYSTEMS.iter().map(|&system| entry(system, pending)).collect();
        measure(entries, choice, choice.rounds(3, 1), WarmUp::No, report);
    }
}

fn entry(system: &'static str, pending: usize) -> Entry {
    let round = move || {
        let [resident, size] = in_a_process_of_its_own(&["memory-of", system, &pending.to_string()]);
        vec![("resident_bytes", resident), ("size_of_sleep", size)]
    };
    Entry { system, case: format!("pending={pending}"), start: Box::new(move || Box::new(round)) }
}

/// Runs this program again, with other arguments, and returns the numbers that it prints.
pub(crate) fn in_a_process_of_its_own<const N: usize>(arguments: &[&str]) -> [f64; N] {
    let program = std::env::current_exe().expect("this program has a path");
    let output = Command::new(program).args(arguments).output().expect("this program can be run again");
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    numbers.try_into().unwrap_or_else(|_| {
        eprintln!("error: {} failed: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
        std::process::exit(1);
    })
}

/// Measures one system in this process, and prints the two numbers.
pub(crate) fn run_one(of: &Of) {
    let pending = of.pending;
    let multi = || Tokio::multi_thread(WORKERS);
    let (resident, size) = match of.system.as_str() {
        tourbillon::NAME => multi().run_one(grow(tourbillon::sleep, pending)),
        tokio::CURRENT => Tokio::current_thread().run_one(grow(tokio::sleep, pending)),
        tokio::MULTI => multi().run_one(grow(tokio::sleep, pending)),
        async_io::NAME => BlockOn.run_one(grow(async_io::sleep, pending)),
        futures_timer::NAME => multi().run_one(grow(futures_timer::sleep, pending)),
        monoio::NAME => Monoio::new().run_one(grow(monoio::sleep, pending)),
        pingora::NAME => multi().run_one(grow(pingora::sleep, pending)),
        _ => return,
    };
    println!("{resident} {size}");
}

/// Resident bytes for each of so many pending sleeps, and the size of one.
async fn grow<F: Future>(sleep: impl Fn(Duration) -> F, pending: usize) -> (f64, usize) {
    let durations = far_durations(pending, &mut Random(1));
    // What starts with the first sleep is there already.
    drop(arm(&sleep, &durations[..durations.len().min(1)]).await);
    sleep(SETTLE).await;
    let before = resident();
    let sleeps = arm(&sleep, &durations).await;
    sleep(SETTLE).await;
    let grown = resident().saturating_sub(before);
    drop(sleeps);
    (grown as f64 / pending as f64, size_of::<F>())
}

/// The bytes of this process that are in memory.
pub(crate) fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux tells how much memory a process has");
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("the second number");
    pages * rustix::param::page_size()
}
