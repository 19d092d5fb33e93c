//! Systems that people use today, each measured by a program of its own that prints a metric and its value on each line.
//!
//! A peer that is not installed is left out, after a sentence that says how to install it.

mod awa;
mod bullmq;
mod graphile_worker;
mod rustqueue;

use std::io::{self, Read as _};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::stage::Stage;
use super::{CLIENTS, DurableOptions};
use crate::report::{BenchReport, Figure};

/// The names of the peers.
pub(super) const NAMES: [&str; 4] = [graphile_worker::NAME, awa::NAME, rustqueue::NAME, bullmq::NAME];

/// How long the program of a peer may take for a case: most of it adds the pending jobs of `lateness`.
const LONGEST: Duration = Duration::from_secs(15 * 60);

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
        if options.choice.includes(awa::NAME) {
            awa::measure(case, setup, options, stage, report);
        }
        if options.choice.includes(rustqueue::NAME) {
            rustqueue::measure(case, setup, options, stage, report);
        }
        if options.choice.includes(bullmq::NAME) {
            bullmq::measure(case, setup, options, stage, report);
        }
    }
}

/// A peer whose program cargo builds, apart from the workspace because of its dependencies.
struct BuiltPeer {
    name: &'static str,
    program: &'static str,
    /// The folder of its `Cargo.toml`.
    folder: &'static str,
}

impl BuiltPeer {
    /// Measures a case on the PostgreSQL server of our store.
    fn measure_on_postgres(
        &self,
        case: PeerCase,
        setup: Setup,
        options: &DurableOptions,
        stage: &Stage,
        report: &mut BenchReport,
    ) {
        // Without a server it has said so.
        let Some(server) = stage.server() else { return };
        self.measure_on(&server.url, case, setup, options, report);
    }

    /// Measures a case on a server, or in a directory.
    fn measure_on(
        &self,
        server: &str,
        case: PeerCase,
        setup: Setup,
        options: &DurableOptions,
        report: &mut BenchReport,
    ) {
        let Some(program) = self.program() else {
            return eprintln!(
                "{} is left out: build it with `cargo build --release --manifest-path {}/Cargo.toml --target-dir \
                 target/durable-peers`",
                self.name, self.folder
            );
        };
        let (arguments, case) = case.arguments(setup, server, options);
        let mut command = Command::new(program);
        command.args(arguments);
        measure(self.name, command, &case, report);
    }

    /// Returns the program, if it was built: beside the folder of this program.
    fn program(&self) -> Option<PathBuf> {
        let own = std::env::current_exe().ok()?;
        let program = own.parent()?.parent()?.join("durable-peers/release").join(self.program);
        program.exists().then_some(program)
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
fn measure(name: &'static str, command: Command, case: &str, report: &mut BenchReport) {
    let output = match run_for(command, LONGEST) {
        Ok(Some((status, output))) if status.success() => output,
        Ok(Some((status, _))) => return eprintln!("{name} was not measured: {case}: {status}"),
        Ok(None) => return eprintln!("{name} was not measured: {case} took more than {LONGEST:?}"),
        Err(error) => return eprintln!("{name} was not measured: {error}"),
    };
    for line in output.lines() {
        let figure = line.split_once(' ').and_then(|(metric, value)| Some((known(metric)?, value.parse().ok()?)));
        if let Some((metric, value)) = figure {
            report.add(Figure::once(name, case.to_owned(), metric, value));
        }
    }
}

/// Runs a program, and returns what it has printed; `None` if it took longer, after ending it.
fn run_for(mut command: Command, longest: Duration) -> io::Result<Option<(ExitStatus, String)>> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
    let mut printed = child.stdout.take().expect("it is a pipe");
    let reader = thread::spawn(move || {
        let mut text = String::new();
        printed.read_to_string(&mut text).map(|_| text)
    });
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begin.elapsed() > longest {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(20));
    };
    let text = reader.join().expect("reading does not panic")?;
    Ok(Some((status, text)))
}

/// Returns the metric of a name.
fn known(name: &str) -> Option<&'static str> {
    const METRICS: [&str; 8] =
        ["creates_per_s", "answer_p50_ms", "answer_p99_ms", "p50_us", "p99_us", "max_us", "delivered", "expected"];
    METRICS.into_iter().find(|metric| *metric == name)
}
