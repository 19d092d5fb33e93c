//! The alarm of a driver that is a task on a Tokio runtime, beside the driver's thread.
//!
//! ```text
//!     the task's timer:    at                          the runtime polls the task, and the task drives
//!     the thread's timer:  at + 2 ms ... at + 5 ms     goes off only if the task has not set both timers again by then
//! ```
//!
//! If the thread's timer goes off and the task is late, the thread takes over: all workers of the runtime are blocked, or no thread polls the
//! runtime. When the runtime polls the task again, the task takes the engine back.
//!
//! The thread's timer is not set again while it is within its two bounds, which saves most of the system calls.

#[cfg(loom)]
mod modelled;

#[cfg(not(loom))]
pub(super) use tokio::runtime::Id as RuntimeId;
use tourbillon_queue::{Span, Time};

#[cfg(loom)]
pub(crate) use self::modelled::{RuntimeId, TaskTimer};
use super::AlarmSet;
#[cfg(not(loom))]
pub(super) use super::sys::KernelTimer as TaskTimer;
use crate::clock::Clock;

/// How late the task is at least when the thread takes over.
const MIN_LATE: Span = Span::from_nanos(2_000_000);

/// How late the task is at most when the thread takes over.
pub(crate) const MAX_LATE: Span = Span::from_nanos(5_000_000);

/// Identifies a driver task among those that an engine has had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DriverTaskId(pub(super) u64);

/// The driver tasks of an engine.
#[derive(Default)]
pub(super) struct DriverTasks {
    /// The one that drives, or may.
    current: Option<TaskAlarm>,
    /// How many there have been.
    count: u64,
    /// The runtimes that have one: the current one, and those that were replaced and have not ended yet.
    runtimes: Vec<(DriverTaskId, RuntimeId)>,
    /// Runtimes that have no I/O, the latest last.
    refused: Vec<RuntimeId>,
}

/// The task's side of an alarm.
pub(super) struct TaskAlarm {
    pub(super) timer: TaskTimer,
    clock: Clock,
    pub(super) id: DriverTaskId,
    runtime: RuntimeId,
    role: TaskRole,
    made_at: Time,
    /// What the thread's timer is set to while the task drives.
    thread_at: Time,
}

/// What a driver task does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TaskRole {
    /// The runtime has not polled it yet. The thread drives.
    New,
    /// It drives.
    Drives,
    /// It was late, and the thread drives until the runtime polls the task again.
    Late,
}

/// Which of the two drives, as the thread finds it when its timer has gone off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum ThreadRole {
    Drives,
    /// The task drives. The thread's timer is set again.
    Waits,
}

/// How many runtimes without I/O are remembered.
#[cfg(not(loom))]
const MAX_REFUSED: usize = 64;

impl DriverTasks {
    /// Returns the task that drives; `None` if the thread does.
    pub(super) fn driving(&mut self) -> Option<&mut TaskAlarm> {
        self.current.as_mut().filter(|task| task.drives())
    }

    /// Makes a task drive. Returns whether it may: it was not replaced.
    pub(super) fn take(&mut self, id: DriverTaskId) -> bool {
        let current = self.current.as_mut().filter(|task| task.id == id);
        current.map(TaskAlarm::take).is_some()
    }

    /// Adds a task, which replaces the current one. The thread drives until the task [takes](DriverTasks::take) the engine.
    pub(super) fn add(&mut self, timer: TaskTimer, clock: &Clock, runtime: RuntimeId) -> DriverTaskId {
        self.count += 1;
        let id = DriverTaskId(self.count);
        self.runtimes.push((id, runtime));
        if let Some(before) = self.current.replace(TaskAlarm::new(timer, clock, id, runtime)) {
            before.wake();
        }
        id
    }

    /// Removes a task. Returns whether it was the current one.
    pub(super) fn remove(&mut self, id: DriverTaskId) -> bool {
        self.runtimes.retain(|(task, _)| *task != id);
        self.current.take_if(|task| task.id == id).is_some()
    }

    /// Ends the current task, because the engine has ended.
    #[cfg(not(loom))]
    pub(super) fn end(&mut self) {
        self.current.take().inspect(TaskAlarm::wake);
    }

    /// Returns whether a task on that runtime should drive.
    #[cfg(not(loom))]
    pub(super) fn are_wanted_on(&self, runtime: RuntimeId) -> bool {
        let is_free = self.current.as_ref().is_none_or(|task| task.is_replaceable_on(runtime));
        // A runtime that is not polled would collect one replaced task after another.
        is_free && !self.runtimes.iter().any(|(_, known)| *known == runtime) && !self.refused.contains(&runtime)
    }

    /// Remembers a runtime without I/O.
    #[cfg(not(loom))]
    pub(super) fn refuse(&mut self, runtime: RuntimeId) {
        if self.refused.len() == MAX_REFUSED {
            self.refused.remove(0);
        }
        self.refused.push(runtime);
    }
}

impl TaskAlarm {
    pub(super) fn new(timer: TaskTimer, clock: &Clock, id: DriverTaskId, runtime: RuntimeId) -> TaskAlarm {
        let (clock, made_at) = (clock.clone(), clock.now());
        TaskAlarm { timer, clock, id, runtime, role: TaskRole::New, made_at, thread_at: Time::NEVER }
    }

    pub(super) fn drives(&self) -> bool {
        self.role == TaskRole::Drives
    }

    /// Returns whether a task on the runtime `other` may replace this one: the runtime of this one is blocked, or no thread polls it.
    pub(super) fn is_replaceable_on(&self, other: RuntimeId) -> bool {
        let is_idle = match self.role {
            TaskRole::New => self.clock.now() >= self.made_at + MAX_LATE,
            TaskRole::Drives => false,
            TaskRole::Late => true,
        };
        is_idle && self.runtime != other
    }

    /// Makes the task drive.
    pub(super) fn take(&mut self) {
        if !self.drives() {
            // The thread's timer may have gone off, so the next plan sets it in any case.
            (self.role, self.thread_at) = (TaskRole::Drives, Time::NEVER);
        }
    }

    /// Makes the thread drive if the task is late at `now`. If the task is not, returns what to set the thread's timer to.
    pub(super) fn give_up_if_late(&mut self, at: Time, now: Time) -> Option<Time> {
        if at.is_never() || now < at + MIN_LATE {
            self.thread_at = if at.is_never() { at } else { at + MAX_LATE };
            return Some(self.thread_at);
        }
        self.role = TaskRole::Late;
        // The task is to be polled when the runtime goes on, whatever has become of the timer's last expiry.
        self.wake();
        None
    }

    /// Sets the task's timer to `at`. Also returns what to set the thread's timer to, if that has to be set.
    ///
    /// With nothing pending both timers stay as they are, which saves a system call for each timer that fires alone: the next timer of the
    /// engine comes soon, as a rule. Otherwise the task's timer has gone off already, or goes off once more and the task finds nothing due,
    /// and the thread turns its timer off when it goes off.
    pub(super) fn set(&mut self, at: Time) -> (AlarmSet, Option<Time>) {
        if at.is_never() {
            return (self.timer.turn_off_lazily(), None);
        }
        let set = self.timer.set(at);
        // Zero means now.
        let due = if at == Time::ZERO { self.clock.now() } else { at };
        (set, self.guard(due))
    }

    /// Returns what to set the thread's timer to, so that the thread takes over if the task makes no step for some time after `due`. `None`
    /// if it is set so.
    pub(super) fn guard(&mut self, due: Time) -> Option<Time> {
        if (due + MIN_LATE..=due + MAX_LATE).contains(&self.thread_at) {
            return None;
        }
        self.thread_at = due + MAX_LATE;
        Some(self.thread_at)
    }

    /// Wakes the task, so that it finds that it has been replaced or that the engine has ended.
    pub(super) fn wake(&self) {
        let _done = self.timer.set(Time::ZERO);
    }
}
