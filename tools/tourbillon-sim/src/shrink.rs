//! Shortens a plan that fails: removes steps, first many at a time and then single ones, as long as it still fails.

use crate::plan::SimPlan;
use crate::planted_fault::PlantedFault;
use crate::watchdog::{self, HANGS};
use crate::world::SimFailure;

/// A plan that fails, from which no step can be removed.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The remaining plan.
    pub plan: SimPlan,
    /// How it fails.
    pub failure: SimFailure,
    /// Number of runs that shortening took.
    pub runs: usize,
}

/// Most runs that shortening may take.
const TRIES: usize = 4000;

/// Removes steps as long as the same promise is broken.
#[must_use]
pub fn shrink(plan: &SimPlan, broken: Option<PlantedFault>, failure: SimFailure) -> Shrunk {
    let mut shrunk = Shrunk { plan: plan.clone(), failure, runs: 0 };
    // Steps after the failure have no influence on it.
    if let Some(last) = shrunk.failure.step {
        shrunk.plan.steps.retain(|(number, _)| *number <= last);
    }
    let mut size = shrunk.plan.steps.len().div_ceil(2);
    while size > 0 && shrunk.runs < TRIES {
        let before = shrunk.plan.steps.len();
        let mut from = 0;
        while from < shrunk.plan.steps.len() && shrunk.runs < TRIES {
            if !try_without(&mut shrunk, from, size, broken) {
                from += size;
            }
        }
        let is_shorter = shrunk.plan.steps.len() < before;
        size = if size == 1 && is_shorter { 1 } else { size / 2 };
    }
    shrunk
}

fn try_without(shrunk: &mut Shrunk, from: usize, size: usize, broken: Option<PlantedFault>) -> bool {
    let mut plan = shrunk.plan.clone();
    let to = (from + size).min(plan.steps.len());
    plan.steps.drain(from..to);
    shrunk.runs += 1;
    let Some(failure) = watchdog::run(&plan, broken, HANGS).and_then(|ran| ran.failure) else { return false };
    let is_same = failure.violation.promise == shrunk.failure.violation.promise;
    if is_same {
        (shrunk.plan, shrunk.failure) = (plan, failure);
    }
    is_same
}
