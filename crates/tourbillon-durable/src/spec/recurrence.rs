//! When the occurrences of a timer are due.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tourbillon::{Cron, CronError};

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
        self.times().ok()?.next_after(after)
    }

    /// Returns the last time that is not later than `until`, and how many there are after `first` up to it, where `first` is the time of an
    /// occurrence. At most `most` of them are counted: the last time is then the one of that number.
    ///
    /// Cron lines are counted by whole days, so that the number is exact and quickly found however many there are.
    #[must_use]
    pub fn last_until(&self, first: StoreTime, until: StoreTime, most: u64) -> (StoreTime, u64) {
        self.times().map_or((first, 0), |times| times.last_until(first, until, most))
    }

    /// Returns the times of the recurrence.
    ///
    /// # Errors
    /// This process cannot read the cron line, or does not know its zone. Another process may, which has a newer version or other zones.
    pub(crate) fn times(&self) -> Result<RecurrenceTimes, CronError> {
        Ok(match self {
            Recurrence::Once => RecurrenceTimes::Once,
            Recurrence::Every(interval) => RecurrenceTimes::Every(*interval),
            Recurrence::Cron { line, zone } => RecurrenceTimes::Cron(parse(line, zone)?),
        })
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

/// The times of a [`Recurrence`], with its cron line parsed.
pub(crate) enum RecurrenceTimes {
    Once,
    Every(Duration),
    Cron(Cron),
}

impl RecurrenceTimes {
    /// Does what [`Recurrence::next_after`] does.
    pub(crate) fn next_after(&self, after: StoreTime) -> Option<StoreTime> {
        match self {
            RecurrenceTimes::Once => None,
            RecurrenceTimes::Every(interval) => after.checked_add(*interval),
            RecurrenceTimes::Cron(cron) => next_of_cron(cron, after),
        }
    }

    /// Does what [`Recurrence::last_until`] does.
    pub(crate) fn last_until(&self, first: StoreTime, until: StoreTime, most: u64) -> (StoreTime, u64) {
        match self {
            RecurrenceTimes::Once => (first, 0),
            RecurrenceTimes::Every(interval) => last_step(*interval, first, until, most),
            RecurrenceTimes::Cron(cron) => last_of_cron(cron, first, until, most),
        }
    }
}

/// Returns the last time of an interval, as [`Recurrence::last_until`] does.
fn last_step(interval: Duration, first: StoreTime, until: StoreTime, most: u64) -> (StoreTime, u64) {
    let micros = StoreTime::ZERO.saturating_add(interval).as_micros().max(1);
    let count = (until.as_micros().saturating_sub(first.as_micros()) / micros).min(most);
    (StoreTime::from_micros(first.as_micros() + count * micros), count)
}

/// Returns the last time of a cron line, as [`Recurrence::last_until`] does.
fn last_of_cron(cron: &Cron, first: StoreTime, until: StoreTime, most: u64) -> (StoreTime, u64) {
    if let Some(interval) = cron.interval() {
        return last_step(interval, first, until, most);
    }
    let count_in = |from: StoreTime, to: StoreTime| cron.count(from.to_system(), to.to_system());
    let count = count_in(first, until).min(most);
    // The time is in the half that has as many times as are wanted. The halves of halves are short, so that all together cost about as
    // much as counting once.
    let (mut from, mut to, mut wanted) = (first, until, count);
    while wanted > 1 {
        let middle = StoreTime::from_micros(from.as_micros().midpoint(to.as_micros()));
        match wanted.checked_sub(count_in(from, middle)) {
            Some(rest) if rest > 0 => (from, wanted) = (middle, rest),
            _ => to = middle,
        }
    }
    let last = if wanted == 1 { next_of_cron(cron, from) } else { None };
    last.map_or((first, 0), |last| (last, count))
}

fn next_of_cron(cron: &Cron, after: StoreTime) -> Option<StoreTime> {
    StoreTime::try_from(cron.next_after(after.to_system())?).ok()
}

fn parse(line: &str, zone: &str) -> Result<Cron, CronError> {
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
        let cron = cron("30 2 * * *", "Europe/Berlin");
        assert_eq!(cron.next_after(time("2026-11-17T00:00:00Z")), Some(time("2026-11-17T01:30:00Z")));
        assert_eq!(cron.next_after(time("2026-11-17T01:30:00Z")), Some(time("2026-11-18T01:30:00Z")));
    }

    fn cron(line: &str, zone: &str) -> Recurrence {
        Recurrence::Cron { line: line.into(), zone: zone.into() }
    }

    #[test]
    fn u7_the_last_missed_time_is_found_with_the_number_of_those_before_it() {
        let every = Recurrence::Every(Duration::from_secs(10));
        let start = StoreTime::from_micros(5);
        assert_eq!(every.last_until(start, start, u64::MAX), (start, 0));
        let late = start.saturating_add(Duration::from_secs(39));
        let after = |seconds| start.saturating_add(Duration::from_secs(seconds));
        assert_eq!(every.last_until(start, late, u64::MAX), (after(30), 3));
        assert_eq!(every.last_until(start, late, 2), (after(20), 2));
        let (first, now) = (time("2026-11-17T10:00:00Z"), time("2026-11-17T12:59:00Z"));
        let hourly = cron("0 * * * *", "UTC");
        assert_eq!(hourly.last_until(first, now, u64::MAX), (time("2026-11-17T12:00:00Z"), 2));
        assert_eq!(hourly.last_until(first, now, 1), (time("2026-11-17T11:00:00Z"), 1));
        assert_eq!(hourly.last_until(first, now, 0), (first, 0));
        assert_eq!(hourly.last_until(now, first, u64::MAX), (now, 0), "nothing is missed before its time");
        assert_eq!(cron("@every 90m", "UTC").last_until(first, now, 9), (time("2026-11-17T11:30:00Z"), 1));
        assert_eq!(Recurrence::Once.last_until(first, now, 9), (first, 0));
    }

    #[test]
    fn u7_a_dense_cron_line_has_one_last_time_after_a_long_outage() {
        let first = time("2025-11-17T10:00:00Z");
        for (line, zone, now, last, count) in [
            ("* * * * *", "UTC", "2025-11-24T10:00:59.999999Z", "2025-11-24T10:00:00Z", 10_080),
            ("* * * * * *", "UTC", "2026-11-17T10:00:00.5Z", "2026-11-17T10:00:00Z", 31_536_000),
            ("* * * * * *", "Europe/Berlin", "2026-11-17T10:00:00.5Z", "2026-11-17T10:00:00Z", 31_536_000),
            ("*/7 9-17 * * MON-FRI", "America/New_York", "2026-11-17T10:00:00Z", "2026-11-16T22:56:00Z", 21_141),
        ] {
            let (last, now) = (time(last), time(now));
            let found = cron(line, zone).last_until(first, now, u64::MAX);
            assert_eq!(found, (last, count), "{line} in {zone}");
            let one_less = cron(line, zone).last_until(first, now, count - 1);
            assert_eq!(one_less.1, count - 1);
            assert_eq!(cron(line, zone).next_after(one_less.0), Some(last), "{line} in {zone}");
        }
    }

    #[test]
    fn u7_missed_times_are_found_as_by_steps_around_each_jump_of_the_clock() {
        let (berlin, half_hour) = ("Europe/Berlin", "Australia/Lord_Howe");
        for (line, zone, first) in [
            ("*/20 * * * *", berlin, "2026-03-28T20:00:00Z"),
            ("0-59/20 2 * * *", berlin, "2026-03-28T20:00:00Z"),
            ("*/20 * * * *", berlin, "2026-10-24T20:00:00Z"),
            ("5,25,45 1-2 * * *", berlin, "2026-10-24T20:00:00Z"),
            ("*/10 * * * *", half_hour, "2026-10-03T12:00:00Z"),
            ("0-50/10 1-2 * * *", half_hour, "2026-04-04T12:00:00Z"),
        ] {
            let cron = cron(line, zone);
            let first = cron.next_after(time(first)).unwrap();
            let end = first.saturating_add(Duration::from_secs(24 * 3600));
            let steps = std::iter::successors(Some(first), |last| cron.next_after(*last)).take_while(|at| *at <= end);
            for (count, last) in (0..).zip(steps) {
                assert_eq!(cron.last_until(first, last, u64::MAX), (last, count), "{line} in {zone}");
                assert_eq!(cron.last_until(first, end, count), (last, count), "{line} in {zone}");
                let between = last.saturating_add(Duration::from_millis(999));
                assert_eq!(cron.last_until(first, between, u64::MAX), (last, count), "{line} in {zone}");
            }
        }
    }
}
