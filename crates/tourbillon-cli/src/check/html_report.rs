//! The report as a page that stands alone: `tourbillon check --html report.html`.

use super::audit::PromiseRow;
use super::lateness_plot::{Curve, histogram_table, quantile_plot};
use super::report::{CheckReport, SHOWN};
use super::tally::SurfaceTally;
use crate::html::{escape, facts, page, section};
use crate::info;
use crate::text::{bytes, count, duration, many, time};

impl CheckReport<'_> {
    /// Returns the page.
    pub(crate) fn html(&self) -> String {
        let body = [
            self.verdict(),
            section("promises", "Promises", &self.promises()),
            section("ledger", "Ledger by surface", &self.ledger()),
            section("lateness", "Lateness", &self.lateness_drawings()),
            section("machine", "Machine", &machine()),
            section("repeat", "To repeat it", &self.repeat()),
        ];
        page(&format!("tourbillon check: {}", self.headline()), &body.concat())
    }

    fn headline(&self) -> String {
        let rows = self.audit.rows();
        let broken = rows.iter().filter(|row| !row.broken.is_empty()).count();
        let skipped = rows.iter().filter(|row| is_skipped(row)).count();
        match (broken, skipped) {
            (0, 0) => format!("all {} promises kept", rows.len()),
            (0, _) => format!("{} promises kept, {skipped} not checked here", rows.len() - skipped),
            _ => format!("{broken} of {} promises broken", rows.len()),
        }
    }

    fn verdict(&self) -> String {
        let (total, used) = (self.audit.total(), &self.used);
        let is_kept = self.audit.is_kept();
        let [p50, p99] = [0.5, 0.99].map(|quantile| unbroken(&time(total.lateness.value_at_quantile(quantile))));
        let tiles = [
            ("timers armed", count(total.armed)),
            ("fires checked", count(total.checked)),
            ("early", count(total.early)),
            ("late under load, p50 and p99", format!("{p50}, {p99}")),
            ("CPU time", unbroken(&duration(used.cpu))),
            ("memory at most", unbroken(&bytes(used.memory))),
        ];
        let tiles = tiles.map(|(name, value)| format!("<li><b>{value}</b> <span class=\"faint\">{name}</span></li>\n"));
        let planted = self.check.broken().map_or(String::new(), |promise| {
            format!("<p class=\"skip\">Planted with --break {promise}: {}.</p>\n", escape(promise.fault()))
        });
        let (class, kept) = if is_kept { ("good", "kept") } else { ("bad", "broken") };
        let (begun, lasts) = (self.begun.strftime("%Y-%m-%d %H:%M:%S UTC"), duration(used.wall));
        format!(
            "<header class=\"{kept}\">\n<h1>tourbillon check: <span class=\"{class}\">{}</span></h1>\n\
             <p class=\"faint\">{begun}, {lasts} on this machine, tourbillon {}, seed {}</p>\n{planted}\
             <ul class=\"tiles\">\n{}</ul>\n</header>\n",
            escape(self.headline()),
            env!("CARGO_PKG_VERSION"),
            self.check.seed,
            tiles.concat()
        )
    }

    fn promises(&self) -> String {
        let rows: String = self.audit.rows().iter().map(promise_item).collect();
        let skipped: String = self
            .audit
            .skipped
            .iter()
            .map(|what| format!("<p class=\"faint\">Not checked: {}</p>\n", escape(what)))
            .collect();
        format!("<ul class=\"promises\">\n{rows}</ul>\n{skipped}")
    }

    fn ledger(&self) -> String {
        let total = self.audit.total();
        let rows: String = self.audit.surfaces.iter().map(ledger_row).collect();
        format!(
            "<p class=\"faint\">Every armed timer ends in one way: armed = fired + cancelled + stopped.</p>\n<table class=\"ledger\">\n\
             <thead><tr><th scope=\"col\">surface</th><th scope=\"col\">armed</th><th scope=\"col\">fired</th>\
             <th scope=\"col\">cancelled</th><th scope=\"col\">stopped</th><th scope=\"col\">balance</th></tr></thead>\n\
             <tbody>\n{rows}</tbody>\n<tfoot>\n{}</tfoot>\n</table>\n",
            ledger_row(&total)
        )
    }

    fn lateness_drawings(&self) -> String {
        let (total, kernel) = (self.audit.total(), self.check.reference.oversleep());
        let curve = |name, class, values| Curve { name, class, values };
        let curves = [
            curve("under load, adaptive slack", "one", &total.lateness),
            curve("without load, exact", "two", &self.audit.quiet),
            curve("a thread that only sleeps in the kernel, meanwhile", "three", &kernel),
        ];
        format!(
            "<p class=\"faint\">From the deadline to the call of the waker, read on the kernel's clock.</p>\n{}\
             <h3>Under load</h3>\n{}",
            quantile_plot(&curves),
            histogram_table(&total.lateness)
        )
    }

    fn repeat(&self) -> String {
        let setup = [
            ("timers", format!("{} pending at a time", many(self.check.timers as u64, "sleep"))),
            (
                "threads",
                format!("{} arm sleeps; every other surface has threads of its own", count(self.check.threads as u64)),
            ),
            ("seed", self.check.seed.to_string()),
            ("back ends", super::report::list(&self.audit.backends)),
            ("clocks", super::report::list(&self.audit.clocks)),
        ];
        format!(
            "<pre><code>{}</code></pre>\n<p class=\"faint\">The seed decides what is armed, when and by which thread; the machine \
             decides when threads run.</p>\n{}",
            escape(self.command()),
            facts(setup.iter().map(|(name, value)| (*name, value.as_str())))
        )
    }
}

fn is_skipped(row: &PromiseRow) -> bool {
    row.broken.is_empty() && row.counted.is_empty()
}

fn promise_item(row: &PromiseRow) -> String {
    let (class, verdict) = match (row.broken.is_empty(), is_skipped(row)) {
        (false, _) => ("bad", "BROKEN"),
        (true, true) => ("skip", "skipped"),
        (true, false) => ("good", "kept"),
    };
    let complaint = |what: &String| format!("<p class=\"bad\">{}</p>", escape(what));
    let (shown, rest) = row.broken.split_at(row.broken.len().min(SHOWN));
    let shown: String = shown.iter().map(complaint).collect();
    let more = match rest.len() {
        0 => String::new(),
        more => {
            let rest: String = rest.iter().map(complaint).collect();
            format!("<details><summary>and {} more</summary>{rest}</details>", count(more as u64))
        }
    };
    let counted: String = row.counted.iter().map(|what| format!("<p>{}</p>", escape(what))).collect();
    let meaning = format!("<p class=\"faint\">{}</p>", escape(row.promise.meaning()));
    let texts = [meaning, shown, more, counted].concat();
    format!(
        "<li><b>{}</b><span>{}</span><span class=\"verdict {class}\">{verdict}</span><div>{texts}</div></li>\n",
        row.promise,
        escape(row.promise.title())
    )
}

/// Keeps a number and its unit on one line.
fn unbroken(value: &str) -> String {
    value.replace(' ', "\u{a0}")
}

fn ledger_row(tally: &SurfaceTally) -> String {
    let (class, balance) = if tally.is_balanced() { ("good", "=") } else { ("bad", "differs") };
    // A phone shows the names of the columns in the cells.
    let numbers =
        [("armed", tally.armed), ("fired", tally.fired), ("cancelled", tally.cancelled), ("stopped", tally.stopped)];
    let cells = numbers.map(|(name, number)| format!("<td data-name=\"{name}\">{}</td>", count(number)));
    format!(
        "<tr><th scope=\"row\">{}</th>{}<td data-name=\"balance\" class=\"{class}\">{balance}</td></tr>\n",
        escape(&tally.surface),
        cells.concat()
    )
}

fn machine() -> String {
    let found = info::facts();
    facts(found.iter().map(|fact| (fact.label(), fact.text())))
}
