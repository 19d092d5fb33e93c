//! Stores and nodes that break one rule each: the simulation finds them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::node::NodeFlaw;
use super::store::Flaw;
use super::world::{Plan, World};

/// In how many worlds a fault must be found.
const WORLDS: u64 = 20;

/// The same for a fault of nodes, which shows only when another fault comes at a bad time.
const WORLDS_OF_NODES: u64 = 1_000;

/// Runs worlds with a store that has a fault until one of them fails because of this promise. Before that the fault may show in another way.
fn is_found(flaw: Flaw, promise: &str) {
    is_found_in(|seed| Plan { flaw: Some(flaw), ..Plan::rough(seed) }, WORLDS, promise);
}

/// The same with nodes that have a fault.
fn is_found_in_nodes(flaw: NodeFlaw, promise: &str) {
    is_found_in(|seed| Plan { node_flaw: Some(flaw), ..Plan::rough(seed) }, WORLDS_OF_NODES, promise);
}

fn is_found_in(plan: impl Fn(u64) -> Plan, worlds: u64, promise: &str) {
    for seed in 0..worlds {
        let plan = plan(seed);
        let Err(failure) = catch_unwind(AssertUnwindSafe(|| World::run(plan))) else { continue };
        let text = failure.downcast_ref::<String>().map_or("", String::as_str);
        if text.starts_with(promise) {
            return println!("found with {plan:?}: {}", text.lines().next().unwrap_or_default());
        }
    }
    panic!("no {promise:?} in any of {worlds} worlds like {:?}", plan(0));
}

#[test]
fn o8_q1_the_model_finds_a_store_that_drops_a_row() {
    is_found(Flaw::DropsRow, "q1: ");
}

#[test]
fn o8_d52_the_model_finds_a_store_that_forgets_the_next_occurrence() {
    is_found(Flaw::ForgetsNext, "d52: the next occurrence is not armed");
}

#[test]
fn o8_d52_the_model_finds_a_store_that_arms_the_next_occurrence_twice() {
    is_found(Flaw::DoublesNext, "d52: ");
}

#[test]
fn o8_q2_the_model_finds_a_store_that_answers_a_cancel_and_keeps_the_row() {
    is_found(Flaw::CancelsNothing, "q2: ");
}

#[test]
fn o8_u2_the_model_finds_a_store_that_counts_a_cancel_wrongly() {
    is_found(Flaw::Miscounts, "u2: ");
}

#[test]
fn o8_u3_the_model_finds_a_store_that_answers_a_reschedule_and_moves_nothing() {
    is_found(Flaw::MovesNothing, "q1: the row is");
}

#[test]
fn o8_q4_the_model_finds_a_store_that_delivers_early() {
    is_found(Flaw::ClaimsEarly, "q4: ");
}

#[test]
fn o8_q3_the_model_finds_a_store_that_repeats_the_number_of_an_attempt() {
    is_found(Flaw::RepeatsAttempt, "q3: attempt");
}

#[test]
fn o8_q1_the_model_finds_a_store_that_answers_before_it_has_synced() {
    is_found(Flaw::AnswersBeforeSync, "q1: after a crash");
}

#[test]
fn o8_q1_the_model_finds_a_store_that_keeps_half_of_a_batch() {
    is_found(Flaw::TearsBatch, "q1: after a crash");
}

#[test]
fn o8_q2_the_model_finds_a_store_that_applies_a_batch_and_answers_an_error() {
    is_found(Flaw::AppliesWhatFails, "q2: a request that has failed");
}

#[test]
fn o8_v5_the_model_finds_a_store_that_extends_the_lease_of_another_attempt() {
    is_found(Flaw::ExtendsForAnybody, "q1: the row is");
}

#[test]
fn o8_v5_the_model_finds_a_store_that_tells_a_worker_of_an_older_attempt_that_its_lease_is_longer() {
    is_found(Flaw::HidesThatItIsStale, "v5: ");
}

#[test]
fn o8_v5_the_model_finds_a_store_that_answers_an_extension_and_extends_nothing() {
    is_found(Flaw::ExtendsNothing, "q1: the row is");
}

#[test]
fn o8_q7_the_model_finds_nodes_whose_clocks_are_slower_than_the_leases_have_room_for() {
    is_found_in_nodes(NodeFlaw::HasSlowClock, "q7: ");
}

#[test]
fn o8_q7_the_model_finds_nodes_that_deliver_after_their_lease() {
    is_found_in_nodes(NodeFlaw::IgnoresLeaseEnd, "q7: ");
}

#[test]
fn o8_q4_the_model_finds_nodes_that_look_too_slowly_for_what_others_arm() {
    let plan = |seed| Plan { node_flaw: Some(NodeFlaw::LooksSlowly), ..Plan::punctual(seed) };
    is_found_in(plan, WORLDS, "q4: a timer was late");
}

#[test]
fn o8_d45_the_model_finds_nodes_that_are_not_told_of_what_their_clients_arm() {
    is_found_in_nodes(NodeFlaw::DropsNotices, "q1, d45: ");
}
