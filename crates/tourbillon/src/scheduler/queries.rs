//! Questions about the jobs of a scheduler.

use std::borrow::Borrow;
use std::hash::Hash;
use std::time::SystemTime;

use tourbillon_queue::Time;

#[cfg(doc)]
use super::Plan;
use super::Scheduler;
use super::clock_pair::{ClockId, DueTime};
use super::history::LastRun;
use super::job::ScheduledJob;
use super::job_body::system_time;
use super::plan::FOR_EVER;
use super::stats::{JobReport, Remaining};
use crate::instant::Instant;

impl<K: Hash + Eq + Send + Sync + 'static> Scheduler<K> {
    /// Returns whether there is a job under this key. A job is there until its last run has ended.
    #[must_use]
    pub fn contains<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.with_job(key, |_| ()).is_some()
    }

    /// Returns how many runs the job has left; `None` if there is no such job.
    #[must_use]
    pub fn remaining<Q>(&self, key: &Q) -> Option<Remaining>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.with_job(key, |job| match job.runs_left {
            FOR_EVER => Remaining::ForEver,
            runs => Remaining::Runs(runs),
        })
    }

    /// Returns when the job is due next; `None` if there is no such job, or it is paused, or it has no further run. While the
    /// scheduler is stopped, this is when the job would be due if the scheduler were started now. A pending
    /// [retry](Plan::retry) does not count; the [report](Scheduler::report) has it.
    #[must_use]
    pub fn next_run<Q>(&self, key: &Q) -> Option<Instant>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.next_due(key).map(|due| self.owner.shared.instant(due))
    }

    /// Returns the time that the wall clock shows when the job is due next, if the job follows a [cron line](Plan::cron); `None` for
    /// other plans, and where [`next_run`](Scheduler::next_run) is `None`.
    ///
    /// ```
    /// # #[cfg(feature = "cron")] {
    /// use std::time::SystemTime;
    /// use tourbillon::Cron;
    /// use tourbillon::scheduler::Scheduler;
    ///
    /// let scheduler = Scheduler::builder().threads(1).build()?;
    /// let hourly = Cron::parse("@hourly")?;
    /// scheduler.schedule("report", hourly.clone(), |_| println!("reported"))?;
    /// let next = scheduler.next_run_wall("report").unwrap();
    /// assert_eq!(Some(next), hourly.next_after(next - std::time::Duration::from_secs(1)));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn next_run_wall<Q>(&self, key: &Q) -> Option<SystemTime>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.next_due(key).filter(|due| due.clock == ClockId::Wall).and_then(|due| system_time(due.time))
    }

    /// Returns what the job has done so far; `None` if there is no such job.
    #[must_use]
    pub fn report<Q>(&self, key: &Q) -> Option<JobReport>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let instant = |time| self.owner.shared.instant(DueTime { time, clock: ClockId::Engine });
        self.with_job(key, |job| JobReport::of(job, instant))
    }

    fn next_due<Q>(&self, key: &Q) -> Option<DueTime>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hash(key);
        let now = self.owner.shared.now(true);
        let state = self.open()?;
        state.next_due(state.find(hash, key)?, now)
    }

    fn with_job<Q, R>(&self, key: &Q, ask: impl FnOnce(&ScheduledJob<K>) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hash(key);
        let state = self.open()?;
        state.find(hash, key).and_then(|job| state.jobs.get(job)).map(ask)
    }
}

impl JobReport {
    /// Returns the report of a job. `instant` converts times of the engine's clock.
    fn of<K>(job: &ScheduledJob<K>, instant: impl Fn(Time) -> Instant) -> JobReport {
        let (mut attempt, mut failure) = (1, None);
        if let Some(extras) = &job.extras {
            (attempt, failure) = (extras.last_attempt.max(1), extras.problems.last_failure.clone());
        }
        let last_run = job.last_run.get().map(|(status, began, duration)| {
            let error = failure.clone().filter(|_| status.is_failure());
            LastRun { status, began: instant(began), duration, attempt, error }
        });
        let retry = job.retry_deadline();
        let next_retry = (!retry.is_never()).then(|| instant(retry));
        JobReport { last_run, last_failure: failure, next_retry, ..JobReport::counts_of(job) }
    }

    /// Returns the counts of a job, without texts.
    pub(super) fn counts_of<K>(job: &ScheduledJob<K>) -> JobReport {
        let report = JobReport { runs: job.runs, ..JobReport::default() };
        let Some(extras) = &job.extras else { return report };
        let problems = &extras.problems;
        JobReport {
            failed: problems.failed,
            retried: problems.retried,
            over_limit: problems.over_limit,
            overlapped: problems.overlapped,
            overflowed: problems.overflowed,
            missed: problems.missed,
            ..report
        }
    }
}
