//! The rule for a job's next time.

use tourbillon_queue::{Span, Time};

use super::clock_pair::ClockId;
#[cfg(feature = "cron")]
use crate::cron::Cron;

/// The rule for a job's next time.
#[derive(Clone, Debug)]
pub(super) enum JobTiming {
    Every(Span),
    /// One occurrence. If its run finds no room, the scheduler tries again after each such span.
    Once(Span),
    /// Boxed, to keep the other jobs small.
    #[cfg(feature = "cron")]
    Cron(Box<CronTiming>),
}

/// The times of a cron line, all later by the same span.
#[cfg(feature = "cron")]
#[derive(Clone, Debug)]
pub(super) struct CronTiming {
    cron: Cron,
    delay: Span,
}

/// The most times of a cron line that are counted as passed, and made up for in a burst: the clock may have been set by years.
#[cfg(feature = "cron")]
const MOST_COUNTED: usize = 1000;

#[cfg(feature = "cron")]
impl CronTiming {
    pub(super) fn new(cron: Cron) -> CronTiming {
        CronTiming { cron, delay: Span::ZERO }
    }

    /// Returns the first time after `due`.
    fn next(&self, due: Time) -> Option<Time> {
        let next = self.cron.next_time(due - self.delay)? + self.delay;
        (!next.is_never()).then_some(next)
    }
}

impl JobTiming {
    /// Makes all its times later by this span. The caller moves the first due time, from which an interval counts the others.
    pub(super) fn delay(&mut self, by: Span) {
        match self {
            JobTiming::Every(_) | JobTiming::Once(_) => _ = by,
            #[cfg(feature = "cron")]
            JobTiming::Cron(line) => line.delay = by,
        }
    }

    /// Returns the first time after `due`, which is one of its times.
    pub(super) fn after(&self, due: Time) -> Time {
        match self {
            JobTiming::Every(interval) | JobTiming::Once(interval) => due + *interval,
            #[cfg(feature = "cron")]
            JobTiming::Cron(line) => line.next(due).unwrap_or(Time::NEVER),
        }
    }

    /// Returns the first time after `now`, and how many times lie after `due` and not after `now`.
    pub(super) fn first_after(&self, due: Time, now: Time) -> (Time, u64) {
        match self {
            JobTiming::Every(interval) | JobTiming::Once(interval) => {
                let passed = (now - due).as_nanos() / interval.as_nanos();
                // A time that cannot be represented is never.
                let next = passed.checked_add(1).and_then(|count| count.checked_mul(interval.as_nanos()));
                let next = next.map_or(Time::NEVER, |after| due + Span::from_nanos(after));
                (next, if self.is_once() { 0 } else { passed })
            }
            #[cfg(feature = "cron")]
            JobTiming::Cron(line) => {
                let times = std::iter::successors(line.next(due), |time| line.next(*time));
                let passed = times.take_while(|time| *time <= now).take(MOST_COUNTED).count() as u64;
                (self.after(now.max(due)), passed)
            }
        }
    }

    /// Returns whether there is a single occurrence.
    pub(super) fn is_once(&self) -> bool {
        matches!(self, JobTiming::Once(_))
    }

    /// Returns the clock that shows its times.
    pub(super) fn clock(&self) -> ClockId {
        match self {
            JobTiming::Every(_) | JobTiming::Once(_) => ClockId::Engine,
            #[cfg(feature = "cron")]
            JobTiming::Cron(_) => ClockId::Wall,
        }
    }
}
