//! A driver on a Tokio runtime, woken by a timer of the kernel.
//!
//! ```text
//!     the kernel's timer goes off
//!       -> the runtime's I/O driver calls the waker of the file descriptor: `TurnOnWake`, which makes steps there and then
//!            -> a step that leaves more to do wakes the driver task, which makes the rest as a task, between other tasks
//! ```
//!
//! The steps are made inside Tokio's I/O driver, like those of Tokio's own timers, because Tokio then wakes its other workers once for all
//! the tasks that a step has woken, rather than once for each. The driver's thread stays beside the task: see `alarm::task_alarm`.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Wake, Waker};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

use super::{DriverStep, SharedDriver, visit_as_owner};
use crate::alarm::DriverTaskId;
use crate::core::error::BuildError;
use crate::core::trace;
use crate::core::{Core, CoreRef};

/// Returns the runtime in whose context the calling thread is.
pub(super) fn runtime() -> Result<Handle, BuildError> {
    Handle::try_current().map_err(|_| BuildError::NoRuntime)
}

/// Spawns a driver task on a runtime, unless the engine has one meanwhile.
pub(super) fn spawn(runtime: &Handle, core: &Core, driver: &Arc<SharedDriver>) -> Result<(), BuildError> {
    let alarm = &core.driver.alarm;
    let Some((id, fd)) = alarm.add_task(&core.clock, runtime.id()).map_err(BuildError::Thread)? else { return Ok(()) };
    let fd = register(runtime, fd).inspect_err(|_| _ = alarm.remove_task(id))?;
    let membership = TaskMembership { id, core: core.to_ref() };
    let state = Arc::new_cyclic(|weak| TaskState {
        membership,
        fd,
        driver: driver.clone(),
        turn_on_wake: Waker::from(Arc::new(TurnOnWake(weak.clone()))),
        task: OnceLock::new(),
    });
    runtime.spawn(tokio::task::coop::unconstrained(DriverTask(state)));
    Ok(())
}

/// Has the I/O driver of a runtime watch a file descriptor.
fn register(runtime: &Handle, fd: OwnedFd) -> Result<AsyncFd<OwnedFd>, BuildError> {
    let _context = runtime.enter();
    // Tokio panics if the runtime was built without I/O, and offers no way to ask before.
    let registered = std::panic::catch_unwind(|| {
        // SAFETY: an `OwnedFd` returns the same open descriptor for as long as it lives, and `AsyncFd` owns it.
        unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }
    });
    registered.map_err(|_| BuildError::NoRuntime)?.map_err(|refused| BuildError::Thread(refused.into_parts().1))
}

/// Whether a runtime without I/O was asked to have the driver. No other is asked then: Tokio panics each time.
static WAS_REFUSED: AtomicBool = AtomicBool::new(false);

/// Spawns a driver task on the first Tokio runtime in which the engine is used, and on another one when that has ended or is blocked.
pub(super) fn spawn_when_used(core: &Core, driver: &Arc<SharedDriver>) {
    let driver = Arc::downgrade(driver);
    core.driver.set_offer(Box::new(move |core| {
        if core.is_closed() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let alarm = &core.driver.alarm;
        if !alarm.wants_task_on(runtime.id()) {
            return;
        }
        if !may_have_io() {
            return alarm.refuse(runtime.id());
        }
        let Some(driver) = driver.upgrade() else { return };
        // After another error, no file descriptor left or a runtime that is ending, the next timer tries again.
        if let Err(BuildError::NoRuntime) = spawn(&runtime, core, &driver) {
            WAS_REFUSED.store(true, Ordering::Relaxed);
        }
    }));
}

/// Returns whether the runtime of the calling thread may have I/O, so that the attempt to use it is worth the panic that follows otherwise.
///
/// A process without an epoll instance has no runtime with I/O. A process that has one may still have another runtime without: then Tokio
/// panics once, and this module catches that.
fn may_have_io() -> bool {
    cfg!(panic = "unwind") && !WAS_REFUSED.load(Ordering::Relaxed) && has_epoll()
}

/// Returns whether the process has an epoll instance, among the first file descriptors of the list that the kernel gives.
fn has_epoll() -> bool {
    const MAX_LOOKED_AT: usize = 1024;
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return false };
    let mut links = open.flatten().take(MAX_LOOKED_AT).filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.any(|link| link.as_os_str() == "anon_inode:[eventpoll]")
}

/// How many batches are fired before other tasks run.
const BATCHES_IN_A_ROW: usize = 8;

/// The state of a driver task, which the runtime's I/O driver shares.
struct TaskState {
    membership: TaskMembership,
    fd: AsyncFd<OwnedFd>,
    driver: Arc<SharedDriver>,
    /// A waker of [`TurnOnWake`].
    turn_on_wake: Waker,
    /// The waker of the task itself, from its first poll on.
    task: OnceLock<Waker>,
}

/// The task's place in the alarm, which it gives up when it is dropped.
struct TaskMembership {
    id: DriverTaskId,
    core: CoreRef,
}

/// Makes steps where it is woken: inside the runtime's I/O driver.
struct TurnOnWake(Weak<TaskState>);

/// Makes the steps that have to be made as a task, and lives as long as the runtime or the engine.
struct DriverTask(Arc<TaskState>);

/// What is left to do after some steps.
#[derive(PartialEq, Eq)]
enum AfterSteps {
    /// Nothing until the timer goes off.
    Wait,
    /// More steps, after other tasks have run.
    Continue,
    /// Nothing at all: the engine or the runtime has ended, or another task drives.
    End,
}

impl TaskState {
    /// Takes the engine from the thread, if the thread drives it, and makes steps until the timer is set.
    fn turn(&self) -> AfterSteps {
        // In the child of a fork: the engine's locks are not to be taken, and the runtime's file descriptors are shared with the parent.
        if self.membership.core.is_inherited() {
            return AfterSteps::Wait;
        }
        let mut rounds = 0;
        loop {
            self.clear_expiry();
            let TaskMembership { id, core } = &self.membership;
            // Until its first poll the task has no waker; that poll makes a step.
            let task = self.task.get().unwrap_or(Waker::noop());
            match self.driver.step_on_task(core, *id, visit_as_owner, task) {
                Some(DriverStep::More) if rounds < BATCHES_IN_A_ROW => rounds += 1,
                Some(DriverStep::More | DriverStep::Soon) => return AfterSteps::Continue,
                Some(DriverStep::End) => return AfterSteps::End,
                Some(DriverStep::Sleep) => match self.poll_expiry() {
                    Poll::Pending => return AfterSteps::Wait,
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(_)) => return AfterSteps::End,
                },
                // Another thread is in the middle of a step, and wakes the task at its end.
                None => return AfterSteps::Wait,
            }
        }
    }

    /// Forgets that the timer has gone off. Before a step, so that the task learns when the timer that the step sets has gone off.
    fn clear_expiry(&self) {
        let _not_ready = self.fd.try_io(Interest::READABLE, |_| Err::<(), _>(io::ErrorKind::WouldBlock.into()));
    }

    /// Returns ready if the timer has gone off. Otherwise it wakes [`TurnOnWake`] when it does.
    fn poll_expiry(&self) -> Poll<io::Result<()>> {
        self.fd.poll_read_ready(&mut Context::from_waker(&self.turn_on_wake)).map_ok(drop)
    }
}

impl Wake for TurnOnWake {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(state) = self.0.upgrade()
            && state.turn() != AfterSteps::Wait
            && let Some(task) = state.task.get()
        {
            task.wake_by_ref();
        }
    }
}

impl Future for DriverTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.task.get_or_init(|| context.waker().clone());
        match self.0.turn() {
            AfterSteps::Wait => Poll::Pending,
            AfterSteps::Continue => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            AfterSteps::End => Poll::Ready(()),
        }
    }
}

impl Drop for TaskMembership {
    fn drop(&mut self) {
        // The runtime has ended before the engine: the thread takes over. (In the child of a fork there is neither.)
        if !self.core.is_closed() && self.core.driver.alarm.remove_task(self.id) {
            trace::driver_took_over(&self.core);
        }
    }
}
