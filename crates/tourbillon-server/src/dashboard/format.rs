//! Numbers and times as the pages show them.

use std::time::Duration;

use jiff::Timestamp;
use maud::{Markup, html};
use tourbillon_durable::StoreTime;

/// Returns a number with separators: `1,234,567`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a duration in its two largest units: `2 h 30 min`, `12 ms`.
pub(super) fn duration(duration: Duration) -> String {
    const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)];

    let seconds = duration.as_secs();
    if seconds == 0 {
        let micros = duration.as_micros();
        return match micros {
            0 => "0 s".to_owned(),
            1..1_000 => format!("{micros} µs"),
            1_000..10_000 => format!("{:.1} ms", micros as f64 / 1e3),
            _ => format!("{} ms", micros / 1_000),
        };
    }
    if seconds < 10 && duration.subsec_millis() >= 100 {
        return format!("{:.1} s", duration.as_secs_f64());
    }
    let index = UNITS.iter().position(|(_, length)| seconds >= *length).unwrap_or(3);
    let (unit, length) = UNITS[index];
    let rest = UNITS.get(index + 1).map(|(unit, size)| (unit, seconds % length / size)).filter(|(_, rest)| *rest > 0);
    match rest.filter(|_| seconds < 10 * length) {
        Some((smaller, rest)) => format!("{} {unit} {rest} {smaller}", seconds / length),
        None => format!("{} {unit}", seconds / length),
    }
}

/// Returns how far a time is away: `in 2 min`, `5 s ago`. The script of the pages writes the same.
pub(super) fn relative(time: StoreTime, now: StoreTime) -> String {
    let whole = |distance: Duration| Duration::from_secs(distance.as_secs());
    match (whole(time.since(now)), whole(now.since(time))) {
        (Duration::ZERO, Duration::ZERO) => "now".to_owned(),
        (Duration::ZERO, past) => format!("{} ago", duration(past)),
        (future, _) => format!("in {}", duration(future)),
    }
}

/// Returns a time to the second, in UTC: `2026-11-18 08:00:00`.
pub(super) fn absolute(time: StoreTime) -> String {
    let micros = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    let time = Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX);
    time.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// Returns a time as an element that the script keeps up to date.
pub(super) fn when(time: StoreTime, now: StoreTime) -> Markup {
    html! {
        time datetime=(time) title={ (absolute(time)) " UTC" } data-relative { (relative(time, now)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_separators() {
        let shown = [0, 999, 1_000, 1_234_567].map(count);
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn durations_are_shown_in_at_most_two_units() {
        let shown = |millis| duration(Duration::from_millis(millis));
        assert_eq!(shown(0), "0 s");
        assert_eq!(shown(2), "2.0 ms");
        assert_eq!(shown(1_500), "1.5 s");
        assert_eq!(shown(90_000), "1 min 30 s");
        assert_eq!(shown(3_600_000 * 30), "1 d 6 h");
        assert_eq!(shown(86_400_000 * 30), "30 d");
        assert_eq!(duration(Duration::from_micros(70)), "70 µs");
    }

    #[test]
    fn a_distance_says_its_direction() {
        let now = StoreTime::from_micros(1_000_000_000);
        let later = now.saturating_add(Duration::from_millis(61_900));
        assert_eq!((relative(later, now), relative(now, later)), ("in 1 min 1 s".into(), "1 min 1 s ago".into()));
        assert_eq!(relative(now.saturating_add(Duration::from_millis(900)), now), "now");
        assert_eq!(absolute(now), "1970-01-01 00:16:40");
    }
}
