//! Nodes with handlers whose server is read only, stopped or started again, or ends their connections.
//!
//! Servers are stopped and set to read only here, so these tests have servers of their own.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use tokio_postgres::Client;
use tourbillon_durable::store::{CancelOp, PostgresStore, Target};
use tourbillon_durable::{Ack, BlockingTimers, Timers, TimersError};
use tourbillon_tools::not_tested;
use tourbillon_tools::postgres::{Cluster, StopMode};

use super::*;

const PATIENCE: Duration = Duration::from_secs(120);

/// Starts a server; `None` on a machine that has none, after saying so.
pub(super) fn own_server() -> Option<Cluster> {
    let say = |reason: String| not_tested("ON POSTGRESQL that is stopped or read only", &reason);
    Cluster::start("-c fsync=off").map_err(say).ok()
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Opens timers whose node loses its shards soon after it has lost its server.
pub(super) fn open(options: tourbillon_durable::store::PostgresOptions) -> Timers {
    wait(Timers::builder().node_lease(SECOND).connect_with(options)).unwrap()
}

/// What a handler was given: the attempts of each key, in their order.
#[derive(Clone, Default)]
pub(super) struct Ledger(Arc<Mutex<BTreeMap<String, Vec<u32>>>>);

impl Ledger {
    /// Registers a handler that notes what it is given.
    pub(super) fn register(&self, timers: &Timers) {
        let ledger = self.clone();
        let handler = move |delivery: tourbillon_durable::Delivery| {
            let key = delivery.key().expect("every timer here has a key").to_owned();
            ledger.0.lock().unwrap().entry(key).or_default().push(delivery.attempt());
            async { Ack::Done }
        };
        timers.on("mail", handler).unwrap();
    }

    fn has_all(&self, keys: &[String]) -> bool {
        let delivered = self.0.lock().unwrap();
        keys.iter().all(|key| delivered.contains_key(key))
    }

    /// Waits until all timers that were acknowledged are delivered and have ended, and verifies that a second delivery had a higher attempt
    /// and that nothing was delivered that was refused.
    pub(super) fn check(&self, calls: &BlockingTimers, acknowledged: &[String], refused: &[String]) {
        eventually("every timer that was acknowledged is delivered", || self.has_all(acknowledged));
        eventually("every delivery has ended", || {
            calls.counts().is_ok_and(|counts| (counts.armed, counts.claimed, counts.dead) == (0, 0, 0))
        });
        let delivered = self.0.lock().unwrap();
        for (key, attempts) in &*delivered {
            assert!(attempts.is_sorted_by(|one, next| one < next), "{key}: {attempts:?}");
        }
        let come_back: Vec<&String> = refused.iter().filter(|key| delivered.contains_key(*key)).collect();
        assert!(come_back.is_empty(), "these creates were refused: {come_back:?}");
    }
}

/// Creates with keys of their own, and what became of them.
#[derive(Default)]
pub(super) struct Creates {
    pub(super) acknowledged: Vec<String>,
    /// Nothing of them is in the store.
    pub(super) refused: Vec<String>,
    /// How many were refused because the store was read only.
    read_only: usize,
    number: usize,
}

impl Creates {
    /// Creates one timer that is due at once, and says whether it was acknowledged.
    fn create(&mut self, calls: &BlockingTimers) -> bool {
        self.number += 1;
        let key = format!("timer {}", self.number);
        match calls.create(NewTimer::after("mail", Duration::ZERO).key(key.clone())) {
            Ok(_) => self.acknowledged.push(key),
            // It may be there and be delivered, or not.
            Err(TimersError::Store(StoreError::Uncertain(_))) => return false,
            Err(TimersError::Store(
                error @ (StoreError::ReadOnly(_) | StoreError::Unavailable(_) | StoreError::Internal(_)),
            )) => {
                self.read_only += usize::from(matches!(error, StoreError::ReadOnly(_)));
                self.refused.push(key);
                return false;
            }
            Err(other) => panic!("{other:?}"),
        }
        true
    }

    /// Creates so many timers that are acknowledged, with further ones in the place of those that are not.
    pub(super) fn create_some(&mut self, calls: &BlockingTimers, count: usize) {
        let wanted = self.acknowledged.len() + count;
        eventually("creates succeed", || self.create(calls) && self.acknowledged.len() >= wanted);
    }

    /// Creates timers until some were refused because the store was read only.
    fn create_until_read_only(&mut self, calls: &BlockingTimers) {
        eventually("creates say that the server is read only", || {
            self.create(calls);
            self.read_only >= 10
        });
    }
}

/// Ends all connections but that of `admin`.
pub(super) fn cut_connections(admin: &Client) {
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    wait(admin.batch_execute(cut)).unwrap();
}

#[test]
fn q1_d47_a_server_that_was_read_only_for_a_while_is_used_again_and_no_timer_is_lost() {
    let Some(server) = own_server() else { return };
    let schema = Schema::on(server.url());
    let timers = open(schema.options());
    let (ledger, mut creates, calls) = (Ledger::default(), Creates::default(), timers.blocking());
    ledger.register(&timers);
    creates.create_some(&calls, 10);
    // This connection is older than the setting, so it can write all the time.
    let admin = schema.client();
    wait(admin.batch_execute("ALTER DATABASE postgres SET default_transaction_read_only = on")).unwrap();
    cut_connections(&admin);
    creates.create_until_read_only(&calls);
    for number in 0..10 {
        let create = format!("SELECT tourbillon.create_timer('mail', after => '0 s', key => 'meanwhile {number}')");
        wait(admin.batch_execute(&schema.sql(&create))).unwrap();
        creates.acknowledged.push(format!("meanwhile {number}"));
    }
    eventually("the node has lost its shards", || !timers.stats().is_owner);
    wait(admin.batch_execute("ALTER DATABASE postgres RESET default_transaction_read_only")).unwrap();
    creates.create_some(&calls, 10);
    ledger.check(&calls, &creates.acknowledged, &creates.refused);
    calls.shutdown(PATIENCE).unwrap();
}

#[test]
fn q1_d47_a_standby_is_used_when_it_is_promoted_and_no_timer_is_lost() {
    let Some(server) = own_server() else { return };
    let schema = Schema::on(server.url());
    let timers = open(schema.options());
    let (ledger, mut creates, calls) = (Ledger::default(), Creates::default(), timers.blocking());
    ledger.register(&timers);
    creates.create_some(&calls, 10);
    calls.create(far("mail").key("kept")).unwrap();
    server.stop(StopMode::Fast);
    server.start_as_standby();
    creates.create_until_read_only(&calls);
    eventually("the standby can be read", || calls.get_key("default", "kept").is_ok_and(|timer| timer.is_some()));
    eventually("the node has lost its shards", || !timers.stats().is_owner);
    wait(schema.client().batch_execute("SELECT pg_promote()")).unwrap();
    creates.create_some(&calls, 10);
    eventually("the timer is cancelled", || calls.cancel("kept").is_ok_and(|counts| counts.cancelled == 1));
    ledger.check(&calls, &creates.acknowledged, &creates.refused);
    calls.shutdown(PATIENCE).unwrap();
}

#[test]
fn q1_q3_d47_a_server_that_was_stopped_or_has_crashed_is_used_again_and_no_timer_is_lost() {
    let Some(server) = own_server() else { return };
    let schema = Schema::on(server.url());
    let timers = open(schema.options());
    let (ledger, mut creates, calls) = (Ledger::default(), Creates::default(), timers.blocking());
    ledger.register(&timers);
    let (begun_sender, begun) = channel();
    let (end, ends) = async_channel::unbounded();
    let slow = move |delivery: tourbillon_durable::Delivery| {
        let (begun, ends) = (begun_sender.clone(), ends.clone());
        async move {
            begun.send(delivery.attempt()).unwrap();
            ends.recv().await.map_err(|error| error.to_string())
        }
    };
    timers.on("slow", slow).unwrap();
    for mode in [StopMode::Fast, StopMode::Immediate] {
        calls.create(NewTimer::after("slow", Duration::ZERO).key("slow")).unwrap();
        assert_eq!(begun.recv_timeout(PATIENCE), Ok(1));
        thread::scope(|scope| {
            // The server ends while creates, claims and acknowledgements are under way.
            let stopping = scope.spawn(|| server.stop(mode));
            while !stopping.is_finished() {
                creates.create(&calls);
            }
        });
        let refused = creates.refused.len();
        for _ in 0..10 {
            assert!(!creates.create(&calls), "there is no server");
        }
        assert!(creates.refused.len() > refused, "nothing was done, and the caller knows it");
        // The handler ends during the outage, so its acknowledgement cannot be stored at once.
        end.send_blocking(()).unwrap();
        eventually("the node has lost its shards", || !timers.stats().is_owner);
        server.start_again();
        creates.create_some(&calls, 10);
        // Its delivery was abandoned with the shards, so it may be delivered again.
        eventually("the slow timer ends", || {
            if let Ok(attempt) = begun.try_recv() {
                assert!(attempt > 1);
                end.send_blocking(()).unwrap();
            }
            calls.get_key("default", "slow").is_ok_and(|timer| timer.is_none())
        });
        ledger.check(&calls, &creates.acknowledged, &creates.refused);
    }
    calls.shutdown(PATIENCE).unwrap();
}

#[test]
fn q1_d47_a_node_whose_connections_are_ended_again_and_again_loses_no_timer() {
    let Some(server) = own_server() else { return };
    let schema = Schema::on(server.url());
    let timers = open(schema.options());
    let (ledger, mut creates, calls) = (Ledger::default(), Creates::default(), timers.blocking());
    ledger.register(&timers);
    let admin = schema.client();
    for _ in 0..20 {
        creates.create_some(&calls, 5);
        cut_connections(&admin);
    }
    ledger.check(&calls, &creates.acknowledged, &creates.refused);
    calls.shutdown(PATIENCE).unwrap();
}

#[test]
fn q7_d47_a_process_that_was_paused_inside_a_transaction_comes_back_and_goes_on() {
    let Some(server) = own_server() else { return };
    let schema = Schema::on(server.url());
    // One thread, which the test stops: so nothing of this process answers the server.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let options = schema.options_with("application_name=paused").lock_timeout(PATIENCE);
    let store = runtime.block_on(PostgresStore::open(options.clone())).unwrap();
    let timers = runtime.block_on(Timers::builder().node_lease(SECOND).connect_with(options)).unwrap();
    let (ledger, mut creates, calls) = (Ledger::default(), Creates::default(), timers.blocking());
    ledger.register(&timers);
    calls.create(far("mail").key("held")).unwrap();
    let (holder, admin) = (schema.client(), schema.client());
    let hold = schema.sql("BEGIN; SELECT FROM tourbillon.timers WHERE key = 'held' FOR UPDATE");
    wait(holder.batch_execute(&hold)).unwrap();
    let count = |what: &str| -> i64 {
        let count = format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'paused' AND {what}");
        wait(admin.query_one(&count, &[])).unwrap().get(0)
    };
    let cancelled = thread::scope(|scope| {
        // A batch that is not written in parts waits for the row in one transaction.
        let cancelling = scope.spawn(|| {
            let cancel = WriteOp::Cancel(CancelOp { target: Target::key("held") });
            ask(|reply| store.write(vec![cancel], reply))
        });
        eventually("the transaction waits for the row", || count("wait_event_type = 'Lock'") == 1);
        let (stopped_sender, stopped) = channel();
        let (go_on, goes_on) = channel();
        runtime.spawn(async move {
            stopped_sender.send(()).unwrap();
            goes_on.recv().unwrap();
        });
        stopped.recv().unwrap();
        wait(holder.batch_execute("ROLLBACK")).unwrap();
        eventually("the transaction is idle", || count("state = 'idle in transaction'") == 1);
        eventually("the server ends it", || count("state = 'idle in transaction'") == 0);
        go_on.send(()).unwrap();
        cancelling.join().unwrap()
    });
    assert!(matches!(&cancelled, Err(error) if error.is_temporary()), "{cancelled:?}");
    eventually("the timer is cancelled", || calls.cancel("held").is_ok_and(|counts| counts.cancelled == 1));
    creates.create_some(&calls, 10);
    ledger.check(&calls, &creates.acknowledged, &creates.refused);
    calls.shutdown(PATIENCE).unwrap();
}
