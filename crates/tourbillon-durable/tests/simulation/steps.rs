//! Short worlds in which a node or the store crashes after each of their steps in turn.

use super::world::{Crash, Plan};
use super::{number, run};

/// Runs the world of a seed once for each of its steps, with a crash after that step.
fn crash_at_each_step(seed: u64, crash: Crash) {
    let calm = Plan::calm(seed);
    let steps = run(calm).steps_of_trouble;
    assert!(steps > 100, "the world of seed {seed} has only {steps} steps");
    let mut crashes = 0;
    for step in 1..=steps {
        let totals = run(Plan { crash: Some((step, crash)), ..calm });
        crashes += totals.crashes + totals.store_crashes;
    }
    println!("TOURBILLON_SEED={seed}: a crash after each of {steps} steps");
    assert!(crashes >= steps, "only {crashes} crashes in {steps} worlds");
}

fn seeds() -> std::ops::Range<u64> {
    0..number("TOURBILLON_WORLDS").map_or(4, |worlds| worlds.div_ceil(40))
}

#[test]
fn o8_q1_q2_q3_a_node_may_crash_at_each_step() {
    seeds().for_each(|seed| crash_at_each_step(seed, Crash::Node));
}

#[test]
fn o8_q1_q2_q3_the_store_may_crash_at_each_step() {
    seeds().for_each(|seed| crash_at_each_step(seed, Crash::Store));
}
