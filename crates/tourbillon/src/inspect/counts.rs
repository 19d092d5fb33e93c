//! The answer to `GET /stats`: the counts of all engines as one JSON object.

use std::collections::HashMap;
use std::fmt::Write;

use crate::engine::Engine;
use crate::inspect::{Inspected, PROTOCOL};
use crate::stats::{Lateness, Stats};
use crate::sys::process_time;

impl Inspected {
    /// Returns the counts as JSON.
    pub(crate) fn json(&self) -> String {
        let shared = Engine::shared().filter(|(_, engine)| !self.has_named(engine));
        let shared = shared.map(|(name, engine)| (name, engine.core()));
        let named = self.engines.iter().map(|(name, core)| (name.as_str(), core));
        let mut names = HashMap::new();
        let engines = shared.chain(named).map(|(name, core)| {
            let name = unique(name, &mut names);
            engine_json(&name, &format!("{:?}", core.clock), core.is_closed(), &core.stats())
        });
        let engines = engines.collect::<Vec<_>>().join(",");
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let cpu = process_time().map_or_else(|| "null".to_owned(), |nanos| nanos.to_string());
        format!(
            "{{\"protocol\":{PROTOCOL},\"version\":\"{}\",\"program\":{},\"pid\":{},\"started_ms\":{},\"elapsed_ns\":{},\
             \"cpu_ns\":{cpu},\"cores\":{cores},\"engines\":[{engines}]}}\n",
            env!("CARGO_PKG_VERSION"),
            text(&program()),
            std::process::id(),
            self.started_ms,
            self.started.elapsed().as_nanos(),
        )
    }

    fn has_named(&self, engine: &Engine) -> bool {
        self.engines.iter().any(|(_, core)| core.as_ptr() == engine.core().as_ptr())
    }
}

/// Returns the name, with a number if it was used before: a viewer compares two looks by name.
fn unique<'a>(name: &'a str, names: &mut HashMap<&'a str, usize>) -> String {
    let times = names.entry(name).or_insert(0);
    *times += 1;
    if *times == 1 { name.to_owned() } else { format!("{name} {times}") }
}

fn engine_json(name: &str, clock: &str, is_shut_down: bool, stats: &Stats) -> String {
    format!(
        "{{\"name\":{},\"clock\":{},\"is_shut_down\":{is_shut_down},\"armed\":{},\"fired\":{},\"cancelled\":{},\"stopped\":{},\
         \"pending\":{},\"shards\":{},\"waker_panics\":{},\"callback_panics\":{},\"callbacks_waiting\":{},\"lateness\":[{}]}}",
        text(name),
        text(clock),
        stats.armed,
        stats.fired,
        stats.cancelled,
        stats.stopped,
        stats.pending,
        stats.shards,
        stats.waker_panics,
        stats.callback_panics,
        stats.callbacks_waiting,
        lateness_json(&stats.lateness)
    )
}

/// Formats the buckets that are not empty: the highest lateness of each in nanoseconds, and its count.
fn lateness_json(lateness: &Lateness) -> String {
    let buckets = lateness.buckets().map(|(late, count)| format!("[{},{count}]", late.as_nanos()));
    buckets.collect::<Vec<_>>().join(",")
}

/// Formats a JSON string.
fn text(text: &str) -> String {
    let mut json = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => json.extend(['\\', character]),
            control if control.is_control() => _ = write!(json, "\\u{:04x}", u32::from(control)),
            other => json.push(other),
        }
    }
    json.push('"');
    json
}

/// Returns the file name of this program.
fn program() -> String {
    let path = std::env::current_exe().ok();
    let name = path.as_deref().and_then(|path| path.file_name());
    name.map_or_else(|| "a process".to_owned(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e9_a_name_cannot_become_json() {
        assert_eq!(text("a \"b\" \\ \n \u{1b}"), r#""a \"b\" \\ \u000a \u001b""#);
    }
}
