//! Scenario `io`: servers on loopback, each in its own runtime, and the cost of their timers.
//!
//! A server is a process of its own (this program with the subcommand `io-of`) on a core of its own; its CPU time, memory and
//! wake-ups are read from outside. The load comes from this process, on another core, and is the same for all.

mod cores;
mod delayed;
mod echo;
mod idle;
mod lateness;
mod limits;
mod server_client;
mod server_process;
mod systems;

pub(crate) use self::server_process::{IoServerArgs, run_one};

use crate::harness::SystemChoice;
use crate::report::BenchReport;
use crate::systems::{monoio, smol, tokio, tourbillon_rt};

#[derive(clap::Args)]
pub(crate) struct IoOptions {
    #[command(flatten)]
    pub(crate) choice: SystemChoice,
    /// Only these cases.
    #[arg(long, value_delimiter = ',')]
    case: Vec<IoCase>,
    /// Number of connections in the case `delayed`.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    connections: Option<u32>,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq)]
enum IoCase {
    /// Echoed messages per second, without and with a timeout on every read.
    Echo,
    /// Lateness of replies that are due some time after their request.
    Delayed,
    /// Wake-ups and CPU time of a runtime with pending timers and nothing to do.
    Idle,
}

const CASES: &[IoCase] = &[IoCase::Echo, IoCase::Delayed, IoCase::Idle];

/// The systems in the order of their rounds: Tokio's is next to both of Tourbillon's.
const SYSTEMS: &[&str] = &[tourbillon_rt::URING, tokio::CURRENT, tourbillon_rt::EPOLL, monoio::NAME, smol::NAME];

/// The systems of Tourbillon.
const OURS: &[&str] = &[tourbillon_rt::URING, tourbillon_rt::EPOLL];

/// Runs the scenario.
pub(crate) fn run(options: &IoOptions, report: &mut BenchReport) {
    let choice = &options.choice;
    choice.check(SYSTEMS);
    let systems = systems_here(choice);
    let cases = if options.case.is_empty() { CASES } else { &options.case };
    for case in cases {
        match case {
            IoCase::Echo => echo::run(&systems, choice, report),
            IoCase::Delayed => delayed::run(&systems, options.connections, choice, report),
            IoCase::Idle => idle::run(&systems, choice, report),
        }
    }
}

/// Returns the selected systems that can run on this machine.
fn systems_here(choice: &SystemChoice) -> Vec<&'static str> {
    let mut systems: Vec<_> = SYSTEMS.iter().copied().filter(|system| choice.includes(system)).collect();
    if let Err(refused) = tourbillon_rt::try_uring() {
        eprintln!("warning: without {}: {refused}", tourbillon_rt::URING);
        systems.retain(|system| *system != tourbillon_rt::URING);
    }
    systems
}
