//! Errors of scheduling, and failures of runs.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use super::backoff::BackoffError;

/// The error of scheduling a job. It gives back the key and the job.
#[non_exhaustive]
pub struct ScheduleError<K, F> {
    /// Why the job was not scheduled.
    pub kind: ScheduleErrorKind,
    /// The key that was passed in.
    pub key: K,
    /// The closure that was passed in.
    pub job: F,
}

/// Why a job was not scheduled or rescheduled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ScheduleErrorKind {
    /// There is a job under this key.
    Duplicate,
    /// An interval must be longer than zero.
    ZeroInterval,
    /// A job must run at least once.
    ZeroTimes,
    /// The time limit of a run must be longer than zero.
    ZeroTimeLimit,
    /// A plan with retries must have at least one.
    ZeroRetries,
    /// The backoff of the retries is impossible.
    Backoff(BackoffError),
    /// No retry could be made, because the first delay of the backoff is as long as the interval, or longer.
    RetryAfterNextRun,
    /// The plan ends before its first run is due.
    EndsBeforeFirstRun,
    /// The scheduler holds as many jobs as it can.
    Full {
        /// The most jobs that it can hold.
        capacity: usize,
    },
    /// The scheduler or its engine has been shut down.
    ShutDown,
    /// There is no job under this key to reschedule.
    Unknown,
}

/// A failed run, as reported to [`Builder::on_failure`](super::Builder::on_failure).
#[derive(Debug)]
#[non_exhaustive]
pub struct Failure<'a, K> {
    /// The key of the job.
    pub key: &'a K,
    /// Which run of the job it was; the first is 1.
    pub run: u64,
    /// Which attempt it was: 1, or more for a [retry](super::Plan::retry).
    pub attempt: u32,
    /// Why the run failed.
    pub cause: Cause<'a>,
}

/// Why a run failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Cause<'a> {
    /// The run panicked, with this message.
    Panic(&'a str),
    /// The run returned an error.
    Error(&'a (dyn Error + Send + Sync + 'static)),
    /// The run took longer than its [time limit](super::Plan::time_limit). A future has been dropped; a closure still runs.
    TimeLimit(Duration),
    /// The run panicked because it needs the context of a Tokio runtime, with this message: see
    /// [`Builder::on_tokio`](super::Builder).
    NoTokioRuntime(&'a str),
}

/// The error of building a scheduler.
#[derive(Debug)]
#[non_exhaustive]
pub enum SchedulerBuildError {
    /// `Builder::on_tokio` was used outside the context of a Tokio runtime: build the scheduler in an `async` function, or use
    /// `Builder::on_tokio_handle`.
    NoTokioRuntime,
    /// The system refused a thread.
    Thread(io::Error),
}

/// The return type of a job: nothing, or a result whose error is reported.
pub trait JobResult {
    /// Converts the returned value into a result.
    ///
    /// # Errors
    /// The error of the job.
    fn into_result(self) -> Result<(), Box<dyn Error + Send + Sync>>;
}

impl JobResult for () {
    fn into_result(self) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> JobResult for Result<(), E> {
    fn into_result(self) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.map_err(Into::into)
    }
}

impl fmt::Display for ScheduleErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScheduleErrorKind::Duplicate => {
                f.write_str("there is a job under this key already: remove, reschedule or upsert it")
            }
            ScheduleErrorKind::ZeroInterval => f.write_str("a job's interval must be longer than zero"),
            ScheduleErrorKind::ZeroTimes => f.write_str("a job cannot run zero times: ask for one run or more"),
            ScheduleErrorKind::ZeroTimeLimit => f.write_str("the time limit of a run must be longer than zero"),
            ScheduleErrorKind::ZeroRetries => f.write_str("a plan cannot retry zero times: leave the retries out"),
            ScheduleErrorKind::Backoff(error) => error.fmt(f),
            ScheduleErrorKind::RetryAfterNextRun => {
                f.write_str("no retry would come before the next regular run: shorten the backoff's first delay")
            }
            ScheduleErrorKind::EndsBeforeFirstRun => f.write_str("the plan ends before its first run is due"),
            ScheduleErrorKind::Full { capacity } => {
                write!(f, "the scheduler is full: it holds {capacity} jobs, as many as it can")
            }
            ScheduleErrorKind::ShutDown => f.write_str("the scheduler has been shut down: build a new one"),
            ScheduleErrorKind::Unknown => f.write_str("there is no job under this key"),
        }
    }
}

impl Error for ScheduleErrorKind {}

impl<K, F> fmt::Display for ScheduleError<K, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

// Without key and closure, which need not be `Debug`, so that `unwrap` can show the kind.
impl<K, F> fmt::Debug for ScheduleError<K, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduleError").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl<K, F> Error for ScheduleError<K, F> {}

impl fmt::Display for Cause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Panic(message) => write!(f, "panicked: {message}"),
            Cause::Error(error) => write!(f, "failed: {error}"),
            Cause::TimeLimit(limit) => write!(f, "took longer than its time limit of {limit:?}"),
            Cause::NoTokioRuntime(message) => {
                write!(f, "panicked: {message} (build the scheduler with `Builder::on_tokio`)")
            }
        }
    }
}

impl fmt::Display for SchedulerBuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SchedulerBuildError::NoTokioRuntime => f.write_str(
                "there is no Tokio runtime here: build the scheduler inside one, or give its handle to `on_tokio_handle`",
            ),
            SchedulerBuildError::Thread(error) => write!(
                f,
                "the system refused the scheduler a thread: {error}; raise the limits of the process, or set fewer `threads`"
            ),
        }
    }
}

impl Error for SchedulerBuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            SchedulerBuildError::NoTokioRuntime => None,
            SchedulerBuildError::Thread(error) => Some(error),
        }
    }
}

impl<K: fmt::Debug> fmt::Display for Failure<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {:?}, run {}, {}", self.key, self.run, self.cause)
    }
}
