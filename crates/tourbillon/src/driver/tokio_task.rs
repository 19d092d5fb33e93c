//! The driver as a task on a Tokio runtime, woken by a timer of the kernel.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

use super::{DriverLoop, Next, thread};
use crate::core::CoreRef;
use crate::core::error::BuildError;
use crate::core::trace;

/// The runtime in whose context we are.
pub(super) fn runtime() -> Result<Handle, BuildError> {
    Handle::try_current().map_err(|_| BuildError::NoRuntime)
}

pub(super) fn spawn(runtime: &Handle, core: CoreRef) -> Result<(), BuildError> {
    let no_timer = || BuildError::Thread(io::Error::other("no timer of the kernel (timerfd) is to be had"));
    let fd = core.driver.alarm.fd().ok_or_else(no_timer)?.map_err(BuildError::Thread)?;
    let _context = runtime.enter();
    // Tokio panics if the runtime was built without I/O, and there is no way to ask it before.
    let fd = std::panic::catch_unwind(|| {
        // SAFETY: an `OwnedFd` gives the same open descriptor for as long as it lives.
        unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }
    });
    let fd = fd.map_err(|_| BuildError::NoRuntime)?.map_err(|refused| BuildError::Thread(refused.into_parts().1))?;
    let task = Task { work: Some(DriverLoop::new(core)) };
    runtime.spawn(task.run(fd));
    Ok(())
}

/// So many batches are fired before other tasks get a turn.
const IN_A_ROW: usize = 8;

struct Task {
    /// Until the engine ends.
    work: Option<DriverLoop>,
}

impl Task {
    async fn run(mut self, fd: AsyncFd<OwnedFd>) {
        let mut rounds = 0;
        while let Some(work) = &mut self.work {
            match work.step() {
                // Some batches in a row, and then the tasks that they have woken.
                Next::More if rounds < IN_A_ROW => rounds += 1,
                Next::More | Next::Soon => {
                    rounds = 0;
                    tokio::task::yield_now().await;
                }
                // An error means that the runtime is going: this task goes with it.
                Next::Sleep => match fd.readable().await {
                    Ok(mut ready) => ready.clear_ready(),
                    Err(_) => return,
                },
                Next::End => self.work = None,
            }
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // The runtime has gone before the engine has: a thread goes on where the task stopped. If none can be had either,
        // nobody is left to turn the engine, and its timers are stopped rather than left to wait for ever.
        if let Some(work) = self.work.take()
            && !work.core.is_closed()
        {
            trace::driver_took_over(&work.core);
            if thread::spawn(work.core.clone()).is_err() {
                work.core.shut_down();
            }
        }
    }
}
