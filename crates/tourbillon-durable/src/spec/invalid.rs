//! What can be wrong with a timer that a user asks for.

use std::fmt;

use crate::time::{StoreTime, TimeOutOfRange};

/// The most bytes of a namespace or a kind.
const LONGEST_WORD: usize = 128;
/// The most bytes of a key, a name or a content type.
const LONGEST_TEXT: usize = 512;

/// Why a timer cannot be created.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum InvalidTimer {
    /// A time is before 1970 or after [`StoreTime::MAX`](crate::StoreTime::MAX).
    Time,
    /// The payload has more bytes than allowed.
    PayloadTooLarge {
        /// Its bytes.
        size: usize,
        /// The most bytes that are allowed.
        limit: usize,
    },
    /// A namespace, kind, key, name or content type cannot be used.
    Text {
        /// Which of them.
        field: &'static str,
        /// What is wrong with it.
        problem: InvalidText,
    },
    /// The interval is zero.
    ZeroInterval,
    /// The number of occurrences is zero.
    ZeroTimes,
    /// The number of missed occurrences that are delivered is zero: [`MissedFires::Skip`](super::MissedFires::Skip) says that.
    ZeroMissed,
    /// A missed occurrence is skipped or dead as soon as it is late at all, which each one is.
    ZeroLateness,
    /// A number of occurrences or an end was given for a timer that is due once.
    NotRepeating,
    /// The cron line or its zone is wrong.
    Cron(String),
    /// It has no time that is still to come: its recurrence has none, its end comes first, or its delay leads beyond
    /// [`StoreTime::MAX`](crate::StoreTime::MAX) by the store's clock.
    NeverDue,
    /// The retry policy contradicts itself.
    Retry(&'static str),
}

/// What is wrong with a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InvalidText {
    /// It is empty.
    Empty,
    /// It has more bytes than this.
    LongerThan(usize),
    /// It has a character that is not allowed there.
    Character(char),
}

/// Checks a namespace or a kind: letters, digits and `. _ - : /`.
pub(crate) fn check_word(field: &'static str, word: &str) -> Result<(), InvalidTimer> {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || ".-_:/".contains(letter);
    check(word, LONGEST_WORD, is_allowed).map_err(|problem| InvalidTimer::Text { field, problem })
}

/// Checks a key, a name or a content type: anything but control characters.
pub(crate) fn check_text(field: &'static str, text: &str) -> Result<(), InvalidTimer> {
    check(text, LONGEST_TEXT, |letter| !letter.is_control()).map_err(|problem| InvalidTimer::Text { field, problem })
}

fn check(text: &str, longest: usize, is_allowed: impl Fn(char) -> bool) -> Result<(), InvalidText> {
    match text.chars().find(|letter| !is_allowed(*letter)) {
        _ if text.is_empty() => Err(InvalidText::Empty),
        _ if text.len() > longest => Err(InvalidText::LongerThan(longest)),
        Some(letter) => Err(InvalidText::Character(letter)),
        None => Ok(()),
    }
}

impl From<TimeOutOfRange> for InvalidTimer {
    fn from(_: TimeOutOfRange) -> InvalidTimer {
        InvalidTimer::Time
    }
}

impl fmt::Display for InvalidTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidTimer::Time => TimeOutOfRange.fmt(f),
            InvalidTimer::PayloadTooLarge { size, limit } => {
                write!(
                    f,
                    "the payload has {size} bytes; at most {limit} are allowed. Store it elsewhere and give its address"
                )
            }
            InvalidTimer::Text { field, problem } => match problem {
                InvalidText::Empty => write!(f, "the {field} is empty"),
                InvalidText::LongerThan(longest) => write!(f, "the {field} is longer than {longest} bytes"),
                InvalidText::Character(letter) if matches!(*field, "namespace" | "kind") => {
                    write!(f, "the {field} has a {letter:?}; it may have letters, digits and . _ - : /")
                }
                InvalidText::Character(letter) => write!(f, "the {field} has the control character {letter:?}"),
            },
            InvalidTimer::ZeroInterval => f.write_str("the interval of a repeating timer must be longer than zero"),
            InvalidTimer::ZeroTimes => f.write_str("a timer has at least one occurrence"),
            InvalidTimer::ZeroMissed => f.write_str("at least one missed occurrence is delivered; use `Skip` for none"),
            InvalidTimer::ZeroLateness => {
                f.write_str("every delivery is a little late: `Skip` and `DeadAfter` need a time longer than zero")
            }
            InvalidTimer::NotRepeating => f.write_str("a timer that is due once has neither `times` nor `until`"),
            InvalidTimer::Cron(error) => write!(f, "{error}"),
            InvalidTimer::NeverDue => {
                let last = StoreTime::MAX;
                write!(f, "the timer would never be due: its times are over, do not exist, or are after {last}")
            }
            InvalidTimer::Retry(problem) => write!(f, "the retry policy is wrong: {problem}"),
        }
    }
}

impl std::error::Error for InvalidTimer {}
