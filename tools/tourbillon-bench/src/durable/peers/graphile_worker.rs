//! `graphile_worker` (crates.io): a job queue on the same PostgreSQL server as our store. Its program is `tools/durable-peers`.

use std::path::PathBuf;
use std::process::Command;

use super::{DurableOptions, PeerCase, Setup, Stage};
use crate::report::BenchReport;

pub(super) const NAME: &str = "graphile-worker";

/// Measures a case. The server is durable in both setups: that is its default.
pub(super) fn measure(case: PeerCase, setup: Setup, options: &DurableOptions, stage: &Stage, report: &mut BenchReport) {
    let Some(program) = program() else {
        return eprintln!(
            "{NAME} is left out: build it with `cargo build --release --manifest-path tools/durable-peers/Cargo.toml \
             --target-dir target/durable-peers`"
        );
    };
    let Some(server) = stage.server() else { return };
    let (arguments, case) = case.arguments(setup, &server.url, options);
    let mut command = Command::new(program);
    command.args(arguments);
    super::measure(NAME, command, &case, report);
}

/// Returns the program, if it was built: beside the folder of this program.
fn program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let program = own.parent()?.parent()?.join("durable-peers/release/durable-peers");
    program.exists().then_some(program)
}
