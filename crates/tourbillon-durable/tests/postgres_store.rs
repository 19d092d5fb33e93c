//! The store in PostgreSQL.
//!
//! Without a server every test prints `NOT TESTED ON POSTGRESQL` and passes: see `postgres/cluster.rs`.

mod conformance;
mod postgres;

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use conformance::ask::{
    arm, ask, cancel_key, cancel_name, claim, create, create_op, due, epoch_of, finish, own, take, write_all,
};
use postgres::stories::{beat, ends_within, far, past};
use postgres::{Schema, wait};
use tourbillon_durable::store::{
    ClaimAnswer, ClaimOp, CreateAnswer, DueEntry, FinishOp, ListFilter, RowState, ShardId, Store, Verdict, WriteAnswer,
    WriteOp,
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

fn conform(options: impl Fn(&Schema) -> tourbillon_durable::store::PostgresOptions) {
    let Some(first) = Schema::new() else { return };
    let schemas = RefCell::new(vec![first]);
    conformance::all(|| {
        let schema = Schema::new().expect("the server is there");
        let store = schema.open(options(&schema)).expect("the server works");
        schemas.borrow_mut().push(schema);
        Arc::new(store)
    });
}

#[test]
fn u1_of_two_stores_that_create_one_key_at_the_same_time_one_wins_and_the_other_is_told() {
    let Some(schema) = Schema::new() else { return };
    let stores = [schema.store(), schema.store()];
    let rounds = 100;
    let start = Barrier::new(2);
    let answers: Vec<Vec<CreateAnswer>> = thread::scope(|scope| {
        let run = |number: u128, store| {
            let start = &start;
            scope.spawn(move || {
                let round = |round: u128| {
                    start.wait();
                    create(store, number * 1000 + round, far("mail").key(format!("order {round}")))
                };
                (0..rounds).map(round).collect()
            })
        };
        let running: Vec<_> = stores.iter().zip(1..).map(|(store, number)| run(number, store)).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (left, right) in answers[0].iter().zip(&answers[1]) {
        match (left, right) {
            (CreateAnswer::Created { entry, .. }, CreateAnswer::Existing { id, .. })
            | (CreateAnswer::Existing { id, .. }, CreateAnswer::Created { entry, .. }) => {
                assert_eq!(entry.id.timer, *id);
            }
            other => panic!("one creates, and the other finds the same timer: {other:?}"),
        }
    }
    assert_eq!(ask(|reply| stores[0].counts(reply)).unwrap().armed, rounds as u64);
}

#[test]
fn u1_batches_that_create_the_same_keys_in_different_order_do_not_block_each_other() {
    let Some(schema) = Schema::new() else { return };
    let stores = [schema.store(), schema.store()];
    let start = Barrier::new(2);
    thread::scope(|scope| {
        for (store, turn) in stores.iter().zip([false, true]) {
            let start = &start;
            scope.spawn(move || {
                for round in 0..20_u128 {
                    let mut batch: Vec<WriteOp> = (0..50)
                        .map(|key| {
                            let timer = far("mail").key(format!("{round} {key}")).on_conflict(OnConflict::Keep);
                            create_op(1 + u128::from(turn) * 1_000_000 + round * 1000 + key, timer)
                        })
                        .collect();
                    if turn {
                        batch.reverse();
                    }
                    start.wait();
                    write_all(store, batch);
                }
            });
        }
    });
    assert_eq!(ask(|reply| stores[0].counts(reply)).unwrap().armed, 1000);
}

#[test]
fn u2_d50_d54_cancels_by_name_are_exact_while_another_connection_claims() {
    let Some(schema) = Schema::new() else { return };
    let (claimer, canceller) = (schema.store(), schema.store());
    let owner = own(&claimer, 1);
    let (mut claimed_all, mut cancelled_all) = (0, 0);
    for round in 0..20_u128 {
        let name = format!("client {round}");
        let ops = (0..100_u128).map(|number| create_op(1 + round * 1000 + number, past("mail").name(&*name))).collect();
        let entries: Vec<DueEntry> = write_all(&claimer, ops).iter().map(created).collect();
        let start = Barrier::new(2);
        let (claimed, counts) = thread::scope(|scope| {
            let claims = scope.spawn(|| {
                start.wait();
                let claim = |chunk: &[DueEntry]| {
                    let ops = chunk.iter().map(|entry| claim_op(*entry, epoch_of(&owner, entry.shard))).collect();
                    write_all(&claimer, ops).iter().filter(|answer| is_claimed(answer)).count() as u64
                };
                entries.chunks(10).map(claim).sum::<u64>()
            });
            start.wait();
            let counts = cancel_name(&canceller, &name);
            (claims.join().unwrap(), counts)
        });
        assert_eq!(claimed + counts.cancelled, 100, "each row was claimed or cancelled, round {round}: {counts:?}");
        assert!(counts.in_flight <= claimed);
        claimed_all += claimed;
        cancelled_all += counts.cancelled;
    }
    println!("{claimed_all} were claimed, {cancelled_all} cancelled");
}

#[test]
fn u2_d52_a_cancel_finds_the_occurrence_that_a_claim_arms_at_the_same_time() {
    let Some(schema) = Schema::new() else { return };
    let (claimer, canceller) = (schema.store(), schema.store());
    let owner = own(&claimer, 1);
    let application = schema.client();
    let mut claimed_all = 0;
    for round in 1..=60_u128 {
        let name = format!("client {round}");
        let timer =
            NewTimer::every("tick", SECOND).missed(MissedFires::All { at_most: u64::MAX }).name(&*name).key(&*name);
        let long_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let entry = arm(&claimer, round, timer.first_at(long_ago));
        let start = Barrier::new(2);
        let (claimed, cancelled) = thread::scope(|scope| {
            let claims = scope.spawn(|| {
                start.wait();
                matches!(claim(&claimer, &owner, entry), ClaimAnswer::Claimed { .. })
            });
            start.wait();
            let cancelled = if round % 2 == 0 {
                cancel_name(&canceller, &name).cancelled
            } else {
                let cancel = schema.sql("SELECT cancelled FROM tourbillon.cancel(name => $1)");
                wait(application.query_one(&cancel, &[&name])).unwrap().get::<_, i64>(0) as u64
            };
            (claims.join().unwrap(), cancelled)
        });
        assert_eq!(cancelled, 1, "the first or the second occurrence; claimed: {claimed}");
        claimed_all += u32::from(claimed);
        let rows = ask(|reply| canceller.get(TimerId::from_u128(round), reply)).unwrap();
        let states: Vec<RowState> = rows.iter().map(|row| row.state).collect();
        assert_eq!(states, vec![RowState::Claimed; usize::from(claimed)], "nothing is armed any more");
    }
    println!("{claimed_all} of 60 were claimed before they were cancelled");
}

#[test]
fn u5_a_timer_of_an_applications_transaction_exists_if_the_transaction_commits() {
    let Some(schema) = Schema::new() else { return };
    let store = schema.store();
    let mut application = schema.client();
    let create = schema.sql(
        "SELECT timer, answer FROM tourbillon.create_timer('mail', after => interval '1000000 s', key => $1, name => 'n', payload => 'one')",
    );
    let mut in_transaction = |key: &str, commits: bool| {
        wait(async {
            let transaction = application.transaction().await.unwrap();
            let row = transaction.query_one(&create, &[&key]).await.unwrap();
            if commits {
                transaction.commit().await.unwrap();
            } else {
                transaction.rollback().await.unwrap();
            }
            TimerId::from_u128(row.get::<_, uuid::Uuid>(0).as_u128())
        })
    };
    let rolled_back = in_transaction("a", false);
    let committed = in_transaction("b", true);
    let holder = |key: &str| ask(|reply| store.get_key("default".into(), key.into(), reply)).unwrap();
    assert_eq!(holder("a"), None);
    assert_eq!(ask(|reply| store.get(rolled_back, reply)).unwrap(), []);
    let row = holder("b").expect("it was committed");
    assert_eq!((row.id.timer, &*row.spec.payload), (committed, &b"one"[..]));
    // The library finds that it is the same request, and in the same shard.
    let same = NewTimer::after("mail", Duration::from_secs(1_000_000)).key("b").name("n").payload(b"one");
    let again = conformance::ask::create(&store, 7, same.clone());
    assert_eq!(again, CreateAnswer::Existing { id: committed, due: row.due, version: 1 });
    let native = arm(&store, 8, same.clone().key("c"));
    assert_eq!(native.shard, row.shard, "one name, one shard");
    // The same request the other way round.
    let existing = wait(application.query_one(&create, &[&"c"])).unwrap();
    assert_eq!(existing.get::<_, &str>(1), "existing");

    // Cancels too.
    let cancel = schema.sql("SELECT cancelled, in_flight, gone FROM tourbillon.cancel(name => 'n')");
    let counts = |row: tokio_postgres::Row| [0, 1, 2].map(|column| row.get::<_, i64>(column));
    wait(async {
        let transaction = application.transaction().await.unwrap();
        assert_eq!(counts(transaction.query_one(&cancel, &[]).await.unwrap()), [2, 0, 0]);
        transaction.rollback().await.unwrap();
    });
    assert_eq!(ask(|reply| store.counts(reply)).unwrap().armed, 2);
    assert_eq!(counts(wait(application.query_one(&cancel, &[])).unwrap()), [2, 0, 0]);
    assert_eq!(ask(|reply| store.counts(reply)).unwrap().armed, 0);
    assert_eq!(ask(|reply| store.history(committed, reply)).unwrap().len(), 1, "the history tells of it");
}

#[test]
fn u5_the_functions_have_the_same_conflict_modes_plans_and_counts_as_the_library() {
    let Some(schema) = Schema::new() else { return };
    let store = schema.store();
    let owner = own(&store, 1);
    let application = schema.client();
    let call = |arguments: &str| {
        let query = schema.sql(&format!("SELECT timer, answer FROM tourbillon.create_timer({arguments})"));
        let row = wait(application.query_one(&query, &[]))?;
        Ok::<_, tokio_postgres::Error>((row.get::<_, uuid::Uuid>(0), row.get::<_, String>(1)))
    };
    let created = |arguments: &str| {
        let (id, answer) = call(arguments).unwrap();
        assert_eq!(answer, "created", "{arguments}");
        id
    };
    let at = "'mail', at => '2100-01-01 00:00:00.000001 UTC', key => 'k'";
    let first = created(at);
    assert_eq!(call(at).unwrap(), (first, "existing".to_owned()));
    let later = "'mail', at => '2101-01-01 UTC', key => 'k'";
    assert_eq!(call(later).unwrap_err().code().unwrap().code(), "23505", "it was asked for differently");
    assert_eq!(call(&format!("{later}, on_conflict => 'keep'")).unwrap(), (first, "existing".to_owned()));
    assert_eq!(call(&format!("{later}, on_conflict => 'earlier'")).unwrap(), (first, "existing".to_owned()));
    let second = created(&format!("{later}, on_conflict => 'later'"));
    assert_ne!(first, second);
    let third = created(&format!("{at}, on_conflict => 'replace'"));
    let row = ask(|reply| store.get_key("default".into(), "k".into(), reply)).unwrap().unwrap();
    assert_eq!((row.id.timer.as_uuid(), row.due), (third, StoreTime::from_micros(4_102_444_800_000_001)));

    // A plan with everything, as the library reads it.
    created(
        "'tick', every => '90 s', at => '1970-01-12 13:46:40 UTC', times => 3, until => '2100-01-01 UTC', key => 'plan', name => 'p',
        missed => '{\"All\": {\"at_most\": 5}}', retry => '{\"attempts\": 2}', namespace => 'other', content_type => 'text/plain'",
    );
    let long_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let until = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(4_102_444_800);
    let same = NewTimer::every("tick", Duration::from_secs(90))
        .first_at(long_ago)
        .times(3)
        .until(until)
        .key("plan")
        .name("p")
        .missed(MissedFires::All { at_most: 5 })
        .retry(tourbillon_durable::RetryPolicy::attempts(2))
        .namespace("other")
        .content_type("text/plain");
    assert!(matches!(create(&store, 1, same), CreateAnswer::Existing { .. }));
    let (row, next) = take(&store, &owner, due(&store, "tick", StoreTime::MAX, 10).entries[0]);
    assert_eq!(next.map(|next| next.wake), Some(row.due.saturating_add(Duration::from_secs(90))));

    // Of a repeating timer one occurrence is delivered and one is armed; then the key belongs to the delivery.
    let cancel =
        schema.sql("SELECT cancelled, in_flight, gone FROM tourbillon.cancel(key => 'plan', namespace => 'other')");
    let counts = || {
        let row = wait(application.query_one(&cancel, &[])).unwrap();
        [0, 1, 2].map(|column| row.get::<_, i64>(column))
    };
    assert_eq!(counts(), [1, 1, 0]);
    assert_eq!(counts(), [0, 1, 0]);
    assert_eq!(finish(&store, &row, Verdict::Done), Ok(None));
    assert_eq!(counts(), [0, 0, 1]);

    for wrong in [
        "'mail'",
        "'mail', after => '1 month'",
        "'mail', after => '-1 s'",
        "'mail', after => '10000 years'",
        "'mail', at => '1969-12-31 UTC'",
        "'mail', at => 'infinity'",
        "'mail', every => '0 s'",
        "'mail', after => '1 s', at => '2100-01-01'",
        "'mail', after => '1 s', times => 2",
        "'mail', every => '1 s', times => 0",
        "'mail', after => '1 s', cron => '* * * * *'",
        "'mail', after => '1 s', on_conflict => 'never'",
        "'mail', after => '1 s', namespace => 'a b'",
        "'mail', after => '1 s', key => E'a\\nb'",
        "'mail', after => '1 s', key => ''",
        "'mail', after => '1 s', missed => '\"Sometimes\"'",
        "'mail', after => '1 s', missed => '{\"All\": {\"at_most\": 0}}'",
        "'mail', after => '1 s', retry => '{\"attempts\": 0}'",
        "'mail', after => '1 s', retry => '{\"tries\": 1}'",
        "'mail', after => '1 s', payload => decode(repeat('00', 1048577), 'hex')",
    ] {
        let error = call(wrong).expect_err(wrong);
        let code = error.code().unwrap().code().to_owned();
        assert!(code == "22023" || code == "0A000", "{wrong}: {error:?}");
    }
}

#[test]
fn u5_shards_of_the_function_are_those_of_the_library() {
    let Some(schema) = Schema::new() else { return };
    let store = schema.store();
    let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
    println!("TOURBILLON_SEED={seed}");
    let mut random = Random::new(seed);
    let ops = (1..=200_u128).map(|number| {
        let mut timer = far("mail").namespace(["default", "other"][random.index(2)]);
        let texts = ["", "ä", "client 7", "日本語", "a/b", "\u{10ffff}"];
        if random.one_in(2) {
            timer = timer.key(format!("{}{number}", texts[random.index(texts.len())]));
        }
        if random.one_in(2) {
            timer = timer.name(format!("{}{}", texts[random.index(texts.len())], random.below(1000)));
        }
        create_op(number << 64 | u128::from(random.below(u64::MAX)), timer)
    });
    write_all(&store, ops.collect());
    let query = schema.sql("SELECT count(*), count(*) FILTER (WHERE shard = tourbillon.shard_of(namespace, key, name, id)) FROM tourbillon.timers");
    let row = wait(schema.client().query_one(&query, &[])).unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (200, 200));
}

#[test]
fn o9_q7_a_node_whose_lease_has_run_out_is_taken_over_and_fenced() {
    let Some(schema) = Schema::new() else { return };
    let (first, second) = (schema.store(), schema.store());
    let old = beat(&first, 1, SECOND).unwrap();
    assert_eq!(old.shards.len(), 256);
    let (row, _) = take(&first, &old, arm(&first, 1, past("mail")));
    assert_eq!(beat(&second, 2, SECOND).unwrap().shards, [], "the first node is alive");
    // It keeps its shards and their epochs as long as it says that it lives.
    thread::sleep(SECOND * 6 / 10);
    assert_eq!(beat(&first, 1, SECOND).unwrap().shards, old.shards);
    let died = Instant::now();
    let new = loop {
        let new = beat(&second, 2, SECOND * 3600).unwrap();
        if !new.shards.is_empty() {
            break new;
        }
        assert!(died.elapsed() < SECOND * 30);
        thread::sleep(SECOND / 20);
    };
    assert!(died.elapsed() >= SECOND * 9 / 10, "not before the lease was over: {:?}", died.elapsed());
    assert_eq!((new.shards.len(), new.fair_share), (256, 256));
    assert!(new.shards.iter().zip(&old.shards).all(|(new, old)| new.1 == old.1 + 1));
    // The first one comes back: it can neither finish nor claim.
    assert!(finish(&first, &row, Verdict::Done).is_err());
    let waiting = arm(&first, 2, past("mail"));
    assert_eq!(claim(&first, &old, waiting), ClaimAnswer::Fenced);
    let shards: Vec<ShardId> = new.shards.iter().map(|(shard, _)| *shard).collect();
    let orphans = ask(|reply| second.orphans("mail".into(), shards, 10, reply)).unwrap();
    assert_eq!(orphans.iter().map(|entry| entry.id).collect::<Vec<_>>(), [row.id]);
    assert_eq!(take(&second, &new, orphans[0]).0.attempt, 2);
}

#[test]
fn q7_a_transaction_that_hangs_with_the_epoch_of_a_shard_delays_that_shard_only() {
    let Some(schema) = Schema::new() else { return };
    let store = schema.store();
    beat(&store, 1, SECOND / 2).unwrap();
    // What a process does that stops in the middle of a claim.
    let zombie = schema.client();
    let hold = schema.sql("BEGIN; SELECT epoch FROM tourbillon.shards WHERE shard = 7 FOR SHARE");
    wait(zombie.batch_execute(&hold)).unwrap();
    thread::sleep(SECOND * 6 / 10);
    let start = Instant::now();
    let taken = beat(&store, 2, SECOND * 3600).unwrap();
    assert_eq!(taken.shards.len(), 255, "all but one");
    assert!(taken.shards.iter().all(|(shard, _)| *shard != ShardId(7)));
    assert_eq!(beat(&store, 2, SECOND * 3600).unwrap().shards.len(), 255);
    assert!(start.elapsed() < SECOND * 4, "no heartbeat waits for it: {:?}", start.elapsed());
    wait(zombie.batch_execute("ROLLBACK")).unwrap();
    assert_eq!(beat(&store, 2, SECOND * 3600).unwrap().shards.len(), 256);
}

#[test]
fn q1_d47_cut_connections_lose_nothing_that_was_acknowledged() {
    let Some(schema) = Schema::new() else { return };
    let application = format!("cut_{}", schema.name);
    let store = schema.open(schema.options_with(&format!("application_name={application}"))).unwrap();
    let (killer, is_over) = (schema.client(), AtomicBool::new(false));
    let (mut acknowledged, mut uncertain, mut refused) = (Vec::new(), Vec::new(), 0);
    thread::scope(|scope| {
        let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1";
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                wait(killer.query(kill, &[&application])).unwrap();
                thread::sleep(Duration::from_millis(7));
            }
        });
        let start = Instant::now();
        let mut number = 0;
        // Until there was trouble enough, however fast the machine is.
        while (refused + uncertain.len() < 50 || acknowledged.len() < 50) && start.elapsed() < SECOND * 60 {
            let ids: Vec<u128> = (number..number + 20).map(|id| id + 1).collect();
            number += 20;
            let ops = ids.iter().map(|id| create_op(*id, far("mail").key(id.to_string()))).collect();
            match ask(|reply| store.write(ops, reply)) {
                Ok(answers) => {
                    assert!(
                        answers
                            .iter()
                            .all(|answer| matches!(answer, WriteAnswer::Create(CreateAnswer::Created { .. })))
                    );
                    acknowledged.push(ids);
                }
                Err(StoreError::Uncertain(_)) => uncertain.push(ids),
                Err(StoreError::Unavailable(_)) => refused += 1,
                Err(other) => panic!("{other:?}"),
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    println!("{} batches acknowledged, {} uncertain, {refused} refused", acknowledged.len(), uncertain.len());
    assert!(!acknowledged.is_empty() && refused + uncertain.len() >= 1);
    let rows = loop {
        // The killer may have cut a connection after its last look.
        match ask(|reply| store.list(ListFilter::default(), None, 1_000_000, reply)) {
            Ok(page) => break page.rows,
            Err(error) => assert!(error.is_temporary(), "{error}"),
        }
    };
    let found: std::collections::BTreeSet<u128> = rows.iter().map(|row| row.id.timer.as_u128()).collect();
    assert!(acknowledged.iter().flatten().all(|id| found.contains(id)), "what was acknowledged is there");
    let whole = |ids: &Vec<u128>| ids.iter().filter(|id| found.contains(id)).count();
    assert!(uncertain.iter().all(|ids| [0, ids.len()].contains(&whole(ids))), "all of a batch, or none of it");
    let certain = acknowledged.iter().map(Vec::len).sum::<usize>() + uncertain.iter().map(whole).sum::<usize>();
    assert_eq!(found.len(), certain, "nothing of a batch that was refused is there");
}

#[test]
fn q1_a_server_that_is_not_there_is_unavailable_and_says_why() {
    let nowhere = "host=/nonexistent user=nobody dbname=none";
    let options = tourbillon_durable::store::PostgresOptions::new(nowhere).unwrap();
    let error = wait(tourbillon_durable::store::PostgresStore::open(options)).err().unwrap();
    assert!(matches!(&error, StoreError::Unavailable(text) if text.contains("No such file")), "{error:?}");
    assert!(tourbillon_durable::store::PostgresOptions::new("what is this").is_err());
}

#[test]
fn d51_claims_of_different_shards_do_not_wait_for_each_other() {
    let Some(schema) = Schema::new() else { return };
    let store = schema.store();
    let owner = own(&store, 1);
    let entries: Vec<DueEntry> = (1..=20_u128).map(|id| arm(&store, id, past("mail").name(id.to_string()))).collect();
    // A transaction has one row and the epoch of its shard, and stays open.
    let application = schema.client();
    let hold = schema.sql(&format!(
        "BEGIN; SELECT FROM tourbillon.timers WHERE id = '{}' FOR UPDATE; SELECT FROM tourbillon.shards WHERE shard = {} FOR SHARE",
        entries[0].id.timer, entries[0].shard.0
    ));
    wait(application.batch_execute(&hold)).unwrap();
    let ops: Vec<WriteOp> = entries.iter().map(|entry| claim_op(*entry, epoch_of(&owner, entry.shard))).collect();
    let (sender, receiver) = std::sync::mpsc::channel();
    let claimer = store.clone();
    let is_done = ends_within(SECOND * 20, move || sender.send(write_all(&claimer, ops)).unwrap());
    assert!(is_done, "the claims of other rows, even in one batch, do not wait");
    let answers = receiver.recv().unwrap();
    assert_eq!(answers[0], WriteAnswer::Claim(ClaimAnswer::Lost));
    assert!(answers[1..].iter().all(is_claimed));
    wait(application.batch_execute("ROLLBACK")).unwrap();
    // The row is still armed, and the next look shows it.
    let page = due(&store, "mail", StoreTime::from_micros(2_000_000_000_000), 10);
    assert_eq!(page.entries, [entries[0]]);
    take(&store, &owner, page.entries[0]);
}

#[test]
fn u5_a_key_of_an_open_transaction_makes_a_create_wait_and_then_decide() {
    let Some(schema) = Schema::new() else { return };
    let store = schema.open(schema.options().lock_timeout(SECOND)).unwrap();
    let application = schema.client();
    let create_sql = schema.sql("BEGIN; SELECT * FROM tourbillon.create_timer('mail', after => '1000 s', key => 'k')");
    wait(application.batch_execute(&create_sql)).unwrap();
    let refused = ask(|reply| store.write(vec![create_op(1, far("mail").key("k"))], reply));
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    let other = store.clone();
    let waiting = thread::spawn(move || create(&other, 2, far("mail").key("k").on_conflict(OnConflict::Keep)));
    thread::sleep(Duration::from_millis(200));
    wait(application.batch_execute("COMMIT")).unwrap();
    assert!(matches!(waiting.join().unwrap(), CreateAnswer::Existing { .. }));
    assert_eq!(cancel_key(&store, "k").cancelled, 1);
}

#[test]
fn d56_a_long_transaction_does_not_make_claims_slow() {
    let Some(schema) = Schema::new() else { return };
    let store = schema.store();
    let owner = own(&store, 1);
    let pinned = schema.client();
    wait(
        pinned.batch_execute(
            &schema.sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM tourbillon.timers"),
        ),
    )
    .unwrap();
    // One round creates, claims and finishes: the dead versions of all rounds pile up under the old snapshot.
    let round = |number: u128| {
        let start = Instant::now();
        let ops = (1..=200).map(|id| create_op(number * 1000 + id, past("mail"))).collect();
        let entries: Vec<DueEntry> = write_all(&store, ops).iter().map(created).collect();
        let found = due(&store, "mail", StoreTime::from_micros(2_000_000_000_000), 1000).entries;
        assert_eq!(found.len(), 200);
        let claims = entries.iter().map(|entry| claim_op(*entry, epoch_of(&owner, entry.shard))).collect();
        let finishes = write_all(&store, claims).into_iter().map(finish_op).collect();
        write_all(&store, finishes);
        beat(&store, 1, SECOND * 3600).unwrap();
        start.elapsed()
    };
    let times: Vec<Duration> = (1..=40).map(round).collect();
    let (first, last) = (times[1..6].iter().min().unwrap(), times[35..].iter().min().unwrap());
    println!("a round took {first:?} first, {last:?} beside 8,000 dead rows");
    // A scan of all dead rows for each row would cost a hundred times as much; what grows is the look along the index of times.
    assert!(*last < *first * 20 + Duration::from_millis(200), "{first:?} became {last:?}");
    wait(pinned.batch_execute("COMMIT")).unwrap();
}

#[test]
fn o5_the_schema_is_made_once_and_a_newer_one_is_refused() {
    let Some(schema) = Schema::new() else { return };
    // Several processes start at the same time.
    let stores: Vec<_> = thread::scope(|scope| {
        let opening: Vec<_> = (0..4).map(|_| scope.spawn(|| schema.store())).collect();
        opening.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    arm(&stores[0], 1, far("mail").key("k"));
    assert_eq!(cancel_key(&stores[3], "k").cancelled, 1);
    drop(stores);
    drop(schema.store());
    schema.run("INSERT INTO tourbillon.formats (version) VALUES (99)");
    let refused = schema.open(schema.options()).err();
    assert_eq!(refused, Some(StoreError::NewerFormat { found: 99, known: 2 }));
}

#[test]
fn q8_a_row_that_cannot_be_read_is_an_error() {
    let Some(schema) = Schema::new() else { return };
    let store = schema.store();
    arm(&store, 1, far("mail").key("k"));
    schema.run("UPDATE tourbillon.timers SET plan = '{\"first\": \"Never\"}'");
    let damaged = ask(|reply| store.get_key("default".into(), "k".into(), reply));
    assert!(matches!(&damaged, Err(StoreError::Damaged(text)) if text.contains("plan")), "{damaged:?}");
    let damaged = ask(|reply| store.write(vec![create_op(2, far("mail").key("k"))], reply));
    assert!(matches!(damaged, Err(StoreError::Damaged(_))), "{damaged:?}");
    schema.run("DROP TABLE tourbillon.timers CASCADE");
    let gone = ask(|reply| store.get(TimerId::from_u128(1), reply));
    assert!(matches!(gone, Err(StoreError::Damaged(_))), "{gone:?}");
}

#[test]
fn q1_a_server_that_cannot_be_written_can_be_read() {
    let Some(schema) = Schema::new() else { return };
    arm(&schema.store(), 1, far("mail").key("k"));
    let read_only = if schema.url.contains("://") {
        "options=-c%20default_transaction_read_only%3Don"
    } else {
        "options='-c default_transaction_read_only=on'"
    };
    let store = schema.open(schema.options_with(read_only)).unwrap();
    assert!(ask(|reply| store.get_key("default".into(), "k".into(), reply)).unwrap().is_some());
    let refused = ask(|reply| store.write(vec![create_op(2, far("mail"))], reply));
    assert!(matches!(refused, Err(StoreError::ReadOnly(_))), "{refused:?}");
    let beaten = beat(&store, 1, SECOND);
    assert!(matches!(beaten, Err(StoreError::ReadOnly(_))), "{beaten:?}");
    let empty = Schema::new().unwrap();
    let refused = empty.open(empty.options_with(read_only)).err();
    assert!(matches!(refused, Some(StoreError::ReadOnly(_))), "{refused:?}");
}

#[test]
fn q1_a_full_server_refuses_creates_and_goes_on_with_the_rest() {
    let Some(schema) = Schema::new() else { return };
    let store = schema.store();
    arm(&store, 1, far("mail").key("k"));
    schema.run(
        "CREATE FUNCTION tourbillon.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no space left' USING ERRCODE = '53100'; END $$;
        CREATE TRIGGER refuse BEFORE INSERT ON tourbillon.timers FOR EACH ROW EXECUTE FUNCTION tourbillon.refuse()",
    );
    let refused = ask(|reply| store.write(vec![create_op(2, far("mail"))], reply));
    assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
    let target = tourbillon_durable::store::Target::Key { namespace: "default".into(), key: "k".into() };
    let cancel = WriteOp::Cancel(tourbillon_durable::store::CancelOp { target });
    let answers = write_all(&store, vec![create_op(3, far("mail")), cancel, create_op(4, far("mail"))]);
    assert_eq!((&answers[0], &answers[2]), (&WriteAnswer::Full, &WriteAnswer::Full));
    assert!(matches!(&answers[1], WriteAnswer::Cancel(counts) if counts.cancelled == 1));
}

#[test]
fn d55_a_hint_tells_other_stores_of_what_is_due_soon_and_of_nothing_else() {
    let Some(schema) = Schema::new() else { return };
    let (listener, creator) = (schema.store(), schema.store());
    let (sender, hints) = std::sync::mpsc::channel();
    listener.listen(move |due| _ = sender.send(due));
    let next = || hints.recv_timeout(SECOND * 30).expect("a hint comes");
    assert_eq!(next(), StoreTime::ZERO, "hints before it listened were lost");
    let soon = |id| create_op(id, NewTimer::after("mail", Duration::from_millis(500)));
    write_all(&creator, vec![create_op(1, far("mail")), create_op(2, past("mail")), soon(3)]);
    assert_eq!(next(), StoreTime::from_micros(1_000_000_000_000), "one hint for the batch: the earliest");
    // What is far away, and what belongs to the creator itself, is no news for others.
    write_all(&creator, vec![create_op(4, far("mail"))]);
    own(&creator, 1);
    write_all(&creator, vec![create_op(5, past("mail"))]);
    schema
        .run("SELECT tourbillon.create_timer('mail', after => '1 s'), tourbillon.create_timer('mail', after => '1 h')");
    assert_eq!(next(), StoreTime::ZERO, "the function does not say when");
    wait(schema.client().batch_execute(&format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN \"{}\"'",
        schema.name
    )))
    .unwrap();
    assert_eq!(next(), StoreTime::ZERO, "it listens again");
    assert_eq!(hints.try_recv().ok(), None);
}

#[test]
fn the_history_is_kept_in_partitions_that_are_dropped_by_age() {
    let Some(schema) = Schema::new() else { return };
    let store = schema.open(schema.options().history_days(2)).unwrap();
    arm(&store, 1, far("mail").key("k"));
    assert_eq!(cancel_key(&store, "k").cancelled, 1);
    let partitions = || {
        let query = "SELECT count(*) FROM pg_inherits i WHERE inhparent = to_regclass($1)";
        let row = wait(schema.client().query_one(query, &[&format!("{}.history", schema.name)])).unwrap();
        row.get::<_, i64>(0)
    };
    assert_eq!(partitions(), 5, "today, three days ahead, and the rest");
    // A partition of a week ago, and an entry of tomorrow's tomorrow that came before its partition.
    schema.run(
        "CREATE TABLE tourbillon.history_20200101 PARTITION OF tourbillon.history FOR VALUES FROM (1577836800000000) TO (1577923200000000);
        INSERT INTO tourbillon.history VALUES ('00000000-0000-0000-0000-000000000009', 1, 1577836800000001, 0, 0, 0, 'default', 'mail');
        INSERT INTO tourbillon.history VALUES ('00000000-0000-0000-0000-000000000008', 1, tourbillon.now_micros() + 5 * 86400000000::bigint, 0, 0, 0, 'default', 'mail')",
    );
    assert_eq!(partitions(), 6);
    let old = || ask(|reply| store.history(TimerId::from_u128(9), reply)).unwrap().len();
    assert_eq!(old(), 1);
    schema.run("SELECT tourbillon.keep_history(2, 6)");
    assert_eq!((old(), partitions()), (0, 8), "the old one is gone, and three more days are there");
    assert_eq!(ask(|reply| store.history(TimerId::from_u128(8), reply)).unwrap().len(), 1, "it was moved");
    assert_eq!(ask(|reply| store.history(TimerId::from_u128(1), reply)).unwrap().len(), 1);
}

#[test]
fn texts_that_postgresql_cannot_store_are_harmless() {
    let Some(schema) = Schema::new() else { return };
    let store = schema.store();
    let owner = own(&store, 1);
    assert_eq!(cancel_name(&store, "a\0b").cancelled, 0);
    assert_eq!(cancel_key(&store, "a\0b").gone, 1);
    assert_eq!(ask(|reply| store.get_key("a\0".into(), "b".into(), reply)).unwrap(), None);
    assert_eq!(due(&store, "a\0b", StoreTime::MAX, 10).entries, []);
    let prefix = ListFilter { prefix: Some("\0".into()), ..ListFilter::default() };
    assert_eq!(ask(|reply| store.list(prefix, None, 10, reply)).unwrap().rows, []);
    let (row, _) = take(&store, &owner, arm(&store, 1, past("mail")));
    assert_eq!(finish(&store, &row, Verdict::Dead { error: "a\0b".into() }), Ok(None));
    let dead = ask(|reply| store.get(TimerId::from_u128(1), reply)).unwrap();
    assert_eq!(dead[0].last_error.as_deref(), Some("a\u{fffd}b"));
}

#[test]
fn q1_a_store_that_is_closed_has_written_what_it_accepted() {
    let Some(schema) = Schema::new() else { return };
    let store = schema.store();
    let (sender, receiver) = std::sync::mpsc::channel();
    for id in 1..=50 {
        let sender = sender.clone();
        let reply = tourbillon_durable::store::Reply::new(move |result| drop(sender.send(result)));
        store.write(vec![create_op(id, far("mail"))], reply);
    }
    ask(|reply| store.close(reply)).unwrap();
    let results: Vec<_> = (0..50).map(|_| receiver.try_recv().expect("each was answered before")).collect();
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(ask(|reply| store.counts(reply)), Err(StoreError::Closed));
    assert_eq!(ask(|reply| schema.store().counts(reply)).unwrap().armed, 50);
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

/// Creates, delivers and cancels by `timers`, which are those of a database.
fn use_timers(timers: &tourbillon_durable::BlockingTimers) {
    let (sender, fired) = std::sync::mpsc::channel();
    timers
        .timers()
        .on("soon", move |delivery| {
            let (sender, on_tokio) = (sender.clone(), tokio::runtime::Handle::try_current().is_ok());
            async move { sender.send((delivery.attempt(), on_tokio)).map_err(|error| error.to_string()) }
        })
        .unwrap();
    timers.create(far("later").key("kept")).unwrap();
    timers.create(NewTimer::after("soon", Duration::from_millis(5))).unwrap();
    assert_eq!(fired.recv_timeout(Duration::from_secs(30)).unwrap(), (1, true));
    assert_eq!(timers.cancel("kept").unwrap().cancelled, 1);
    timers.shutdown(Duration::from_secs(30)).unwrap();
}

#[test]
fn q1_v1_timers_of_a_database_deliver_on_tokio_and_without_a_runtime_of_the_callers() {
    let Some(schema) = Schema::new() else { return };
    let timers = wait(tourbillon_durable::Timers::builder().connect_with(schema.options())).unwrap();
    use_timers(&timers.blocking());
    use_timers(&tourbillon_durable::Timers::builder().connect_blocking(schema.options()).unwrap());
}
