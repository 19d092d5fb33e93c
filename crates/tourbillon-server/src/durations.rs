//! Durations and times as text: `1.5s`, `PT1.5S`, `2026-11-18T08:00:00Z`.

use std::fmt;
use std::time::{Duration, SystemTime};

use jiff::{Span, SpanRelativeTo, Timestamp};

/// Parses a duration: a number with a unit (`1.5s`, `2h 30m`) or ISO 8601 (`PT1.5S`). A day has 24 hours.
///
/// # Errors
/// The text says what is wrong and what is allowed.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let bad = || {
        format!(
            "{text:?} is not a duration: write \"1.5s\", \"250ms\", \"2h 30m\", \"7d\" or ISO 8601 such as \"PT1.5S\""
        )
    };
    let span: Span = text.trim().parse().map_err(|_| bad())?;
    if span.get_years() != 0 || span.get_months() != 0 {
        return Err(format!("{text:?} has years or months, whose length differs: use weeks, days or hours"));
    }
    let signed = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| bad())?;
    Duration::try_from(signed).map_err(|_| format!("{text:?} is negative: a duration is zero or longer"))
}

/// Writes a duration so that [`parse_duration`] reads the same one.
pub(crate) fn format_duration(duration: Duration) -> String {
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    match nanos {
        0 => format!("{seconds}s"),
        _ if seconds == 0 && nanos % 1_000_000 == 0 => format!("{}ms", nanos / 1_000_000),
        _ => format!("{seconds}.{}s", format!("{nanos:09}").trim_end_matches('0')),
    }
}

/// Parses a time as RFC 3339 has it.
///
/// # Errors
/// The text says what is wrong and what is allowed.
pub(crate) fn parse_time(text: &str) -> Result<SystemTime, String> {
    let time: Timestamp = text.trim().parse().map_err(|_| {
        format!("{text:?} is not a time: write RFC 3339 with an offset, such as \"2026-11-18T08:00:00Z\"")
    })?;
    Ok(time.into())
}

/// A time that is displayed as RFC 3339 has it, in UTC.
pub(crate) struct Rfc3339(pub(crate) SystemTime);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Timestamp::try_from(self.0) {
            Ok(time) => time.fmt(f),
            Err(_) => f.write_str("9999-12-30T22:00:00Z"),
        }
    }
}

/// Writes a time as RFC 3339 has it, in UTC.
pub(crate) fn format_time(time: SystemTime) -> String {
    Rfc3339(time).to_string()
}

/// Durations of a configuration, as text.
pub(crate) mod text {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::format_duration(*duration))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::parse_duration(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_or_are_iso_8601() {
        for (text, millis) in [
            ("1.5s", 1_500),
            ("250ms", 250),
            ("PT1.5S", 1_500),
            ("2h 30m", 9_000_000),
            ("P1DT1S", 86_401_000),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "5", "-1s", "P1M", "1y", "s", "1e99h", "tomorrow", "PT"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_duration_that_was_written_is_read_again() {
        for nanos in [0, 1, 999_999_999, 1_000_000, 1_500_000_000, 86_400_000_000_000] {
            let duration = Duration::from_nanos(nanos);
            assert_eq!(parse_duration(&format_duration(duration)), Ok(duration), "{}", format_duration(duration));
        }
    }
}
