//! Batches some of whose rows or keys an application holds in a transaction of its own.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::mpsc::{Receiver, channel};

use tourbillon_durable::store::{CancelOp, PostgresStore, Target};

use super::*;

const PATIENCE: Duration = Duration::from_secs(120);

type Part = (Vec<usize>, Result<Vec<WriteAnswer>, StoreError>);

fn write_in_parts(store: &PostgresStore, batch: Vec<WriteOp>, groups: Vec<Range<usize>>) -> Receiver<Part> {
    let (sender, parts) = channel();
    let reply = move |places: &[usize], result| drop(sender.send((places.to_vec(), result)));
    store.write_in_parts(batch, groups, Box::new(reply));
    parts
}

/// Waits until so many operations of a batch have their answers.
fn answers(parts: &Receiver<Part>, count: usize) -> BTreeMap<usize, Result<WriteAnswer, StoreError>> {
    let mut answers = BTreeMap::new();
    while answers.len() < count {
        let (places, result) = parts.recv_timeout(PATIENCE).expect("these operations do not wait for the others");
        for (index, place) in places.into_iter().enumerate() {
            let answer = result.as_ref().map(|answers| answers[index].clone()).map_err(Clone::clone);
            assert!(answers.insert(place, answer).is_none(), "an operation has one answer");
        }
    }
    answers
}

fn cancel_op(key: &str) -> WriteOp {
    WriteOp::Cancel(CancelOp { target: Target::key(key) })
}

fn hold(schema: &Schema, statement: &str) -> tokio_postgres::Client {
    let application = schema.client();
    wait(application.batch_execute(&schema.sql(&format!("BEGIN; {statement}")))).unwrap();
    application
}

#[test]
fn u5_q4_a_row_that_an_application_holds_delays_its_own_operation_only() {
    let Some(schema) = Schema::new() else { return };
    let store = schema.open(schema.options().lock_timeout(PATIENCE)).unwrap();
    let owner = own(&store, 1);
    arm(&store, 1, far("mail").key("held"));
    let waiting = arm(&store, 2, past("mail"));
    let (running, _) = take(&store, &owner, arm(&store, 3, past("mail")));
    let (attempt, epoch) = (running.attempt, running.epoch);
    let finish = WriteOp::Finish(FinishOp { id: running.id, attempt, epoch, verdict: Verdict::Done });
    let claim = claim_op(waiting, epoch_of(&owner, waiting.shard));
    let application = hold(&schema, "SELECT tourbillon.cancel(key => 'held')");
    // As many batches as the store writes at the same time, and more, each with the row.
    let stuck: Vec<_> = (0..8).map(|_| write_in_parts(&store, vec![cancel_op("held")], Vec::new())).collect();
    let batch = vec![cancel_op("held"), claim, finish, create_op(4, far("mail").key("new"))];
    let parts = write_in_parts(&store, batch, Vec::new());
    let free = answers(&parts, 3);
    assert!(is_claimed(free[&1].as_ref().unwrap()));
    assert_eq!(free[&2], Ok(WriteAnswer::Finish(Ok(None))));
    created(free[&3].as_ref().unwrap());
    wait(application.batch_execute("ROLLBACK")).unwrap();
    let cancelled = |parts: &Receiver<Part>| match &answers(parts, 1).first_key_value().unwrap().1 {
        Ok(WriteAnswer::Cancel(counts)) => counts.cancelled,
        other => panic!("the cancel goes on after the rollback: {other:?}"),
    };
    assert_eq!(stuck.iter().chain([&parts]).map(cancelled).sum::<u64>(), 1, "one of them has cancelled the timer");
}

#[test]
fn u1_u5_a_key_of_an_open_transaction_delays_the_create_of_that_key_only() {
    let Some(schema) = Schema::new() else { return };
    let store = schema.open(schema.options().lock_timeout(PATIENCE)).unwrap();
    let application = hold(&schema, "SELECT tourbillon.create_timer('mail', after => '1 h', key => 'order 7')");
    let batch = (0..20_u128).map(|id| create_op(id + 1, far("mail").key(format!("order {id}")))).collect();
    let parts = write_in_parts(&store, batch, Vec::new());
    let free = answers(&parts, 19);
    assert!(!free.contains_key(&7) && free.values().all(|answer| created(answer.as_ref().unwrap()).version == 1));
    wait(application.batch_execute("COMMIT")).unwrap();
    let held = answers(&parts, 1);
    assert!(matches!(held[&7], Ok(WriteAnswer::Create(CreateAnswer::Conflict { .. }))), "{held:?}");
}

#[test]
fn u1_q2_a_group_waits_as_a_whole_and_keeps_its_order() {
    let Some(schema) = Schema::new() else { return };
    let store = schema.open(schema.options().lock_timeout(PATIENCE)).unwrap();
    arm(&store, 1, far("mail").key("held"));
    let application = hold(&schema, "SELECT FROM tourbillon.timers FOR UPDATE");
    let batch = vec![
        create_op(2, far("mail").key("of group")),
        cancel_op("held"),
        create_op(3, far("mail").key("held")),
        create_op(4, far("mail").key("alone")),
    ];
    let group: Range<usize> = 0..3;
    let parts = write_in_parts(&store, batch, Vec::from_iter([group]));
    created(answers(&parts, 1)[&3].as_ref().unwrap());
    let of_group = ask(|reply| store.get_key("default".into(), "of group".into(), reply)).unwrap();
    assert_eq!(of_group, None, "nothing of the group is done while one of its rows is held");
    wait(application.batch_execute("ROLLBACK")).unwrap();
    let group = answers(&parts, 3);
    assert!(matches!(&group[&1], Ok(WriteAnswer::Cancel(counts)) if counts.cancelled == 1), "{group:?}");
    assert!([0, 2].iter().all(|place| created(group[place].as_ref().unwrap()).version == 1));
}

#[test]
fn q1_an_operation_that_meets_a_lock_for_too_long_fails_alone() {
    let Some(schema) = Schema::new() else { return };
    let store = schema.open(schema.options().lock_timeout(SECOND / 2)).unwrap();
    arm(&store, 1, far("mail").key("held"));
    let application = hold(&schema, "SELECT FROM tourbillon.timers FOR UPDATE");
    let batch = vec![cancel_op("held"), create_op(2, far("mail"))];
    let all = answers(&write_in_parts(&store, batch, Vec::new()), 2);
    created(all[&1].as_ref().unwrap());
    assert!(matches!(all[&0], Err(StoreError::Unavailable(_))), "{all:?}");
    wait(application.batch_execute("ROLLBACK")).unwrap();
    assert_eq!(cancel_key(&store, "held").cancelled, 1);
}
