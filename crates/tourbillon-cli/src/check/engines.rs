//! Builds engines, some of them driven by a thread of the check, in which faults of a driver are planted.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tourbillon::{Builder, Driver, Engine};

use super::check_run::CheckRun;
use super::promise::Promise;
use crate::clock::monotonic;

/// Whether the driver continues.
#[derive(PartialEq, Eq)]
pub(crate) enum LoopStep {
    Continue,
    Stop,
}

/// Pause between two turns.
const PAUSE: Duration = Duration::from_micros(500);

/// Returns an engine. If P4 is to be broken, its driver oversleeps once.
pub(crate) fn engine(check: &Arc<CheckRun>, builder: Builder) -> Engine {
    if check.breaks(Promise::P4) { oversleeping_engine(check, builder) } else { build(builder) }
}

/// Returns an engine with its own driver.
pub(crate) fn build(builder: Builder) -> Engine {
    builder.build().expect("the system has a thread for the driver")
}

/// Returns an engine that a new thread turns until the engine is shut down or `turn` stops.
pub(crate) fn driven(builder: Builder, mut turn: impl FnMut(&Engine) -> LoopStep + Send + 'static) -> Engine {
    let engine = build(builder.driver(Driver::external()));
    thread::spawn({
        let engine = engine.clone();
        move || {
            while !engine.is_shutdown() && turn(&engine) == LoopStep::Continue {
                thread::sleep(PAUSE);
            }
        }
    });
    engine
}

/// Fires what is due, in a bounded number of turns: under load there is always more.
pub(crate) fn turn_all(engine: &Engine) {
    (0..64).any(|_| !engine.turn().more);
}

fn oversleeping_engine(check: &Arc<CheckRun>, builder: Builder) -> Engine {
    let check = Arc::clone(check);
    let starts = monotonic() + check.load_ends.saturating_sub(monotonic()) / 4;
    let mut has_slept = false;
    driven(builder, move |engine| {
        if monotonic() > starts && !std::mem::replace(&mut has_slept, true) {
            // A little longer than the check attributes to the machine.
            check.reference.wait_limit().wait_for(|| false);
            thread::sleep(Duration::from_millis(300));
        }
        turn_all(engine);
        LoopStep::Continue
    })
}
