//! `tourbillon check`: does Tourbillon keep its promises on this machine?
//!
//! ```text
//!     load      all surfaces at once, for seven tenths of the time:                          P1 P2 P4 P8
//!               sleeps  timeouts  deadlines  intervals  waits  delay queue  timers  named  map  jobs  I/O  queues  clocks
//!     probes    one after the other, in virtual time or quickly:                             P3 P5 P6 P7 P10 P11
//!     quiet     exact timers without load; and nothing at all:                               P4 P9
//!
//!     each part -- Findings --> Audit { a row per promise, a tally per surface } --> report
//! ```
//!
//! Times are compared with the kernel's clock, read directly. Lateness is judged by a reference thread that sleeps beside the
//! timers (`reference.rs`). A watchdog observes every part (`watchdog.rs`), so that a deadlock is reported and not waited for.
//!
//! `--break` plants one fault in what the audit observes, never in its conclusions.

mod audit;
mod bad_input_and_panics;
mod blocked_executor;
mod callback_ledger;
mod check_run;
mod clocks;
mod delay_queue;
mod disturb;
mod duration_pace;
mod engines;
mod expiring_map;
mod extreme_durations;
mod histogram_text;
mod html_report;
#[cfg(target_os = "linux")]
mod idle;
#[cfg(target_os = "linux")]
mod io;
mod jobs;
mod lateness_plot;
mod load;
mod local_executor;
mod memory_bounds;
mod named;
mod order;
mod progress;
mod promise;
mod quiet_lateness;
mod reentry;
mod reference;
mod report;
mod sleep_slot;
mod sleep_thread;
mod sleeps;
mod stall_detector;
mod tally;
mod timeouts;
mod timers;
mod waits;
mod watchdog;

use std::sync::Arc;
use std::time::Duration;

use tourbillon::Engine;

use self::audit::{Audit, Findings, idle_phase};
use self::check_run::CheckRun;
pub(crate) use self::promise::Promise;
use self::report::CheckReport;
pub(crate) use self::tally::histogram;
use self::watchdog::WatchedPart;
use crate::args::CheckOptions;
use crate::html::PageFile;
use crate::machine::Usage;
use crate::text::many;

/// Runs the check, prints the report, and returns the exit status: 0 if all promises are kept, 1 if one is broken, 2 if the page
/// cannot be written.
pub(crate) fn run(options: &CheckOptions) -> u8 {
    let page = match options.html.as_deref().map(PageFile::open).transpose() {
        Ok(page) => page,
        Err(why) => return refuse(&why),
    };
    let (begun, before) = (jiff::Timestamp::now(), Usage::now());
    let check =
        Arc::new(CheckRun::new(options.seed(), options.timers, options.threads(), options.lasts, options.broken));
    if !options.json {
        report::say(&opening(&check));
    }
    let watched = progress::show(&check, !options.json);
    let mut audit = Audit::new();
    load::run(&check, &mut audit);
    for (name, promise, probe) in probes() {
        check.set_phase(name);
        let lasts = idle_phase(check.lasts) + Duration::from_secs(1);
        audit.add(WatchedPart::start(&check, name, promise, lasts, probe).wait(&check));
    }
    check.end();
    drop(watched);
    audit.close();
    let report = CheckReport { audit: &audit, check: &check, options, used: Usage::now().since(&before), begun };
    report.print();
    match page.map(|page| page.write(&report.html())).transpose() {
        Ok(Some(path)) if !options.json => report::say(&format!("The page is {}", path.display())),
        Ok(_) => {}
        Err(why) => return refuse(&why),
    }
    u8::from(!audit.is_kept())
}

/// Says what the check does, before it does it.
fn opening(check: &CheckRun) -> String {
    format!(
        "Checking {} promises for {:?}: this arms, moves, cancels and fires timers of every kind, and compares them with the kernel's clock.\n\
         {} pending at a time on {}; seed {}.",
        Promise::ALL.len(),
        check.lasts,
        many(check.timers as u64, "sleep"),
        many(check.threads as u64, "thread"),
        check.seed
    )
}

fn refuse(why: &str) -> u8 {
    eprintln!("error: {why}");
    2
}

type Probe = fn(&Arc<CheckRun>) -> Findings;

/// Returns the parts that need a quiet process or take little time, each with the promise that it breaks if it never ends.
fn probes() -> Vec<(&'static str, Promise, Probe)> {
    let mut probes: Vec<(&'static str, Promise, Probe)> = vec![
        ("order", Promise::P3, |check| order::run(check)),
        ("extreme durations", Promise::P5, |check| extreme_durations::run(check)),
        ("bad input and panics", Promise::P6, |check| bad_input_and_panics::run(check)),
        ("memory", Promise::P7, |check| memory_bounds::run(check)),
        ("callbacks that use the engine", Promise::P10, |check| reentry::run(check)),
        ("blocked executors", Promise::P11, |check| blocked_executor::run(check)),
        ("lateness, alone", Promise::P4, |check| quiet_lateness::run(check, &engines::build(Engine::builder()))),
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
