//! `tourbillon check`: does this machine's Tourbillon keep its promises?
//!
//! ```text
//!     load      all surfaces at once, for seven tenths of the time:                          P1 P2 P4 P8
//!               sleeps  timeouts  deadlines  intervals  waits  delay queue  timers  named  jobs  I/O  queues  clocks
//!     probes    one after the other, in virtual time or quickly:                             P3 P5 P6 P7 P10 P11
//!     quiet     exact timers, alone; and nothing at all:                                     P4 P9
//!
//!     each part -- Findings --> Audit { a row a promise, a ledger a surface } --> report
//! ```
//!
//! The clock that decides is the kernel's, read directly. Who judges lateness is a thread that sleeps beside the timers (`reference.rs`).
//! Every part is watched from outside (`watch.rs`), so that a deadlock is found and not waited for.
//!
//! With `--break` one fault is planted in what the audit looks at, never in what it concludes.

mod audit;
mod blocked;
mod bounded;
mod calls;
mod clocks;
mod contained;
mod delay_queue;
mod disturb;
mod draw;
mod extremes;
#[cfg(target_os = "linux")]
mod idle;
#[cfg(target_os = "linux")]
mod io;
mod jobs;
mod load;
mod named;
mod order;
mod outside;
mod overdue;
mod pace;
mod progress;
mod promise;
mod quiet;
mod reentry;
mod reference;
mod report;
mod sleeper;
mod sleeps;
mod slot;
mod stage;
mod tally;
mod tasks;
mod timeouts;
mod timers;
mod waits;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use tourbillon::Engine;

use self::audit::{Audit, Findings, tenth};
pub(crate) use self::promise::Promise;
use self::report::Report;
use self::stage::Stage;
pub(crate) use self::tally::histogram;
use self::watch::Part;
use crate::args::CheckOptions;
use crate::machine::Usage;

/// Runs the check, prints what it found, and gives the exit status.
pub(crate) fn run(options: &CheckOptions) -> u8 {
    let before = Usage::now();
    let stage = Arc::new(Stage::new(options.seed(), options.timers, options.threads(), options.lasts, options.broken));
    let watched = progress::show(&stage, !options.json);
    let mut audit = Audit::new();
    load::run(&stage, &mut audit);
    for (name, promise, probe) in probes() {
        stage.is_at(name);
        let lasts = tenth(stage.lasts) + Duration::from_secs(1);
        audit.take(Part::start(&stage, name, promise, lasts, probe).wait(&stage));
    }
    stage.end();
    drop(watched);
    audit.close();
    let report = Report { audit: &audit, stage: &stage, options, used: Usage::now().since(&before) };
    report.print();
    u8::from(!audit.is_kept())
}

type Probe = fn(&Arc<Stage>) -> Findings;

/// What needs a quiet process, or takes next to no time. With the promise that is broken if it never ends.
fn probes() -> Vec<(&'static str, Promise, Probe)> {
    let mut probes: Vec<(&'static str, Promise, Probe)> = vec![
        ("order", Promise::P3, |stage| order::run(stage)),
        ("extreme durations", Promise::P5, |stage| extremes::run(stage)),
        ("bad input and panics", Promise::P6, |stage| contained::run(stage)),
        ("memory", Promise::P7, |stage| bounded::run(stage)),
        ("callbacks that call back", Promise::P10, |stage| reentry::run(stage)),
        ("blocked executors", Promise::P11, |stage| blocked::run(stage)),
        ("lateness, alone", Promise::P4, |stage| quiet::run(stage, &outside::build(Engine::builder()))),
    ];
    #[cfg(target_os = "linux")]
    probes.push(("nothing at all", Promise::P9, idle::run));
    #[cfg(not(target_os = "linux"))]
    probes.push(("nothing at all", Promise::P9, |_| Findings {
        skipped: vec!["P9: how often a thread wakes up is not known on this system".into()],
        ..Findings::default()
    }));
    probes
}
