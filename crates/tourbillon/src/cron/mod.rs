//! Cron lines, which name times on the wall clock.
//!
//! [`Cron`] is a line in a time zone. It computes when the line is due next, and has neither a timer nor a thread.
//!
//! # A line
//! A line has five fields, or six with seconds first, or seven with years last as well:
//!
//! ```text
//!     .----------------- second         0-59               (may be left out: 0)
//!     |  .-------------- minute         0-59
//!     |  |  .----------- hour           0-23
//!     |  |  |  .-------- day of month   1-31, L, 15W, LW
//!     |  |  |  |  .----- month          1-12, JAN-DEC
//!     |  |  |  |  |  .-- day of week    0-7, SUN-SAT, FRI#2, FRI#L
//!     |  |  |  |  |  |   year           1-4999             (may be left out: *)
//!    30  0 12  *  * MON
//! ```
//!
//! Each field is a number or a name in upper or lower case, a range `9-17`, all values `*`, steps `*/15`, `5/15` or `9-17/2`, or a list
//! of these `1,3,9-17`. `5/15` goes from 5 to the maximum of the field. A range may go over the end of its field: `22-2` is from 22
//! o'clock to 2 o'clock, `FRI-MON` from Friday to Monday. (A range of years may not, because years do not repeat.)
//!
//! A nickname stands for all fields: `@yearly` or `@annually`, `@monthly`, `@weekly`, `@daily` or `@midnight`, `@hourly`. So does
//! `@every` with an interval, written as Go writes durations: see [below](#intervals).
//!
//! - `L` is the last day of the month, `15W` the weekday nearest to the 15th, `LW` the last weekday of the month.
//! - `FRI#2` is the second Friday of the month, `FRI#L` or `FRIL` the last.
//! - If both the day of the month and the day of the week are given, *one* of the two must match, as in every cron. With a `+`
//!   before the day of the week both must: `0 0 13 * +FRI`.
//!
//! A line that names only days that do not exist, such as 30 February, is never due, and a line whose years are over is never due
//! again: [`Cron::next_after`] returns `None`.
//!
//! # Intervals
//! `@every 5m`, `@every 1h30m10s`, `@every 1.5h`: the next time is one interval after the last, whatever the wall clock shows. The
//! units are `h`, `m`, `s`, `ms`, `us` (or `µs`) and `ns`. Intervals are exact to the nanosecond; robfig/cron, which introduced this
//! form, drops fractions of a second and takes at least one second. An interval of zero or less is refused.
//!
//! [`Cron::next_after`] adds the interval to the time that it is given. The [`Plan`](crate::scheduler::Plan) of such a line is
//! [`Plan::every`](crate::scheduler::Plan::every): it follows the engine's clock, which steps of the wall clock do not change.
//!
//! # Time zones
//! A line may name its zone before the fields: `CRON_TZ=Europe/Berlin 30 2 * * *`, or the same with `TZ=`. The name is one of the IANA
//! time zone database, or `Local` for the system's zone. It has precedence over a zone that the program gives by [`Cron::utc`],
//! [`Cron::in_zone`] or [`Cron::in_time_zone`], which is for lines that name none.
//!
//! For a line without a zone [`Cron::parse`] uses the system's zone at the time of the call: that of the variable `TZ` or of
//! `/etc/localtime`, or else UTC. [`Cron::in_zone`] takes a name of the IANA time zone database. That is the system's database, so that
//! it can be updated without this program; where the system has none, as in many containers, it is a copy that is built in.
//!
//! # Summer time
//! In spring the local clock skips an hour (a gap), in autumn it shows one twice (an overlap). There are two kinds of lines:
//!
//! - *Intervals*: the hour, minute or second has a `*`, also as `*/15`. They are due at every moment at which the local clock shows a
//!   time that the line names. `*/15 * * * *` is due every quarter of an hour, through both hours of an overlap, and over a gap goes
//!   on from 01:45 to 03:00, which are a quarter of an hour apart.
//! - *Fixed times*: all other lines. Each time is due once a day, whatever the clock does: at the first moment at which the local clock
//!   has reached or passed it. A time in a gap is due at the end of the gap, and several times in the same gap are due there
//!   together, once; a time in an overlap is due the first time that the clock shows it, and not again.
//!
//! The same holds for every other shift of a zone's clock, be it half an hour or a whole day: `0 12 * * *` in Samoa, which skipped
//! 30 December 2011, was due for that day when the 31st began.

mod count;
mod error;
mod line;
mod local;
mod words;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use tourbillon_queue::{Span, Time};

pub use self::error::{CronError, CronField};
use self::line::CronTimes;
#[doc(no_inline)]
pub use jiff::tz::TimeZone;

/// A cron line in a time zone.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tourbillon::Cron;
///
/// let nightly = Cron::parse("30 2 * * *")?.in_zone("Europe/Berlin")?;
/// // 31 March 2024, 01:59:59 in Berlin; a second later it is three o'clock.
/// let before = SystemTime::UNIX_EPOCH + Duration::from_secs(1_711_846_799);
/// let due = nightly.next_after(before).unwrap();
/// assert_eq!(due, before + Duration::from_secs(1));
/// # Ok::<(), tourbillon::CronError>(())
/// ```
///
/// The [module](crate::cron) describes the lines, and when they are due where summer time begins and ends.
///
/// Cloning is cheap, because clones share the parsed line. A parsed line takes about 6 KiB.
#[derive(Clone)]
pub struct Cron {
    line: Arc<CronLine>,
    zone: TimeZone,
}

struct CronLine {
    text: Box<str>,
    times: CronTimes,
    kind: CronKind,
    /// Whether the text names the zone.
    has_zone: bool,
}

/// The rule for times around a shift of the local clock: see [`local`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CronKind {
    Fixed,
    Interval,
}

/// The last year that croner searches to its end.
const LAST_YEAR: u16 = croner::YEAR_UPPER_LIMIT as u16 - 1;

impl Cron {
    /// Parses a line, in the zone that it names, or else in the system's time zone.
    ///
    /// # Errors
    /// A [`CronError`] shows where the line is wrong, and what is allowed there.
    pub fn parse(line: &str) -> Result<Cron, CronError> {
        let line::Parsed { zone, times } = line::parse(line)?;
        let (kind, has_zone) = (CronKind::of(&times), zone.is_some());
        let line = CronLine { text: line.trim().into(), times, kind, has_zone };
        Ok(Cron { line: Arc::new(line), zone: zone.unwrap_or_else(TimeZone::system) })
    }

    /// Parses a line, in the zone that it names, or else in UTC, which has no summer time.
    ///
    /// # Errors
    /// As for [`parse`](Cron::parse).
    pub fn utc(line: &str) -> Result<Cron, CronError> {
        Cron::parse(line).map(|cron| cron.in_time_zone(TimeZone::UTC))
    }

    /// Returns the line in another time zone, by its name in the IANA time zone database: `America/New_York`. A line that names a
    /// zone itself (`CRON_TZ=Europe/Berlin 30 2 * * *`) keeps that zone.
    ///
    /// # Errors
    /// [`CronError::UnknownZone`] if there is no zone of that name.
    pub fn in_zone(self, name: &str) -> Result<Cron, CronError> {
        Ok(self.in_time_zone(line::zone(name)?))
    }

    /// Returns the line in another time zone. A line that names a zone itself keeps that zone.
    #[must_use]
    pub fn in_time_zone(self, zone: TimeZone) -> Cron {
        if self.line.has_zone { self } else { Cron { zone, ..self } }
    }

    /// Returns when the line is due next, strictly later than `after`; `None` if it is never due again.
    ///
    /// Times of day begin with the year 1 and end with the year 4999. An `@every` line is due one interval after `after`.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tourbillon::Cron;
    ///
    /// let cron = Cron::utc("@hourly")?;
    /// // All times at which it is due, from 1970 on.
    /// let mut times = std::iter::successors(Some(SystemTime::UNIX_EPOCH), |time| cron.next_after(*time));
    /// assert_eq!(times.nth(24), Some(SystemTime::UNIX_EPOCH + Duration::from_secs(24 * 60 * 60)));
    /// # Ok::<(), tourbillon::CronError>(())
    /// ```
    #[must_use]
    pub fn next_after(&self, after: SystemTime) -> Option<SystemTime> {
        if let CronTimes::Every(interval) = self.line.times {
            return after.checked_add(interval);
        }
        let after = match Timestamp::try_from(after) {
            Ok(after) => after,
            Err(_) if after < SystemTime::UNIX_EPOCH => Timestamp::MIN,
            Err(_) => return None,
        };
        let since_1970 = self.next(after)?.as_duration();
        let distance = since_1970.unsigned_abs();
        if since_1970.is_negative() {
            SystemTime::UNIX_EPOCH.checked_sub(distance)
        } else {
            SystemTime::UNIX_EPOCH.checked_add(distance)
        }
    }

    /// Returns how often the line is due later than `after` and not later than `until`: so often as [`next_after`](Cron::next_after) finds a
    /// time when it is called with `after` first, and then with each time that it has found.
    ///
    /// It counts whole days, so that a century takes about a millisecond, however often a day the line is due.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tourbillon::Cron;
    ///
    /// let each_minute = Cron::utc("* * * * *")?;
    /// let week = Duration::from_secs(7 * 24 * 60 * 60);
    /// assert_eq!(each_minute.count(SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + week), 10_080);
    /// # Ok::<(), tourbillon::CronError>(())
    /// ```
    #[must_use]
    pub fn count(&self, after: SystemTime, until: SystemTime) -> u64 {
        let pattern = match &self.line.times {
            CronTimes::Every(interval) => {
                let length = until.duration_since(after).unwrap_or_default();
                return u64::try_from(length.as_nanos() / interval.as_nanos()).unwrap_or(u64::MAX);
            }
            CronTimes::Never => return 0,
            CronTimes::Pattern(cron) => &cron.pattern,
        };
        let nearest = |time: SystemTime| match Timestamp::try_from(time) {
            Ok(time) => time,
            Err(_) if time < SystemTime::UNIX_EPOCH => Timestamp::MIN,
            Err(_) => Timestamp::MAX,
        };
        let (after, until) = (nearest(after), nearest(until));
        if after < until { count::count(&self.zone, self.line.kind, pattern, after, until) } else { 0 }
    }

    /// Returns the interval of an `@every` line; `None` for all other lines, which follow the wall clock.
    #[must_use]
    pub fn interval(&self) -> Option<Duration> {
        match self.line.times {
            CronTimes::Every(interval) => Some(interval),
            CronTimes::Pattern(_) | CronTimes::Never => None,
        }
    }

    /// Returns the line as it was given.
    #[must_use]
    pub fn line(&self) -> &str {
        &self.line.text
    }

    /// Returns the time zone.
    #[must_use]
    pub fn time_zone(&self) -> &TimeZone {
        &self.zone
    }

    /// Returns the same as [`next_after`](Cron::next_after) for the time of a wall clock: nanoseconds since 1970. Times that these
    /// cannot represent, from the year 2554 on, are never.
    pub(crate) fn next_time(&self, after: Time) -> Option<Time> {
        if let CronTimes::Every(interval) = self.line.times {
            return Some(after + Span::from(interval)).filter(|time| !time.is_never());
        }
        let after = Timestamp::from_nanosecond(i128::from(after.as_nanos())).ok()?;
        let nanos = u64::try_from(self.next(after)?.as_nanosecond()).ok()?;
        Some(Time::from_nanos(nanos)).filter(|time| !time.is_never())
    }

    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let CronLine { times: CronTimes::Pattern(pattern), kind, .. } = &*self.line else { return None };
        local::next(&self.zone, *kind, after, |shown| {
            // Croner fails where its calendar ends.
            let next = pattern.find_next_occurrence(&shown, false).ok()?;
            (next.year() as u16 <= LAST_YEAR).then_some(next)
        })
    }
}

impl FromStr for Cron {
    type Err = CronError;

    /// Parses a line: see [`Cron::parse`].
    fn from_str(line: &str) -> Result<Cron, CronError> {
        Cron::parse(line)
    }
}

impl CronKind {
    fn of(times: &CronTimes) -> CronKind {
        let CronTimes::Pattern(cron) = times else { return CronKind::Interval };
        let pattern = &cron.pattern;
        let has_star = [&pattern.seconds, &pattern.minutes, &pattern.hours].iter().any(|field| field.from_wildcard);
        if has_star { CronKind::Interval } else { CronKind::Fixed }
    }
}

/// Shows the line and its zone: `30 2 * * * in Europe/Berlin`. An interval has no zone: `@every 5m`.
impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.interval().is_some() {
            return f.write_str(&self.line.text);
        }
        let zone = match self.zone.iana_name() {
            Some(name) => name,
            None if self.zone.is_unknown() => "UTC, as the system has no zone",
            None => "a zone without a name",
        };
        write!(f, "{} in {zone}", self.line.text)
    }
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cron").field(&format_args!("{self}")).finish()
    }
}

#[cfg(test)]
mod tests {
    use tourbillon_queue::Span;

    use super::*;

    #[test]
    fn p5_times_of_a_wall_clock_end_with_its_64_bits() {
        let cron = Cron::utc("0 0 1 * *").unwrap();
        let february = Time::from_nanos(31 * 24 * 60 * 60 * 1_000_000_000);
        assert_eq!(cron.next_time(Time::ZERO), Some(february));
        assert_eq!(cron.next_time(february - Span::from_nanos(1)), Some(february));
        // 21 July 2554, 23:34:33.709551615.
        let last = Time::from_nanos(18_446_659_200_000_000_000);
        assert_eq!(cron.next_time(last - Span::from_nanos(1)), None, "August is beyond");
        let daily = Cron::utc("@daily").unwrap();
        assert_eq!(daily.next_time(last - Span::from_nanos(1)), Some(last));
        assert_eq!(daily.next_time(last), None);
        assert_eq!(daily.next_time(Time::NEVER), None);
    }
}
