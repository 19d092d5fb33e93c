//! The audit: a row for each promise, with what was counted and what was broken.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::promise::Promise;
use super::tally::{Complaint, SurfaceTally, histogram};

/// The findings of a whole run.
pub(crate) struct Audit {
    rows: Vec<PromiseRow>,
    pub(crate) surfaces: Vec<SurfaceTally>,
    /// Lateness of exact timers without load.
    pub(crate) quiet: Histogram<u64>,
    /// The checks that this machine does not allow, each with the reason.
    pub(crate) skipped: Vec<String>,
    /// The back ends and clocks that were used.
    pub(crate) backends: Vec<String>,
    pub(crate) clocks: Vec<String>,
}

/// The result for one promise.
pub(crate) struct PromiseRow {
    pub(crate) promise: Promise,
    pub(crate) counted: Vec<String>,
    pub(crate) broken: Vec<String>,
}

/// The findings of one part of a run.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) counted: Vec<(Promise, String)>,
    pub(crate) complaints: Vec<Complaint>,
    pub(crate) tallies: Vec<SurfaceTally>,
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

    /// Adds a complaint unless the condition holds.
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

    /// Adds the findings of a part.
    pub(crate) fn add(&mut self, findings: Findings) {
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
            // Both histograms come from `histogram`, so their ranges are equal.
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

    /// Returns the sum of all surfaces.
    pub(crate) fn total(&self) -> SurfaceTally {
        let mut total = SurfaceTally::new("all");
        for surface in &self.surfaces {
            total.add(surface);
        }
        total
    }

    /// Adds the totals of all surfaces to the rows of P1, P2 and P4.
    pub(crate) fn close(&mut self) {
        use crate::text::{count, many, time};
        let total = self.total();
        let fires = many(total.checked, "fire");
        self.add_first(
            Promise::P1,
            format!("{fires} checked against an independent clock, {} early", count(total.early)),
        );
        self.add_first(
            Promise::P2,
            format!("{}, on {}", total.equation(), many(self.surfaces.len() as u64, "surface")),
        );
        let late = |histogram: &Histogram<u64>| {
            format!("p50 {}, p99 {}", time(histogram.value_at_quantile(0.5)), time(histogram.value_at_quantile(0.99)))
        };
        let text = format!("measured: under load {}; alone {}; no stalls", late(&total.lateness), late(&self.quiet));
        if self.row(Promise::P4).broken.is_empty() {
            self.add_first(Promise::P4, text);
        }
    }

    fn add_first(&mut self, promise: Promise, what: String) {
        self.row(promise).counted.insert(0, what);
    }

    fn take_tally(&mut self, mut tally: SurfaceTally) {
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

/// Returns how long an idle phase takes: a tenth of the run, within useful limits.
pub(crate) fn idle_phase(lasts: Duration) -> Duration {
    (lasts / 10).clamp(Duration::from_millis(200), Duration::from_secs(1))
}
