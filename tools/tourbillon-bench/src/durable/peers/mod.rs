//! Systems that people use today, each measured by a program of its own that prints a metric and its value on each line.
//!
//! A peer that is not installed is left out, after a sentence that says how to install it.

mod bullmq;
mod graphile_worker;

use std::process::{Command, Stdio};

use super::stage::Stage;
use super::{CLIENTS, DurableOptions};
use crate::report::{BenchReport, Figure};

/// The names of the peers.
pub(super) const NAMES: [&str; 2] = [graphile_worker::NAME, bullmq::NAME];

/// How a peer is set up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Setup {
    /// As durable as our stores, and with the settings that its documents recommend for many small jobs.
    Tuned,
    /// With its defaults, and those of its server.
    Shipped,
}

impl Setup {
    const ALL: [Setup; 2] = [Setup::Tuned, Setup::Shipped];

    fn word(self) -> &'static str {
        match self {
            Setup::Tuned => "tuned",
            Setup::Shipped => "shipped",
        }
    }
}

/// What a peer is measured with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PeerCase {
    Clients,
    Batches,
    Lateness,
}

/// Measures all selected peers.
pub(super) fn run(case: PeerCase, options: &DurableOptions, stage: &Stage, report: &mut BenchReport) {
    for setup in Setup::ALL {
        if options.choice.includes(graphile_worker::NAME) {
            graphile_worker::measure(case, setup, options, stage, report);
        }
        if options.choice.includes(bullmq::NAME) {
            bullmq::measure(case, setup, options, stage, report);
        }
    }
}

impl PeerCase {
    /// Returns the arguments of a peer's program, `server` among them, and the case in figures.
    fn arguments(self, setup: Setup, server: &str, options: &DurableOptions) -> (Vec<String>, String) {
        let seconds = if options.is_quick() { 4 } else { 10 };
        let pending = options.pending(1_000_000, 1_000_000);
        let (name, numbers, case) = match self {
            PeerCase::Clients => ("clients", vec![CLIENTS, seconds], format!("create,clients={CLIENTS}")),
            PeerCase::Batches => ("batches", vec![seconds], "create,batch=1000".to_owned()),
            PeerCase::Lateness => ("lateness", vec![pending, 1_000, 10], format!("lateness,pending={pending}")),
        };
        let mut arguments = vec![name.to_owned(), setup.word().to_owned(), server.to_owned()];
        arguments.extend(numbers.iter().map(usize::to_string));
        (arguments, format!("{case},setup={}", setup.word()))
    }
}

/// Runs the program of a peer, and adds its figures. A program that fails is told, and the others are measured nevertheless.
fn measure(name: &'static str, mut command: Command, case: &str, report: &mut BenchReport) {
    let output = match command.stdin(Stdio::null()).stderr(Stdio::inherit()).output() {
        Ok(output) if output.status.success() => output,
        Ok(output) => return eprintln!("{name} was not measured: {}", output.status),
        Err(error) => return eprintln!("{name} was not measured: {error}"),
    };
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let figure = line.split_once(' ').and_then(|(metric, value)| Some((known(metric)?, value.parse().ok()?)));
        if let Some((metric, value)) = figure {
            report.add(Figure::once(name, case.to_owned(), metric, value));
        }
    }
}

/// Returns the metric of a name.
fn known(name: &str) -> Option<&'static str> {
    const METRICS: [&str; 8] =
        ["creates_per_s", "answer_p50_ms", "answer_p99_ms", "p50_us", "p99_us", "max_us", "delivered", "expected"];
    METRICS.into_iter().find(|metric| *metric == name)
}
