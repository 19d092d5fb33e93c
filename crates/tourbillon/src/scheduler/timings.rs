//! How long runs took and how late they began, for exporters of metrics.

use tourbillon_queue::Span;

use crate::stats::Lateness;

/// Two histograms over runs that have ended.
#[derive(Clone, Default)]
pub(crate) struct RunTimings {
    pub(crate) duration: Lateness,
    pub(crate) lateness: Lateness,
    /// How many runs were recorded.
    runs: u64,
}

impl RunTimings {
    pub(super) fn record(&mut self, took: Span, late: Span) {
        self.duration.record(took);
        self.lateness.record(late);
        self.runs += 1;
    }

    /// Returns whether no run was recorded.
    #[cfg(feature = "metrics")]
    pub(super) fn is_empty(&self) -> bool {
        self.runs == 0
    }
}
