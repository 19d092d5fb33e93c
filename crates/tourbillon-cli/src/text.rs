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

/// Formats nanoseconds in a suitable unit, with three digits.
pub(crate) fn time(nanos: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];
    let (unit, size) = UNITS.iter().find(|(_, size)| nanos >= *size).unwrap_or(&("ns", 1));
    let value = nanos as f64 / *size as f64;
    let decimals = if *size == 1 || value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.decimals$} {unit}")
}

/// Formats a [`Duration`] in the same way.
pub(crate) fn duration(duration: Duration) -> String {
    time(crate::clock::nanos(duration))
}

/// Formats bytes in mebibytes.
pub(crate) fn bytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
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
    }

    #[test]
    fn nothing_is_coloured_where_there_is_no_terminal() {
        assert_eq!(Paint::none().bad("BROKEN"), "BROKEN");
        assert_eq!(Paint(true).good("kept"), "\x1b[32mkept\x1b[0m");
    }
}
