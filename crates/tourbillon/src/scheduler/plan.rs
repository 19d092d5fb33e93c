//! Plans: when a job runs.

use std::time::Duration;

use tourbillon_queue::{Span, Time};

use super::clock_pair::JobClock;
use super::error::ScheduleErrorKind;
use super::options::PlanOptions;
#[cfg(feature = "cron")]
use super::timing::CronTiming;
use super::timing::JobTiming;
use crate::core::thread_shard;
#[cfg(feature = "cron")]
use crate::cron::Cron;
use crate::instant::Instant;
use crate::time::MissedTickBehavior;

/// When a job runs, how often, and what happens to runs that cannot be made in time.
///
/// A [`Duration`] converts into the plan to run at that interval, for ever, the first time after one interval.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::scheduler::{Overlap, Plan};
///
/// let plan = Plan::every(Duration::from_secs(10)).times(3).first_at_once().overlap(Overlap::QueueOne);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Plan {
    pub(super) timing: JobTiming,
    pub(super) first: FirstRun,
    pub(super) times: u64,
    pub(super) overlap: Option<Overlap>,
    pub(super) missed: Option<MissedTickBehavior>,
    pub(super) options: Option<Box<PlanOptions>>,
}

/// The rule for a job that is due while its previous run has not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Overlap {
    /// The run is skipped and counted.
    #[default]
    Skip,
    /// One run waits, and is made as soon as the previous run has ended. Further runs are skipped and counted. The run that waits is a
    /// regular one, or one that was [asked for](super::Scheduler::run_now), whichever came first.
    QueueOne,
    /// The run is made at the same time as the previous one.
    Parallel,
}

/// When the first run is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FirstRun {
    /// At the first time of its timing.
    InTime,
    AtOnce,
    At(Instant),
}

/// The number of runs of a job that runs for ever.
pub(super) const FOR_EVER: u64 = u64::MAX;

impl Plan {
    /// Runs every `interval`, for ever, the first time after one interval. The n-th run is due n intervals after the job was
    /// scheduled, to the nanosecond, however late other runs were.
    ///
    /// An interval of zero is an error when the job is scheduled. An interval of more than some centuries never ends.
    pub fn every(interval: Duration) -> Plan {
        Plan::new(JobTiming::Every(Span::from(interval)))
    }

    /// Runs once, `after` this duration.
    ///
    /// The run is made, however late: if its time passes while the scheduler is stopped or the job is paused, the run is due when
    /// the scheduler is started or the job is resumed; if another run of the job is active then, the run waits for its end. So it
    /// never counts as missed or overlapped. With [`times`](Plan::times) other than one this is [`every`](Plan::every).
    pub fn once(after: Duration) -> Plan {
        // A run that finds no room is tried again after the same span, which therefore must not be zero.
        Plan::new(JobTiming::Once(Span::from(after.max(Duration::from_nanos(1))))).times(1)
    }

    /// Runs once, at `instant`. An instant in the past is due at once.
    ///
    /// The run is made, however late, as that of [`once`](Plan::once). A run that finds no room
    /// ([`Overflow::Skip`](super::Overflow::Skip)) is tried again after a second; with [`times`](Plan::times) other than one, the runs are
    /// a second apart.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::scheduler::{Plan, Scheduler};
    /// use tourbillon::time::Instant;
    ///
    /// let scheduler = Scheduler::builder().threads(1).build()?;
    /// let deadline = Instant::now() + Duration::from_secs(60);
    /// scheduler.schedule("remind", Plan::once_at(deadline), |_| println!("time is up"))?;
    /// assert_eq!(scheduler.next_run("remind"), Some(deadline));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn once_at(instant: Instant) -> Plan {
        Plan::once(Duration::from_secs(1)).first_at(instant)
    }

    /// Runs whenever the wall clock, in the time zone of `cron`, shows a time that matches the line.
    ///
    /// When the clock is set forward, the times that it jumped over are due at once: one run is made for all of them, but see
    /// [`missed`](Plan::missed). When the clock is set back by up to three hours, times that have been are not due again. When it is
    /// set back by more, it had been wrong before, and the times that it shows now count.
    ///
    /// A line that is never due, or never again, is a valid plan: its job stays, with
    /// [`next_run`](super::Scheduler::next_run) `None`, until it is removed or rescheduled. The line `@every 5m` is
    /// [`Plan::every`] five minutes, and does not follow the wall clock.
    ///
    /// ```
    /// use tourbillon::scheduler::{Plan, Scheduler};
    /// use tourbillon::Cron;
    ///
    /// let scheduler = Scheduler::builder().build()?;
    /// let nightly = Cron::parse("30 2 * * *")?.in_zone("Europe/Berlin")?;
    /// scheduler.schedule("backup", Plan::cron(nightly), |_| println!("saved"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "cron")]
    pub fn cron(cron: Cron) -> Plan {
        match cron.interval() {
            Some(interval) => Plan::every(interval),
            None => Plan::new(JobTiming::Cron(Box::new(CronTiming::new(cron)))),
        }
    }

    fn new(timing: JobTiming) -> Plan {
        Plan { timing, first: FirstRun::InTime, times: FOR_EVER, overlap: None, missed: None, options: None }
    }

    /// Limits the number of runs; the job is removed after the last. Zero is an error when the job is scheduled.
    ///
    /// Occurrences that are missed, overlap or find no room do not count as runs. The plan ends with the last run, and has no
    /// further occurrence that could be missed.
    pub fn times(mut self, times: u64) -> Plan {
        self.times = times;
        if let JobTiming::Once(interval) = self.timing
            && times != 1
        {
            self.timing = JobTiming::Every(interval);
        }
        self
    }

    /// Makes the first run due at once, and the others one interval earlier than without this.
    pub fn first_at_once(mut self) -> Plan {
        self.first = FirstRun::AtOnce;
        self
    }

    /// Makes the first run due at `instant`; the others are counted from it. An instant in the past counts as
    /// [missed](Plan::missed).
    pub fn first_at(mut self, instant: Instant) -> Plan {
        self.first = FirstRun::At(instant);
        self
    }

    /// Sets what happens when the job is due while its previous run has not ended. The default is the scheduler's
    /// [setting](super::Builder::overlap).
    pub fn overlap(mut self, overlap: Overlap) -> Plan {
        self.overlap = Some(overlap);
        self
    }

    /// Sets what happens when runs could not be made in time. The default is the scheduler's [setting](super::Builder::missed).
    pub fn missed(mut self, missed: MissedTickBehavior) -> Plan {
        self.missed = Some(missed);
        self
    }

    /// Refuses a plan without runs, with an interval of zero, or with options that make no sense.
    pub(super) fn check(&self) -> Result<(), ScheduleErrorKind> {
        match &self.timing {
            _ if self.times == 0 => Err(ScheduleErrorKind::ZeroTimes),
            JobTiming::Every(Span::ZERO) => Err(ScheduleErrorKind::ZeroInterval),
            _ => self.options.as_deref().map_or(Ok(()), |options| self.check_options(options)),
        }
    }

    /// Returns when the first run is due, on the clock that the timing follows.
    pub(super) fn first_due(&self, clock: &JobClock) -> Time {
        match (&self.first, &self.timing) {
            (FirstRun::At(instant), _) => clock.time_of(*instant),
            (FirstRun::AtOnce, _) => clock.now(),
            (FirstRun::InTime, JobTiming::Every(interval) | JobTiming::Once(interval)) => {
                thread_shard::with(clock.core.as_ptr(), |local| local.deadline(Duration::from(*interval)))
            }
            #[cfg(feature = "cron")]
            (FirstRun::InTime, timing @ JobTiming::Cron(_)) => timing.after(clock.now()),
        }
    }
}

impl From<Duration> for Plan {
    fn from(interval: Duration) -> Plan {
        Plan::every(interval)
    }
}

#[cfg(feature = "cron")]
impl From<Cron> for Plan {
    fn from(cron: Cron) -> Plan {
        Plan::cron(cron)
    }
}
