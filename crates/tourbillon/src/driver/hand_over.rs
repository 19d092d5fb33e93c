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
            ThreadRole::Drives => steps.step(core, Shard::visit_remote),
        };
        drop(steps);
        self.wake_waiting();
        step
    }

    /// Takes the engine from the thread, if the thread drives, and makes a step on the task. `None` while another thread is in the middle of
    /// a step: it wakes the waker afterwards. Does not wait, because a waker of the user that the other thread calls may wait for the
    /// runtime.
    pub(crate) fn step_on_task(
        &self,
        core: &Core,
        task: DriverTaskId,
        visit: VisitFn,
        waker: &Waker,
    ) -> Option<DriverStep> {
        self.step_if_free(core, task, visit).or_else(|| {
            self.wait(waker);
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
        let step = if core.driver.alarm.task_drives(task) { steps.step(core, visit) } else { DriverStep::End };
        if matches!(step, DriverStep::More | DriverStep::Soon) {
            core.driver.alarm.task_stays_awake(task, core.clock.now());
        }
        drop(steps);
        self.wake_waiting();
        Some(step)
    }

    /// Keeps a waker for the thread that is in the middle of a step.
    fn wait(&self, waker: &Waker) {
        let mut waiting = lock(&self.waiting);
        if !waiting.iter().any(|known| known.will_wake(waker)) {
            waiting.push(waker.clone());
        }
    }

    /// Wakes the tasks that found the lock taken, after its release. A task stores its waker and then tries the lock again; this thread has
    /// released the lock and then looks for wakers. Both take the lock of the wakers in between, so the later one sees the other.
    fn wake_waiting(&self) {
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// How a step visits a shard.
pub(crate) type VisitFn = fn(&Shard, Time, &mut Vec<Waker>) -> Visit;
