//! A driver on a thread of its own.

use std::io;
use std::sync::Arc;

use super::{DriverStep, SharedDriver};
use crate::core::CoreRef;
#[cfg(not(any(tourbillon_driver_task, all(loom, test))))]
use crate::shard::Shard;
#[cfg(not(any(tourbillon_driver_task, all(loom, test))))]
use crate::sync::lock;
use crate::sync::spin_loop;
use crate::sync::unmodelled::thread::{Builder, JoinHandle};
use crate::sys::wake_without_slack;

/// Starts the driver thread, which ends when the engine is shut down.
pub(super) fn spawn(core: CoreRef, driver: Arc<SharedDriver>) -> io::Result<()> {
    Builder::new().name("tourbillon".into()).spawn(move || run(core, &driver)).map(drop::<JoinHandle<()>>)
}

fn run(core: CoreRef, driver: &SharedDriver) {
    let _guard = ShutDownOnPanic(core.clone());
    wake_without_slack();
    loop {
        match driver.step_on_thread(&core) {
            DriverStep::More => {}
            DriverStep::Soon => spin_loop(),
            DriverStep::Sleep => core.driver.alarm.wait(&core.clock),
            DriverStep::End => return,
        }
    }
}

#[cfg(not(any(tourbillon_driver_task, all(loom, test))))]
impl SharedDriver {
    /// Makes a step on the thread.
    fn step_on_thread(&self, core: &CoreRef) -> DriverStep {
        lock(&self.steps).step(core, Shard::visit_remote)
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
