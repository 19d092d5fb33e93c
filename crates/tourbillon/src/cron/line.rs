//! The parser of cron lines.
//!
//! ```text
//!     CRON_TZ=Europe/Berlin 5/15 22-2 * * FRI-MON
//!     ^^^^^^^^^^^^^^^^^^^^^ ^^^^^^^^^^^^^^^^^^^^^ fields, a nickname, or @every with an interval
//!     zone
//! ```
//!
//! [`words`](super::words) rewrites the forms that croner does not know (`5/15`, `22-2`) into forms that it knows, and croner parses
//! the fields. This module refuses lines that croner accepts by mistake, and finds the place of an error.

use std::ops::Range;
use std::time::Duration;

use croner::parser::CronParser;
use croner::{CronComponent, CronPattern, Weekday};
use jiff::civil::Date;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use super::LAST_YEAR;
use super::error::{CronError, CronField};
use super::words;

/// A parsed line.
pub(super) struct Parsed {
    /// The zone that the line names.
    pub(super) zone: Option<TimeZone>,
    pub(super) times: CronTimes,
}

/// When a line is due.
pub(super) enum CronTimes {
    /// When the local clock shows a time that the fields name.
    Pattern(Box<croner::Cron>),
    /// The fields name no day that ever comes.
    Never,
    /// `@every`: one interval after the previous time.
    Every(Duration),
}

/// Parses a line.
///
/// # Errors
/// Any [`CronError`].
pub(super) fn parse(line: &str) -> Result<Parsed, CronError> {
    if line.len() > LIMIT {
        return Err(CronError::TooLong { length: line.len(), limit: LIMIT });
    }
    let words = split(line, 0..line.len(), char::is_whitespace).filter(|word| !word.is_empty()).collect::<Vec<_>>();
    let Some(first) = words.first() else { return Err(CronError::Empty) };
    let (zone, words) = match words::zone_name(&line[first.clone()]) {
        Some(name) if name.eq_ignore_ascii_case("Local") => (Some(TimeZone::system()), &words[1..]),
        Some(name) => (Some(zone(name)?), &words[1..]),
        None => (None, &words[..]),
    };
    Ok(Parsed { zone, times: times(line, words)? })
}

/// Returns the zone of this name in the IANA time zone database: in that of the system, or else in the copy that the program has. A system
/// can have an old database, or one of which rare and former names are a package of their own.
///
/// # Errors
/// [`CronError::UnknownZone`].
pub(super) fn zone(name: &str) -> Result<TimeZone, CronError> {
    let found = TimeZone::get(name).or_else(|_| TimeZoneDatabase::bundled().get(name));
    found.map_err(|_| CronError::UnknownZone { name: name.into() })
}

fn times(line: &str, words: &[Range<usize>]) -> Result<CronTimes, CronError> {
    let rest = words.first().map(|first| &line[first.start..words[words.len() - 1].end]);
    if let Some(rest) = rest.filter(|rest| rest.starts_with('@')) {
        return if line[words[0].clone()].eq_ignore_ascii_case("@every") {
            every(line, words).map(CronTimes::Every)
        } else {
            nickname(line, rest).map(|cron| CronTimes::Pattern(Box::new(cron)))
        };
    }
    let fields = fields(line, words)?;
    for (field, at) in &fields {
        strictly(line, *field, at.clone())?;
    }
    let plain = fields.iter().map(|(field, at)| plain(*field, &line[at.clone()])).collect::<Vec<_>>().join(" ");
    let mut cron = CronParser::new().parse(&plain).map_err(|_| place(line, &fields))?;
    Ok(if keep_years_with_days(&mut cron.pattern) { CronTimes::Pattern(Box::new(cron)) } else { CronTimes::Never })
}

/// Parses the interval after `@every`.
fn every(line: &str, words: &[Range<usize>]) -> Result<Duration, CronError> {
    let at = match words {
        [_] => line.trim_end().len() + 1..line.trim_end().len() + 1,
        words => words[1].start..words[words.len() - 1].end,
    };
    let interval = line.get(at.clone()).and_then(words::duration).filter(|interval| !interval.is_zero());
    interval.ok_or_else(|| CronError::Interval { line: line.into(), at })
}

/// The longest line, in bytes.
const LIMIT: usize = 1024;

const FIELDS: [CronField; 7] = [
    CronField::Second,
    CronField::Minute,
    CronField::Hour,
    CronField::DayOfMonth,
    CronField::Month,
    CronField::DayOfWeek,
    CronField::Year,
];

fn nickname(line: &str, name: &str) -> Result<croner::Cron, CronError> {
    let name = if name.eq_ignore_ascii_case("@midnight") { "@daily" } else { name };
    CronParser::new().parse(name).map_err(|_| CronError::Nickname { line: line.into() })
}

/// Rewrites a field into the forms that croner knows.
fn plain(field: CronField, text: &str) -> String {
    let plus = if field == CronField::DayOfWeek && text.starts_with('+') { "+" } else { "" };
    let items = text[plus.len()..].split(',').map(|item| words::plain(field, item)).collect::<Vec<_>>();
    format!("{plus}{}", items.join(","))
}

/// Assigns the words to fields.
fn fields(line: &str, words: &[Range<usize>]) -> Result<Vec<(CronField, Range<usize>)>, CronError> {
    let named = match words.len() {
        5 => &FIELDS[1..6],
        6 => &FIELDS[..6],
        7 => &FIELDS[..],
        found => {
            let end = line.trim_end().len();
            // The place after the last field and a blank.
            let at = words.get(7).cloned().unwrap_or(end + 1..end + 1);
            return Err(CronError::FieldCount { line: line.into(), found, at });
        }
    };
    Ok(named.iter().copied().zip(words.iter().cloned()).collect())
}

/// Refuses fields that croner accepts by mistake: empty items, names in fields that have none or glued to numbers, letters after the
/// end of an item, and the last day beside the last weekday, of which croner would drop one.
fn strictly(line: &str, field: CronField, at: Range<usize>) -> Result<(), CronError> {
    let items = items(line, field, at);
    let last_weekday = items.iter().any(|at| line[at.clone()].eq_ignore_ascii_case("LW"));
    for at in &items {
        let item = &line[at.clone()];
        let is_beside = items.len() > 1 && matches!(item, "*" | "?") || last_weekday && item.eq_ignore_ascii_case("L");
        let has_wrong = item.is_empty() || !item.is_ascii() || item.contains('+');
        if has_wrong || is_beside || !has_right_letters(field, item) || !has_right_nth(item) {
            return Err(CronError::Field { line: line.into(), field, at: at.clone() });
        }
    }
    Ok(())
}

/// Returns the items between commas. A + before the day of the week belongs to all of them.
fn items(line: &str, field: CronField, mut at: Range<usize>) -> Vec<Range<usize>> {
    if field == CronField::DayOfWeek && line[at.clone()].starts_with('+') {
        at.start += 1;
    }
    split(line, at, |c| c == ',').collect()
}

fn has_right_letters(field: CronField, item: &str) -> bool {
    let upper = item.to_ascii_uppercase();
    let is_digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    split(&upper, 0..upper.len(), |c| !c.is_ascii_alphabetic()).filter(|run| !run.is_empty()).all(|run| {
        let (before, letters, after) = (&upper[..run.start], &upper[run.clone()], &upper[run.end..]);
        let is_apart = !is_digit(before.chars().next_back()) && !is_digit(after.chars().next());
        match field {
            CronField::Month => is_apart && words::MONTHS.contains(&letters),
            // `L` needs a weekday before it.
            CronField::DayOfWeek if letters == "L" => !before.is_empty() && after.is_empty(),
            CronField::DayOfWeek => is_apart && words::WEEKDAYS.contains(&letters.strip_suffix('L').unwrap_or(letters)),
            CronField::DayOfMonth => after.is_empty() && matches!(letters, "L" | "W" | "LW"),
            _ => false,
        }
    })
}

/// Checks the number after a #.
fn has_right_nth(item: &str) -> bool {
    item.split_once('#').is_none_or(|(_, nth)| matches!(nth, "1" | "2" | "3" | "4" | "5" | "L" | "l"))
}

/// Finds the place that croner refuses: tries each item on its own, and then each field.
fn place(line: &str, fields: &[(CronField, Range<usize>)]) -> CronError {
    let each_item =
        fields.iter().flat_map(|(field, at)| items(line, *field, at.clone()).into_iter().map(|at| (*field, at)));
    let each_field = fields.iter().cloned();
    let found = each_item.chain(each_field).find(|(field, at)| !is_right(*field, &line[at.clone()]));
    // Croner reads the fields one by one, so one of them is wrong.
    let (field, at) = found.unwrap_or((CronField::Minute, 0..line.len()));
    CronError::Field { line: line.into(), field, at }
}

/// Returns whether croner accepts this field in a line of which all other fields are `*`.
fn is_right(field: CronField, text: &str) -> bool {
    let line = FIELDS.map(|each| if each == field { plain(field, text) } else { "*".to_owned() }).join(" ");
    CronParser::new().parse(&line).is_ok()
}

/// Keeps only the years that have matching days, so that croner does not search the others, and returns whether there are any. There
/// are fourteen kinds of years, and each kind is searched once.
fn keep_years_with_days(pattern: &mut CronPattern) -> bool {
    // These 28 years include every kind.
    let mut has_days = [false; 14];
    for first in (2001..=2028).filter_map(first_day) {
        has_days[kind(first)] |= days_of(first).any(|date| is_day(pattern, date));
    }
    if has_days == [true; 14] && pattern.years.from_wildcard && pattern.years.step == 1 {
        return true;
    }
    let years = pattern.years.values().into_iter().filter(|year| *year <= LAST_YEAR);
    let years = years.filter(|year| first_day(*year as i16).is_some_and(|first| has_days[kind(first)]));
    let years = years.map(|year| year.to_string()).collect::<Vec<_>>().join(",");
    let mut kept = CronComponent::new(pattern.years.min, pattern.years.max, 0, 0);
    let is_read = kept.parse(&years).is_ok();
    pattern.years = kept;
    is_read && !years.is_empty()
}

fn is_day(pattern: &CronPattern, date: Date) -> bool {
    let weekday = Weekday::from_days_from_sunday(date.weekday().to_sunday_zero_offset() as u32);
    let (year, month, day) = (i32::from(date.year()), date.month() as u32, date.day() as u32);
    let is_in_month = pattern.month_match(month).unwrap_or(false);
    is_in_month && pattern.day_match(year, month, day, weekday).unwrap_or(false)
}

fn first_day(year: i16) -> Option<Date> {
    Date::new(year, 1, 1).ok()
}

/// Returns the kind of a year, given its first day: the weekday of that day, and whether it is a leap year.
fn kind(first: Date) -> usize {
    first.weekday().to_sunday_zero_offset() as usize + 7 * usize::from(first.in_leap_year())
}

fn days_of(first: Date) -> impl Iterator<Item = Date> {
    std::iter::successors(Some(first), |date| date.tomorrow().ok()).take(first.days_in_year() as usize)
}

/// Splits a range of a text into ranges.
fn split(text: &str, at: Range<usize>, between: impl Fn(char) -> bool) -> impl Iterator<Item = Range<usize>> {
    let mut begin = at.start;
    text[at].split(between).map(move |part| {
        let part = begin..begin + part.len();
        // The separator is one character, which may be more than one byte.
        begin = part.end;
        begin += text[begin..].chars().next().map_or(0, char::len_utf8);
        part
    })
}
