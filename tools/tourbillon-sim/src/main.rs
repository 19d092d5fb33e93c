//! Runs worlds from seeds until the time is up or a promise is broken.
//!
//!     cargo run --release -p tourbillon-sim -- --for 60s
//!
//! The README explains the options.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use tourbillon_sim::plan::SimPlan;
use tourbillon_sim::planted_fault::PlantedFault;

use tourbillon_sim::totals::Totals;
use tourbillon_sim::watchdog::{self, HANGS};
use tourbillon_sim::{report, shrink};
use tourbillon_tools::{Random, duration};

/// Simulates Tourbillon, and compares it with its promises after every step.
#[derive(Parser)]
#[command(version, about)]
struct SimArgs {
    /// How long to run: 500ms, 1.5s, 10m, 2h.
    #[arg(long = "for", value_parser = duration, default_value = "10s")]
    time: Duration,
    /// Runs the world of this seed only, once. By default seeds follow from a new one.
    #[arg(long)]
    seed: Option<u64>,
    /// Number of steps in a world.
    #[arg(long, default_value_t = 400)]
    steps: usize,
    /// Runs only these steps of the seed, by number.
    #[arg(long, value_delimiter = ',', requires = "seed")]
    keep: Option<Vec<usize>>,
    /// Plants a fault, P1 to P8 or P10, to show that the simulation finds it.
    #[arg(long = "break")]
    broken: Option<PlantedFault>,
    /// Prints the steps of the seed without running them.
    #[arg(long, requires = "seed")]
    show: bool,
    /// Prints one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let cli = SimArgs::parse();
    // An unexpected panic is reported with its seed; an intended one is not reported at all.
    std::panic::set_hook(Box::new(|_| {}));
    let first = cli.seed.unwrap_or_else(fresh_seed);
    let bar = progress(cli.time);
    let (start, mut totals) = (Instant::now(), Totals::default());
    let mut seeds = Random::new(first);
    let mut failed = None;
    for seed in std::iter::once(first).chain(std::iter::repeat_with(|| seeds.any())) {
        let plan = SimPlan::new(seed, cli.steps);
        let plan = cli.keep.as_ref().map_or_else(|| plan.clone(), |keep| plan.only(keep));
        if cli.show {
            println!("{}", report::list(&plan));
            return ExitCode::SUCCESS;
        }
        let Some(ran) = watchdog::run(&plan, cli.broken, HANGS) else {
            eprintln!("seed {seed} hangs");
            return ExitCode::from(2);
        };
        totals += &ran.totals;
        if cli.seed.is_some() {
            eprintln!("hash of the run: {:016x}", ran.hash);
        }
        if let Some(failure) = ran.failure {
            bar.finish_and_clear();
            let shrunk = shrink::shrink(&plan, cli.broken, failure);
            eprintln!("{}", report::failure(&shrunk, cli.steps, cli.broken));
            failed = Some(seed);
            break;
        }
        bar.set_position((start.elapsed().as_millis() as u64).min(cli.time.as_millis() as u64));
        bar.set_message(format!("{} runs, {} steps, {:.0} years", totals.runs, totals.steps, totals.years()));
        if cli.seed.is_some() || start.elapsed() >= cli.time {
            break;
        }
    }
    bar.finish_and_clear();
    if cli.json {
        println!("{}", report::json(&totals, start.elapsed(), failed));
    } else {
        println!("first seed {first}\n{}", report::table(&totals, start.elapsed()));
    }
    if failed.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn fresh_seed() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64)
}

/// Returns a progress bar, which is hidden if standard error is not a terminal.
fn progress(time: Duration) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(time.as_millis() as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {elapsed}  {msg}") {
        bar.set_style(style);
    }
    bar
}
