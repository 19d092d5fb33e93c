//! Counts the times of a line day by day, so that a line with many times a day costs no more than another.
//!
//! The rules are those of [`local`](super::local): an interval is due whenever the local clock shows one of its times, a fixed time when
//! the clock has reached or passed it for the first time.

use croner::{CronPattern, Weekday};
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::local::{furthest_shown, stretches};
use super::{CronKind, LAST_YEAR};

/// Returns how many times are due later than `after` and not later than `until`.
pub(super) fn count(zone: &TimeZone, kind: CronKind, pattern: &CronPattern, after: Timestamp, until: Timestamp) -> u64 {
    let times = ShownTimes::of(pattern);
    let mut seen = match kind {
        CronKind::Fixed => furthest_shown(zone, after),
        CronKind::Interval => zone.to_datetime(after),
    };
    let mut found = 0;
    for (index, stretch) in stretches(zone, after).enumerate().take_while(|(_, stretch)| stretch.begin <= until) {
        let end = stretch.end.and_then(|end| end.checked_sub(MOMENT).ok()).map_or(until, |end| end.min(until));
        let (begin, last) = (stretch.offset.to_datetime(stretch.begin), stretch.offset.to_datetime(end));
        if index > 0 && kind == CronKind::Interval {
            seen = begin.saturating_sub(MOMENT);
        }
        if index > 0 && seen < begin {
            // All times that the gap has skipped are due together, once.
            found += times.between(seen, begin).min(1);
            seen = begin;
        }
        if seen < last {
            found += times.between(seen, last);
            seen = last;
        }
    }
    found
}

const MOMENT: SignedDuration = SignedDuration::from_nanos(1);

/// The times that a local clock shows and a line names.
struct ShownTimes<'a> {
    pattern: &'a CronPattern,
    seconds: Ranks<60>,
    minutes: Ranks<60>,
    hours: Ranks<24>,
}

impl ShownTimes<'_> {
    fn of(pattern: &CronPattern) -> ShownTimes<'_> {
        ShownTimes {
            pattern,
            seconds: Ranks::of(|second| pattern.second_match(second).unwrap_or(false)),
            minutes: Ranks::of(|minute| pattern.minute_match(minute).unwrap_or(false)),
            hours: Ranks::of(|hour| pattern.hour_match(hour).unwrap_or(false)),
        }
    }

    /// Returns how many there are later than `from` and not later than `to`, which is not earlier.
    fn between(&self, from: DateTime, to: DateTime) -> u64 {
        let until = |at: DateTime| if self.is_day(at.date()) { self.of_day_until(at.time()) } else { 0 };
        let whole_day = self.of_day_until(Time::MAX);
        let days = std::iter::successors(Some(from.date()), |date| date.tomorrow().ok());
        let days = days.take_while(|date| *date < to.date()).filter(|date| self.is_day(*date)).count() as u64;
        days * whole_day + until(to) - until(from)
    }

    /// Returns how many there are of a day up to this time of it.
    fn of_day_until(&self, time: Time) -> u64 {
        let (hour, minute, second) = (time.hour() as usize, time.minute() as usize, time.second() as usize);
        let of_minute = self.seconds.below(second + 1);
        let of_hour = self.minutes.below(minute) * self.seconds.all() + self.minutes.at(minute) * of_minute;
        self.hours.below(hour) * self.minutes.all() * self.seconds.all() + self.hours.at(hour) * of_hour
    }

    fn is_day(&self, date: Date) -> bool {
        let (year, month, day) = (i32::from(date.year()), date.month() as u32, date.day() as u32);
        let weekday = Weekday::from_days_from_sunday(date.weekday().to_sunday_zero_offset() as u32);
        year <= i32::from(LAST_YEAR)
            && self.pattern.year_match(year).unwrap_or(false)
            && self.pattern.month_match(month).unwrap_or(false)
            && self.pattern.day_match(year, month, day, weekday).unwrap_or(false)
    }
}

/// For each value of a field, how many lower ones the line names; at the end, how many it names at all.
struct Ranks<const N: usize> {
    below: [u8; N],
    all: u8,
}

impl<const N: usize> Ranks<N> {
    fn of(is_named: impl Fn(u32) -> bool) -> Ranks<N> {
        let mut all = 0;
        let below = std::array::from_fn(|value| {
            let below = all;
            all += u8::from(is_named(value as u32));
            below
        });
        Ranks { below, all }
    }

    fn below(&self, value: usize) -> u64 {
        u64::from(self.below.get(value).copied().unwrap_or(self.all))
    }

    /// Returns one if the line names the value, else zero.
    fn at(&self, value: usize) -> u64 {
        self.below(value + 1) - self.below(value)
    }

    fn all(&self) -> u64 {
        u64::from(self.all)
    }
}
