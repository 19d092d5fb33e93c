//! Short worlds in which a node or the store crashes after each of their steps in turn.

use super::totals::Totals;
use super::world::{Crash, Plan};
use super::{number, run};

/// Runs short worlds once for each of their steps, with a crash after that step. Some have a store of one process, and others share it.
fn crash_at_each_step(crash: Crash) {
    let seeds = 0..number("TOURBILLON_WORLDS").map_or(4, |worlds| worlds.div_ceil(40).max(4));
    let single_nodes: u64 = seeds.clone().map(|seed| crash_at_each_step_of(seed, crash)).sum();
    assert!(0 < single_nodes && single_nodes < seeds.end, "{single_nodes} of {} stores are of one process", seeds.end);
}

/// Returns how many stores of one process there are: one or none.
fn crash_at_each_step_of(seed: u64, crash: Crash) -> u64 {
    let calm = Plan::calm(seed);
    let Totals { steps_of_trouble: steps, single_nodes, .. } = run(calm);
    assert!(steps > 100, "the world of seed {seed} has only {steps} steps");
    let mut crashes = 0;
    for step in 1..=steps {
        let totals = run(Plan { crash: Some((step, crash)), ..calm });
        crashes += totals.crashes + totals.store_crashes;
    }
    println!("TOURBILLON_SEED={seed}: a crash after each of {steps} steps");
    assert!(crashes >= steps, "only {crashes} crashes in {steps} worlds");
    single_nodes
}

#[test]
fn o8_q1_q2_q3_a_node_may_crash_at_each_step() {
    crash_at_each_step(Crash::Node);
}

#[test]
fn o8_q1_q2_q3_the_store_may_crash_at_each_step() {
    crash_at_each_step(Crash::Store);
}
