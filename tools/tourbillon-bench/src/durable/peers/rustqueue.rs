//! `rustqueue` (crates.io): a job queue in a file, embedded in its program, which is `tools/durable-peers/rustqueue`.

use super::{BuiltPeer, DurableOptions, PeerCase, Setup, Stage};
use crate::report::BenchReport;

pub(super) const NAME: &str = "rustqueue";

const PROGRAM: BuiltPeer =
    BuiltPeer { name: NAME, program: "durable-peer-rustqueue", folder: "tools/durable-peers/rustqueue" };

/// Measures a case in the directory of our stores. The default store of rustqueue is durable, so it is that of both setups.
pub(super) fn measure(case: PeerCase, setup: Setup, options: &DurableOptions, stage: &Stage, report: &mut BenchReport) {
    PROGRAM.measure_on(&stage.directory().display().to_string(), case, setup, options, report);
}
