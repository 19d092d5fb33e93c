//! The store in PostgreSQL.
//!
//! Without a server every test prints `NOT TESTED ON POSTGRESQL` and passes: see `tourbillon_tools::postgres`.

#[path = "../conformance/mod.rs"]
mod conformance;
mod faults;
mod functions;
mod locks;
#[cfg(unix)]
mod network;
mod nodes;
mod outages;
mod poolers;
#[path = "../postgres/mod.rs"]
mod postgres;
mod reads;
mod requests;
mod timers;

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use conformance::ask::{
    arm, ask, cancel_key, cancel_name, claim, create, create_op, due, epoch_of, finish, own, take, write_all,
};
use postgres::stories::{beat, beat_with, ends_within, far, past};
use postgres::{Schema, wait};
use tourbillon_durable::store::{
    ClaimAnswer, ClaimOp, CreateAnswer, DueEntry, FinishOp, ListFilter, PostgresOptions, RowState, ShardId,
    StaleDelivery, Store, Verdict, WriteAnswer, WriteOp, pull_fence,
};
use tourbillon_durable::{MissedFires, NewTimer, OnConflict, StoreError, StoreTime, TimerId};
use tourbillon_tools::Random;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn q1_q2_q3_q4_q7_the_store_in_postgresql_does_what_every_store_does() {
    conform(Schema::options);
}

#[test]
fn q1_q2_q3_q4_q7_the_same_without_prepared_statements_as_poolers_need_it() {
    conform(|schema| schema.options().prepared_statements(false));
}

#[test]
fn a_machine_without_postgresql_is_told_so_in_one_line_that_the_test_harness_does_not_hide() {
    let tests = [
        "q1_q2_q3_q4_q7_the_store_in_postgresql_does_what_every_store_does",
        "q1_q2_q3_q4_q7_the_same_without_prepared_statements_as_poolers_need_it",
    ];
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(tests).arg("--exact").env("TOURBILLON_TEST_POSTGRES_BIN", "").env_remove("TOURBILLON_TEST_POSTGRES");
    let output = child.env_remove("RUST_TEST_NOCAPTURE").output().unwrap();
    let [shown, errors] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success() && shown.contains("2 passed"), "{shown}\n{errors}");
    assert_eq!(errors.lines().filter(|line| line.starts_with("NOT TESTED ON POSTGRESQL")).count(), 1, "{errors}");
}

fn conform(options: impl Fn(&Schema) -> PostgresOptions) {
    conform_on(Schema::new, options);
}

/// Runs what every store has to pass on stores in schemas of their own; `new_schema` says so if there is no server.
fn conform_on(new_schema: impl Fn() -> Option<Schema>, options: impl Fn(&Schema) -> PostgresOptions) {
    let Some(first) = new_schema() else { return };
    let schemas = RefCell::new(vec![first]);
    conformance::all(|| {
        let schema = new_schema().expect("the server is there");
        let store = schema.open(options(&schema)).expect("the server works");
        schemas.borrow_mut().push(schema);
        Arc::new(store)
    });
}

fn created(answer: &WriteAnswer) -> DueEntry {
    match answer {
        WriteAnswer::Create(CreateAnswer::Created { entry, .. }) => *entry,
        other => panic!("the timer was not created: {other:?}"),
    }
}

fn claim_op(entry: DueEntry, epoch: u64) -> WriteOp {
    WriteOp::Claim(ClaimOp { id: entry.id, version: entry.version, epoch, token: 1, lease: SECOND * 3600 })
}

fn is_claimed(answer: &WriteAnswer) -> bool {
    matches!(answer, WriteAnswer::Claim(ClaimAnswer::Claimed { .. }))
}

fn finish_op(answer: WriteAnswer) -> WriteOp {
    match answer {
        WriteAnswer::Claim(ClaimAnswer::Claimed { row, .. }) => {
            let (attempt, epoch) = (row.attempt, row.epoch);
            WriteOp::Finish(FinishOp { id: row.id, attempt, epoch, verdict: Verdict::Done })
        }
        other => panic!("the row was not claimed: {other:?}"),
    }
}
