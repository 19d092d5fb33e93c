//! A driver on a thread of its own.

use std::io;
use std::sync::Arc;

use super::{DriverStep, SharedDriver};
#[cfg(all(feature = "tokio", target_os = "linux"))]
use crate::alarm::ThreadRole;
use crate::core::CoreRef;
#[cfg(all(feature = "tokio", target_os = "linux"))]
use crate::core::trace;
use crate::shard::Shard;
use crate::sync::unmodelled::thread::{Builder, JoinHandle};
use crate::sync::{lock, spin_loop};

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

impl SharedDriver {
    /// Makes a step on the thread, unless a task drives. Waits for a step of the task to end.
    #[cfg(all(feature = "tokio", target_os = "linux"))]
    fn step_on_thread(&self, core: &CoreRef) -> DriverStep {
        let mut steps = lock(&self.steps);
        let role = if core.is_closed() { ThreadRole::Drives } else { core.driver.alarm.thread_role(&core.clock) };
        let step = match role {
            ThreadRole::Waits => DriverStep::Sleep,
            ThreadRole::Drives | ThreadRole::TakesOver => steps.step(core, Shard::visit_remote),
        };
        drop(steps);
        // The task stores its waker and then tries the lock again; this thread releases the lock and then looks for the waker.
        let waiting = lock(&self.waiting_task).take();
        waiting.into_iter().for_each(std::task::Waker::wake);
        if role == ThreadRole::TakesOver {
            trace::driver_took_over(core);
        }
        step
    }

    /// Makes a step on the thread.
    #[cfg(not(all(feature = "tokio", target_os = "linux")))]
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
