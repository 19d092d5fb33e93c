//! `graphile_worker` (crates.io): a job queue on the same PostgreSQL server as our store. Its program is `tools/durable-peers`.

use super::{BuiltPeer, DurableOptions, PeerCase, Setup, Stage};
use crate::report::BenchReport;

pub(super) const NAME: &str = "graphile-worker";

const PROGRAM: BuiltPeer = BuiltPeer { name: NAME, program: "durable-peers", folder: "tools/durable-peers" };

/// Measures a case. The server is durable in both setups: that is its default.
pub(super) fn measure(case: PeerCase, setup: Setup, options: &DurableOptions, stage: &Stage, report: &mut BenchReport) {
    PROGRAM.measure_on_postgres(case, setup, options, stage, report);
}
