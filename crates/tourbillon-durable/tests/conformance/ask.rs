//! Blocking calls of a store.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use tourbillon_durable::spec::Limits;
use tourbillon_durable::store::{
    CancelCounts, CancelOp, ClaimAnswer, ClaimOp, CreateAnswer, CreateOp, DueEntry, DuePage, DueQuery, FinishOp,
    Heartbeat, NodeId, Ownership, Reply, RowId, ShardId, StaleDelivery, Store, Target, TimerRow, Verdict, WriteAnswer,
    WriteOp,
};
use tourbillon_durable::{NewTimer, StoreError, StoreTime, TimerId};

/// How long a store may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const LEASE: Duration = Duration::from_secs(3600);

/// Calls a store and waits for its reply.
pub(crate) fn ask<T: Send + 'static>(call: impl FnOnce(Reply<T>)) -> Result<T, StoreError> {
    let (sender, receiver) = channel();
    call(Reply::new(move |result| drop(sender.send(result))));
    receiver.recv_timeout(PATIENCE).expect("a store replies to each call")
}

/// Applies one operation.
pub(crate) fn write(store: &dyn Store, op: WriteOp) -> WriteAnswer {
    let mut answers = write_all(store, vec![op]);
    assert_eq!(answers.len(), 1);
    answers.remove(0)
}

/// Applies operations in one batch.
pub(crate) fn write_all(store: &dyn Store, ops: Vec<WriteOp>) -> Vec<WriteAnswer> {
    ask(|reply| store.write(ops, reply)).expect("the store works")
}

pub(crate) fn create_op(number: u128, timer: NewTimer) -> WriteOp {
    let (spec, on_conflict) = timer.check(Limits::default()).expect("the timer is valid");
    WriteOp::Create(CreateOp { id: TimerId::from_u128(number), spec: Arc::new(spec), on_conflict })
}

pub(crate) fn create(store: &dyn Store, number: u128, timer: NewTimer) -> CreateAnswer {
    match write(store, create_op(number, timer)) {
        WriteAnswer::Create(answer) => answer,
        other => panic!("not the answer to a create: {other:?}"),
    }
}

/// Creates a timer and returns its row.
pub(crate) fn arm(store: &dyn Store, number: u128, timer: NewTimer) -> DueEntry {
    match create(store, number, timer) {
        CreateAnswer::Created { entry, .. } => entry,
        other => panic!("the timer was not created: {other:?}"),
    }
}

pub(crate) fn cancel(store: &dyn Store, target: Target) -> CancelCounts {
    match write(store, WriteOp::Cancel(CancelOp { target })) {
        WriteAnswer::Cancel(counts) => counts,
        other => panic!("not the answer to a cancel: {other:?}"),
    }
}

pub(crate) fn cancel_name(store: &dyn Store, name: &str) -> CancelCounts {
    cancel(store, Target::Name { namespace: "default".into(), name: name.into() })
}

pub(crate) fn cancel_key(store: &dyn Store, key: &str) -> CancelCounts {
    cancel(store, Target::Key { namespace: "default".into(), key: key.into() })
}

/// Makes a node of this number own what it can get.
pub(crate) fn own(store: &dyn Store, node: u128) -> Ownership {
    let node = NodeId(TimerId::from_u128(node).as_uuid());
    ask(|reply| store.heartbeat(Heartbeat { node, lease: LEASE, release: Vec::new(), kinds: None }, reply))
        .expect("the store works")
}

pub(crate) fn epoch_of(ownership: &Ownership, shard: ShardId) -> u64 {
    ownership.shards.iter().find(|(id, _)| *id == shard).map_or(0, |(_, epoch)| *epoch)
}

pub(crate) fn claim(store: &dyn Store, owner: &Ownership, entry: DueEntry) -> ClaimAnswer {
    claim_as(store, owner, entry, entry.version)
}

pub(crate) fn claim_as(store: &dyn Store, owner: &Ownership, entry: DueEntry, token: u64) -> ClaimAnswer {
    let epoch = epoch_of(owner, entry.shard);
    let op = ClaimOp { id: entry.id, version: entry.version, epoch, token, lease: LEASE };
    match write(store, WriteOp::Claim(op)) {
        WriteAnswer::Claim(answer) => answer,
        other => panic!("not the answer to a claim: {other:?}"),
    }
}

/// Claims a row that is due, and returns it with the next occurrence.
pub(crate) fn take(store: &dyn Store, owner: &Ownership, entry: DueEntry) -> (TimerRow, Option<DueEntry>) {
    match claim(store, owner, entry) {
        ClaimAnswer::Claimed { row, next } => (row, next),
        other => panic!("the row was not claimed: {other:?}"),
    }
}

pub(crate) fn finish(store: &dyn Store, row: &TimerRow, verdict: Verdict) -> Result<Option<DueEntry>, StaleDelivery> {
    let op = FinishOp { id: row.id, attempt: row.attempt, epoch: row.epoch, verdict };
    match write(store, WriteOp::Finish(op)) {
        WriteAnswer::Finish(answer) => answer,
        other => panic!("not the answer to a finish: {other:?}"),
    }
}

/// Returns the rows of a kind that are due until a time, in all shards.
pub(crate) fn due(store: &dyn Store, kind: &str, until: StoreTime, limit: usize) -> DuePage {
    due_after(store, kind, None, until, limit)
}

pub(crate) fn due_after(
    store: &dyn Store,
    kind: &str,
    after: Option<(StoreTime, RowId)>,
    until: StoreTime,
    limit: usize,
) -> DuePage {
    let shards = (0..store.traits().shards).map(ShardId).collect();
    let query = DueQuery { kind: kind.into(), shards, after, until, limit };
    ask(|reply| store.due(query, reply)).expect("the store works")
}
