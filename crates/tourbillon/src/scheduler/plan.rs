//! When a job runs: what its user asks for, and how the next time is found.

use std::time::Duration;

use tourbillon_queue::{Span, Time};

use super::error::ScheduleErrorKind;
use super::shared::WallClock;
use crate::core::CoreRef;
use crate::core::thread_shard;
use crate::time::{Instant, MissedTickBehavior};

/// When a job is to run, how often, and what becomes of runs that cannot be made in time.
///
/// A [`Duration`] is a plan: every so long, for ever, the first time after one interval.
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
    pub(super) timing: Timing,
    pub(super) first: First,
    pub(super) times: u64,
    pub(super) overlap: Option<Overlap>,
    pub(super) missed: Option<MissedTickBehavior>,
}

/// What happens when a job is due and its last run has not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Overlap {
    /// The run is not made, and counted. A job does not run beside itself.
    #[default]
    Skip,
    /// One run waits, and is made as soon as the last has ended. Further ones are not made, and counted.
    QueueOne,
    /// The run is made beside the other.
    Parallel,
}

/// What a job's next time depends on.
#[derive(Clone, Debug)]
pub(super) enum Timing {
    Every(Span),
    /// One occurrence. Where its run cannot be made for want of room, the scheduler tries again every so often.
    Once(Span),
    /// In a box: few jobs have it, and all have room for it.
    #[cfg(all(feature = "cron", target_os = "linux"))]
    Cron(Box<crate::Cron>),
}

/// When the first run is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum First {
    /// When its timing says so.
    InTime,
    AtOnce,
    At(Instant),
}

/// So many times of a cron line that have gone by are counted, and made up for if that is asked for; no more, since the clock may
/// have been set by years.
#[cfg(all(feature = "cron", target_os = "linux"))]
const COUNTED: usize = 1000;

/// How often a job runs that runs for ever.
pub(super) const FOR_EVER: u64 = u64::MAX;

impl Plan {
    /// Every `interval`, for ever, the first time after one interval. The n-th run is due n intervals after the job was
    /// scheduled, to the nanosecond, however late others were.
    ///
    /// An interval of zero is an error when the job is scheduled; every other is kept to the nanosecond. One that is longer than
    /// some centuries never comes.
    pub fn every(interval: Duration) -> Plan {
        Plan::new(Timing::Every(Span::from(interval)))
    }

    /// Once, after so long.
    ///
    /// The run is made, however late: if its time goes by while the scheduler is stopped or the job is paused, the run is due when
    /// that ends, and if the job's last run has not ended by then, it waits for that. So it never counts as missed or overlapped.
    /// With other [`times`](Plan::times) than one this is [`every`](Plan::every).
    pub fn once(after: Duration) -> Plan {
        // Where the run finds no room it is tried again after as long, which has to be longer than zero.
        Plan::new(Timing::Once(Span::from(after.max(Duration::from_nanos(1))))).times(1)
    }

    /// Whenever the wall clock, in the time zone of `cron`, shows a time that matches it.
    ///
    /// When the clock is set forward, a time that it has jumped over is due at once: one run is made for all of them, but see
    /// [`missed`](Plan::missed). When it is set back, times that have been are not due again, unless it is set back by more than
    /// three hours: then it had been wrong, and what it shows now counts.
    ///
    /// A line that is never due, or never again, is a plan as well: its job is there, with
    /// [`next_run`](super::Scheduler::next_run) `None`, until it is removed or rescheduled. A line `@every 5m` is
    /// [`Plan::every`] five minutes, and has nothing to do with the wall clock.
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
    #[cfg(all(feature = "cron", target_os = "linux"))]
    pub fn cron(cron: crate::Cron) -> Plan {
        match cron.interval() {
            Some(interval) => Plan::every(interval),
            None => Plan::new(Timing::Cron(Box::new(cron))),
        }
    }

    fn new(timing: Timing) -> Plan {
        Plan { timing, first: First::InTime, times: FOR_EVER, overlap: None, missed: None }
    }

    /// So many runs, and then the job is gone. Zero is an error when the job is scheduled.
    ///
    /// Occurrences that are missed, overlapped or find no room use up none of them; with the last run the plan ends, and has no
    /// further occurrence that could be missed.
    pub fn times(mut self, times: u64) -> Plan {
        self.times = times;
        if let Timing::Once(interval) = self.timing
            && times != 1
        {
            self.timing = Timing::Every(interval);
        }
        self
    }

    /// The first run is due at once; the others are as much earlier.
    pub fn first_at_once(mut self) -> Plan {
        self.first = First::AtOnce;
        self
    }

    /// The first run is due at this instant, and the others are counted from it. One that is past counts as a run that was
    /// [missed](Plan::missed).
    pub fn first_at(mut self, instant: Instant) -> Plan {
        self.first = First::At(instant);
        self
    }

    /// What happens when it is due and its last run has not ended. By default what the scheduler was [built
    /// with](super::Builder::overlap).
    pub fn overlap(mut self, overlap: Overlap) -> Plan {
        self.overlap = Some(overlap);
        self
    }

    /// What happens when its runs could not be made in time. By default what the scheduler was [built
    /// with](super::Builder::missed).
    pub fn missed(mut self, missed: MissedTickBehavior) -> Plan {
        self.missed = Some(missed);
        self
    }

    /// What is wrong with it.
    pub(super) fn check(&self) -> Result<(), ScheduleErrorKind> {
        match &self.timing {
            _ if self.times == 0 => Err(ScheduleErrorKind::ZeroTimes),
            Timing::Every(Span::ZERO) => Err(ScheduleErrorKind::ZeroInterval),
            _ => Ok(()),
        }
    }

    /// When the first run is due, on the clock of the engine that its timing follows.
    pub(super) fn first_due(&self, core: &CoreRef) -> Time {
        let clock = &core.clock;
        match (&self.first, &self.timing) {
            (First::At(instant), _) => clock.time_of(instant.into_std()),
            (First::AtOnce, _) => clock.now(),
            (First::InTime, Timing::Every(interval) | Timing::Once(interval)) => {
                thread_shard::with(core.as_ptr(), |local| local.deadline(Duration::from(*interval)))
            }
            #[cfg(all(feature = "cron", target_os = "linux"))]
            (First::InTime, timing) => timing.after(clock.now()),
        }
    }

    /// The same for a plan that follows the wall clock.
    pub(super) fn first_due_by_wall(&self, wall: &WallClock) -> Time {
        match &self.first {
            First::At(instant) => wall.time_of(*instant),
            First::AtOnce => wall.now(),
            First::InTime => self.timing.after(wall.now()),
        }
    }
}

impl From<Duration> for Plan {
    fn from(interval: Duration) -> Plan {
        Plan::every(interval)
    }
}

#[cfg(all(feature = "cron", target_os = "linux"))]
impl From<crate::Cron> for Plan {
    fn from(cron: crate::Cron) -> Plan {
        Plan::cron(cron)
    }
}

impl Timing {
    /// The time after that one.
    pub(super) fn after(&self, due: Time) -> Time {
        match self {
            Timing::Every(interval) | Timing::Once(interval) => due + *interval,
            #[cfg(all(feature = "cron", target_os = "linux"))]
            Timing::Cron(cron) => cron.next_time(due).unwrap_or(Time::NEVER),
        }
    }

    /// Its first time after `now`, and how many lie after `due` and not after `now`.
    pub(super) fn beyond(&self, due: Time, now: Time) -> (Time, u64) {
        match self {
            Timing::Every(interval) | Timing::Once(interval) => {
                let passed = (now - due).as_nanos() / interval.as_nanos();
                // What cannot be represented is never.
                let next = passed.checked_add(1).and_then(|count| count.checked_mul(interval.as_nanos()));
                let next = next.map_or(Time::NEVER, |after| due + Span::from_nanos(after));
                (next, if self.is_once() { 0 } else { passed })
            }
            #[cfg(all(feature = "cron", target_os = "linux"))]
            Timing::Cron(cron) => {
                let times = std::iter::successors(cron.next_time(due), |time| cron.next_time(*time));
                let passed = times.take_while(|time| *time <= now).take(COUNTED).count() as u64;
                (self.after(now.max(due)), passed)
            }
        }
    }

    /// Whether it has a single occurrence.
    pub(super) fn is_once(&self) -> bool {
        matches!(self, Timing::Once(_))
    }

    /// Whether its times are those of the wall clock.
    pub(super) fn is_wall(&self) -> bool {
        match self {
            Timing::Every(_) | Timing::Once(_) => false,
            #[cfg(all(feature = "cron", target_os = "linux"))]
            Timing::Cron(_) => true,
        }
    }
}
