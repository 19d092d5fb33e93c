//! Parses any text as a duration. A valid one is exact: two other ways of parsing it agree, and printed in each unit that can
//! hold it, it parses to the same duration.

use std::time::Duration;

use tourbillon_tools::{TimeError, duration};

/// Reads a text as a duration.
pub fn times(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    match duration(text) {
        Ok(time) => check(text, time),
        Err(error) => {
            let said = error.to_string();
            assert!(!said.is_empty() && error == duration(text).unwrap_err());
            // A user who types what the error suggests gets a duration, unless it is too long or too fine.
            if let TimeError::NoUnit(_) = error {
                let typed = duration(&format!("{text}s"));
                assert!(matches!(typed, Ok(_) | Err(TimeError::TooLong | TimeError::TooFine)), "{typed:?}");
            }
        }
    }
}

fn check(text: &str, time: Duration) {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).expect("a unit"));
    let scale = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        other => panic!("{other} is no unit"),
    };
    // Equal up to the precision of floating point.
    let roughly = number.parse::<f64>().expect("a number that the standard library parses") * scale;
    assert!((time.as_secs_f64() - roughly).abs() <= roughly * 1e-12, "{text:?} is {time:?}, not {roughly} s");
    // Equal digit by digit.
    let nanos = time.as_nanos();
    let (seconds, millis) = (nanos / 1_000_000_000, nanos / 1_000_000);
    assert_eq!(duration(&format!("{seconds}.{:09}s", nanos % 1_000_000_000)), Ok(time));
    assert_eq!(duration(&format!("{millis}.{:06}ms", nanos % 1_000_000)), Ok(time));
    if nanos.is_multiple_of(1_000_000_000) {
        for (unit, size) in [("m", 60), ("min", 60), ("h", 3600)] {
            if seconds.is_multiple_of(size) {
                assert_eq!(duration(&format!("{}{unit}", seconds / size)), Ok(time));
            }
        }
    }
    // A further digit in front gives another duration or none; a zero in front gives the same.
    assert_eq!(duration(&format!("0{text}")), Ok(time));
    assert_ne!(duration(&format!("1{text}")), Ok(time));
}
