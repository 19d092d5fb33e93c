//! Formats numbers and durations for people, with colour on a terminal.

use std::io::IsTerminal;
use std::time::Duration;

/// Whether to use colour: on a terminal, unless `NO_COLOR` is set.
#[derive(Clone, Copy)]
pub(crate) struct Paint(bool);

impl Paint {
    pub(crate) fn for_stdout() -> Paint {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Paint(std::io::stdout().is_terminal() && !refused)
    }

    pub(crate) fn none() -> Paint {
        Paint(false)
    }

    pub(crate) fn good(self, text: &str) -> String {
        self.with("32", text)
    }

    pub(crate) fn bad(self, text: &str) -> String {
        self.with("1;31", text)
    }

    pub(crate) fn strong(self, text: &str) -> String {
        self.with("1", text)
    }

    pub(crate) fn faint(self, text: &str) -> String {
        self.with("2", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Returns a text of another process without characters that would control the terminal.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Formats 3412870 as `3,412,870`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats nanoseconds in a suitable unit, with three digits; from a minute on in whole seconds.
pub(crate) fn time(nanos: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let seconds = nanos / 1_000_000_000;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, _) => {}
        (0, minutes, seconds) => return format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => return format!("{} h {minutes} min", count(hours)),
    }
    let value = |size: u64| nanos as f64 / size as f64;
    // The first unit in which the rounded number has at most three digits.
    let unit = UNITS.iter().find(|(_, size)| value(*size) < 999.5);
    let (unit, size) = unit.unwrap_or(&UNITS[3]);
    format!("{:.1$} {unit}", value(*size), if *size == 1 { 0 } else { decimals(value(*size)) })
}

/// Returns how many decimals make three digits.
fn decimals(value: f64) -> usize {
    match value {
        99.95.. => 0,
        9.995.. => 1,
        _ => 2,
    }
}

/// Formats a [`Duration`] in the same way.
pub(crate) fn duration(duration: Duration) -> String {
    time(crate::clock::nanos(duration))
}

/// Formats bytes in a suitable unit, with three digits.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, size)| bytes >= *size) {
        Some((unit, size)) => {
            let value = bytes as f64 / *size as f64;
            format!("{value:.0$} {unit}", decimals(value))
        }
        None => format!("{bytes} B"),
    }
}

/// Formats a number with its noun: `1 timer`, `2 timers`.
pub(crate) fn many(number: u64, what: &str) -> String {
    format!("{} {what}{}", count(number), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_separators_each_three_digits() {
        let text = [0, 999, 1_000, 3_412_870, 100_000].map(count);
        assert_eq!(text, ["0", "999", "1,000", "3,412,870", "100,000"]);
    }

    #[test]
    fn durations_have_their_natural_unit() {
        let text = [0, 950, 1_750_000, 61_000, 2_000_000_000].map(time);
        assert_eq!(text, ["0 ns", "950 ns", "1.75 ms", "61.0 us", "2.00 s"]);
        let text = [999_600_000, 99_960, 9_996, 59_990_000_000, 75_000_000_000, 7_260_000_000_000].map(time);
        assert_eq!(text, ["1.00 s", "100 us", "10.0 us", "60.0 s", "1 min 15 s", "2 h 1 min"]);
        assert_eq!(time(u64::MAX), "5,124,095 h 34 min");
    }

    #[test]
    fn sizes_have_their_natural_unit() {
        let text = [0, 1_023, 1_024, 21_915_238, 16_777_216_000, u64::MAX].map(bytes);
        assert_eq!(text, ["0 B", "1023 B", "1.00 KiB", "20.9 MiB", "15.6 GiB", "17179869184 GiB"]);
    }

    #[test]
    fn nothing_is_coloured_where_there_is_no_terminal() {
        assert_eq!(Paint::none().bad("BROKEN"), "BROKEN");
        assert_eq!(Paint(true).good("kept"), "\x1b[32mkept\x1b[0m");
    }
}
