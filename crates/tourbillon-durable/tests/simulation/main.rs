//! A deterministic simulation of nodes that share a store, with faults, against a small model of Q1 to Q5 and Q7 (O8).
//!
//! One seed decides a world: how many nodes there are and how they fail, what clients ask for, what handlers do, how long everything takes.
//! `TOURBILLON_SEED=N` runs the world of one seed, `TOURBILLON_WORLDS=N` runs so many.

mod ledger;
mod node;
mod world;

use std::time::{Duration, Instant};

use world::World;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

#[test]
fn q1_q2_q3_q4_q5_q7_d45_d46_d47_d48_d53_o4_o8_worlds_with_faults_keep_their_promises() {
    if let Some(seed) = number("TOURBILLON_SEED") {
        return println!("{:?}", World::run(seed));
    }
    let worlds = number("TOURBILLON_WORLDS").unwrap_or(150);
    let begin = Instant::now();
    let mut totals = ledger::Totals::default();
    for seed in 0..worlds {
        totals += World::run(seed);
    }
    println!("{worlds} worlds in {:.1} s: {totals:?}", begin.elapsed().as_secs_f64());
    assert!(totals.delivered > worlds && totals.cancelled > worlds && totals.crashes > worlds / 2, "{totals:?}");
    assert!(totals.handler_changes > worlds / 4 && totals.delegated > worlds, "{totals:?}");
    assert!(totals.store_pauses > 0 && totals.copies > 0 && totals.outages > 0, "{totals:?}");
}

#[test]
fn o8_a_seed_gives_the_same_world_twice() {
    for seed in 0..20 {
        assert_eq!(World::run(seed), World::run(seed), "TOURBILLON_SEED={seed}");
    }
}

/// How long simulated requests take at most while nothing is wrong.
const QUICK: Duration = Duration::from_millis(20);
