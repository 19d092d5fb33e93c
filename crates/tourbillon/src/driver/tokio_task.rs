//! A driver that is a task on a Tokio runtime, woken by a timer of the kernel.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

use super::{DriverLoop, DriverStep, thread};
use crate::core::CoreRef;
use crate::core::error::BuildError;
use crate::core::trace;

/// Returns the runtime in whose context the calling thread is.
pub(super) fn runtime() -> Result<Handle, BuildError> {
    Handle::try_current().map_err(|_| BuildError::NoRuntime)
}

pub(super) fn spawn(runtime: &Handle, core: CoreRef) -> Result<(), BuildError> {
    let no_timer = || BuildError::Thread(io::Error::other("the system has no kernel timer (timerfd) left"));
    let fd = core.driver.alarm.fd().ok_or_else(no_timer)?.map_err(BuildError::Thread)?;
    let _context = runtime.enter();
    // Tokio panics if the runtime was built without I/O, and offers no way to ask before.
    let fd = std::panic::catch_unwind(|| {
        // SAFETY: an `OwnedFd` returns the same open descriptor for as long as it lives, and `AsyncFd` owns it.
        unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }
    });
    let fd = fd.map_err(|_| BuildError::NoRuntime)?.map_err(|refused| BuildError::Thread(refused.into_parts().1))?;
    let task = DriverTask { driver: Some(DriverLoop::new(core)) };
    runtime.spawn(task.run(fd));
    Ok(())
}

/// How many batches are fired before other tasks run.
const BATCHES_IN_A_ROW: usize = 8;

struct DriverTask {
    /// `None` after the engine has ended.
    driver: Option<DriverLoop>,
}

impl DriverTask {
    async fn run(mut self, fd: AsyncFd<OwnedFd>) {
        let mut rounds = 0;
        while let Some(driver) = &mut self.driver {
            match driver.step() {
                // After some batches, the tasks that they have woken run.
                DriverStep::More if rounds < BATCHES_IN_A_ROW => rounds += 1,
                DriverStep::More | DriverStep::Soon => {
                    rounds = 0;
                    tokio::task::yield_now().await;
                }
                // An error means that the runtime is shutting down, and this task with it.
                DriverStep::Sleep => match fd.readable().await {
                    Ok(mut ready) => ready.clear_ready(),
                    Err(_) => return,
                },
                DriverStep::End => self.driver = None,
            }
        }
    }
}

impl Drop for DriverTask {
    fn drop(&mut self) {
        // The runtime has ended before the engine: a thread takes over. If the system refuses the thread, the engine is shut down, so
        // that its timers end as stopped instead of waiting for ever.
        if let Some(driver) = self.driver.take()
            && !driver.core.is_closed()
        {
            trace::driver_took_over(&driver.core);
            if thread::spawn(driver.core.clone()).is_err() {
                driver.core.shut_down();
            }
        }
    }
}
