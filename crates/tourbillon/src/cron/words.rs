//! The words of a cron line: names, numbers, ranges and steps, zones and intervals.
//!
//! Croner follows the cron of BSD and does not know two forms that other crons know. This module rewrites them:
//!
//! ```text
//!     5/15      from 5 to the maximum of the field        5-59/15
//!     22-2      over the end of the field                 22,23,0,1,2
//! ```

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::LAST_YEAR;
use super::error::CronField;

pub(super) const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
pub(super) const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// Returns the name of the zone if this first word of a line gives one: `CRON_TZ=Europe/Berlin`.
pub(super) fn zone_name(word: &str) -> Option<&str> {
    let (key, name) = word.split_once('=')?;
    let is_zone = key.eq_ignore_ascii_case("CRON_TZ") || key.eq_ignore_ascii_case("TZ");
    is_zone.then_some(name)
}

/// Rewrites an item of a field into a form that croner knows. A wrong item stays as it is, for croner to refuse.
pub(super) fn plain(field: CronField, item: &str) -> Cow<'_, str> {
    rewritten(field, item).map_or(Cow::Borrowed(item), Cow::Owned)
}

fn rewritten(field: CronField, item: &str) -> Option<String> {
    let (range, step) = match item.split_once('/') {
        Some((range, step)) => (range, Some(number(step).filter(|step| *step > 0)?)),
        None => (item, None),
    };
    let limits = limits(field);
    let Some((from, to)) = range.split_once('-') else {
        let (from, step) = (value(field, range).filter(|from| limits.contains(from))?, step?);
        return Some(format!("{from}-{}/{step}", limits.end()));
    };
    if field == CronField::DayOfWeek && number(from) == Some(0) && number(to) == Some(7) {
        // All days, rather than from Sunday to the same Sunday.
        return None;
    }
    let (from, to) = (value(field, from)?, value(field, to)?);
    let is_within = limits.contains(&from) && limits.contains(&to);
    if !is_within || field == CronField::Year {
        return None;
    }
    if from <= to {
        let step = step.map_or(String::new(), |step| format!("/{step}"));
        return Some(format!("{from}-{to}{step}"));
    }
    let count = limits.end() - limits.start() + 1;
    let values = (from..=to + count).step_by(usize::from(step.unwrap_or(1)));
    let values = values.map(|value| if value > *limits.end() { value - count } else { value });
    Some(values.map(|value| value.to_string()).collect::<Vec<_>>().join(","))
}

/// Returns the values of a field. (Sunday is 0 here, also if it was written as 7.)
fn limits(field: CronField) -> RangeInclusive<u16> {
    match field {
        CronField::Second | CronField::Minute => 0..=59,
        CronField::Hour => 0..=23,
        CronField::DayOfMonth => 1..=31,
        CronField::Month => 1..=12,
        CronField::DayOfWeek => 0..=6,
        CronField::Year => 1..=LAST_YEAR,
    }
}

/// Returns the value of a number or a name.
fn value(field: CronField, text: &str) -> Option<u16> {
    let index = |names: &[&str]| names.iter().position(|name| name.eq_ignore_ascii_case(text));
    let named = match field {
        CronField::Month => index(&MONTHS).map(|index| index + 1),
        CronField::DayOfWeek => index(&WEEKDAYS),
        _ => None,
    };
    match named {
        Some(named) => u16::try_from(named).ok(),
        None => number(text).map(|number| if field == CronField::DayOfWeek && number == 7 { 0 } else { number }),
    }
}

/// Parses a number that consists of digits only.
fn number(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

/// Parses a duration as Go writes it: numbers with units, the largest usually first, each possibly with a fraction. Fractions of a
/// nanosecond are dropped. Returns `None` if the text is not a duration, is negative, or is longer than a [`Duration`] can be.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut nanos = 0_u128;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (number, behind) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let (unit, behind) =
            behind.split_at(behind.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(behind.len()));
        nanos = nanos.checked_add(times(number, nanos_of(unit)?)?)?;
        rest = behind;
    }
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    Some(Duration::new(seconds, (nanos % 1_000_000_000) as u32))
}

fn nanos_of(unit: &str) -> Option<u128> {
    Some(match unit {
        "ns" => 1,
        // The micro sign, and the Greek letter mu.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60 * 1_000_000_000,
        "h" => 60 * 60 * 1_000_000_000,
        _ => return None,
    })
}

/// Returns a decimal number times a unit, rounded down.
fn times(number: &str, unit: u128) -> Option<u128> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && part.is_empty() || part.contains('.') {
        return None;
    }
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u128>().ok()?.checked_mul(unit)? };
    // A unit has fewer than 14 digits, so digits after the 20th make less than a nanosecond.
    let part = &part[..part.len().min(20)];
    let scale = 10_u128.pow(part.len() as u32);
    let part = if part.is_empty() { 0 } else { part.parse::<u128>().ok()? };
    whole.checked_add(part * unit / scale)
}
