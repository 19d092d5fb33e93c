//! Scenario `virtual`: how fast sleeps end in paused time.
//!
//! It needs the feature `virtual`, which enables `test-util` of `tourbillon`. That makes every timer look for the clock that it
//! follows, so the other scenarios are measured without it.

#[cfg(feature = "virtual")]
mod cases;
#[cfg(feature = "virtual")]
mod manual_engine;
#[cfg(feature = "virtual")]
mod tokio_multi;

use crate::harness::SystemChoice;
use crate::report::{BenchReport, print};

#[derive(clap::Args)]
pub(crate) struct VirtualOptions {
    #[command(flatten)]
    pub(crate) choice: SystemChoice,
}

/// Whether this build has the scenario.
pub(crate) const IS_BUILT: bool = cfg!(feature = "virtual");

/// Runs the scenario, or prints how to build it.
pub(crate) fn run(options: &VirtualOptions, report: &mut BenchReport) {
    #[cfg(feature = "virtual")]
    cases::run(&options.choice, report);
    #[cfg(not(feature = "virtual"))]
    {
        let _ = report;
        print_how_to_build(options.choice.common.json);
    }
}

/// Prints how to build the scenario: to standard output, or to standard error if that has JSON lines.
pub(crate) fn print_how_to_build(json: bool) {
    let how = "virtual: not in this build; cargo run --release -p tourbillon-bench --features virtual -- virtual\n";
    if json { eprint!("{how}") } else { print(how) }
}
