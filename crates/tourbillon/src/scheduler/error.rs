//! Errors of scheduling, and failures of runs.

use std::error::Error;
use std::fmt;

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
                f.write_str("there is a job under this key already: remove it first, or reschedule it")
            }
            ScheduleErrorKind::ZeroInterval => f.write_str("a job's interval must be longer than zero"),
            ScheduleErrorKind::ZeroTimes => f.write_str("a job cannot run zero times: ask for one run or more"),
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
        }
    }
}

impl<K: fmt::Debug> fmt::Display for Failure<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {:?}, run {}, {}", self.key, self.run, self.cause)
    }
}
