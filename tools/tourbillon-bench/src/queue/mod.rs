//! Scenario `queue`: timer queues on one thread, without a clock.
//!
//! Every system implements [`QueueSystem`], and every case is written once, generic over it. The rounds of the systems are
//! interleaved, so that a disturbance of the machine affects all of them, and the median of the rounds is reported.

mod cases;
mod systems;

use clap::ValueEnum;
use indicatif::ProgressBar;

use self::cases::{Contestant, PreparedCase};
use self::systems::QueueSystem;
use crate::Common;
use crate::progress::progress;
use crate::report::{BenchReport, Figure};

#[derive(clap::Args)]
pub(crate) struct QueueOptions {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Only these cases.
    #[arg(long, value_enum, value_delimiter = ',')]
    case: Vec<QueueCase>,
    /// Only these systems.
    #[arg(long, value_delimiter = ',')]
    system: Vec<String>,
    /// Only these numbers of pending timers.
    #[arg(long, value_delimiter = ',')]
    pending: Vec<usize>,
    /// Number of rounds per case; the median is reported.
    #[arg(long)]
    rounds: Option<usize>,
}

/// The cases, which the README defines.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum QueueCase {
    #[value(name = "insert_remove")]
    InsertRemove,
    #[value(name = "fifo")]
    Fifo,
    #[value(name = "pop")]
    Pop,
    #[value(name = "reschedule")]
    Reschedule,
}

impl QueueCase {
    fn name(self) -> &'static str {
        match self {
            QueueCase::InsertRemove => "insert_remove",
            QueueCase::Fifo => "fifo",
            QueueCase::Pop => "pop",
            QueueCase::Reschedule => "reschedule",
        }
    }
}

const PENDING: [usize; 5] = [0, 1_000, 100_000, 1_000_000, 10_000_000];
const PENDING_QUICK: usize = 3;

/// Runs the scenario.
pub(crate) fn run(options: &QueueOptions, report: &mut BenchReport) {
    let all = systems::all();
    for name in &options.system {
        if !all.iter().any(|contestant| contestant.name() == name) {
            let names: Vec<_> = all.iter().map(|contestant| contestant.name()).collect();
            eprintln!("error: there is no system {name:?}; there are {}", names.join(", "));
            std::process::exit(2);
        }
    }
    let chosen = |name: &str| options.system.is_empty() || options.system.iter().any(|system| system == name);
    let contestants: Vec<_> = all.into_iter().filter(|contestant| chosen(contestant.name())).collect();
    let pending = match (&options.pending[..], options.common.quick) {
        ([], false) => &PENDING[..],
        ([], true) => &PENDING[..PENDING_QUICK],
        (some, _) => some,
    };
    let cases = if options.case.is_empty() { QueueCase::value_variants() } else { &options.case };

    let runs: Vec<_> = cases.iter().flat_map(|&case| pending.iter().map(move |&pending| (case, pending))).collect();
    let progress = progress(runs.len() * contestants.len());
    for (case, pending) in runs {
        run_case(case, pending, options, &contestants, &progress, report);
    }
    progress.finish_and_clear();
    for (name, bytes) in systems::bytes_per_timer() {
        if chosen(name) {
            report.add(Figure::once(name, "slab".into(), "bytes_per_timer", bytes as f64));
        }
    }
}

fn run_case(
    case: QueueCase,
    pending: usize,
    options: &QueueOptions,
    contestants: &[Box<dyn Contestant>],
    progress: &ProgressBar,
    report: &mut BenchReport,
) {
    let rounds = options.rounds.unwrap_or(match (options.common.quick, pending) {
        (true, _) => 5,
        (false, 10_000_000..) => 5,
        (false, _) => 9,
    });
    let operations = if options.common.quick { 100_000 } else { 1_000_000 };
    progress.set_message(format!("{}, {pending} pending", case.name()));
    let mut figures = vec![Vec::new(); contestants.len()];
    if case == QueueCase::Pop {
        if pending == 0 {
            progress.inc(contestants.len() as u64);
            return;
        }
        // A round empties the queue, so each begins with a new one. Small queues are repeated, so that a round is long enough to
        // be timed.
        for round in 0..rounds {
            for (contestant, figures) in contestants.iter().zip(&mut figures) {
                let repeat = (operations / 10 / pending).max(1);
                figures.push(contestant.pop(pending, repeat, round as u64));
            }
        }
    } else {
        let mut ready: Vec<Box<dyn PreparedCase>> = contestants.iter().map(|it| it.prepare(case, pending)).collect();
        for _ in 0..rounds {
            for (system, figures) in ready.iter_mut().zip(&mut figures) {
                figures.push(system.round(operations));
            }
        }
    }
    for (contestant, figures) in contestants.iter().zip(figures) {
        let case = format!("{},pending={pending}", case.name());
        report.add(Figure::of_rounds(contestant.name(), case, "ns_per_op", figures));
        progress.inc(1);
    }
}
