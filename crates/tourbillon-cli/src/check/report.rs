//! The report: a table for people, or one JSON object for programs. `html_report.rs` makes a page of it.

use std::io::Write;

use hdrhistogram::Histogram;

use super::audit::{Audit, PromiseRow};
use super::check_run::CheckRun;
use super::histogram_text;
use super::tally::SurfaceTally;
use crate::args::CheckOptions;
use crate::json::Json;
use crate::machine::Usage;
use crate::text::{Paint, bytes, count, duration, many};

pub(crate) struct CheckReport<'a> {
    pub(crate) audit: &'a Audit,
    pub(crate) check: &'a CheckRun,
    pub(crate) options: &'a CheckOptions,
    pub(crate) used: Usage,
    /// When the check began.
    pub(crate) begun: jiff::Timestamp,
}

/// Most complaints of a promise that are shown at once; all of them are counted.
pub(super) const SHOWN: usize = 4;

impl CheckReport<'_> {
    pub(crate) fn print(&self) {
        say(&if self.options.json { self.json().line() } else { self.table(Paint::for_stdout()) });
    }

    fn table(&self, paint: Paint) -> String {
        let mut lines = vec![String::new()];
        for row in self.audit.rows() {
            lines.extend(row_lines(row, paint));
        }
        lines.push(String::new());
        lines.extend(self.surfaces(paint));
        lines.extend(self.lateness(paint));
        lines.extend(self.footer(paint));
        lines.join("\n")
    }

    /// Formats the tally of each surface.
    fn surfaces(&self, paint: Paint) -> Vec<String> {
        let head = format!("{:28}{:>13}{:>13}{:>13}{:>11}", "surface", "armed", "fired", "cancelled", "stopped");
        let line = |tally: &SurfaceTally| {
            let [armed, fired, cancelled, stopped] =
                [tally.armed, tally.fired, tally.cancelled, tally.stopped].map(count);
            format!("{:28}{armed:>13}{fired:>13}{cancelled:>13}{stopped:>11}", tally.surface)
        };
        let total = SurfaceTally { surface: "all".into(), ..self.audit.total() };
        let mut lines = vec![paint.strong(&head)];
        lines.extend(self.audit.surfaces.iter().map(line));
        lines.extend([paint.strong(&line(&total)), String::new()]);
        lines
    }

    fn lateness(&self, paint: Paint) -> Vec<String> {
        let total = self.audit.total();
        let mut lines =
            vec![paint.strong("lateness under load (adaptive slack), from the deadline to the call of the waker")];
        lines.extend(histogram_text::lines(&total.lateness, paint));
        lines.push(format!("  {}", histogram_text::quantiles(&total.lateness)));
        lines.push(format!("without load, exact: {}", histogram_text::quantiles(&self.audit.quiet)));
        let floor = self.check.reference.oversleep();
        lines
            .push(format!("a thread that only sleeps in the kernel, meanwhile: {}", histogram_text::quantiles(&floor)));
        lines.push(String::new());
        lines
    }

    fn footer(&self, paint: Paint) -> Vec<String> {
        let used = &self.used;
        let threads = many(self.check.threads as u64, "thread");
        let mut lines = vec![
            format!("back ends: {}   clocks: {}", list(&self.audit.backends), list(&self.audit.clocks)),
            format!(
                "{} of CPU time in {}, {} of memory at most; {} pending at a time on {threads}; seed {}",
                duration(used.cpu),
                duration(used.wall),
                bytes(used.memory),
                many(self.check.timers as u64, "timer"),
                self.check.seed
            ),
        ];
        lines.extend(self.audit.skipped.iter().map(|what| paint.faint(&format!("not checked: {what}"))));
        if let Some(promise) = self.check.broken() {
            lines.push(format!("planted with --break {promise}: {}", promise.fault()));
        }
        if self.audit.is_kept() {
            lines.push(paint.good("All promises kept."));
        } else {
            lines.push(paint.bad("A promise is broken."));
            lines.push(format!("To repeat the plan: {}", self.command()));
            lines.push(
                "(The seed decides what is armed, when and by which thread; the machine decides when threads run.)"
                    .into(),
            );
        }
        lines
    }

    /// Returns the command that repeats the plan.
    pub(super) fn command(&self) -> String {
        let check = self.check;
        let broken = check.broken().map_or(String::new(), |promise| format!(" --break {promise}"));
        let millis = check.lasts.as_millis();
        format!(
            "tourbillon check --seed {} --for {millis}ms --timers {} --threads {}{broken}",
            check.seed, check.timers, check.threads
        )
    }

    fn json(&self) -> Json {
        let (audit, check, used) = (self.audit, self.check, &self.used);
        let total = audit.total();
        Json::Object(vec![
            ("command", "check".into()),
            ("kept", audit.is_kept().into()),
            ("seed", check.seed.into()),
            ("repeat", self.command().into()),
            ("planted", check.broken().map(|promise| promise.to_string()).into()),
            ("timers", check.timers.into()),
            ("threads", check.threads.into()),
            ("promises", audit.rows().iter().map(row_json).collect()),
            ("surfaces", audit.surfaces.iter().map(tally_json).collect()),
            ("fires_checked", total.checked.into()),
            ("early", total.early.into()),
            ("lateness_under_load", histogram_json(&total.lateness)),
            ("lateness_alone", histogram_json(&audit.quiet)),
            ("sleeping_thread", histogram_json(&check.reference.oversleep())),
            ("backends", audit.backends.iter().map(String::as_str).collect()),
            ("clocks", audit.clocks.iter().map(String::as_str).collect()),
            ("not_checked", audit.skipped.iter().map(String::as_str).collect()),
            ("cpu_ns", crate::clock::nanos(used.cpu).into()),
            ("wall_ns", crate::clock::nanos(used.wall).into()),
            ("memory_bytes", used.memory.into()),
        ])
    }
}

/// Prints a line.
pub(super) fn say(text: &str) {
    // An error means that the reader has closed the pipe.
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn row_lines(row: &PromiseRow, paint: Paint) -> Vec<String> {
    let head = format!("{:4} {:21}", row.promise.to_string(), row.promise.title());
    if row.broken.is_empty() {
        let (verdict, counted) = match row.counted.is_empty() {
            true => (paint.faint("skipped"), "not checked here".to_owned()),
            false => (paint.good("kept   "), row.counted.join("; ")),
        };
        return vec![format!("{head} {verdict}  {counted}")];
    }
    let indent = " ".repeat(36);
    let mut lines = vec![format!("{} {}  {}", paint.strong(&head), paint.bad("BROKEN "), row.broken[0])];
    lines.extend(row.broken.iter().skip(1).take(SHOWN - 1).map(|what| format!("{indent}{what}")));
    if row.broken.len() > SHOWN {
        lines.push(format!("{indent}and {} more", count((row.broken.len() - SHOWN) as u64)));
    }
    lines.extend(row.counted.iter().map(|what| format!("{indent}{what}")));
    lines
}

fn row_json(row: &PromiseRow) -> Json {
    Json::Object(vec![
        ("id", row.promise.to_string().into()),
        ("title", row.promise.title().into()),
        ("kept", row.broken.is_empty().into()),
        ("checked", (!row.counted.is_empty() || !row.broken.is_empty()).into()),
        ("counted", row.counted.iter().map(String::as_str).collect()),
        ("broken", row.broken.iter().map(String::as_str).collect()),
    ])
}

fn tally_json(tally: &SurfaceTally) -> Json {
    Json::Object(vec![
        ("name", tally.surface.as_str().into()),
        ("armed", tally.armed.into()),
        ("fired", tally.fired.into()),
        ("cancelled", tally.cancelled.into()),
        ("stopped", tally.stopped.into()),
        ("checked", tally.checked.into()),
        ("early", tally.early.into()),
    ])
}

fn histogram_json(histogram: &Histogram<u64>) -> Json {
    let at = |quantile| Json::from(histogram.value_at_quantile(quantile));
    let bucket = |bucket: &histogram_text::HistogramBucket| {
        Json::Object(vec![("below_ns", bucket.up_to.into()), ("count", bucket.count.into())])
    };
    Json::Object(vec![
        ("count", histogram.len().into()),
        ("p50_ns", at(0.5)),
        ("p99_ns", at(0.99)),
        ("p99_9_ns", at(0.999)),
        ("max_ns", histogram.max().into()),
        ("buckets", histogram_text::buckets(histogram).iter().map(bucket).collect()),
    ])
}

pub(super) fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
