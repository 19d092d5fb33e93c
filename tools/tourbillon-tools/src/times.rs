//! Parses durations as users type them: `500ms`, `1.5s`, `10s`, `2m` or `2min`, `1h`.
//!
//! A duration is digits, with at most one point, directly followed by a unit. The result is exact to the nanosecond. Anything
//! else is refused, with an error that tells the user what to type (P6).

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// The reason why a text is not a duration.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TimeError {
    /// It does not begin with a number, or its number has two points.
    NoNumber,
    /// This number has no unit.
    NoUnit(String),
    /// The text after the number is not a unit.
    UnknownUnit(String),
    /// It is not a whole number of nanoseconds.
    TooFine,
    /// It is more than a [`Duration`] can hold, 584 billion years.
    TooLong,
}

/// Parses a duration.
///
/// ```
/// use std::time::Duration;
/// use tourbillon_tools::duration;
///
/// assert_eq!(duration("0.1s"), Ok(Duration::from_millis(100)));
/// assert_eq!(duration("2min"), Ok(Duration::from_secs(120)));
/// assert_eq!(duration("10").unwrap_err().to_string(), "10 of what? Type 10s, or 10ms, 10m, 10h");
/// ```
///
/// # Errors
/// Returns a [`TimeError`], which tells the user what to type.
pub fn duration(text: &str) -> Result<Duration, TimeError> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return Err(TimeError::NoNumber);
    }
    let unit = match unit {
        "ms" => MILLISECOND,
        "s" => SECOND,
        "m" | "min" => MINUTE,
        "h" => HOUR,
        "" => return Err(TimeError::NoUnit(number.to_owned())),
        other => return Err(TimeError::UnknownUnit(other.to_owned())),
    };
    let whole = digits(whole).and_then(|whole| whole.checked_mul(unit)).ok_or(TimeError::TooLong)?;
    let nanos = whole.checked_add(part_of(unit, fraction)?).ok_or(TimeError::TooLong)?;
    let seconds = u64::try_from(nanos / SECOND).map_err(|_| TimeError::TooLong)?;
    Ok(Duration::new(seconds, (nanos % SECOND) as u32))
}

// In nanoseconds.
const MILLISECOND: u128 = 1_000_000;
const SECOND: u128 = 1_000 * MILLISECOND;
const MINUTE: u128 = 60 * SECOND;
const HOUR: u128 = 60 * MINUTE;

/// An hour has 2^13 * 3^2 * 5^11 nanoseconds. A fraction of n digits whose last digit is not zero has a denominator of at least
/// 2^n or 5^n. So with more than 13 digits it is not a whole number of nanoseconds, whatever the unit.
const MOST_DIGITS: usize = HOUR.trailing_zeros() as usize;
const _: () = assert!(MOST_DIGITS == 13 && 10u128.pow(MOST_DIGITS as u32).checked_mul(HOUR).is_some());

/// Returns the nanoseconds of a fraction of a unit, if they are a whole number.
fn part_of(unit: u128, fraction: &str) -> Result<u128, TimeError> {
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > MOST_DIGITS {
        return Err(TimeError::TooFine);
    }
    let (part, scale) = (digits(fraction).ok_or(TimeError::TooLong)? * unit, 10u128.pow(fraction.len() as u32));
    if part.is_multiple_of(scale) { Ok(part / scale) } else { Err(TimeError::TooFine) }
}

/// Parses digits, however many; no digits are zero.
fn digits(text: &str) -> Option<u128> {
    text.bytes().try_fold(0u128, |number, digit| number.checked_mul(10)?.checked_add(u128::from(digit - b'0')))
}

impl fmt::Display for TimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimeError::NoNumber => f.write_str("a time is a number with a unit: 500ms, 1.5s, 2m, 1h"),
            TimeError::NoUnit(number) => {
                write!(f, "{number} of what? Type {number}s, or {number}ms, {number}m, {number}h")
            }
            TimeError::UnknownUnit(unit) => {
                write!(f, "{unit:?} is no unit; the units are ms, s, m (or min) and h: 500ms, 1.5s, 2m, 1h")
            }
            TimeError::TooFine => f.write_str("that is not a whole number of nanoseconds"),
            TimeError::TooLong => f.write_str("that is longer than a duration can be"),
        }
    }
}

impl Error for TimeError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn p6_a_time_is_digits_and_a_unit() {
        for (text, millis) in [
            ("500ms", 500),
            ("1.5s", 1_500),
            ("10s", 10_000),
            ("2m", 120_000),
            ("2min", 120_000),
            ("1h", 3_600_000),
            ("0s", 0),
            (".5s", 500),
            ("5.s", 5_000),
            ("007s", 7_000),
            ("0.1s", 100),
            ("0.7s", 700),
            ("1.1h", 3_960_000),
            ("0.001s", 1),
            ("1.500000000000000000000000000000s", 1_500),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn p6_what_is_no_time_is_told_what_to_type() {
        for bad in ["", "s", ".", ".s", "..", "-1s", "+1s", "NaN", "inf", "infs", " 1s", "1.2.3s", "１s", "é"] {
            assert_eq!(duration(bad), Err(TimeError::NoNumber), "{bad:?}");
        }
        for bad in ["1e9s", "1 s", "1s ", "1S", "1sec", "1us", "1_000s", "1,5s", "1msé", "5h30m", "1d"] {
            assert!(matches!(duration(bad), Err(TimeError::UnknownUnit(_))), "{bad:?}");
        }
        for bare in ["10", "0", "1.5"] {
            assert_eq!(duration(bare), Err(TimeError::NoUnit(bare.to_owned())));
            let said = duration(bare).unwrap_err().to_string();
            assert!(said.contains(&format!("{bare}s")), "{said}");
        }
        for error in [duration("").unwrap_err(), duration("1 s").unwrap_err()] {
            assert!(error.to_string().contains("1.5s"), "{error}");
        }
    }

    #[test]
    fn p5_p6_the_longest_and_the_finest_are_exact_and_beyond_them_is_refused() {
        assert_eq!(duration("18446744073709551615.999999999s"), Ok(Duration::MAX));
        assert_eq!(duration("18446744073709551615s"), Ok(Duration::from_secs(u64::MAX)));
        for long in
            ["18446744073709551616s", "307445734561825861m", "5124095576030432h", &format!("{}s", "9".repeat(999))]
        {
            assert_eq!(duration(long), Err(TimeError::TooLong), "{long}");
        }
        assert_eq!(duration(&format!("{}1s", "0".repeat(999))), Ok(Duration::from_secs(1)));
        for (text, nanos) in [("0.000001ms", 1), ("0.000000001s", 1), ("0.00000000005m", 3), ("0.0000000000025h", 9)] {
            assert_eq!(duration(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
        for fine in ["0.0000001ms", "0.0000000001s", "0.0000000000000000000000001h", "0.3333333333333m"] {
            assert_eq!(duration(fine), Err(TimeError::TooFine), "{fine}");
        }
    }

    #[test]
    fn p6_any_text_is_a_time_or_is_refused() {
        let seed = fresh_seed();
        let mut random = Random::new(seed);
        let parts = [
            "0",
            "1",
            "7",
            "59",
            "24",
            "500",
            ".",
            "-",
            "+",
            "e",
            "E9",
            "inf",
            "NaN",
            " ",
            "_",
            "ms",
            "s",
            "m",
            "min",
            "h",
            "é",
            "\u{0}",
            "９",
            "99999999999999999999",
        ];
        let mut times = 0;
        for _ in 0..100_000 {
            let text: String = (0..random.below(7)).map(|_| random.one_of(&parts)).collect();
            match duration(&text) {
                Ok(_) => {
                    assert!(text.starts_with(|c: char| c.is_ascii_digit() || c == '.'), "{text:?} is no number");
                    assert!(
                        ["ms", "s", "m", "min", "h"].iter().any(|unit| text.ends_with(unit)),
                        "{text:?} has no unit"
                    );
                    times += 1;
                }
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
        assert!(times > 100, "only {times} were times: this tests nothing");
    }

    #[test]
    fn p6_a_time_is_what_it_says() {
        let mut random = Random::new(fresh_seed());
        for _ in 0..20_000 {
            let (seconds, nanos) = (random.any() >> random.below(64), random.below(1_000_000_000) as u32);
            let exact = Duration::new(seconds, nanos);
            assert_eq!(duration(&format!("{seconds}.{nanos:09}s")), Ok(exact));
            let (millis, rest) = (exact.as_nanos() / 1_000_000, exact.as_nanos() % 1_000_000);
            assert_eq!(duration(&format!("{millis}.{rest:06}ms")), Ok(exact));
            let minutes = seconds / 60;
            assert_eq!(duration(&format!("{minutes}m")), Ok(Duration::from_secs(60 * minutes)));
            assert_eq!(duration(&format!("{minutes}min")), duration(&format!("{minutes}m")));
            let hours = seconds / 3600;
            assert_eq!(duration(&format!("{hours}h")), Ok(Duration::from_secs(3600 * hours)));
        }
    }

    fn fresh_seed() -> u64 {
        let seed = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64);
        println!("seed {seed}");
        seed
    }
}
