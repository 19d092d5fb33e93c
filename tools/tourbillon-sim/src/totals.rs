//! Counts of what happened.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use crate::plan::YEAR;

/// Counts of one run or of many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Worlds that were run.
    pub runs: u64,
    /// Steps of those worlds.
    pub steps: u64,
    /// Observations that were compared with a model.
    pub checks: u64,
    /// Timers, callbacks, ticks and items that fired.
    pub fires: u64,
    /// Timers that were cancelled.
    pub cancels: u64,
    /// Timers that were stopped.
    pub stops: u64,
    /// Runs of jobs.
    pub jobs: u64,
    /// How far the clocks moved forward, in nanoseconds.
    pub simulated: u128,
    /// Injected faults, by kind.
    pub faults: BTreeMap<&'static str, u64>,
}

impl Totals {
    /// Counts injected faults of a kind.
    pub fn fault(&mut self, kind: &'static str, count: u64) {
        if count > 0 {
            *self.faults.entry(kind).or_default() += count;
        }
    }

    /// Returns how far the clocks moved forward, in years.
    #[must_use]
    pub fn years(&self) -> f64 {
        self.simulated as f64 / YEAR as f64
    }
}

impl AddAssign<&Totals> for Totals {
    fn add_assign(&mut self, other: &Totals) {
        self.runs += other.runs;
        self.steps += other.steps;
        self.checks += other.checks;
        self.fires += other.fires;
        self.cancels += other.cancels;
        self.stops += other.stops;
        self.jobs += other.jobs;
        self.simulated += other.simulated;
        for (kind, count) in &other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
    }
}
