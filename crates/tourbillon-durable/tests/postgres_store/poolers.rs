//! The store behind PgBouncer: what works there, what it costs, and what is refused.
//!
//! Without PgBouncer every test prints `NOT TESTED THROUGH PGBOUNCER` and passes: see `tourbillon_tools::postgres`.

use tourbillon_durable::{Timers, TimersError};
use tourbillon_tools::not_tested;
use tourbillon_tools::postgres::{PoolMode, Pooler, url};

use super::outages::{Creates, Ledger, cut_connections, open, own_server};
use super::timers::use_timers;
use super::*;

/// In session mode each connection of a store is one of the server.
const FOR_SESSIONS: u32 = 60;
/// Fewer than a store has, so that transactions move from one connection to another.
const FOR_TRANSACTIONS: u32 = 4;

/// How often a store looks for what other processes have created: without hints, and with them.
const LOOKS: [Duration; 2] = [Duration::from_millis(250), SECOND];

/// Starts a pooler before a server; `None` on a machine without PgBouncer, after saying so.
fn pooler_before(server: &str, mode: PoolMode) -> Option<Pooler> {
    let connections = if mode == PoolMode::Session { FOR_SESSIONS } else { FOR_TRANSACTIONS };
    let say = |reason: String| not_tested(&format!("THROUGH PGBOUNCER in the mode {mode:?}"), &reason);
    Pooler::start(server, mode, connections).map_err(say).ok()
}

/// The same before the server of the other tests.
fn pooler(mode: PoolMode) -> Option<Pooler> {
    pooler_before(url()?, mode)
}

/// What the guide says that a pooler in transaction mode needs.
fn for_transactions(schema: &Schema) -> PostgresOptions {
    schema.options().prepared_statements(false).hints(false)
}

fn conform_through(mode: PoolMode, options: impl Fn(&Schema) -> PostgresOptions) {
    let Some(pooler) = pooler(mode) else { return };
    conform_on(|| Some(Schema::on(pooler.url())), options);
}

#[test]
fn q1_q2_q3_q4_q7_the_store_does_what_every_store_does_through_a_pooler_in_transaction_mode() {
    conform_through(PoolMode::Transaction, for_transactions);
}

#[test]
fn q1_q2_q3_q4_q7_the_same_with_prepared_statements_through_a_pooler_that_knows_them() {
    conform_through(PoolMode::TransactionPrepared, Schema::options);
}

#[test]
fn q1_q2_q3_q4_q7_the_same_through_a_pooler_in_session_mode_without_any_option() {
    conform_through(PoolMode::Session, Schema::options);
}

fn use_through(mode: PoolMode, options: impl Fn(&Schema) -> PostgresOptions) {
    let Some(pooler) = pooler(mode) else { return };
    let schema = Schema::on(pooler.url());
    use_timers(&wait(Timers::builder().connect_with(options(&schema))).unwrap().blocking());
}

#[test]
fn q1_v1_timers_deliver_and_cancel_through_a_pooler_in_transaction_mode() {
    use_through(PoolMode::Transaction, for_transactions);
}

#[test]
fn q1_v1_timers_deliver_and_cancel_with_prepared_statements_through_a_pooler_that_knows_them() {
    use_through(PoolMode::TransactionPrepared, Schema::options);
}

#[test]
fn q1_v1_timers_deliver_and_cancel_through_a_pooler_in_session_mode_without_any_option() {
    use_through(PoolMode::Session, Schema::options);
}

#[test]
fn q8_prepared_statements_that_a_pooler_does_not_know_are_an_error_that_names_the_option() {
    let Some(pooler) = pooler(PoolMode::Transaction) else { return };
    let schema = Schema::on(pooler.url());
    let refused = |error: Option<StoreError>| match error {
        Some(StoreError::BadOptions(text)) => assert!(text.contains("prepared_statements(false)"), "{text}"),
        other => panic!("{other:?}"),
    };
    // Also when the pooler's connections have statements of others with the same names.
    for hints in [true, false, true, false] {
        refused(schema.open(schema.options().hints(hints)).err());
    }
    refused(schema.open(schema.options().create(false)).err());
    match wait(Timers::builder().connect_with(schema.options())) {
        Err(TimersError::Store(error)) => refused(Some(error)),
        other => panic!("{:?}", other.err()),
    }
    drop(schema.open(schema.options().prepared_statements(false)).unwrap());
}

#[test]
fn d55_a_store_that_cannot_hear_hints_behind_a_pooler_looks_as_often_as_one_without() {
    let Some(direct) = Schema::new() else { return };
    let looks = |options: PostgresOptions| direct.open(options).unwrap().traits().rescan.unwrap();
    assert_eq!([looks(direct.options().hints(false)), looks(direct.options())], LOOKS);
    let [without, with] = LOOKS;
    for (mode, expected) in
        [(PoolMode::Session, with), (PoolMode::Transaction, without), (PoolMode::TransactionPrepared, without)]
    {
        let Some(pooler) = pooler(mode) else { continue };
        let schema = Schema::on(pooler.url());
        let options = schema.options().prepared_statements(mode != PoolMode::Transaction);
        assert_eq!(schema.open(options).unwrap().traits().rescan, Some(expected), "{mode:?}");
    }
}

#[test]
fn d55_hints_pass_a_pooler_in_session_mode() {
    let Some(pooler) = pooler(PoolMode::Session) else { return };
    let schema = Schema::on(pooler.url());
    let (listener, creator) = (schema.store(), schema.store());
    let (sender, hints) = std::sync::mpsc::channel();
    listener.listen(move |due| _ = sender.send(due));
    assert_eq!(hints.recv_timeout(SECOND * 30), Ok(StoreTime::ZERO), "it listens");
    arm(&creator, 1, past("mail"));
    assert_eq!(hints.recv_timeout(SECOND * 30), Ok(StoreTime::from_micros(1_000_000_000_000)));
}

#[test]
fn q4_d55_what_another_process_creates_is_seen_with_the_next_look_behind_a_pooler_in_transaction_mode() {
    const EACH: u64 = 16;
    let Some(pooler) = pooler(PoolMode::Transaction) else { return };
    let schema = Schema::on(pooler.url());
    let connect = || wait(Timers::builder().connect_with(for_transactions(&schema))).unwrap();
    let (node, creator) = (connect(), connect());
    let (sender, delivered) = std::sync::mpsc::channel();
    node.on("mail", move |delivery| {
        let sent = sender.send((delivery.due(), std::time::SystemTime::now()));
        async move { sent.map_err(|error| error.to_string()) }
    })
    .unwrap();
    // A look, and the transactions of the create, the look and the claim. On a machine that is busy some rounds take longer.
    let bound = LOOKS[0] + Duration::from_millis(250);
    let mut random = Random::new(conformance::random::seed());
    let round = |random: &mut Random| -> Duration {
        let late = |pause: u64| {
            thread::sleep(Duration::from_millis(pause));
            wait(creator.create(NewTimer::after("mail", Duration::ZERO))).unwrap();
            let (due, at) = delivered.recv_timeout(SECOND * 60).expect("it is delivered without a hint");
            at.duration_since(due).expect("no timer is early")
        };
        (0..EACH).map(|_| late(random.below(100))).max().unwrap()
    };
    let rounds: Vec<Duration> = (0..20)
        .map(|_| round(&mut random))
        .scan(false, |is_over, latest| {
            let is_first = !std::mem::replace(is_over, latest <= bound);
            is_first.then_some(latest)
        })
        .collect();
    println!("the latest timer of each round: {rounds:?}");
    assert!(rounds.last().unwrap() <= &bound, "{rounds:?}");
    for timers in [node, creator] {
        wait(timers.shutdown(SECOND * 30)).unwrap();
    }
}

#[test]
fn q1_d47_a_node_behind_a_pooler_whose_connections_are_ended_again_and_again_loses_no_timer() {
    let Some(server) = own_server() else { return };
    let Some(pooler) = pooler_before(server.url(), PoolMode::Transaction) else { return };
    let (schema, direct) = (Schema::on(pooler.url()), Schema::on(server.url()));
    let timers = open(for_transactions(&schema));
    let (ledger, mut creates, calls) = (Ledger::default(), Creates::default(), timers.blocking());
    ledger.register(&timers);
    let admin = direct.client();
    for _ in 0..20 {
        creates.create_some(&calls, 5);
        cut_connections(&admin);
    }
    ledger.check(&calls, &creates.acknowledged, &creates.refused);
    calls.shutdown(SECOND * 120).unwrap();
}
