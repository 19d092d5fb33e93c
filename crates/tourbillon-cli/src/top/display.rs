//! Shows rates: a block that is drawn again in place on a terminal, or one line for each look in a pipe.

use tourbillon::inspect::Address;

use super::counts::{EngineRates, Look, Rates};
use crate::text::{Paint, clean, count, time};

/// Draws one frame after the other.
pub(crate) struct Display {
    address: Address,
    is_terminal: bool,
    paint: Paint,
    /// Lines of the last frame.
    drawn: usize,
    /// Timers armed and fired per second, and the highest lateness, of the last looks.
    history: [Vec<f64>; 3],
}

/// Looks in a sparkline.
const LOOKS: usize = 60;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

impl Display {
    pub(crate) fn new(address: &Address, is_terminal: bool) -> Display {
        let paint = if is_terminal { Paint::for_stdout() } else { Paint::none() };
        Display { address: address.clone(), is_terminal, paint, drawn: 0, history: Default::default() }
    }

    /// Returns the next frame, with the codes that move a terminal's cursor to the begin of the last one.
    pub(crate) fn frame(&mut self, look: &Look, rates: &Rates) -> String {
        if !self.is_terminal {
            return self.plain(rates);
        }
        let late = rates.all.late(1.0).unwrap_or(0) as f64;
        for (history, value) in self.history.iter_mut().zip([rates.all.armed, rates.all.fired, late]) {
            history.push(value);
            history.drain(..history.len().saturating_sub(LOOKS));
        }
        let lines = self.lines(look, rates);
        // Lines are cut at the edge of the terminal (?7l), so that each takes one row; the rest of each row is cleared.
        let up = if self.drawn == 0 { String::new() } else { format!("\x1b[{}A", self.drawn) };
        let text: String = lines.iter().map(|line| format!("\r{line}\x1b[K\n")).collect();
        self.drawn = lines.len();
        format!("\x1b[?7l{up}{text}\x1b[J\x1b[?7h")
    }

    fn lines(&self, look: &Look, rates: &Rates) -> Vec<String> {
        let title = format!("{} (pid {})", clean(&look.program), look.pid);
        let place = match &self.address {
            Address::Tcp(address) => format!("in a browser: http://{address}/"),
            other => other.to_string(),
        };
        let mut lines = vec![
            format!("{}  tourbillon {}  {}", self.paint.strong(&title), clean(&look.version), self.paint.faint(&place)),
            String::new(),
            self.paint.faint(&head("engine")),
        ];
        lines.extend(rates.engines.iter().map(row));
        if rates.engines.is_empty() {
            lines.push("no engine has been used yet".to_owned());
        }
        if rates.engines.len() > 1 {
            lines.push(self.paint.strong(&row(&rates.all)));
        }
        lines.push(String::new());
        let names = ["armed/s", "fired/s", "late, max"];
        lines.extend(names.iter().zip(&self.history).map(|(name, values)| format!("{name:10} {}", sparkline(values))));
        lines.push(String::new());
        lines.push(self.footer(look, rates));
        lines
    }

    fn footer(&self, look: &Look, rates: &Rates) -> String {
        let cpu = rates.cpu.map_or("CPU not known".to_owned(), |cpu| format!("CPU {cpu:.1}% of one core"));
        let panics = match rates.all.panics {
            0 => "no panics".to_owned(),
            panics => self.paint.bad(&format!("{} wakers and callbacks panicked", count(panics))),
        };
        format!("{cpu} (of {}), {} callbacks waiting, {panics}", look.cores, count(rates.all.callbacks_waiting))
    }

    /// One line for all engines; before the first one the names of the columns.
    fn plain(&mut self, rates: &Rates) -> String {
        let title = if self.drawn == 0 { format!("{}{:>8}\n", head("engines"), "cpu%") } else { String::new() };
        self.drawn += 1;
        let cpu = rates.cpu.map_or_else(|| "-".to_owned(), |cpu| format!("{cpu:.1}"));
        format!("{title}{}{cpu:>8}\n", row(&rates.all))
    }
}

fn head(first: &str) -> String {
    format!(
        "{first:20}{:>12}{:>12}{:>13}{:>12}{:>10}{:>10}{:>10}",
        "armed/s", "fired/s", "cancelled/s", "pending", "late p50", "p99", "max"
    )
}

fn row(rates: &EngineRates) -> String {
    let [armed, fired, cancelled] = [rates.armed, rates.fired, rates.cancelled].map(|rate| count(rate.round() as u64));
    let [p50, p99, max] = [0.5, 0.99, 1.0].map(|quantile| rates.late(quantile).map_or_else(|| "-".to_owned(), time));
    let name: String = clean(&rates.name).chars().take(19).collect();
    format!("{name:20}{armed:>12}{fired:>12}{cancelled:>13}{:>12}{p50:>10}{p99:>10}{max:>10}", count(rates.pending))
}

/// Draws values from zero to their maximum.
fn sparkline(values: &[f64]) -> String {
    let most = values.iter().copied().fold(0.0, f64::max);
    let bar = |value: &f64| match most {
        0.0 => BARS[0],
        most => BARS[((value / most * 7.0).round() as usize).min(7)],
    };
    values.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::super::counts::tests::{engine, look};
    use super::*;

    fn display(is_terminal: bool) -> Display {
        Display::new(&"127.0.0.1:7669".parse().expect("an address"), is_terminal)
    }

    fn two_looks(name: &str) -> (Look, Rates) {
        let before = look(1_000_000_000, 0, Vec::new());
        let now = look(2_000_000_000, 0, vec![engine(name, 3_000, 1_000, &[(61_000, 990), (1_750_000, 10)])]);
        let rates = Rates::between(&before, &now).expect("the same process");
        (now, rates)
    }

    #[test]
    fn e9_a_frame_is_drawn_over_the_last_one() {
        let (look, rates) = two_looks("global");
        let mut display = display(true);
        let first = display.frame(&look, &rates);
        let lines = first.matches('\n').count();
        assert!(!first.contains("A\x1b") && first.contains("shop (pid 7)") && first.contains("http://127.0.0.1:7669/"));
        assert!(display.frame(&look, &rates).starts_with(&format!("\x1b[?7l\x1b[{lines}A")));
    }

    #[test]
    fn e9_a_pipe_gets_one_line_for_each_look_without_control_codes() {
        let (look, rates) = two_looks("global");
        let mut display = display(false);
        let text = display.frame(&look, &rates) + &display.frame(&look, &rates);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        let fields: Vec<_> = lines[2].split_whitespace().collect();
        assert_eq!(fields, ["all", "3,000", "1,000", "2,000", "5", "61.0", "us", "61.0", "us", "1.75", "ms", "0.0"]);
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn e9_the_name_of_an_engine_cannot_move_the_cursor() {
        let (look, rates) = two_looks("\x1b[2J\u{7}evil");
        let frame = display(true).frame(&look, &rates);
        assert!(frame.contains("?[2J?evil") && !frame.contains("\x1b[2J"), "{frame:?}");
    }

    #[test]
    fn e9_a_sparkline_goes_from_zero_to_its_maximum() {
        assert_eq!(sparkline(&[0.0, 7.0, 14.0]), "▁▅█");
        assert_eq!(sparkline(&[0.0, 0.0]), "▁▁");
    }
}
