//! The store in memory.

mod conformance;

use std::sync::Arc;

use tourbillon_durable::store::MemoryStore;

#[test]
fn q1_q2_q3_q4_q7_the_store_in_memory_does_what_every_store_does() {
    conformance::all(|| Arc::new(MemoryStore::new()));
}
