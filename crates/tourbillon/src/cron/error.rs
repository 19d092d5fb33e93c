//! Errors in cron lines. Each shows the line and marks the place.

use std::fmt;
use std::ops::Range;

/// An error in the line or the time zone of a [`Cron`](super::Cron).
///
/// Its text shows the line and marks the place:
///
/// ```
/// use tourbillon::Cron;
///
/// let error = Cron::parse("*/15 25 * * *").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "hour: `25` is not allowed there
///     */15 25 * * *
///          ^^
/// an hour is 0-23, or *, a range 8-17 or 22-2, steps */2, 1/2 or 8-17/3, or a list 6,12,18-23"
/// );
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CronError {
    /// The line is empty.
    Empty,
    /// The line is too long to be a cron line.
    TooLong {
        /// The length of the line in bytes.
        length: usize,
        /// The longest allowed length in bytes.
        limit: usize,
    },
    /// The line does not have five fields, nor six with seconds first, nor seven with years last as well.
    FieldCount {
        /// The line.
        line: Box<str>,
        /// How many fields the line has.
        found: usize,
        /// The bytes of the first field that is too many, or the place where one is missing.
        at: Range<usize>,
    },
    /// There is no such nickname.
    Nickname {
        /// The line.
        line: Box<str>,
    },
    /// A field has a value that is not allowed.
    Field {
        /// The line.
        line: Box<str>,
        /// The field that is wrong.
        field: CronField,
        /// The bytes of the line that are wrong.
        at: Range<usize>,
    },
    /// There is no valid interval after `@every`.
    Interval {
        /// The line.
        line: Box<str>,
        /// The bytes of the line that are wrong.
        at: Range<usize>,
    },
    /// There is no time zone of that name.
    UnknownZone {
        /// The name.
        name: Box<str>,
    },
}

/// A field of a cron line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say it")]
pub enum CronField {
    Second,
    Minute,
    Hour,
    DayOfMonth,
    Month,
    DayOfWeek,
    Year,
}

impl CronField {
    /// Describes the values that are allowed.
    fn allowed(self) -> &'static str {
        match self {
            CronField::Second => {
                "a second is 0-59, or *, a range 0-29 or 50-10, steps */15, 5/15 or 0-29/10, or a list 0,20,40-59"
            }
            CronField::Minute => {
                "a minute is 0-59, or *, a range 0-29 or 50-10, steps */15, 5/15 or 0-29/10, or a list 0,20,40-59"
            }
            CronField::Hour => {
                "an hour is 0-23, or *, a range 8-17 or 22-2, steps */2, 1/2 or 8-17/3, or a list 6,12,18-23"
            }
            CronField::DayOfMonth => {
                "a day of the month is 1-31, or * or ?, a range 1-7 or 28-2, steps */2, 5/10 or 1-15/7, L for the last day, \
                 15W for the weekday nearest to the 15th, LW for the last weekday, or a list 1,15,L"
            }
            CronField::Month => {
                "a month is 1-12 or JAN-DEC, or *, a range JUN-AUG or NOV-FEB, steps */3, FEB/3 or 3-12/3, or a list MAR,SEP-NOV"
            }
            CronField::DayOfWeek => {
                "a day of the week is 0-7 or SUN-SAT (0 and 7 are Sunday), or * or ?, a range MON-FRI or FRI-MON, steps */2 or MON/2, FRI#2 for the \
                 second Friday of the month (1 to 5), FRI#L for the last, or a list MON,WED-FRI; a + before all of it means that \
                 the day of the month must match too"
            }
            CronField::Year => {
                "a year is 1-4999, or *, a range 2030-2039, steps */4, 2030/4 or 2030-2050/5, or a list 2030,2032"
            }
        }
    }
}

impl fmt::Display for CronField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CronField::Second => "second",
            CronField::Minute => "minute",
            CronField::Hour => "hour",
            CronField::DayOfMonth => "day of the month",
            CronField::Month => "month",
            CronField::DayOfWeek => "day of the week",
            CronField::Year => "year",
        })
    }
}

impl fmt::Display for CronError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CronError::Empty => write!(f, "an empty cron line: {FIELDS}"),
            CronError::TooLong { length, limit } => {
                write!(f, "a cron line of {length} bytes: at most {limit} are allowed")
            }
            CronError::FieldCount { line, found, at } => {
                let s = if *found == 1 { "" } else { "s" };
                write!(f, "a cron line with {found} field{s}\n{}\n{FIELDS}", Marked { line, at })
            }
            CronError::Nickname { line } => {
                let marked = Marked { line, at: &whole(line) };
                write!(f, "there is no such nickname\n{marked}\n{NICKNAMES}")
            }
            CronError::Field { line, field, at } => {
                match line.get(at.clone()).unwrap_or_default() {
                    "" => write!(f, "{field}: something is missing there")?,
                    wrong => write!(f, "{field}: `{}` is not allowed there", OneLine(wrong))?,
                }
                write!(f, "\n{}\n{}", Marked { line, at }, field.allowed())
            }
            CronError::Interval { line, at } => {
                match line.get(at.clone()).unwrap_or_default() {
                    "" => f.write_str("an interval is missing")?,
                    wrong => write!(f, "`{}` is no interval", OneLine(wrong))?,
                }
                write!(f, "\n{}\n{INTERVALS}", Marked { line, at })
            }
            CronError::UnknownZone { name } => write!(
                f,
                "no time zone is called `{}`: use a name from the IANA time zone database, such as Europe/Berlin or UTC; the database \
                 is the system's (in /usr/share/zoneinfo, or in the directory TZDIR), or a built-in copy if the system has none",
                OneLine(name)
            ),
        }
    }
}

impl std::error::Error for CronError {}

/// A line, with a mark below the place.
struct Marked<'a> {
    line: &'a str,
    at: &'a Range<usize>,
}

impl fmt::Display for Marked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A place after the end of the line is as far after the end of the shown line.
        let columns = |to: usize| {
            let behind = to.saturating_sub(self.line.len());
            self.line.get(..to - behind).map_or(0, |before| before.chars().count() + behind)
        };
        let (from, to) = (columns(self.at.start), columns(self.at.end));
        write!(f, "    {}\n    {:from$}{:^>width$}", OneLine(self.line), "", "", width = (to - from.min(to)).max(1))
    }
}

/// A text on one line: control characters and line breaks are shown as blanks.
struct OneLine<'a>(&'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |c: char| if c.is_control() || c.is_whitespace() { ' ' } else { c };
        self.0.chars().try_for_each(|c| fmt::Write::write_char(f, plain(c)))
    }
}

const FIELDS: &str = "five fields are wanted: minute, hour, day of the month, month, day of the week; a sixth before them is \
                      for seconds, a seventh after them for years; a nickname such as @daily or @every 5m takes the place of \
                      all fields";

const NICKNAMES: &str = "the nicknames are @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly, and intervals such as @every 5m";

const INTERVALS: &str = "an interval is longer than zero, without blanks, of numbers with the units h, m, s, ms, us or ns: \
                         @every 5m, @every 1h30m10s, @every 1.5h";

/// Returns the range of a line without the blanks around it.
fn whole(line: &str) -> Range<usize> {
    let begin = line.len() - line.trim_start().len();
    begin..begin + line.trim().len()
}
