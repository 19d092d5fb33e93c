//! A driver on a thread of its own.

use std::io;

use super::{DriverLoop, DriverStep};
use crate::core::CoreRef;
use crate::sync::spin_loop;
use crate::sync::unmodelled::thread::{Builder, JoinHandle};

/// Starts the driver thread, which ends when the engine is shut down.
pub(super) fn spawn(core: CoreRef) -> io::Result<()> {
    Builder::new().name("tourbillon".into()).spawn(move || run(core)).map(drop::<JoinHandle<()>>)
}

fn run(core: CoreRef) {
    let _guard = ShutDownOnPanic(core.clone());
    // The kernel then adds nothing to a wait. If it refuses, timers are late by its default of 50 us.
    #[cfg(all(target_os = "linux", not(miri)))]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let mut driver = DriverLoop::new(core);
    loop {
        match driver.step() {
            DriverStep::More => {}
            DriverStep::Soon => spin_loop(),
            DriverStep::Sleep => driver.core.driver.alarm.wait(&driver.core.clock),
            DriverStep::End => return,
        }
    }
}

/// Shuts the engine down if the driver panics, so that its timers end as stopped instead of waiting for ever.
struct ShutDownOnPanic(CoreRef);

impl Drop for ShutDownOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.shut_down();
        }
    }
}
