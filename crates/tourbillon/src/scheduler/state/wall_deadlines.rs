//! The due times of jobs that follow the wall clock.

use std::collections::BTreeMap;

use tourbillon_queue::Time;

use crate::multi::deadline_map::{DeadlineKey, DeadlineMap, Popped};

/// The jobs that follow the wall clock, by their due times. In [`SchedulerState::jobs`](super::SchedulerState::jobs) they are parked.
#[derive(Default)]
pub(super) struct WallDeadlines {
    deadlines: DeadlineMap<DeadlineKey>,
    /// Sorted, so that jobs that are due together run in the same order each time when all due times are computed anew.
    of_job: BTreeMap<DeadlineKey, DeadlineKey>,
}

impl WallDeadlines {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.of_job.is_empty()
    }

    /// Sets the due time of a job. With `NEVER` the job is not waited for, but stays here: a change of the wall clock concerns it.
    pub(super) fn set(&mut self, job: DeadlineKey, due: Time) {
        match self.of_job.get(&job) {
            Some(key) => self.deadlines.set_deadline(*key, due),
            None => _ = self.of_job.insert(job, self.deadlines.insert(due, job)),
        }
    }

    pub(super) fn remove(&mut self, job: DeadlineKey) {
        if let Some(key) = self.of_job.remove(&job) {
            self.deadlines.remove(key);
        }
    }

    /// Returns the first job that is due, which stays here without a due time: see [`DeadlineMap::pop`].
    pub(super) fn pop(&mut self, now: Time, steps: usize) -> Popped {
        match self.deadlines.pop(now, steps) {
            Popped::Due(due, time) => self.deadlines.get(due).map_or(Popped::NotYet, |job| Popped::Due(*job, time)),
            other => other,
        }
    }

    pub(super) fn next_wakeup(&self) -> Time {
        self.deadlines.next_wakeup()
    }

    /// Returns all jobs that follow the wall clock.
    pub(super) fn jobs(&self) -> Vec<DeadlineKey> {
        self.of_job.keys().copied().collect()
    }
}
