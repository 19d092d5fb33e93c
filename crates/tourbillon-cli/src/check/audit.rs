//! The books: a row for each promise, with what was counted for it and what was wrong.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::promise::Promise;
use super::tally::{Complaint, Tally, histogram};

/// All that a run found.
pub(crate) struct Audit {
    rows: Vec<PromiseRow>,
    pub(crate) surfaces: Vec<Tally>,
    /// How late exact timers were when nothing else was going on.
    pub(crate) quiet: Histogram<u64>,
    /// What could not be looked at here, and why.
    pub(crate) skipped: Vec<String>,
    /// Which back ends and clocks were used.
    pub(crate) backends: Vec<String>,
    pub(crate) clocks: Vec<String>,
}

/// What is known of one promise.
pub(crate) struct PromiseRow {
    pub(crate) promise: Promise,
    pub(crate) counted: Vec<String>,
    pub(crate) broken: Vec<String>,
}

/// What one part of a run hands in.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) counted: Vec<(Promise, String)>,
    pub(crate) complaints: Vec<Complaint>,
    pub(crate) tallies: Vec<Tally>,
    pub(crate) skipped: Vec<String>,
    pub(crate) backends: Vec<String>,
    pub(crate) clocks: Vec<String>,
    pub(crate) quiet: Option<Histogram<u64>>,
}

impl Findings {
    pub(crate) fn counted(&mut self, promise: Promise, what: impl Into<String>) {
        self.counted.push((promise, what.into()));
    }

    pub(crate) fn complain(&mut self, promise: Promise, what: impl Into<String>) {
        self.complaints.push(Complaint { promise, what: what.into() });
    }

    /// Complains unless it holds.
    pub(crate) fn expect(&mut self, holds: bool, promise: Promise, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.complain(promise, otherwise());
        }
    }
}

impl Audit {
    pub(crate) fn new() -> Audit {
        let row = |promise| PromiseRow { promise, counted: Vec::new(), broken: Vec::new() };
        Audit {
            rows: Promise::ALL.into_iter().map(row).collect(),
            surfaces: Vec::new(),
            quiet: histogram(),
            skipped: Vec::new(),
            backends: Vec::new(),
            clocks: Vec::new(),
        }
    }

    /// Takes in what a part found.
    pub(crate) fn take(&mut self, findings: Findings) {
        for (promise, what) in findings.counted {
            self.row(promise).counted.push(what);
        }
        for complaint in findings.complaints {
            self.complain(complaint);
        }
        for tally in findings.tallies {
            self.take_tally(tally);
        }
        self.skipped.extend(findings.skipped);
        self.backends.extend(findings.backends);
        self.clocks.extend(findings.clocks);
        if let Some(quiet) = findings.quiet {
            // Both are made by `histogram`, and so have the same range.
            let _ = self.quiet.add(quiet);
        }
    }

    pub(crate) fn complain(&mut self, complaint: Complaint) {
        self.row(complaint.promise).broken.push(complaint.what);
    }

    pub(crate) fn rows(&self) -> &[PromiseRow] {
        &self.rows
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.rows.iter().all(|row| row.broken.is_empty())
    }

    /// All surfaces together.
    pub(crate) fn total(&self) -> Tally {
        let mut total = Tally::new("all");
        for surface in &self.surfaces {
            total.add(surface);
        }
        total
    }

    /// Says in the rows of P1, P2 and P4 what the ledgers add up to.
    pub(crate) fn close(&mut self) {
        use crate::text::{count, many, time};
        let total = self.total();
        let fires = many(total.checked, "fire");
        self.say_first(
            Promise::P1,
            format!("{fires} checked against an independent clock, {} early", count(total.early)),
        );
        self.say_first(
            Promise::P2,
            format!("{}, on {}", total.equation(), many(self.surfaces.len() as u64, "surface")),
        );
        let late = |histogram: &Histogram<u64>| {
            format!("p50 {}, p99 {}", time(histogram.value_at_quantile(0.5)), time(histogram.value_at_quantile(0.99)))
        };
        let said = format!("measured: under load {}; alone {}; no stalls", late(&total.lateness), late(&self.quiet));
        if self.row(Promise::P4).broken.is_empty() {
            self.say_first(Promise::P4, said);
        }
    }

    fn say_first(&mut self, promise: Promise, what: String) {
        self.row(promise).counted.insert(0, what);
    }

    fn take_tally(&mut self, mut tally: Tally) {
        for complaint in std::mem::take(&mut tally.complaints) {
            self.complain(complaint);
        }
        match self.surfaces.iter_mut().find(|known| known.surface == tally.surface) {
            Some(known) => known.add(&tally),
            None => self.surfaces.push(tally),
        }
    }

    fn row(&mut self, promise: Promise) -> &mut PromiseRow {
        &mut self.rows[promise as usize]
    }
}

/// How much of a run an idle phase takes: a tenth, but enough to see something and no more than needed.
pub(crate) fn tenth(lasts: Duration) -> Duration {
    (lasts / 10).clamp(Duration::from_millis(200), Duration::from_secs(1))
}
