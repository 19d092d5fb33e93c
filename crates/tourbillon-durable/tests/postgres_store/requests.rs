//! Creates and cancels that race, texts and the history.

use super::*;

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
fn q1_a_partition_of_the_history_that_is_added_meanwhile_does_no_harm() {
    let Some(schema) = Schema::new() else { return };
    let store = schema.store();
    arm(&store, 1, far("mail").key("k"));
    schema.run(&format!(
        "DO $do$ DECLARE part text; BEGIN
            FOR part IN SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                WHERE i.inhparent = '{}.history'::regclass AND c.relname <> 'history_rest'
            LOOP EXECUTE format('DROP TABLE %I.%I', '{}', part); END LOOP;
        END $do$",
        schema.name, schema.name
    ));
    let upkeep = schema.client();
    wait(upkeep.batch_execute(&schema.sql("BEGIN; SELECT tourbillon.keep_history(7, 3)"))).unwrap();
    // The entry of this cancel is on its way to the rest, and waits for its lock.
    let cancelled = thread::scope(|scope| {
        let cancel = scope.spawn(|| cancel_key(&store, "k").cancelled);
        thread::sleep(SECOND / 2);
        wait(upkeep.batch_execute("COMMIT")).unwrap();
        cancel.join().unwrap()
    });
    assert_eq!(cancelled, 1);
    assert_eq!(ask(|reply| store.history(TimerId::from_u128(1), reply)).unwrap().len(), 1);
}

#[test]
fn q1_a_history_that_cannot_be_kept_in_shape_now_does_not_keep_a_store_from_being_opened() {
    let Some(schema) = Schema::new() else { return };
    arm(&schema.store(), 1, far("mail").key("k"));
    let holder = schema.client();
    let hold = schema.sql("BEGIN; LOCK TABLE tourbillon.history_rest IN ACCESS EXCLUSIVE MODE");
    wait(holder.batch_execute(&hold)).unwrap();
    let store = schema.store();
    wait(holder.batch_execute("ROLLBACK")).unwrap();
    assert_eq!(cancel_key(&store, "k").cancelled, 1);
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
fn p6_the_largest_and_smallest_options_are_bounded() {
    let Some(schema) = Schema::new() else { return };
    for (length, number) in [(Duration::MAX, usize::MAX), (Duration::ZERO, 0)] {
        let options = schema.options().connections(number).lock_timeout(length).history_days(number as u32);
        let store = schema.open(options).expect("the options are usable");
        arm(&store, 1 + number as u128, far("mail"));
    }
    let reserved = schema.options().schema("pg_timers").map(drop);
    assert!(matches!(reserved, Err(StoreError::BadOptions(text)) if text.contains("pg_")));
}
