//! When the jobs are due that follow the wall clock.

use std::collections::BTreeMap;

use tourbillon_queue::Time;

use crate::multi::deadline_map::{DeadlineMap, Key, Popped};

/// The jobs that follow the wall clock, in the order of their times. Among the book's jobs they are parked.
#[derive(Default)]
pub(super) struct Wall {
    dues: DeadlineMap<Key>,
    /// In an order that is the same each time: when all are worked out anew, those that are due together run in it.
    of_job: BTreeMap<Key, Key>,
}

impl Wall {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.of_job.is_empty()
    }

    /// With `NEVER` the job is not waited for; but it follows the wall clock all the same, and has to hear when that was wrong.
    pub(super) fn set(&mut self, job: Key, due: Time) {
        match self.of_job.get(&job) {
            Some(key) => self.dues.set_deadline(*key, due),
            None => _ = self.of_job.insert(job, self.dues.insert(due, job)),
        }
    }

    pub(super) fn remove(&mut self, job: Key) {
        if let Some(key) = self.of_job.remove(&job) {
            self.dues.remove(key);
        }
    }

    /// A job that is due; it stays here. As [`DeadlineMap::pop`].
    pub(super) fn pop(&mut self, now: Time, steps: usize) -> Popped {
        match self.dues.pop(now, steps) {
            Popped::Due(due, time) => self.dues.get(due).map_or(Popped::NotYet, |job| Popped::Due(*job, time)),
            other => other,
        }
    }

    pub(super) fn next_wakeup(&self) -> Time {
        self.dues.next_wakeup()
    }

    /// All of them.
    pub(super) fn jobs(&self) -> Vec<Key> {
        self.of_job.keys().copied().collect()
    }
}
