//! Any bytes as the decisions of a simulated world: an engine, all its surfaces, and what is done to them.
//!
//! `tourbillon-sim` compares the world with its models after every step.

use tourbillon_sim::plan::SimPlan;
use tourbillon_sim::planted_fault::PlantedFault;
use tourbillon_sim::{report, world};

/// Runs the world that the bytes encode, and panics with the broken promise and the steps if there is one.
pub fn engine(bytes: &[u8]) {
    run(bytes, None);
}

fn run(bytes: &[u8], planted: Option<PlantedFault>) {
    let plan = SimPlan::from_bytes(bytes);
    if let Some(failure) = world::run(&plan, planted).failure {
        let step = failure.step.map_or_else(|| "the end".to_owned(), |step| format!("step {step}"));
        panic!("{} at {step} of\n{}", failure.violation, report::list(&plan));
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use tourbillon_tools::Random;

    use super::*;

    #[test]
    fn p1_p2_a_broken_promise_is_a_panic_that_names_it() {
        let mut random = Random::new(7);
        let inputs: Vec<Vec<u8>> = (0..100).map(|_| (0..500).map(|_| random.any() as u8).collect()).collect();
        for (planted, promise) in [(PlantedFault::P1, "P1: "), (PlantedFault::P2, "P2: ")] {
            let found = inputs.iter().any(|bytes| {
                let panic = catch_unwind(|| run(bytes, Some(planted))).err();
                panic
                    .and_then(|payload| payload.downcast::<String>().ok())
                    .is_some_and(|text| text.starts_with(promise))
            });
            assert!(found, "{promise}is not found");
        }
        inputs.iter().for_each(|bytes| engine(bytes));
    }
}
