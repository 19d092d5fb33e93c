//! Engines that are driven from outside, which is where faults of a driver are planted.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tourbillon::{Builder, Driver, Engine};

use super::promise::Promise;
use super::stage::Stage;
use crate::clock::monotonic;

/// Whether the driver goes on.
#[derive(PartialEq, Eq)]
pub(crate) enum Go {
    On,
    Away,
}

/// Between two turns.
const PAUSE: Duration = Duration::from_micros(500);

/// An engine that is as it should be; unless P4 is to be broken: then its driver oversleeps once.
pub(crate) fn engine(stage: &Arc<Stage>, builder: Builder) -> Engine {
    if stage.breaks(Promise::P4) { that_oversleeps(stage, builder) } else { build(builder) }
}

/// An engine with its own driver.
pub(crate) fn build(builder: Builder) -> Engine {
    builder.build().expect("the system has a thread for the driver")
}

/// An engine that a thread of ours turns. It ends with the engine, or when `turn` says so.
pub(crate) fn driven(builder: Builder, mut turn: impl FnMut(&Engine) -> Go + Send + 'static) -> Engine {
    let engine = build(builder.driver(Driver::external()));
    thread::spawn({
        let engine = engine.clone();
        move || {
            while !engine.is_shutdown() && turn(&engine) == Go::On {
                thread::sleep(PAUSE);
            }
        }
    });
    engine
}

/// Fires what is due, and comes back: under load there is always more.
pub(crate) fn turn_all(engine: &Engine) {
    (0..64).any(|_| !engine.turn().more);
}

fn that_oversleeps(stage: &Arc<Stage>, builder: Builder) -> Engine {
    let stage = Arc::clone(stage);
    let starts = monotonic() + stage.load_ends.saturating_sub(monotonic()) / 4;
    let mut has_slept = false;
    driven(builder, move |engine| {
        if monotonic() > starts && !std::mem::replace(&mut has_slept, true) {
            // A little longer than would be put down to the machine.
            stage.reference.patience().wait_for(|| false);
            thread::sleep(Duration::from_millis(300));
        }
        turn_all(engine);
        Go::On
    })
}
