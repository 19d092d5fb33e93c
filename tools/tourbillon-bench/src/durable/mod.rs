//! Scenario `durable`: timers that outlive their process, in a directory and in PostgreSQL, beside systems that people use today.
//!
//! The README of this crate defines the cases.

mod cancel_name;
mod churn;
mod creates;
mod deliveries;
mod disk;
mod kill;
mod load;
mod peers;
mod place;
mod resources;
mod stage;
mod takeover;

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

pub(crate) use self::kill::{DurableKillArgs, run_killed};
use self::peers::PeerCase;
pub(crate) use self::resources::{DurableChildArgs, run_child};
use self::stage::{Backend, Stage};
use crate::harness::{RoundLength, SystemChoice};
use crate::report::BenchReport;

#[derive(clap::Args)]
pub(crate) struct DurableOptions {
    #[command(flatten)]
    pub(crate) choice: SystemChoice,
    /// Only these cases.
    #[arg(long, value_enum, value_delimiter = ',')]
    case: Vec<DurableCase>,
    /// Number of pending timers in `churn`, `lateness`, `far` and `idle`; without it, 10,000,000 in `lateness` and `far` of a full run, otherwise 1,000,000.
    #[arg(long)]
    pending: Option<usize>,
    /// Numbers of clients in `clients`.
    #[arg(long, value_delimiter = ',')]
    clients: Vec<usize>,
    /// Keeps embedded stores with many pending timers below this directory, and takes those that an earlier run has left there. `far` makes its own anew.
    #[arg(long)]
    kept: Option<PathBuf>,
    /// How many processes `kill` kills on each store.
    #[arg(long)]
    kills: Option<u64>,
    /// The seed of the random choices of `kill`.
    #[arg(long)]
    seed: Option<u64>,
    /// Stores are made below this directory, those of PostgreSQL and of the peers too, and not below that for temporary files. Its file system has to be one that keeps data.
    #[arg(long)]
    directory: Option<PathBuf>,
}

/// The cases, which the README defines.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DurableCase {
    Clients,
    Batches,
    Churn,
    Far,
    Lateness,
    Burst,
    Idle,
    CancelName,
    Takeover,
    Kill,
}

/// The system to which the time of an `fdatasync` belongs.
const DISK: &str = "disk";

/// Clients that each wait for their answers.
const CLIENTS: usize = 256;

/// Runs the scenario.
pub(crate) fn run(options: &DurableOptions, report: &mut BenchReport) {
    options.choice.check(&[&[Backend::Embedded.system(), Backend::Postgres.system()], &peers::NAMES[..]].concat());
    let stage = Stage::new(options.directory.as_deref(), options.kept.clone());
    let cases = if options.case.is_empty() { DurableCase::value_variants() } else { &options.case };
    for case in cases {
        match case {
            DurableCase::Clients => {
                creates::clients(options, &stage, report);
                peers::run(PeerCase::Clients, options, &stage, report);
            }
            DurableCase::Batches => {
                creates::batches(options, &stage, report);
                peers::run(PeerCase::Batches, options, &stage, report);
            }
            DurableCase::Churn => churn::run(options, &stage, report),
            DurableCase::Far => resources::memory(options, &stage, report),
            DurableCase::Lateness => {
                deliveries::lateness(options, &stage, report);
                peers::run(PeerCase::Lateness, options, &stage, report);
            }
            DurableCase::Burst => deliveries::burst(options, &stage, report),
            DurableCase::Idle => resources::idle(options, &stage, report),
            DurableCase::CancelName => cancel_name::run(options, &stage, report),
            DurableCase::Takeover => takeover::run(options, &stage, report),
            DurableCase::Kill => kill::run(options, &stage, report),
        }
    }
}

impl DurableOptions {
    fn is_quick(&self) -> bool {
        self.choice.common.quick
    }

    /// Returns the selected stores of Tourbillon.
    fn backends(&self) -> impl Iterator<Item = Backend> {
        [Backend::Embedded, Backend::Postgres].into_iter().filter(|backend| self.choice.includes(backend.system()))
    }

    /// Returns how many rounds there are, and how long each takes.
    fn rounds(&self) -> (usize, Duration) {
        let rounds = self.choice.rounds(5, 3, RoundLength::Long);
        (rounds.others, Duration::from_secs(if self.is_quick() { 1 } else { 3 }))
    }

    /// Returns the number of pending timers: the selected one, or the default.
    fn pending(&self, full: usize, quick: usize) -> usize {
        self.pending.unwrap_or(if self.is_quick() { quick } else { full })
    }

    /// Returns the number of pending timers of `far` and `lateness`.
    fn many_pending(&self) -> usize {
        self.pending(10_000_000, 1_000_000)
    }

    /// Returns how many processes are killed.
    fn kills(&self) -> u64 {
        self.kills.unwrap_or(if self.is_quick() { 20 } else { 1_000 })
    }

    /// Returns the numbers of clients: the selected ones, or the default.
    fn clients(&self) -> &[usize] {
        match (&*self.clients, self.is_quick()) {
            ([], true) => &[CLIENTS],
            ([], false) => &[1, 16, CLIENTS],
            (clients, _) => clients,
        }
    }
}
