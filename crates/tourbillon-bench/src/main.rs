//! Tourbillon measured against other timers.
//!
//! `cargo run --release -p tourbillon-bench -- queue` prints a table; `--json` one object a line. What each scenario
//! does, and which systems take part, is in this crate's README.

mod queue;
mod report;

use clap::{Args, Parser, Subcommand};

use crate::report::Report;

/// Measures Tourbillon against other timers.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Subcommand)]
enum Scenario {
    /// The timer queues alone: arm, cancel, reschedule and expire, with up to ten million pending.
    Queue(queue::Options),
}

/// What every scenario understands.
#[derive(Args, Clone)]
struct Common {
    /// Print one JSON object a line instead of a table.
    #[arg(long)]
    json: bool,
    /// Fewer cases and fewer rounds: less than half a minute.
    #[arg(long)]
    quick: bool,
}

fn main() {
    if cfg!(debug_assertions) {
        eprintln!("warning: this is a debug build; its figures mean nothing (use --release)");
    }
    match Cli::parse().scenario {
        Scenario::Queue(options) => {
            let mut report = Report::new("queue", options.common.json);
            queue::run(&options, &mut report);
            report.finish();
        }
    }
}
