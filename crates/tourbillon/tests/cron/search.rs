//! Random lines, compared with a search of the calendar.

use std::collections::BTreeSet;
use std::time::SystemTime;

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use tourbillon::Cron;

use crate::after;
use crate::random::Random;

#[test]
fn a8_random_lines_are_due_when_the_search_says_so() {
    let mut random = Random(crate::random::seed());
    for _ in 0..2000 {
        let line = Naive::random(&mut random, Fields::Five);
        compare(&mut random, &line, SignedDuration::from_mins(1), SignedDuration::from_hours(72));
    }
}

#[test]
fn a8_random_lines_with_seconds_are_due_when_the_search_says_so() {
    let mut random = Random(crate::random::seed());
    for _ in 0..80 {
        let line = Naive::random(&mut random, Fields::Six);
        compare(&mut random, &line, SignedDuration::from_secs(1), SignedDuration::from_hours(6));
    }
}

#[test]
fn a8_u7_a_line_is_counted_as_often_as_it_is_due() {
    let time = |text: &str| text.parse::<Timestamp>().unwrap().into();
    for (line, zone, after, until, count) in [
        ("* * * * * *", "UTC", "2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z", 31_536_000),
        // A day of 23 hours and a day of 25 hours.
        ("* * * * *", "Europe/Berlin", "2024-03-30T23:00:00Z", "2024-03-31T22:00:00Z", 23 * 60),
        ("* * * * *", "Europe/Berlin", "2024-10-26T22:00:00Z", "2024-10-27T23:00:00Z", 25 * 60),
        // The sixty times in the gap are due once, at its end; those in the overlap the first time.
        ("0-59 2 * * *", "Europe/Berlin", "2024-03-30T23:00:00Z", "2024-03-31T22:00:00Z", 1),
        ("0-59 2 * * *", "Europe/Berlin", "2024-10-26T22:00:00Z", "2024-10-27T23:00:00Z", 60),
        ("0-59 2 * * *", "Europe/Berlin", "2024-10-27T00:30:00Z", "2024-10-27T01:30:00Z", 29),
        ("0 12 29 2 *", "UTC", "1999-01-01T00:00:00Z", "2024-02-29T12:00:00Z", 7),
        ("0 12 29 2 *", "UTC", "1999-01-01T00:00:00Z", "2024-02-29T11:59:59Z", 6),
        ("* * * * *", "UTC", "2026-01-01T00:00:00Z", "2026-01-01T00:00:59.999Z", 0),
        ("* * * * *", "UTC", "2026-01-01T00:01:00Z", "2026-01-01T00:00:00Z", 0),
        ("0 0 1 1 *", "UTC", "4998-06-01T00:00:00Z", "9999-01-01T00:00:00Z", 1),
        ("0 0 30 2 *", "UTC", "1970-01-01T00:00:00Z", "9999-01-01T00:00:00Z", 0),
        ("@every 1.5s", "UTC", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", 40),
    ] {
        let cron = Cron::utc(line).unwrap().in_zone(zone).unwrap();
        assert_eq!(cron.count(time(after), time(until)), count, "{line} in {zone} from {after} to {until}");
    }
}

const ZONES: [&str; 16] = [
    "UTC",
    "Europe/Berlin",
    "Europe/Dublin",
    "America/New_York",
    "America/Sao_Paulo",
    "America/Nuuk",
    "America/St_Johns",
    "America/Caracas",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Asia/Kathmandu",
    "Asia/Pyongyang",
    "Antarctica/Troll",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Pacific/Kwajalein",
];

/// Compares a line with the search for a while, in a random zone, mostly around jumps of its clock.
fn compare(random: &mut Random, line: &Naive, step: SignedDuration, length: SignedDuration) {
    let name = random.one_of(ZONES);
    let zone = TimeZone::get(name).unwrap();
    // From 1975 on, when all these zones have offsets of whole minutes, to 2060.
    let somewhen = Timestamp::from_second(157_766_400 + random.below(2_682_460_800) as i64).unwrap();
    let jump = zone.following(somewhen).next().map_or(somewhen, |transition| transition.timestamp());
    let begin = match random.below(8) {
        0 => somewhen,
        1 => jump,
        2..=4 => jump + SignedDuration::from_secs(random.below(2 * 60 * 60) as i64),
        _ => jump - SignedDuration::from_secs(random.below(length.as_secs() as u64) as i64),
    };
    let begin = Timestamp::from_second(begin.as_second().div_euclid(60) * 60).unwrap();
    let end = begin + length;

    let cron = Cron::parse(&line.text).unwrap_or_else(|error| panic!("{error}")).in_time_zone(zone.clone());
    let is_never = cron.next_after(SystemTime::UNIX_EPOCH).is_none();
    assert_eq!(is_never, !line.has_days(), "`{}` has days, or none", line.text);
    let wanted = line.dues(&zone, begin, end, step);
    let found = std::iter::successors(Some(begin), |at| after(&cron, *at)).skip(1).take_while(|at| *at < end);
    assert_eq!(found.collect::<Vec<_>>(), wanted, "`{}` in {name} from {begin} to {end}", line.text);
    let last = end - SignedDuration::from_nanos(1);
    let count = cron.count(begin.into(), last.into());
    assert_eq!(count, wanted.len() as u64, "`{}` in {name} from {begin} to {end}", line.text);
}

#[derive(Clone, Copy, PartialEq)]
enum Fields {
    Five,
    Six,
}

/// A line and its meaning, implemented without the code under test.
struct Naive {
    text: String,
    seconds: BTreeSet<i8>,
    minutes: BTreeSet<i8>,
    hours: BTreeSet<i8>,
    months: BTreeSet<i8>,
    day_of_month: Day,
    day_of_week: Day,
    both: bool,
    is_interval: bool,
}

/// The days that a field names.
enum Day {
    Any,
    Of(BTreeSet<i8>),
    Last,
    LastWeekday,
    NearestWeekday(i8),
    Nth(i8, i8),
    LastOf(i8),
}

impl Naive {
    fn random(random: &mut Random, fields: Fields) -> Naive {
        let (seconds, second_set, second_star) = match fields {
            Fields::Five => (String::new(), BTreeSet::from([0]), false),
            Fields::Six => field(random, 0, 59),
        };
        let (minutes, minute_set, minute_star) = field(random, 0, 59);
        // Clocks jump in the small hours.
        let (hours, hour_set, hour_star) = match random.below(3) {
            0 => ("0-3,23".into(), BTreeSet::from([0, 1, 2, 3, 23]), false),
            _ => field(random, 0, 23),
        };
        let (months, month_set, _) =
            if random.below(4) > 0 { ("*".into(), (1..=12).collect(), true) } else { field(random, 1, 12) };
        let (day_of_month, dom) = day_of_month(random);
        let (day_of_week, dow) = day_of_week(random);
        let both = random.below(3) == 0;
        let plus = if both { "+" } else { "" };
        Naive {
            text: format!("{seconds} {minutes} {hours} {day_of_month} {months} {plus}{day_of_week}").trim().into(),
            seconds: second_set,
            minutes: minute_set,
            hours: hour_set,
            months: month_set,
            day_of_month: dom,
            day_of_week: dow,
            both,
            is_interval: second_star || minute_star || hour_star,
        }
    }

    /// Returns all times strictly between the two at which the line is due.
    fn dues(&self, zone: &TimeZone, begin: Timestamp, end: Timestamp, step: SignedDuration) -> Vec<Timestamp> {
        let warm_up = if step.as_secs() == 60 { 60 } else { 6 };
        let mut at = begin - SignedDuration::from_hours(warm_up);
        let mut furthest = zone.to_datetime(at);
        let mut dues = Vec::new();
        while at < end {
            let shown = zone.to_datetime(at);
            let is_due = if self.is_interval {
                self.matches(shown)
            } else {
                let reached = std::iter::successors(Some(furthest + step), |time| Some(*time + step));
                reached.take_while(|time| *time <= shown).any(|time| self.matches(time))
            };
            furthest = furthest.max(shown);
            if is_due && at > begin {
                dues.push(at);
            }
            at += step;
        }
        dues
    }

    /// Returns whether any day matches in any kind of year.
    fn has_days(&self) -> bool {
        let first = Date::constant(2000, 1, 1);
        first.series(jiff::Span::new().days(1)).take_while(|date| date.year() < 2028).any(|date| self.is_day(date))
    }

    fn matches(&self, shown: DateTime) -> bool {
        self.seconds.contains(&shown.second())
            && self.minutes.contains(&shown.minute())
            && self.hours.contains(&shown.hour())
            && self.is_day(shown.date())
    }

    fn is_day(&self, date: Date) -> bool {
        let by_month = |day: &Day| day.matches(date, false);
        let by_week = |day: &Day| day.matches(date, true);
        self.months.contains(&date.month())
            && match (&self.day_of_month, &self.day_of_week) {
                (Day::Any, week) => by_week(week),
                (month, Day::Any) => by_month(month),
                (month, week) if self.both => by_month(month) && by_week(week),
                (month, week) => by_month(month) || by_week(week),
            }
    }
}

impl Day {
    fn matches(&self, date: Date, by_week: bool) -> bool {
        let weekday = |date: Date| date.weekday().to_sunday_zero_offset();
        let is_workday = |date: Date| !matches!(weekday(date), 0 | 6);
        match self {
            Day::Any => true,
            Day::Of(set) if by_week => set.contains(&weekday(date)) || weekday(date) == 0 && set.contains(&7),
            Day::Of(set) => set.contains(&date.day()),
            Day::Last => date == date.last_of_month(),
            Day::LastWeekday => {
                (1..=date.days_in_month()).rev().map(|day| on(date, day)).find(|d| is_workday(*d)) == Some(date)
            }
            Day::NearestWeekday(day) if *day > date.days_in_month() => false,
            Day::NearestWeekday(day) => {
                let days = (1..=date.days_in_month()).map(|day| on(date, day)).filter(|date| is_workday(*date));
                // Two weekdays are never equally near: a weekend has two days.
                days.min_by_key(|date| date.day().abs_diff(*day)) == Some(date)
            }
            Day::Nth(nth, of) => weekday(date) == *of && (date.day() - 1) / 7 + 1 == *nth,
            Day::LastOf(of) => weekday(date) == *of && date.day() + 7 > date.days_in_month(),
        }
    }
}

fn on(date: Date, day: i8) -> Date {
    date.with().day(day).build().unwrap()
}

/// Returns a field, its meaning, and whether it has a star.
fn field(random: &mut Random, min: i8, max: i8) -> (String, BTreeSet<i8>, bool) {
    let count = (max - min + 1) as u64;
    let number = |random: &mut Random| min + random.below(count) as i8;
    let item = |random: &mut Random| {
        let (a, b) = (number(random), number(random));
        let (low, high) = (a.min(b), a.max(b));
        let step = 1 + random.below(count.min(20)) as i8;
        match random.below(4) {
            0 => (format!("{low}-{high}"), (low..=high).collect::<BTreeSet<_>>(), false),
            1 => (format!("{low}-{high}/{step}"), (low..=high).step_by(step as usize).collect(), false),
            2 => (format!("*/{step}"), (min..=max).step_by(step as usize).collect(), true),
            _ => (format!("{a:0width$}", width = random.below(3) as usize), BTreeSet::from([a]), false),
        }
    };
    match random.below(8) {
        0 | 1 => ("*".into(), (min..=max).collect(), true),
        2..=5 => item(random),
        _ => {
            let items = (0..2 + random.below(2)).map(|_| item(random)).collect::<Vec<_>>();
            let text = items.iter().map(|(text, ..)| text.as_str()).collect::<Vec<_>>().join(",");
            let has_star = items.iter().any(|(_, _, star)| *star);
            (text, items.into_iter().flat_map(|(_, set, _)| set).collect(), has_star)
        }
    }
}

fn day_of_month(random: &mut Random) -> (String, Day) {
    match random.below(12) {
        0..=5 => (random.one_of(["*", "?"]).into(), Day::Any),
        6 => ("L".into(), Day::Last),
        7 => ("LW".into(), Day::LastWeekday),
        8 => {
            let day = 1 + random.below(31) as i8;
            (format!("{day}W"), Day::NearestWeekday(day))
        }
        _ => match field(random, 1, 31) {
            (text, ..) if text == "*" => (text, Day::Any),
            (text, set, _) => (text, Day::Of(set)),
        },
    }
}

fn day_of_week(random: &mut Random) -> (String, Day) {
    const NAMES: [&str; 7] = ["SUN", "Mon", "tue", "WED", "THU", "FRI", "SAT"];
    let of = random.below(7) as usize;
    match random.below(12) {
        0..=5 => (random.one_of(["*", "?"]).into(), Day::Any),
        6 => (NAMES[of].into(), Day::Of(BTreeSet::from([of as i8]))),
        7 => {
            let nth = 1 + random.below(5) as i8;
            (format!("{}#{nth}", NAMES[of]), Day::Nth(nth, of as i8))
        }
        8 => (format!("{}{}", NAMES[of], random.one_of(["#L", "L"])), Day::LastOf(of as i8)),
        _ => match field(random, 0, 7) {
            (text, ..) if text == "*" => (text, Day::Any),
            (text, set, _) => (text, Day::Of(set)),
        },
    }
}
