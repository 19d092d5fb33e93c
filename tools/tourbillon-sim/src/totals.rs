//! What happened, in numbers.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use crate::plan::YEAR;

/// What happened in one run, or in many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Worlds from beginning to end.
    pub runs: u64,
    /// Steps in them.
    pub steps: u64,
    /// Observations that were compared with the model.
    pub checks: u64,
    /// Timers, callbacks, ticks and items that fired.
    pub fires: u64,
    /// Those that were cancelled.
    pub cancels: u64,
    /// Those that were stopped.
    pub stops: u64,
    /// Runs of jobs.
    pub jobs: u64,
    /// How far clocks went forward, in nanoseconds.
    pub simulated: u128,
    /// Faults that were injected, by kind.
    pub faults: BTreeMap<&'static str, u64>,
}

impl Totals {
    /// Counts a fault.
    pub fn fault(&mut self, kind: &'static str, count: u64) {
        if count > 0 {
            *self.faults.entry(kind).or_default() += count;
        }
    }

    /// How far clocks went forward.
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
