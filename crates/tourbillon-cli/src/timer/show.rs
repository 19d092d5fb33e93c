//! Timers as text for people. What a server says may hold anything: characters that would control the terminal are replaced.

use serde_json::Value;
use tourbillon_client::{CancelCounts, Created, Timer, TimerDetail, TimerEvent};

use crate::text::{Paint, clean};

/// The most characters of a cell.
const WIDEST: usize = 40;

pub(super) fn created(created: &Created) -> String {
    let what = if created.is_new { "Created" } else { "Already pending:" };
    format!("{what} {}, due at {}, version {}", clean(&created.id), clean(&created.due), created.version)
}

pub(super) fn cancelled(counts: CancelCounts) -> String {
    format!("{} cancelled, {} being delivered, {} gone", counts.cancelled, counts.in_flight, counts.gone)
}

pub(super) fn event(event: &TimerEvent) -> String {
    let text = |name: &str| clean(event.data[name].as_str().unwrap_or_default());
    let mut line = format!("{}  {:<11}", text("at"), clean(&event.what));
    for name in ["namespace", "key", "name", "id"] {
        if !text(name).is_empty() {
            line += &format!(" {name}={:?}", text(name));
        }
    }
    for name in ["attempt", "late_ms", "cancelled", "missed"] {
        if let Some(number) = event.data[name].as_f64() {
            line += &format!(" {name}={number}");
        }
    }
    if !text("error").is_empty() {
        line += &format!(" error={:?}", text("error"));
    }
    line
}

pub(super) fn detail(timer: &TimerDetail) -> String {
    let mut lines = Vec::new();
    let mut line = |name: &str, value: &str| lines.push(format!("{name:<12}{}", clean(value)));
    line("id", &timer.id);
    line("namespace", &timer.namespace);
    for name in ["key", "name"] {
        timer.more.get(name).and_then(Value::as_str).into_iter().for_each(|value| line(name, value));
    }
    line("state", &timer.state);
    line("due", &timer.due);
    for occurrence in &timer.occurrences {
        let number = format!("{}, {}, attempt {}", occurrence.occurrence, occurrence.state, occurrence.attempt);
        line("occurrence", &number);
        occurrence.last_error.iter().for_each(|error| line("  error", error));
    }
    for entry in timer.more.get("history").and_then(Value::as_array).into_iter().flatten() {
        let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        line("ended", &format!("{} {}, attempts {}", text("ended"), text("state"), entry["attempts"]));
        entry["error"].as_str().into_iter().for_each(|error| line("  error", error));
    }
    lines.join("\n")
}

/// Returns a table that is as wide as its cells.
pub(super) fn table(timers: &[Timer], has_more: bool) -> String {
    if timers.is_empty() {
        return "No timers.\n".to_owned();
    }
    let mut rows = vec![["DUE", "STATE", "KEY", "NAME", "NAMESPACE", "TO", "ID"].map(str::to_owned)];
    for timer in timers {
        let option = |text: &Option<String>| text.as_deref().map_or("-".to_owned(), cell);
        rows.push([
            cell(&timer.due),
            match timer.attempt {
                0 => cell(&timer.state),
                attempt => format!("{} ({attempt})", cell(&timer.state)),
            },
            option(&timer.key),
            option(&timer.name),
            cell(&timer.namespace),
            cell(&target(timer)),
            cell(&timer.id),
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 7] = std::array::from_fn(width);
    let paint = Paint::for_stdout();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ").trim_end().to_owned();
        text += &if number == 0 { paint.faint(&line) } else { line };
        text.push('\n');
    }
    if has_more {
        text += &format!("There are more: --limit {} shows them.\n", timers.len() * 10);
    }
    text
}

fn target(timer: &Timer) -> String {
    match timer.more.get("deliver") {
        Some(Value::Object(deliver)) => match (deliver.get("queue"), deliver.get("webhook")) {
            (Some(queue), _) => format!("queue {}", queue.as_str().unwrap_or_default()),
            (_, Some(webhook)) => webhook["url"].as_str().unwrap_or_default().to_owned(),
            _ => String::new(),
        },
        _ => String::new(),
    }
}

fn cell(text: &str) -> String {
    let text = clean(text);
    match text.char_indices().nth(WIDEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn timer(key: &str) -> Timer {
        let timer = json!({ "id": "0199", "occurrence": 1, "namespace": "default", "key": key, "state": "armed", "due": "2026",
            "deliver": { "queue": "emails" } });
        serde_json::from_value(timer).unwrap()
    }

    #[test]
    fn u4_a_table_is_aligned_and_cannot_control_the_terminal() {
        let text = table(&[timer("a"), timer("long key \u{1b}[31m")], false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert_eq!(lines[1].find("queue emails"), lines[0].find("TO"), "{text}");
        assert!(table(&[], false).contains("No timers"));
        assert!(table(&[timer("k")], true).contains("--limit 10"));
    }

    #[test]
    fn o7_an_event_is_one_line() {
        let data = json!({ "at": "2026", "id": "1", "key": "a\nb", "attempt": 2, "error": "no" });
        let mut parsed = serde_json::from_value::<Timer>(
            json!({ "id": "1", "occurrence": 1, "namespace": "n", "state": "dead", "due": "d" }),
        )
        .unwrap();
        parsed.attempt = 2;
        let line = event(&tourbillon_client::TimerEvent::new("failed", data));
        assert!(line.contains("failed") && line.contains("attempt=2") && !line.contains('\n'), "{line}");
        assert!(table(&[parsed], false).contains("dead (2)"));
    }
}
