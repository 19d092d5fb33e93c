//! From a job that is due to the run that a thread makes, and to its end.

use std::sync::Arc;

use async_task::Runnable;
use tourbillon_queue::Time;

use super::{Book, Phase};
use crate::multi::deadline_map::{Key, Popped};
use crate::scheduler::job::{Due as Outcome, Gone, Job};
use crate::scheduler::times::{Due, Times};
use crate::scheduler::work::Work;
use crate::scheduler::{Overflow, Shutdown};

/// What a thread does next.
pub(in crate::scheduler) enum Next<K> {
    Run(Begin<K>),
    Task(Runnable),
    /// Lets go of the lock and comes again.
    Again,
    /// There is nothing to do.
    Wait,
    /// There will never be anything to do.
    Over,
}

/// A run that is begun.
pub(in crate::scheduler) struct Begin<K> {
    pub(in crate::scheduler) job: Key,
    pub(in crate::scheduler) work: Arc<dyn Work<K>>,
    pub(in crate::scheduler) number: u64,
    pub(in crate::scheduler) due: Due,
}

/// How a run ended.
pub(in crate::scheduler) struct End {
    pub(in crate::scheduler) job: Key,
    /// What went wrong, in words.
    pub(in crate::scheduler) failure: Option<String>,
}

/// A run in line.
pub(super) struct Ready {
    job: Key,
    due: Due,
    /// Of which of the job's plans.
    plan: u32,
}

/// Whether all that is due was put in line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Admitted {
    All,
    /// There may be more, and there is room for it.
    Some,
    /// There may be more, and it has to wait.
    UpToRoom,
}

impl<K> Book<K> {
    /// So many jobs are looked at before the lock is let go of.
    const BATCH: usize = 64;
    /// So many are moved in the wheel before that.
    const STEPS: usize = 1024;

    /// What a thread does next.
    pub(in crate::scheduler) fn next(&mut self, now: Times) -> Next<K> {
        self.see(now);
        let admitted = match (self.phase, self.until) {
            (Phase::Running, _) => self.admit(now),
            (_, Some(until)) => self.admit(until),
            _ => Admitted::All,
        };
        if admitted == Admitted::All {
            self.until = None;
        }
        self.tasks_first = !self.tasks_first;
        if self.tasks_first
            && let Some(task) = self.tasks.pop_front()
        {
            return Next::Task(task);
        }
        if let Some(begin) = self.begin() {
            return Next::Run(begin);
        }
        if let Some(task) = self.tasks.pop_front() {
            return Next::Task(task);
        }
        match (self.phase, admitted) {
            (Phase::Over, _) => Next::Over,
            (Phase::Ending(_), Admitted::All) if self.running == 0 => Next::Over,
            (_, Admitted::All) => Next::Wait,
            // What stood in line was of jobs that are gone, so there is room.
            (_, Admitted::Some | Admitted::UpToRoom) => Next::Again,
        }
    }

    /// A run has ended. Gives what is to be dropped: its job, if that was the last of its times.
    #[must_use]
    pub(in crate::scheduler) fn end(&mut self, end: End) -> Option<Gone<K>> {
        self.running -= 1;
        self.stats.failed += u64::from(end.failure.is_some());
        let job = self.jobs.get_mut(end.job)?;
        if end.failure.is_some() {
            let troubles = job.troubles();
            troubles.failed += 1;
            troubles.last_failure = end.failure;
        }
        let (is_wall, wanted) = (job.timing.is_wall(), job.next_wake());
        let next = job.end_run();
        if let Some(time) = next
            && self.phase != Phase::Ending(Shutdown::Abort)
        {
            self.line_up(end.job, Due { time, is_wall });
            self.place_if_changed(end.job, wanted);
        }
        let is_over = self.jobs.get(end.job).is_some_and(Job::is_over);
        if is_over { self.remove(end.job) } else { None }
    }

    /// A run that was woken wants to be polled.
    pub(in crate::scheduler) fn push_task(&mut self, task: Runnable) {
        self.tasks.push_back(task);
        self.alerts += 1;
    }

    /// How many runs stand in line.
    pub(in crate::scheduler) fn waiting(&self) -> usize {
        self.runs.len() - self.gone
    }

    /// Puts what is due in line, as far as there is room, and as far as is done in one go.
    fn admit(&mut self, now: Times) -> Admitted {
        let mut left = Self::BATCH;
        while left > 0 {
            if self.is_full() && self.rules.overflow == Overflow::Wait {
                return Admitted::UpToRoom;
            }
            match self.pop(now) {
                Ok((key, due)) => self.fall_due(key, due, now),
                Err(admitted) => return admitted,
            }
            left -= 1;
        }
        Admitted::Some
    }

    /// A job that is due; or whether there may be more. The two clocks take turns, so that one that has always something due
    /// does not keep back the other's.
    fn pop(&mut self, now: Times) -> Result<(Key, Due), Admitted> {
        let has_wall = self.has_wall();
        self.wall_first = has_wall && !self.wall_first;
        match self.pop_on(self.wall_first, now) {
            Err(Admitted::All) if has_wall => self.pop_on(!self.wall_first, now),
            found => found,
        }
    }

    /// The same of one clock.
    fn pop_on(&mut self, is_wall: bool, now: Times) -> Result<(Key, Due), Admitted> {
        let now = now.on(is_wall);
        let popped = if is_wall { self.wall.pop(now, Self::STEPS) } else { self.jobs.pop(now, Self::STEPS) };
        match popped {
            Popped::Due(key, time) => Ok((key, Due { time, is_wall })),
            Popped::NotYet => Err(Admitted::Some),
            Popped::Nothing => Err(Admitted::All),
        }
    }

    /// Whether no more runs can stand in line. Beside those in line there is one for each thread that waits, and one for the
    /// thread that asks.
    fn is_full(&self) -> bool {
        self.waiting() > self.rules.queue.saturating_add(self.idle)
    }

    fn fall_due(&mut self, key: Key, due: Due, now: Times) {
        let Some(job) = self.jobs.get_mut(key) else { return };
        let (now, since) = (now.on(due.is_wall), self.since.on(due.is_wall));
        job.due = due.time;
        job.is_past &= due.time < since;
        let away = if job.is_past { 0 } else { job.come_back(since) };
        if away > 0 {
            add(&mut job.troubles().missed, away);
            add(&mut self.stats.missed, away);
            return self.place(key);
        }
        let outcome = job.fall_due(due.time, now);
        if outcome.run {
            self.line_up(key, due);
        }
        if outcome.missed > 0 || outcome.overlapped > 0 {
            self.count(key, outcome);
        }
        self.place(key);
    }

    /// Counts the occurrences that are not made, when it is known whether the run that is made is the plan's last: a plan has no
    /// occurrences after its last run, however late that is (D60).
    fn count(&mut self, key: Key, outcome: Outcome) {
        let Some(job) = self.jobs.get_mut(key) else { return };
        let is_last = outcome.run && job.times == 0;
        let missed = if is_last { 0 } else { outcome.missed };
        if missed > 0 || outcome.overlapped > 0 {
            let troubles = job.troubles();
            add(&mut troubles.missed, missed);
            add(&mut troubles.overlapped, outcome.overlapped);
            add(&mut self.stats.missed, missed);
            add(&mut self.stats.overlapped, outcome.overlapped);
        }
    }

    /// Puts a run in line, or does what the rules say if there is no room.
    fn line_up(&mut self, key: Key, due: Due) {
        let is_full = self.is_full();
        let Some(job) = self.jobs.get_mut(key) else { return };
        if is_full && self.rules.overflow == Overflow::Skip {
            // Nor are those made that were to follow it.
            let count = std::mem::take(&mut job.backlog).count.saturating_add(1);
            add(&mut job.troubles().overflowed, count);
            add(&mut self.stats.overflowed, count);
            return;
        }
        if is_full && self.rules.overflow == Overflow::RunLate {
            self.stats.late += 1;
        }
        job.line_up();
        let plan = job.plans;
        self.runs.push_back(Ready { job: key, due, plan });
    }

    /// Moves a job on the wheel if it no longer [wants](Job::wants) to be where it was. A job whose last run stands in line leaves
    /// the wheel: else it would count as overlapped when it is next due. One whose backlog found no room comes back to it.
    fn place_if_changed(&mut self, key: Key, wanted: Time) {
        if self.jobs.get(key).is_some_and(|job| job.next_wake() != wanted) {
            self.place(key);
        }
    }

    /// Begins the first run in line whose job is still there and not paused.
    fn begin(&mut self) -> Option<Begin<K>> {
        if matches!(self.phase, Phase::Stopped | Phase::Over) {
            return None;
        }
        while let Some(Ready { job: key, due, plan }) = self.runs.pop_front() {
            let Some(job) = self.jobs.get_mut(key) else {
                self.gone -= 1;
                continue;
            };
            if job.is_paused {
                job.step_back(plan);
                continue;
            }
            job.begin_run();
            self.stats.runs += 1;
            self.running += 1;
            return Some(Begin { job: key, work: Arc::clone(&job.work), number: job.runs, due });
        }
        None
    }
}

/// Counts. Of times that went by there can be more than a count can tell: a nanosecond's, for centuries.
fn add(count: &mut u64, more: u64) {
    *count = count.saturating_add(more);
}
