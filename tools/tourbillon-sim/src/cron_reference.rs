//! Finds when a cron line is due in the simplest way: minute by minute, by what the local clock shows.
//!
//! It asks a time zone only for its offset at a moment. These are the rules for times that the local clock skips or repeats,
//! implemented here independently of the engine:
//!
//! - A line with a star in its time of day is due whenever the local clock shows one of its times.
//! - Any other line is due when the local clock shows or skips one of its times for the first time.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use jiff::civil::date;
use jiff::tz::TimeZone;

use crate::random_source::RandomSource;
use crate::timer_model::NEVER;

/// A simple cron line in a time zone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ReferenceLine {
    second: Field,
    minute: Field,
    hour: Field,
    day: Field,
    weekday: Field,
    /// Name in the time zone database.
    pub zone: &'static str,
}

/// One field of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Field {
    Any,
    /// Every multiple of this number.
    Every(u8),
    At(u8),
    Two(u8, u8),
    FromTo(u8, u8),
}

/// How often a line is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CronPace {
    /// Several times a minute.
    Seconds,
    /// Several times an hour.
    Minutes,
    /// A few times a day, or less.
    Days,
}

/// Computes the times of a line, and remembers them.
#[derive(Debug)]
pub struct CronReference {
    line: ReferenceLine,
    zone: TimeZone,
    /// Maps a time to the next time at which the line is due.
    found: BTreeMap<u64, u64>,
}

/// Zones with half an hour of summer time, with none, with a skipped day, and with a summer time that pauses for a month.
const ZONES: [&str; 8] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/St_Johns",
    "Pacific/Apia",
    "Africa/Casablanca",
    "Asia/Kolkata",
];

/// Times shortly before a local clock in one of these zones jumps, in seconds since 1970.
pub const MOMENTS: [u64; 9] = [
    1_711_846_800, // 2024-03-31 01:00 UTC, Berlin
    1_729_990_800, // 2024-10-27 01:00 UTC, Berlin
    1_710_054_000, // 2024-03-10 07:00 UTC, New York
    1_730_613_600, // 2024-11-03 06:00 UTC, New York
    1_728_142_200, // 2024-10-05 15:30 UTC, Lord Howe
    1_712_415_600, // 2024-04-06 15:00 UTC, Lord Howe
    1_325_239_200, // 2011-12-30 10:00 UTC, Apia
    1_710_036_000, // 2024-03-10 02:00 UTC, Casablanca
    3_163_366_800, // 2070-03-30 01:00 UTC, Berlin, where zones are known by their rules alone
];

/// A minute, in seconds.
const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const NANOS_PER_SECOND: u64 = 1_000_000_000;
/// More than any of these local clocks has ever been set back, in seconds.
const LONGEST: u64 = 3 * HOUR;

impl ReferenceLine {
    /// Returns a random line that is due about as often as `pace` says.
    pub fn random(random: &mut RandomSource<'_>, pace: CronPace) -> ReferenceLine {
        let hours = [Field::At(random.below(4) as u8), Field::Two(0, 2), Field::FromTo(1, 3), Field::At(12)];
        let minutes = [Field::At(0), Field::At(30), Field::Two(15, 45), Field::At(random.below(60) as u8)];
        let often = [Field::Every(15), Field::Every(7), Field::Every(30), Field::Two(0, 30), Field::Any];
        let days = [Field::At(1), Field::At(29), Field::At(31), Field::Two(10, 27), Field::FromTo(28, 31)];
        let weekdays = [Field::At(0), Field::Two(0, 3), Field::FromTo(1, 5)];
        let is_some_day = random.one_in(3);
        // In such a line only the field of seconds has a star.
        let is_in_a_minute = pace == CronPace::Seconds && random.one_in(3);
        ReferenceLine {
            second: match pace {
                CronPace::Seconds => random.one_of(&[Field::Every(20), Field::Two(0, 30), Field::Every(7)]),
                _ => random.one_of(&[Field::At(0), Field::At(0), Field::At(0), Field::At(30)]),
            },
            minute: match pace {
                CronPace::Seconds if is_in_a_minute => random.one_of(&minutes),
                CronPace::Seconds => random.one_of(&[Field::Any, Field::Every(2)]),
                CronPace::Minutes => random.one_of(&often),
                CronPace::Days => random.one_of(&minutes),
            },
            hour: match pace {
                CronPace::Days => random.one_of(&hours),
                CronPace::Seconds if is_in_a_minute => random.one_of(&hours),
                _ => random.one_of(&[Field::Any, Field::Any, Field::Every(2), Field::FromTo(0, 22)]),
            },
            day: if is_some_day { random.one_of(&days) } else { Field::Any },
            weekday: if random.one_in(3) { random.one_of(&weekdays) } else { Field::Any },
            zone: random.one_of(&ZONES),
        }
    }

    /// Returns the line as the engine parses it.
    #[must_use]
    pub fn text(&self) -> String {
        let ReferenceLine { second, minute, hour, day, weekday, .. } = self;
        let line = format!("{} {} {} * {}", minute.text(), hour.text(), day.text(), weekday.text());
        if *second == Field::At(0) { line } else { format!("{} {line}", second.text()) }
    }

    /// Returns whether the line is due a few times a day at most.
    #[must_use]
    pub fn is_rare(&self) -> bool {
        !self.has_star()
    }

    fn has_star(&self) -> bool {
        [self.second, self.minute, self.hour].iter().any(|field| matches!(field, Field::Any | Field::Every(_)))
    }

    fn is_date(&self, days: i64) -> bool {
        let (day, weekday) = (self.day != Field::Any, self.weekday != Field::Any);
        let is_weekday = self.weekday.has((days + 4).rem_euclid(7) as u8);
        let is_day = || {
            let date = date(1970, 1, 1).checked_add(jiff::Span::new().days(days));
            date.is_ok_and(|date| self.day.has(date.day() as u8))
        };
        match (day, weekday) {
            (false, _) => is_weekday,
            (true, false) => is_day(),
            (true, true) => is_weekday || is_day(),
        }
    }

    fn is_hour(&self, local: i64) -> bool {
        self.hour.has(local.div_euclid(60).rem_euclid(24) as u8)
    }

    /// Returns whether the line matches this minute of the local clock.
    fn is_minute(&self, local: i64) -> bool {
        self.minute.has(local.rem_euclid(60) as u8) && self.is_hour(local) && self.is_date(local.div_euclid(24 * 60))
    }
}

impl fmt::Debug for ReferenceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in {}", self.text(), self.zone)
    }
}

impl Field {
    fn text(self) -> String {
        match self {
            Field::Any => "*".to_owned(),
            Field::Every(step) => format!("*/{step}"),
            Field::At(at) => at.to_string(),
            Field::Two(one, other) => format!("{one},{other}"),
            Field::FromTo(from, to) => format!("{from}-{to}"),
        }
    }

    fn has(self, value: u8) -> bool {
        match self {
            Field::Any => true,
            Field::Every(step) => value.is_multiple_of(step),
            Field::At(at) => value == at,
            Field::Two(one, other) => value == one || value == other,
            Field::FromTo(from, to) => (from..=to).contains(&value),
        }
    }
}

impl CronReference {
    /// Returns the reference of a line.
    #[must_use]
    pub fn new(line: ReferenceLine) -> CronReference {
        let zone = TimeZone::get(line.zone).expect("the zones that are planned exist");
        CronReference { line, zone, found: BTreeMap::new() }
    }

    /// Returns when the line is next due after `after`, in nanoseconds since 1970.
    pub fn next(&mut self, after: u64) -> u64 {
        if let Some((_, next)) = self.found.range(..=after).next_back()
            && *next > after
        {
            return *next;
        }
        let next = self.search(after);
        self.found.insert(after, next);
        next
    }

    fn search(&self, after: u64) -> u64 {
        let first = after / NANOS_PER_SECOND / MINUTE * MINUTE;
        // The latest minute that the local clock has shown before.
        let before = (first.saturating_sub(LONGEST)..first).step_by(MINUTE as usize);
        let mut furthest = before.map(|time| self.local(time)).max().unwrap_or(i64::MIN);
        let mut time = first;
        while time <= NEVER / NANOS_PER_SECOND {
            let local = self.local(time);
            if let Some(due) = self.due_within(time, local, furthest).find(|due| *due > after) {
                return due;
            }
            furthest = furthest.max(local);
            let skipped = self.skip(time, local);
            furthest = furthest.max(local + (skipped / MINUTE) as i64 - 1);
            time += skipped;
        }
        NEVER
    }

    /// Returns the times within the minute that begins at `time`, when the local clock shows `local` and has shown at most
    /// `furthest` before.
    fn due_within(&self, time: u64, local: i64, furthest: i64) -> impl Iterator<Item = u64> {
        let is_new = self.line.has_star() || local > furthest;
        let is_shown = is_new && self.line.is_minute(local);
        let is_passed = !self.line.has_star()
            && furthest != i64::MIN
            && (furthest + 1..local).any(|passed| self.line.is_minute(passed));
        let seconds = (0..MINUTE).filter(move |second| is_shown && self.line.second.has(*second as u8));
        let passed = is_passed.then_some(0).into_iter();
        passed.chain(seconds).filter_map(move |second| (time + second).checked_mul(NANOS_PER_SECOND))
    }

    /// Returns the distance to the next minute at which the line may be due, in seconds.
    fn skip(&self, time: u64, local: i64) -> u64 {
        let until_hour = (60 - local.rem_euclid(60)) as u64 * MINUTE;
        let until_day = (24 * 60 - local.rem_euclid(24 * 60)) as u64 * MINUTE;
        let is_even = |span: u64| self.offset(time) == self.offset(time + span);
        if !self.line.is_date(local.div_euclid(24 * 60)) && is_even(DAY) {
            until_day
        } else if !self.line.is_hour(local) && is_even(HOUR) {
            until_hour
        } else {
            MINUTE
        }
    }

    /// Returns the minute that the local clock shows, counted from 1970.
    fn local(&self, time: u64) -> i64 {
        (time as i64 + self.offset(time)).div_euclid(60)
    }

    fn offset(&self, time: u64) -> i64 {
        let moment = Timestamp::from_second(time as i64);
        moment.map_or(0, |moment| i64::from(self.zone.to_offset(moment).seconds()))
    }
}
