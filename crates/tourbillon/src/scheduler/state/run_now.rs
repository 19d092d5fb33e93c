//! Runs that a user asks for.

use std::error::Error;
use std::fmt;

use super::runs::NewRun;
use super::{SchedulerPhase, SchedulerState};
use crate::multi::deadline_map::DeadlineKey;
use crate::scheduler::JobId;
use crate::scheduler::builder::Overflow;
use crate::scheduler::clock_pair::{ClockPair, DueTime};
use crate::scheduler::plan::Overlap;

/// The result of [`Scheduler::run_now`](crate::scheduler::Scheduler::run_now): when the run that was asked for begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Requested {
    /// As soon as a thread is free.
    Queued(JobId),
    /// After the active run of the job has ended: see [`Overlap::QueueOne`].
    AfterActive(JobId),
}

/// Why [`Scheduler::run_now`](crate::scheduler::Scheduler::run_now) made no run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RunNowError {
    /// There is no job under this key.
    Unknown,
    /// The job is paused.
    Paused,
    /// A run of the job has not ended, and its [`Overlap`] rule lets no further run begin or wait. With [`Overlap::QueueOne`], another
    /// run waits already.
    Active,
    /// The queue of runs is full.
    Full {
        /// The most runs that may wait for a thread.
        queue: usize,
    },
    /// The scheduler is stopped.
    Stopped,
    /// The scheduler has been shut down.
    ShutDown,
}

impl<K> SchedulerState<K> {
    /// Queues a run of a job, beside those of its plan.
    pub(in crate::scheduler) fn run_now(
        &mut self,
        job_key: DeadlineKey,
        now: ClockPair,
    ) -> Result<Requested, RunNowError> {
        let is_full = self.is_queue_full() && self.rules.overflow != Overflow::RunLate;
        let queue = self.rules.queue;
        let job = self.jobs.get_mut(job_key).ok_or(RunNowError::Unknown)?;
        let (clock, is_active) = (job.timing.clock(), job.active > 0);
        let due = DueTime { time: now.on(clock), clock };
        match job.overlap {
            _ if self.phase == SchedulerPhase::Stopped => Err(RunNowError::Stopped),
            _ if job.is_paused => Err(RunNowError::Paused),
            Overlap::Skip if is_active => Err(RunNowError::Active),
            Overlap::QueueOne if is_active => {
                let is_taken = job.backlog().count > 0 || job.extras_mut().requested.is_some();
                if is_taken {
                    return Err(RunNowError::Active);
                }
                job.extras_mut().requested = Some(due.time);
                Ok(Requested::AfterActive(JobId(job_key)))
            }
            _ if is_full => Err(RunNowError::Full { queue }),
            _ => {
                self.enqueue(job_key, NewRun::requested(due));
                Ok(Requested::Queued(JobId(job_key)))
            }
        }
    }
}

impl Requested {
    /// Returns the identity of the job.
    #[must_use]
    pub fn job(self) -> JobId {
        match self {
            Requested::Queued(job) | Requested::AfterActive(job) => job,
        }
    }
}

impl fmt::Display for RunNowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunNowError::Unknown => f.write_str("there is no job under this key"),
            RunNowError::Paused => f.write_str("the job is paused: resume it first"),
            RunNowError::Active => f.write_str("a run of the job has not ended: wait for it, or let its runs overlap"),
            RunNowError::Full { queue } => write!(f, "the queue is full: {queue} runs wait for a thread"),
            RunNowError::Stopped => f.write_str("the scheduler is stopped: start it first"),
            RunNowError::ShutDown => f.write_str("the scheduler has been shut down: build a new one"),
        }
    }
}

impl Error for RunNowError {}
