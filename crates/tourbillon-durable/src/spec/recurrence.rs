//! When the occurrences of a timer are due.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tourbillon::Cron;

use super::InvalidTimer;
use crate::time::StoreTime;

/// When the first occurrence of a timer is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FirstDue {
    /// At this time.
    At(StoreTime),
    /// So long after the store has accepted the timer, by the store's clock.
    After(Duration),
    /// At the next time of the recurrence.
    Next,
}

/// When the occurrences after the first are due.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Recurrence {
    /// There are none.
    Once,
    /// One interval after the one before, whenever that was delivered.
    Every(Duration),
    /// At the times of a cron line, in a time zone.
    Cron {
        /// The line, as `tourbillon::Cron` takes it.
        line: String,
        /// A zone of the IANA time zone database.
        zone: String,
    },
}

impl Recurrence {
    /// Returns the next time that is later than `after`, where `after` is the time of an occurrence; `None` if there is none.
    #[must_use]
    pub fn next_after(&self, after: StoreTime) -> Option<StoreTime> {
        match self {
            Recurrence::Once => None,
            Recurrence::Every(interval) => after.checked_add(*interval),
            Recurrence::Cron { line, zone } => {
                let next = parse(line, zone).ok()?.next_after(after.to_system())?;
                StoreTime::try_from(next).ok()
            }
        }
    }

    /// Returns the last time that is not later than `now`, and how many there are after `first` up to it, where `first` is the time of an
    /// occurrence that is not later than `now`.
    ///
    /// Cron lines are followed time by time, at most `LONGEST_WALK` of them: the count is then that number at least.
    #[must_use]
    pub fn last_until(&self, first: StoreTime, now: StoreTime) -> (StoreTime, u64) {
        /// The most times of a cron line that are counted one by one.
        const LONGEST_WALK: u64 = 10_000;

        if let Recurrence::Every(interval) = self {
            let micros = StoreTime::ZERO.saturating_add(*interval).as_micros().max(1);
            let count = now.as_micros().saturating_sub(first.as_micros()) / micros;
            return (StoreTime::from_micros(first.as_micros() + count * micros), count);
        }
        let mut last = (first, 0);
        while let Some(next) = self.next_after(last.0).filter(|next| *next <= now && last.1 < LONGEST_WALK) {
            last = (next, last.1 + 1);
        }
        last
    }

    pub(super) fn check(&self, times: Option<u64>, has_end: bool) -> Result<(), InvalidTimer> {
        if times == Some(0) {
            return Err(InvalidTimer::ZeroTimes);
        }
        match self {
            Recurrence::Once if times.is_some_and(|times| times > 1) || has_end => Err(InvalidTimer::NotRepeating),
            Recurrence::Once => Ok(()),
            Recurrence::Every(interval) if interval.is_zero() => Err(InvalidTimer::ZeroInterval),
            Recurrence::Every(_) => Ok(()),
            Recurrence::Cron { line, zone } => {
                parse(line, zone).map(drop).map_err(|error| InvalidTimer::Cron(error.to_string()))
            }
        }
    }
}

fn parse(line: &str, zone: &str) -> Result<Cron, tourbillon::CronError> {
    Cron::utc(line)?.in_zone(zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> StoreTime {
        let time: jiff::Timestamp = text.parse().unwrap();
        StoreTime::from_micros(u64::try_from(time.as_microsecond()).unwrap())
    }

    #[test]
    fn u6_cron_lines_are_due_in_their_zone() {
        let cron = Recurrence::Cron { line: "30 2 * * *".into(), zone: "Europe/Berlin".into() };
        assert_eq!(cron.next_after(time("2026-11-17T00:00:00Z")), Some(time("2026-11-17T01:30:00Z")));
        assert_eq!(cron.next_after(time("2026-11-17T01:30:00Z")), Some(time("2026-11-18T01:30:00Z")));
    }

    #[test]
    fn u7_the_last_missed_time_is_found_with_the_number_of_those_before_it() {
        let every = Recurrence::Every(Duration::from_secs(10));
        let start = StoreTime::from_micros(5);
        assert_eq!(every.last_until(start, start), (start, 0));
        let late = start.saturating_add(Duration::from_secs(39));
        assert_eq!(every.last_until(start, late), (start.saturating_add(Duration::from_secs(30)), 3));
        let cron = Recurrence::Cron { line: "0 * * * *".into(), zone: "UTC".into() };
        let (first, now) = (time("2026-11-17T10:00:00Z"), time("2026-11-17T12:59:00Z"));
        assert_eq!(cron.last_until(first, now), (time("2026-11-17T12:00:00Z"), 2));
    }
}
