//! The steps of a driver that has a thread and a task: one of the two at a time.

use std::sync::TryLockError;
use std::task::Waker;

use tourbillon_queue::Time;

use super::{DriverStep, SharedDriver};
use crate::alarm::{DriverTaskId, ThreadRole};
use crate::core::Core;
use crate::shard::{Shard, Visit};
use crate::sync::lock;

impl SharedDriver {
    /// Makes a step on the thread, unless the task drives. Waits for a step of the task to end.
    pub(crate) fn step_on_thread(&self, core: &Core) -> DriverStep {
        let mut steps = lock(&self.steps);
        let role = if core.is_closed() { ThreadRole::Drives } else { core.driver.alarm.thread_role(&core.clock) };
        let step = match role {
            ThreadRole::Waits => DriverStep::Sleep,
            ThreadRole::Drives | ThreadRole::TakesOver => steps.step(core, Shard::visit_remote),
        };
        drop(steps);
        // The task stores its waker and then tries the lock again; this thread releases the lock and then looks for the waker. Both go through
        // the lock of the waker, so the one that comes later sees the other.
        let waiting = lock(&self.waiting_task).take();
        waiting.into_iter().for_each(Waker::wake);
        #[cfg(feature = "tokio")]
        if role == ThreadRole::TakesOver {
            crate::core::trace::driver_took_over(core);
        }
        step
    }

    /// Takes the engine from the thread, if the thread drives, and makes a step on the task. `None` while the thread is in the middle of a
    /// step: it wakes the waker afterwards. Does not wait, because a waker of the user that the thread calls may wait for the runtime.
    pub(crate) fn step_on_task(
        &self,
        core: &Core,
        task: DriverTaskId,
        visit: VisitFn,
        waker: &Waker,
    ) -> Option<DriverStep> {
        self.step_if_free(core, task, visit).or_else(|| {
            *lock(&self.waiting_task) = Some(waker.clone());
            self.step_if_free(core, task, visit)
        })
    }

    fn step_if_free(&self, core: &Core, task: DriverTaskId, visit: VisitFn) -> Option<DriverStep> {
        // Loom does not look for orders in which an attempt to lock fails. With this load, which a step conflicts with, it finds them.
        #[cfg(all(loom, test))]
        let _planned = core.driver.planned();
        let mut steps = match self.steps.try_lock() {
            Ok(steps) => steps,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if !core.driver.alarm.task_drives(task) {
            return Some(DriverStep::End);
        }
        Some(steps.step(core, visit))
    }
}

/// How a step visits a shard.
pub(crate) type VisitFn = fn(&Shard, Time, &mut Vec<Waker>) -> Visit;
