//! The driver as a task on a Tokio runtime, woken by a timer of the kernel.

use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

use super::{Next, Wheelwork, thread};
use crate::core::CoreRef;
use crate::engine::BuildError;

/// The runtime in whose context we are.
pub(super) fn runtime() -> Result<Handle, BuildError> {
    Handle::try_current().map_err(|_| BuildError::NoRuntime)
}

pub(super) fn spawn(runtime: &Handle, core: CoreRef) -> Result<(), BuildError> {
    let fd = core.driving.alarm.fd().ok_or(BuildError::NoRuntime)?.try_clone_to_owned().map_err(BuildError::Thread)?;
    let _context = runtime.enter();
    // SAFETY: an `OwnedFd` gives the same open descriptor for as long as it lives.
    let register = || unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    // It panics in a runtime without input and output, and there is no way to ask before.
    let fd = catch_unwind(AssertUnwindSafe(register)).map_err(|_| BuildError::NoRuntime)?;
    let fd = fd.map_err(|refused| BuildError::Thread(refused.into_parts().1))?;
    let task = Task { work: Some(Wheelwork::new(core)) };
    runtime.spawn(task.run(fd));
    Ok(())
}

struct Task {
    /// Until the engine ends.
    work: Option<Wheelwork>,
}

impl Task {
    async fn run(mut self, fd: AsyncFd<OwnedFd>) {
        while let Some(work) = &mut self.work {
            match work.step() {
                Next::Round => tokio::task::yield_now().await,
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
            && thread::spawn(work.core.clone()).is_err()
        {
            work.core.shut_down();
        }
    }
}
