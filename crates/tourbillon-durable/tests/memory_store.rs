//! The store in memory.

mod conformance;

use std::sync::Arc;
use std::time::Duration;

use tourbillon_durable::store::{
    ClaimAnswer, ClaimOp, CreateAnswer, CreateOp, DeadLetterOp, DueEntry, FinishOp, Heartbeat, MemoryStore,
    MemoryTables, NodeId, Verdict, WriteAnswer, WriteOp,
};
use tourbillon_durable::{NewTimer, StoreTime, TimerId};

#[test]
fn q1_q2_q3_q4_q7_the_store_in_memory_does_what_every_store_does() {
    conformance::all(|| Arc::new(MemoryStore::new()));
}

#[test]
fn v4_o8_a_letter_that_is_replayed_after_an_earlier_occurrence_has_got_the_key_keeps_the_invariants() {
    let second = Duration::from_secs(1);
    let now = StoreTime::from_micros(1_800_000_000_000_000);
    let id = TimerId::from_u128(1);
    let mut tables = MemoryTables::new(1);
    let heartbeat = Heartbeat { node: NodeId(id.as_uuid()), lease: second, release: Vec::new(), kinds: None };
    let epoch = tables.heartbeat(&heartbeat, now).shards[0].1;
    let mut write = |op, at| {
        let answer = tables.write(vec![op], at).unwrap().remove(0);
        tables.check().map(|()| answer).unwrap()
    };
    let (spec, on_conflict) = NewTimer::every("tick", second).times(2).key("key").check(Default::default()).unwrap();
    let create = WriteOp::Create(CreateOp { id, spec: Arc::new(spec), on_conflict });
    let WriteAnswer::Create(CreateAnswer::Created { entry, .. }) = write(create, now) else { panic!("it is new") };
    let claim = |entry: DueEntry| {
        WriteOp::Claim(ClaimOp { id: entry.id, version: entry.version, epoch, token: 1, lease: second * 60 })
    };
    let first = write(claim(entry), entry.wake);
    let WriteAnswer::Claim(ClaimAnswer::Claimed { next: Some(next), .. }) = first else {
        panic!("it is due: {first:?}")
    };
    write(claim(next), next.wake);
    // The second occurrence dies, so the first, which is still being delivered, gets the key.
    let verdict = Verdict::Dead { error: "dead".into() };
    write(WriteOp::Finish(FinishOp { id: next.id, attempt: 1, epoch, verdict }), next.wake);
    let replayed = write(WriteOp::DeadLetter(DeadLetterOp { id: next.id, replay: true }), next.wake);
    assert!(matches!(replayed, WriteAnswer::DeadLetter(Some(Some(_)))), "{replayed:?}");
}
