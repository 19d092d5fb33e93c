//! Tourbillon measured against other timers.
//!
//! `cargo run --release -p tourbillon-bench -- queue` prints a table; `--json` one object a line. What each scenario
//! does, and which systems take part, is in this crate's README.

mod churn;
mod contend;
mod cross;
mod fire;
mod harness;
mod io;
mod jobs;
mod lateness;
mod memory;
mod progress;
mod queue;
mod random;
mod report;
mod reset;
mod systems;

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
    /// One thread arms and cancels sleeps, with up to a million others pending.
    Churn(churn::Options),
    /// Several threads of a runtime arm and cancel sleeps at the same time.
    Contend(contend::Options),
    /// One thread arms sleeps, another drops them.
    Cross(cross::Options),
    /// The deadline of a pending sleep is pushed later.
    Reset(reset::Options),
    /// CPU time a fire, when a million sleeps come due over two seconds.
    Fire(fire::Options),
    /// How late tasks run after their sleeps, and CPU time a fire.
    Lateness(lateness::Options),
    /// Servers on loopback: what timeouts cost them, how late their replies are, whether they are idle when they can be.
    Io(io::Options),
    /// What the scenario `io` runs in a process of its own.
    #[command(hide = true)]
    IoOf(io::Of),
    /// Keyed jobs that repeat: what they cost to schedule, to keep and to run.
    Jobs(jobs::Options),
    /// What the scenario `jobs` runs in a process of its own.
    #[command(hide = true)]
    JobsMemoryOf(jobs::Of),
    /// Resident bytes a pending sleep.
    Memory(memory::Options),
    /// What the scenario `memory` runs in a process of its own.
    #[command(hide = true)]
    MemoryOf(memory::Of),
}

/// What every scenario understands.
#[derive(Args, Clone)]
struct Common {
    /// Print one JSON object a line instead of a table.
    #[arg(long)]
    json: bool,
    /// Fewer or shorter rounds, and in `queue` fewer cases: less than 40 seconds.
    #[arg(long)]
    quick: bool,
}

fn main() {
    if cfg!(debug_assertions) {
        eprintln!("warning: this is a debug build; its figures mean nothing (use --release)");
    }
    match Cli::parse().scenario {
        Scenario::Queue(options) => report("queue", &options.common, |report| queue::run(&options, report)),
        Scenario::Churn(options) => report("churn", &options.choice.common, |report| churn::run(&options, report)),
        Scenario::Contend(options) => {
            report("contend", &options.choice.common, |report| contend::run(&options, report));
        }
        Scenario::Cross(options) => report("cross", &options.choice.common, |report| cross::run(&options, report)),
        Scenario::Reset(options) => report("reset", &options.choice.common, |report| reset::run(&options, report)),
        Scenario::Fire(options) => report("fire", &options.choice.common, |report| fire::run(&options, report)),
        Scenario::Jobs(options) => report("jobs", &options.choice.common, |report| jobs::run(&options, report)),
        Scenario::JobsMemoryOf(of) => jobs::run_one(&of),
        Scenario::Lateness(options) => {
            report("lateness", &options.choice.common, |report| lateness::run(&options, report));
        }
        Scenario::Io(options) => report("io", &options.choice.common, |report| io::run(&options, report)),
        Scenario::IoOf(of) => io::run_one(&of),
        Scenario::Memory(options) => report("memory", &options.choice.common, |report| memory::run(&options, report)),
        Scenario::MemoryOf(of) => memory::run_one(&of),
    }
}

/// Runs a scenario and prints what it found.
fn report(scenario: &'static str, common: &Common, run: impl FnOnce(&mut Report)) {
    let mut report = Report::new(scenario, common.json);
    run(&mut report);
    report.finish();
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        super::Cli::command().debug_assert();
    }
}
