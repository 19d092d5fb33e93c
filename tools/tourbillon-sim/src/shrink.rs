//! Makes a plan that fails as short as it can be: takes out steps, many and then few, as long as it still fails.

use crate::plan::SimPlan;
use crate::planted_fault::PlantedFault;
use crate::watchdog::{self, HANGS};
use crate::world::SimFailure;

/// A plan that fails, from which no step can be taken.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// What is left.
    pub plan: SimPlan,
    /// How it fails.
    pub failure: SimFailure,
    /// How many runs that took.
    pub runs: usize,
}

/// So many runs are tried at most.
const TRIES: usize = 4000;

/// Takes out steps as long as the same promise is broken.
#[must_use]
pub fn shrink(plan: &SimPlan, broken: Option<PlantedFault>, failure: SimFailure) -> Shrunk {
    let mut shrunk = Shrunk { plan: plan.clone(), failure, runs: 0 };
    // What came after the failure has nothing to do with it.
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
