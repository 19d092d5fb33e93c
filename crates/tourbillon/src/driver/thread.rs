//! A driver on a thread of its own.

use std::io;
use std::sync::Arc;

use super::{DriverStep, SharedDriver};
use crate::core::CoreRef;
#[cfg(not(any(all(feature = "tokio", target_os = "linux"), all(loom, test))))]
use crate::shard::Shard;
#[cfg(not(any(all(feature = "tokio", target_os = "linux"), all(loom, test))))]
use crate::sync::lock;
use crate::sync::spin_loop;
use crate::sync::unmodelled::thread::{Builder, JoinHandle};

/// Starts the driver thread, which ends when the engine is shut down.
pub(super) fn spawn(core: CoreRef, driver: Arc<SharedDriver>) -> io::Result<()> {
    Builder::new().name("tourbillon".into()).spawn(move || run(core, &driver)).map(drop::<JoinHandle<()>>)
}

fn run(core: CoreRef, driver: &SharedDriver) {
    let _guard = ShutDownOnPanic(core.clone());
    // The kernel then adds nothing to a wait. If it refuses, timers are late by its default of 50 us.
    #[cfg(all(target_os = "linux", not(miri)))]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    loop {
        match driver.step_on_thread(&core) {
            DriverStep::More => {}
            DriverStep::Soon => spin_loop(),
            DriverStep::Sleep => core.driver.alarm.wait(&core.clock),
            DriverStep::End => return,
        }
    }
}

#[cfg(not(any(all(feature = "tokio", target_os = "linux"), all(loom, test))))]
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
