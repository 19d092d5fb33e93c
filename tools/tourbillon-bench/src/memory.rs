//! Scenario `memory`: the resident bytes of a pending sleep.
//!
//! Every figure comes from a process of its own, so that no system reuses memory of another: this program with the subcommand
//! `memory-of`, or a peer's program in C or C++.

use std::time::Duration;

use tourbillon_tools::Random;

use crate::child_process::ChildProcess;
use crate::harness::{BenchEntry, FAR, PendingOptions, RoundLength, SystemChoice, WarmUp, arm, far_durations, measure};
use crate::process_usage::own_resident;
use crate::report::BenchReport;
use crate::systems::async_io::BlockOn;
use crate::systems::monoio::Monoio;
use crate::systems::tokio::Tokio;
use crate::systems::tourbillon;
use crate::systems::{TaskRunner, async_io, futures_timer, monoio, native, pingora, tokio};

/// The arguments of the measured process.
#[derive(clap::Args)]
pub(crate) struct MemoryArgs {
    /// The system, with its variant.
    system: String,
    pending: usize,
}

const SYSTEMS: &[&str] = &[
    tourbillon::NAME,
    tokio::CURRENT,
    tokio::MULTI,
    async_io::NAME,
    futures_timer::NAME,
    monoio::NAME,
    pingora::NAME,
    native::ASIO,
    native::LIBUV,
    native::LIBEVENT,
];

/// The systems that the verdict does not judge, without the programs in C and C++.
const PEERS: [&str; 4] = [async_io::NAME, futures_timer::NAME, monoio::NAME, pingora::NAME];

/// Tourbillon in a current-thread runtime, as an argument of the measured process.
const OURS_ON_CURRENT: &str = "tourbillon,rt=current";

const PENDING: &[usize] = &[1_000_000];

/// Threads of the multi-threaded runtimes. One of them does the work.
const WORKERS: usize = 2;

/// Time for background threads to take over what was armed.
const SETTLE: Duration = Duration::from_millis(500);

/// Runs the scenario.
pub(crate) fn run(options: &PendingOptions, report: &mut BenchReport) {
    let choice = &options.choice;
    choice.check(SYSTEMS);
    let pending = options.numbers(PENDING);
    for &pending in pending.iter().filter(|&&pending| pending > 0) {
        let mut entries = vec![
            entry(tourbillon::NAME, "", pending),
            entry(tokio::MULTI, "", pending),
            entry(tourbillon::NAME, tourbillon::ON_CURRENT, pending),
            entry(tokio::CURRENT, "", pending),
        ];
        entries.extend(PEERS.iter().map(|&system| entry(system, "", pending)));
        entries.extend(native(pending, choice));
        measure(entries, choice, choice.rounds(3, 1, RoundLength::Long), WarmUp::No, report);
    }
}

fn entry(system: &'static str, variant: &'static str, pending: usize) -> BenchEntry {
    let round = move || {
        let [resident, size] = run_in_own_process(&["memory-of", &format!("{system}{variant}"), &pending.to_string()]);
        vec![("resident_bytes", resident), ("size_of_sleep", size)]
    };
    BenchEntry { system, case: format!("pending={pending}{variant}"), start: Box::new(move || Box::new(round)) }
}

fn native(pending: usize, choice: &SystemChoice) -> Vec<BenchEntry> {
    let (case, arguments) = (format!("pending={pending}"), vec![FAR.as_nanos() as usize, pending]);
    let work = native::NativeWork { scenario: "memory", case, arguments, process: native::ProcessLife::Round };
    native::entries(choice, &work, move |answer| match answer[..] {
        [grown, size] => vec![("resident_bytes", grown / pending as f64), ("size_of_sleep", size)],
        _ => Vec::new(),
    })
}

/// Runs this program again with other arguments, and returns the numbers that it prints.
pub(crate) fn run_in_own_process<const N: usize>(arguments: &[&str]) -> [f64; N] {
    let mut process = ChildProcess::again(&arguments.join(" "), arguments);
    let numbers = process.answer();
    numbers.try_into().unwrap_or_else(|_| process.fail("it printed unexpected output"))
}

/// Measures one system in this process, and prints the two numbers.
pub(crate) fn run_one(of: &MemoryArgs) {
    let pending = of.pending;
    let multi = || Tokio::multi_thread(WORKERS);
    let (resident, size) = match of.system.as_str() {
        tourbillon::NAME => multi().run_one(grow(tourbillon::sleep, pending)),
        OURS_ON_CURRENT => Tokio::current_thread().run_one(grow(tourbillon::sleep, pending)),
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

/// Returns the resident bytes per pending sleep, and the size of a sleep.
async fn grow<F: Future>(sleep: impl Fn(Duration) -> F, pending: usize) -> (f64, usize) {
    let durations = far_durations(pending, &mut Random::new(1));
    // Everything that the first sleep starts is running before the measurement.
    drop(arm(&sleep, &durations[..durations.len().min(1)]).await);
    sleep(SETTLE).await;
    let before = own_resident();
    let sleeps = arm(&sleep, &durations).await;
    sleep(SETTLE).await;
    let grown = own_resident().saturating_sub(before);
    drop(sleeps);
    (grown as f64 / pending as f64, size_of::<F>())
}
