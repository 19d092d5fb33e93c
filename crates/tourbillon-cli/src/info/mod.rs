//! `tourbillon info`: what this machine offers to timers.

#[cfg(target_os = "linux")]
mod linux;

use std::io::Write;

use crate::args::InfoOptions;
use crate::check::histogram;
use crate::clock::monotonic;
use crate::json::Json;
use crate::text::{Paint, bytes, time};
use crate::{kernel_sleep, machine};

/// One line of the output.
pub(crate) struct Fact {
    /// Name in JSON.
    key: &'static str,
    label: &'static str,
    text: String,
    json: Json,
}

impl Fact {
    pub(crate) fn new(key: &'static str, label: &'static str, text: impl Into<String>, json: impl Into<Json>) -> Fact {
        Fact { key, label, text: text.into(), json: json.into() }
    }

    /// Returns a fact whose JSON value is its text.
    pub(crate) fn text_only(key: &'static str, label: &'static str, text: impl Into<String>) -> Fact {
        let text = text.into();
        Fact { key, label, json: text.as_str().into(), text }
    }

    pub(crate) fn label(&self) -> &str {
        self.label
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

const CALLS: u64 = 4_000;
const NAPS: usize = 200;
const NAP: u64 = 1_000_000;

/// Prints the facts, and returns the exit status.
pub(crate) fn run(options: &InfoOptions) -> u8 {
    let facts = facts();
    let text = if options.json { json(facts).line() } else { table(&facts, Paint::for_stdout()) };
    // An error means that the reader has closed the pipe.
    let _ = writeln!(std::io::stdout(), "{text}");
    0
}

/// Returns what this machine offers to timers. It takes about half a second: some of it is measured.
pub(crate) fn facts() -> Vec<Fact> {
    let mut facts = Vec::new();
    #[cfg(target_os = "linux")]
    facts.extend(linux::system());
    #[cfg(not(target_os = "linux"))]
    facts.push(Fact::text_only("system", "system", std::env::consts::OS));
    facts.push(Fact::text_only("architecture", "architecture", std::env::consts::ARCH));
    facts.push(Fact::new("cores", "cores", machine::cores().to_string(), machine::cores()));
    let memory = machine::whole_memory();
    facts.push(Fact::new("memory_bytes", "memory", memory.map_or_else(unknown, bytes), memory));
    let read = cost_of(|| _ = monotonic());
    facts.push(Fact::new("clock_read_ns", "a clock read", format!("{read} ns"), read));
    #[cfg(target_os = "linux")]
    facts.extend(linux::facilities(read));
    #[cfg(not(target_os = "linux"))]
    facts.push(Fact::text_only(
        "note",
        "note",
        "clock source, timer slack, io_uring and membarrier are Linux's: not known here",
    ));
    facts.push(floor());
    facts
}

/// Returns nanoseconds per call: the best of some batches, since other programs may run in between.
pub(crate) fn cost_of(call: impl Fn()) -> u64 {
    let batch = |_| {
        let start = monotonic();
        (0..CALLS).for_each(|_| call());
        (monotonic() - start) / CALLS
    };
    (0..50).map(batch).min().unwrap_or(0)
}

/// Measures by how much a thread oversleeps a millisecond: only a timer that spins can be more precise on this machine.
fn floor() -> Fact {
    let late = std::thread::spawn(|| {
        kernel_sleep::disable_timer_slack();
        let mut late = histogram();
        (0..NAPS).for_each(|_| late.saturating_record(kernel_sleep::oversleep(NAP)));
        late
    });
    let late = late.join().unwrap_or_else(|_| histogram());
    let [p50, p99] = [0.5, 0.99].map(|quantile| late.value_at_quantile(quantile));
    let text = format!("p50 {}, p99 {}, max {} ({NAPS} sleeps of 1 ms)", time(p50), time(p99), time(late.max()));
    let json = vec![("p50_ns", p50.into()), ("p99_ns", p99.into()), ("max_ns", late.max().into())];
    Fact::new("wake_up_floor", "wake-up floor", text, Json::Object(json))
}

fn unknown() -> String {
    "not known".to_owned()
}

fn table(facts: &[Fact], paint: Paint) -> String {
    let width = facts.iter().map(|fact| fact.label.len()).max().unwrap_or(0);
    let line = |fact: &Fact| format!("{}  {}", paint.strong(&format!("{:width$}", fact.label)), fact.text);
    facts.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn json(facts: Vec<Fact>) -> Json {
    let fields = facts.into_iter().map(|fact| (fact.key, fact.json));
    Json::Object(std::iter::once(("command", "info".into())).chain(fields).collect())
}
