//! What can be wrong with a schedule, and with a run.

use std::error::Error;
use std::fmt;

/// Why a job was not scheduled. Gives back what was to be scheduled.
#[non_exhaustive]
pub struct ScheduleError<K, F> {
    /// Why.
    pub kind: ScheduleErrorKind,
    /// The key.
    pub key: K,
    /// The job.
    pub job: F,
}

/// Why a job was not scheduled, or scheduled anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ScheduleErrorKind {
    /// There is a job under this key.
    Duplicate,
    /// An interval must be longer than zero.
    ZeroInterval,
    /// A job runs at least once.
    ZeroTimes,
    /// The scheduler holds as many jobs as it may.
    Full {
        /// So many.
        capacity: usize,
    },
    /// The scheduler, or its engine, has been shut down.
    ShutDown,
    /// There is no job under this key, so its plan cannot be changed.
    Unknown,
}

/// A run that failed, as it is reported to [`Builder::on_failure`](super::Builder::on_failure).
#[derive(Debug)]
#[non_exhaustive]
pub struct Failure<'a, K> {
    /// Of the job.
    pub key: &'a K,
    /// Which run of the job it was; the first is 1.
    pub run: u64,
    /// What happened.
    pub cause: Cause<'a>,
}

/// Why a run failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Cause<'a> {
    /// It panicked, with this message.
    Panic(&'a str),
    /// It returned an error.
    Error(&'a (dyn Error + Send + Sync + 'static)),
}

/// What a job may return: nothing, or a result whose error is reported.
pub trait JobResult {
    /// The error, if there is one.
    ///
    /// # Errors
    /// The job's own.
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
            ScheduleErrorKind::ZeroTimes => f.write_str("a job that runs zero times is none: ask for one run or more"),
            ScheduleErrorKind::Full { capacity } => {
                write!(f, "the scheduler holds as many jobs as it may, {capacity}")
            }
            ScheduleErrorKind::ShutDown => f.write_str("the scheduler has been shut down: build another one"),
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

// Keys and closures need not be `Debug`, and one who unwraps wants to see why.
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
