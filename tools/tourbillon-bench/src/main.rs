//! Measures Tourbillon against other timers.
//!
//! `cargo run --release -p tourbillon-bench -- queue` prints a table, `--json` prints one object per line, and `all` runs every
//! scenario. The README of this crate describes the scenarios and the systems.

mod all_scenarios;
mod case_words;
mod child_process;
mod churn;
mod columns;
mod contend;
mod cross;
mod durable;
mod figure_line;
mod fire;
mod harness;
mod io;
mod jobs;
mod lateness;
mod machine;
mod memory;
mod metric;
mod percentiles;
mod plot;
mod process_usage;
mod progress;
mod queue;
mod report;
mod reset;
mod results_folder;
mod scale;
mod serve;
mod system_kind;
mod systems;
mod table;
mod verdict;
mod verdict_table;
mod virtual_time;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::harness::PendingOptions;
use crate::report::BenchReport;
use crate::verdict_table::print_verdict;

/// Measures Tourbillon against other timers.
#[derive(Parser)]
#[command(version, about)]
struct BenchArgs {
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Subcommand)]
enum Scenario {
    /// Runs every scenario; with `--out`, also writes figures, tables and plots to a folder.
    All(all_scenarios::AllOptions),
    /// Timer queues alone: arm, cancel, reschedule and expire, with up to ten million pending timers.
    Queue(queue::QueueOptions),
    /// One thread arms and cancels sleeps, with up to a million others pending.
    Churn(churn::ChurnOptions),
    /// Several threads of a runtime arm and cancel sleeps at the same time.
    Contend(contend::ContendOptions),
    /// One thread arms sleeps, another drops them.
    Cross(PendingOptions),
    /// The deadline of a pending sleep is pushed later.
    Reset(PendingOptions),
    /// CPU time per fire, when a million sleeps come due over two seconds.
    Fire(PendingOptions),
    /// How late tasks run after their sleeps, and the CPU time per fire.
    Lateness(lateness::LatenessOptions),
    /// Servers on loopback: the cost of timeouts, the lateness of replies, and wake-ups while idle.
    Io(io::IoOptions),
    /// Runs a server of the scenario `io`, in a process of its own.
    #[command(hide = true)]
    IoOf(io::IoServerArgs),
    /// Keyed jobs that repeat: the cost to schedule, to keep and to run them.
    Jobs(jobs::JobsOptions),
    /// Measures one system of the case `memory` of `jobs`, in a process of its own.
    #[command(hide = true)]
    JobsMemoryOf(jobs::JobsMemoryArgs),
    /// Timers that outlive their process: creates, cancels, lateness and memory, in a directory and in PostgreSQL.
    Durable(durable::DurableOptions),
    /// Holds a store of the scenario `durable`, in a process of its own.
    #[command(hide = true)]
    DurableOf(durable::DurableChildArgs),
    /// Uses a store of the scenario `durable` until it is killed.
    #[command(hide = true)]
    DurableKilled(durable::DurableKillArgs),
    /// Resident bytes per pending sleep.
    Memory(PendingOptions),
    /// Measures one system of the scenario `memory`, in a process of its own.
    #[command(hide = true)]
    MemoryOf(memory::MemoryArgs),
    /// The cost to arm, reset and fire sleeps, and their memory, beside 1000 to 100,000,000 pending sleeps.
    Scale(PendingOptions),
    /// Measures one system of the scenario `scale`, in a process of its own.
    #[command(hide = true)]
    ScaleOf(scale::ScaleArgs),
    /// Durable timers over HTTP: creates, webhooks, pulls, and the server while it is idle.
    Serve(serve::ServeBenchOptions),
    /// Runs the server of the scenario `serve`, in a process of its own.
    #[command(hide = true)]
    ServeOf(serve::ServeProcessArgs),
    /// How fast sleeps end in paused time. Needs the feature `virtual`.
    #[command(name = "virtual")]
    VirtualTime(virtual_time::VirtualOptions),
    /// Plots the figures that `--json` has printed or `all --out` has written.
    Plot(plot::PlotOptions),
}

/// The options of every scenario.
#[derive(Args, Clone)]
struct Common {
    /// Prints one JSON object per line instead of tables.
    #[arg(long)]
    json: bool,
    /// Runs fewer or shorter rounds, and in `queue` and `churn` fewer cases: less than a minute per scenario.
    #[arg(long)]
    quick: bool,
    /// Compares Tourbillon with Tokio over many paired rounds. The exit status is 1 if Tokio is better anywhere.
    #[arg(long)]
    verdict: bool,
}

fn main() -> ExitCode {
    if cfg!(debug_assertions) {
        eprintln!("warning: this is a debug build; its figures mean nothing (use --release)");
    }
    match run(BenchArgs::parse().scenario) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(scenario: Scenario) -> Result<(), String> {
    use Scenario as S;
    match scenario {
        S::All(options) => all_scenarios::run(&options),
        S::Plot(options) => plot::run(&options),
        S::Queue(options) => report("queue", &options.common, |report| queue::run(&options, report)),
        S::Churn(options) => report("churn", &options.pending.choice.common, |report| churn::run(&options, report)),
        S::Contend(options) => {
            report("contend", &options.pending.choice.common, |report| contend::run(&options, report))
        }
        S::Cross(options) => report("cross", &options.choice.common, |report| cross::run(&options, report)),
        S::Reset(options) => report("reset", &options.choice.common, |report| reset::run(&options, report)),
        S::Fire(options) => report("fire", &options.choice.common, |report| fire::run(&options, report)),
        S::Durable(options) => report("durable", &options.choice.common, |report| durable::run(&options, report)),
        S::Jobs(options) => report("jobs", &options.choice.common, |report| jobs::run(&options, report)),
        S::Lateness(options) => report("lateness", &options.choice.common, |report| lateness::run(&options, report)),
        S::Io(options) => report("io", &options.choice.common, |report| io::run(&options, report)),
        S::Memory(options) => report("memory", &options.choice.common, |report| memory::run(&options, report)),
        S::Scale(options) => report("scale", &options.choice.common, |report| scale::run(&options, report)),
        S::VirtualTime(options) => {
            report("virtual", &options.choice.common, |report| virtual_time::run(&options, report))
        }
        S::DurableOf(of) => in_own_process(|| durable::run_child(&of)),
        S::DurableKilled(of) => in_own_process(|| durable::run_killed(&of)),
        S::Serve(options) => report("serve", &options.choice.common, |report| serve::run(&options, report)),
        S::ServeOf(of) => in_own_process(|| serve::serve_until_input_ends(&of)),
        S::IoOf(of) => in_own_process(|| io::run_one(&of)),
        S::JobsMemoryOf(of) => in_own_process(|| jobs::run_one(&of)),
        S::MemoryOf(of) => in_own_process(|| memory::run_one(&of)),
        S::ScaleOf(of) => in_own_process(|| scale::run_one(&of)),
    }
}

/// Measures one system in this process, which another process of this program has started.
fn in_own_process(run: impl FnOnce()) -> Result<(), String> {
    run();
    Ok(())
}

/// Runs a scenario and prints its figures. With `--verdict` it is an error if Tokio is better anywhere.
fn report(scenario: &'static str, common: &Common, run: impl FnOnce(&mut BenchReport)) -> Result<(), String> {
    let mut report = BenchReport::new(scenario, common.json);
    run(&mut report);
    let lines = report.finish();
    // The program that reads JSON lines judges them itself.
    if common.verdict && !common.json { print_verdict(&lines, false) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound_and_has_every_scenario() {
        let command = super::BenchArgs::command();
        command.clone().debug_assert();
        for scenario in super::all_scenarios::SCENARIOS {
            assert!(command.find_subcommand(scenario).is_some(), "{scenario} is a subcommand");
        }
    }
}
