//! Scenario `io`: servers on loopback, each in its own runtime, and what their timers cost them.
//!
//! A server is a process of its own, which is this program again with the subcommand `io-of`: its CPU time, its memory and its
//! wake-ups are looked at from outside, and it has a core for itself. The load comes from this process, on another core, and
//! is the same for all.

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
    /// So many connections in the case `delayed`.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    connections: Option<u32>,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq)]
enum IoCase {
    /// How many messages a second a server echoes, without and with a timeout on every read.
    Echo,
    /// How late replies are that are due some time after their request.
    Delayed,
    /// What a runtime does that has nothing to do but has timers pending.
    Idle,
}

const CASES: &[IoCase] = &[IoCase::Echo, IoCase::Delayed, IoCase::Idle];

const SYSTEMS: &[&str] = &[tourbillon_rt::URING, tourbillon_rt::EPOLL, tokio::CURRENT, monoio::NAME, smol::NAME];

/// Ours among them.
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

/// The systems that were asked for and that this machine lets run.
fn systems_here(choice: &SystemChoice) -> Vec<&'static str> {
    let mut systems: Vec<_> = SYSTEMS.iter().copied().filter(|system| choice.wants(system)).collect();
    if let Err(refused) = tourbillon_rt::try_uring() {
        eprintln!("warning: without {}: {refused}", tourbillon_rt::URING);
        systems.retain(|system| *system != tourbillon_rt::URING);
    }
    systems
}
