//! The SQL functions for transactions of applications (U5).

use super::*;

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
    assert_eq!(again, CreateAnswer::Existing { id: committed, due: row.due, version: 1, in_flight: false });
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

    // The last time.
    let last = created("'last', at => '9999-12-30 22:00 UTC'");
    let latest = ask(|reply| store.get(TimerId::from_u128(last.as_u128()), reply)).unwrap().remove(0);
    assert_eq!((latest.due, latest.wake), (StoreTime::MAX, StoreTime::MAX));

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
        "'mail', at => '9999-12-30 22:00:00.000001 UTC'",
        "'mail', every => '1 s', until => '9999-12-30 22:00:00.000001 UTC'",
        "'mail', after => '2920000 days'",
        "'mail', after => '2000000000 days'",
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
        "'mail', after => '1 s', missed => '{\"Skip\": {\"older_than\": {\"secs\": 0, \"nanos\": 0}}}'",
        "'mail', after => '1 s', missed => '{\"DeadAfter\": {\"secs\": 0, \"nanos\": 0}}'",
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
fn u1_u5_a_delay_is_another_time_for_modes_that_move_and_replace_arms_a_key_in_flight() {
    let Some(schema) = Schema::new() else { return };
    let store = schema.store();
    let owner = own(&store, 1);
    let application = schema.client();
    let call = |arguments: &str| {
        let query = schema.sql(&format!("SELECT timer, answer FROM tourbillon.create_timer('mail', {arguments})"));
        let row = wait(application.query_one(&query, &[]))?;
        Ok::<_, tokio_postgres::Error>((row.get::<_, uuid::Uuid>(0), row.get::<_, String>(1)))
    };
    let lease = |mode: &str| call(&format!("after => '1000000 s', key => 'lease', on_conflict => '{mode}'")).unwrap();
    let mut last = lease("refuse").0;
    for (mode, moves) in [("refuse", false), ("keep", false), ("earlier", false), ("later", true), ("replace", true)] {
        thread::sleep(Duration::from_millis(2));
        let (id, answer) = lease(mode);
        assert_eq!((id != last, answer.as_str()), (moves, if moves { "created" } else { "existing" }), "{mode}");
        last = id;
    }
    let every = |mode: &str| call(&format!("every => '1000000 s', key => 'every', on_conflict => '{mode}'")).unwrap();
    let first = every("replace").0;
    assert_eq!(every("replace"), (first, "existing".to_owned()), "a repeating timer stays");
    // A handler arms its own key again.
    let now = "at => '1970-01-12 13:46:40 UTC', key => 'k'";
    let (first, _) = call(now).unwrap();
    let (row, _) = take(&store, &owner, due(&store, "mail", StoreTime::from_micros(2_000_000_000_000), 1).entries[0]);
    assert_eq!(call(now).unwrap(), (first, "existing".to_owned()));
    let (second, answer) = call(&format!("{now}, on_conflict => 'replace'")).unwrap();
    assert!(second != first && answer == "created");
    assert_eq!(finish(&store, &row, Verdict::Done), Ok(None));
    assert_eq!(cancel_key(&store, "k").cancelled, 1);
}

#[test]
fn u1_u5_the_same_create_finds_its_timer_after_its_end_has_come_near() {
    let Some(schema) = Schema::new() else { return };
    drop(schema.store());
    let application = schema.client();
    let call = |more: &str| {
        let query = format!(
            "SELECT answer FROM tourbillon.create_timer('mail', every => '1000 s', until => now() + '900 s', key => 'k'{more})"
        );
        wait(application.query_one(&schema.sql(&query), &[])).map(|row| row.get::<_, String>(0))
    };
    wait(application.batch_execute("BEGIN; SAVEPOINT here")).unwrap();
    assert_eq!(call("").unwrap_err().code().unwrap().code(), "22023", "it would never be due");
    wait(application.batch_execute("ROLLBACK TO here")).unwrap();
    // The timer was created when its end was far enough.
    let earlier = schema.sql(
        "SELECT tourbillon.create_timer('mail', every => '1000 s', until => now() + '2000 s', key => 'k');
        UPDATE tourbillon.timers SET plan = plan || jsonb_build_object('until', tourbillon.micros(now() + '900 s'))",
    );
    wait(application.batch_execute(&earlier)).unwrap();
    assert_eq!(call("").unwrap(), "existing");
    assert_eq!(call(", payload => 'other', on_conflict => 'keep'").unwrap(), "existing");
    assert_eq!(call(", payload => 'other', on_conflict => 'replace'").unwrap_err().code().unwrap().code(), "22023");
}

#[test]
fn u2_u5_a_cancel_finds_the_timer_that_has_got_the_key_while_it_waited() {
    let Some(schema) = Schema::new() else { return };
    let store = schema.store();
    let application = schema.client();
    arm(&store, 1, far("mail").key("k"));
    let replace =
        "BEGIN; SELECT tourbillon.create_timer('mail', after => '1000 s', key => 'k', on_conflict => 'replace')";
    wait(application.batch_execute(&schema.sql(replace))).unwrap();
    let (canceller, watcher) = (schema.client(), schema.client());
    let pid: i32 = wait(canceller.query_one("SELECT pg_backend_pid()", &[])).unwrap().get(0);
    let cancel = schema.sql("SELECT cancelled, in_flight, gone FROM tourbillon.cancel(key => 'k')");
    let waiting = thread::spawn(move || wait(canceller.query_one(&cancel, &[])).unwrap());
    let waits = "SELECT cardinality(pg_blocking_pids($1)) > 0";
    while !wait(watcher.query_one(waits, &[&pid])).unwrap().get::<_, bool>(0) {
        thread::sleep(Duration::from_millis(5));
    }
    wait(application.batch_execute("COMMIT")).unwrap();
    let row = waiting.join().unwrap();
    assert_eq!([0, 1, 2].map(|column| row.get::<_, i64>(column)), [1, 0, 0], "the key was never free");
    assert_eq!(ask(|reply| store.counts(reply)).unwrap().armed, 0);
}

#[test]
fn u2_u5_a_cancel_passes_the_key_to_an_occurrence_that_waits_for_its_next_attempt() {
    let Some(schema) = Schema::new() else { return };
    let store = schema.store();
    let owner = own(&store, 1);
    let application = schema.client();
    let hour = Duration::from_secs(3600);
    let start = std::time::SystemTime::now() - Duration::from_secs(60);
    let (row, next) = take(&store, &owner, arm(&store, 1, NewTimer::every("tick", hour).first_at(start).key("k")));
    assert!(next.is_some());
    // As if the delivery were refused between two statements of the function.
    let refuse = schema.sql(
        "CREATE FUNCTION tourbillon.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            UPDATE tourbillon.timers SET state = 0 WHERE state = 1; RETURN NULL; END $$;
        CREATE TRIGGER refuse AFTER DELETE ON tourbillon.timers EXECUTE FUNCTION tourbillon.refuse()",
    );
    wait(application.batch_execute(&refuse)).unwrap();
    let cancel = schema.sql("SELECT cancelled, in_flight, gone FROM tourbillon.cancel(key => 'k')");
    let counts = wait(application.query_one(&cancel, &[])).unwrap();
    assert_eq!([0, 1, 2].map(|column| counts.get::<_, i64>(column)), [1, 1, 0]);
    let holder = ask(|reply| store.get_key("default".into(), "k".into(), reply)).unwrap();
    assert_eq!(holder.map(|holder| holder.id), Some(row.id), "the key is that of the pending occurrence");
}

#[test]
fn u5_a_timer_is_seen_after_the_commit_and_goes_with_a_rollback_to_a_savepoint() {
    let Some(schema) = Schema::new() else { return };
    let store = schema.store();
    let application = schema.client();
    let run = |statements: &str| wait(application.batch_execute(&schema.sql(statements))).unwrap();
    run("BEGIN; SELECT tourbillon.create_timer('mail', after => '1000 s', key => 'kept'); SAVEPOINT here;
        SELECT tourbillon.create_timer('mail', after => '1000 s', key => 'undone');
        SELECT tourbillon.cancel(key => 'kept'); ROLLBACK TO here");
    assert_eq!(ask(|reply| store.counts(reply)).unwrap().armed, 0, "nothing is seen before the commit");
    run("COMMIT");
    let holder = |key: &str| ask(|reply| store.get_key("default".into(), key.into(), reply)).unwrap();
    assert!(holder("kept").is_some() && holder("undone").is_none());
    // What an error has ended leaves nothing, either.
    let failed = "BEGIN; SELECT tourbillon.create_timer('mail', after => '1000 s', key => 'failed'); SELECT 1 / 0";
    assert!(wait(application.batch_execute(&schema.sql(failed))).is_err());
    run("ROLLBACK");
    assert_eq!(holder("failed"), None);
}

#[test]
fn u5_an_after_counts_from_the_call_and_not_from_the_beginning_of_the_transaction() {
    let Some(schema) = Schema::new() else { return };
    drop(schema.store());
    let query = schema.sql(
        "SELECT pg_sleep(0.01); SELECT due_at >= transaction_timestamp() + interval '10 ms' FROM tourbillon.create_timer('mail', after => '0 s')",
    );
    // Both statements are one transaction.
    let answer = wait(schema.client().simple_query(&query)).unwrap();
    let rows = answer.iter().filter_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    assert_eq!(rows.last(), Some("t"));
}

#[test]
fn u1_u5_a_conflict_of_keys_tells_the_timer_and_is_undone_by_a_savepoint() {
    let Some(schema) = Schema::new() else { return };
    drop(schema.store());
    let application = schema.client();
    let ask_for = |arguments: &str| {
        let call =
            format!("SELECT timer, answer, due_at::text FROM tourbillon.create_timer('mail', key => 'k', {arguments})");
        let row = wait(application.query_one(&schema.sql(&call), &[]))?;
        Ok::<_, tokio_postgres::Error>((row.get::<_, uuid::Uuid>(0), row.get::<_, String>(1), row.get::<_, String>(2)))
    };
    let (first, answer, due) = ask_for("after => '1000 s', payload => 'one'").unwrap();
    assert_eq!(answer, "created");
    let same = ask_for("after => '1000 s', payload => 'one'").unwrap();
    assert_eq!(same, (first, "existing".to_owned(), due.clone()), "the same request moves nothing");
    wait(application.batch_execute("BEGIN; SAVEPOINT here")).unwrap();
    for other in
        ["after => '2000 s', payload => 'one'", "after => '1000 s'", "after => '1000 s', payload => 'one', name => 'n'"]
    {
        let error = ask_for(other).unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code(), &tokio_postgres::error::SqlState::UNIQUE_VIOLATION);
        assert!(error.message().contains(&first.to_string()) && error.message().contains("\"k\""), "{error:?}");
        wait(application.batch_execute("ROLLBACK TO here")).unwrap();
    }
    assert_eq!(ask_for("after => '2000 s', on_conflict => 'keep'").unwrap(), (first, "existing".to_owned(), due));
    wait(application.batch_execute("COMMIT")).unwrap();
    let in_another_namespace = ask_for("after => '2000 s', namespace => 'other'").unwrap();
    assert_eq!(in_another_namespace.1, "created");
}

#[test]
fn u1_u5_a_timer_that_changed_after_a_snapshot_is_a_serialization_failure() {
    let Some(schema) = Schema::new() else { return };
    drop(schema.store());
    let (one, other) = (schema.client(), schema.client());
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let begin = format!("BEGIN ISOLATION LEVEL {level}; SELECT 1; SET LOCAL statement_timeout = '30 s'");
        let fails_to_serialize = |statement: &str| {
            let error = wait(one.batch_execute(statement)).unwrap_err();
            let expected = tokio_postgres::error::SqlState::T_R_SERIALIZATION_FAILURE;
            assert_eq!(error.code(), Some(&expected), "{level}: {error:?}");
        };
        wait(one.batch_execute(&begin)).unwrap();
        let create = format!("SELECT answer FROM tourbillon.create_timer('mail', after => '1000 s', key => '{level}')");
        let create = schema.sql(&create);
        wait(other.batch_execute(&create)).unwrap();
        fails_to_serialize(&create);
        wait(one.batch_execute("ROLLBACK")).unwrap();
        wait(one.batch_execute(&begin)).unwrap();
        let row = wait(one.query_one(&create, &[])).unwrap();
        assert_eq!(row.get::<_, String>(0), "existing", "the transaction is repeated");
        let cancel = schema.sql(&format!("SELECT tourbillon.cancel(key => '{level}')"));
        wait(one.batch_execute("COMMIT")).unwrap();
        wait(one.batch_execute(&begin)).unwrap();
        wait(other.batch_execute(&cancel)).unwrap();
        fails_to_serialize(&cancel);
        wait(one.batch_execute("ROLLBACK")).unwrap();
    }
}

#[test]
fn u5_the_functions_of_applications_have_comments_and_keep_their_rights_through_an_upgrade() {
    let Some(schema) = Schema::new() else { return };
    drop(schema.store());
    let query = schema.sql(
        "SELECT count(*) FROM pg_proc p WHERE p.pronamespace = $1::text::regnamespace AND p.proname IN ('create_timer', 'cancel')
        AND obj_description(p.oid) LIKE '%in the transaction of the caller%' AND p.proacl::text NOT LIKE '%{=X%'",
    );
    let restricted = || wait(schema.client().query_one(&query, &[&schema.name])).unwrap().get::<_, i64>(0);
    schema.run("REVOKE EXECUTE ON FUNCTION tourbillon.create_timer FROM PUBLIC; REVOKE EXECUTE ON FUNCTION tourbillon.cancel FROM PUBLIC");
    assert_eq!(restricted(), 2);
    schema.run("DELETE FROM tourbillon.formats WHERE version > 4");
    drop(schema.store());
    assert_eq!(restricted(), 2);
}

#[test]
fn u5_u8_a_payload_of_the_function_has_at_most_a_mebibyte_and_is_delivered_by_a_node_with_a_lower_limit() {
    let Some(schema) = Schema::new() else { return };
    let timers = wait(tourbillon_durable::Timers::builder().connect_with(schema.options())).unwrap();
    let (sender, delivered) = std::sync::mpsc::channel();
    let handler = move |delivery: tourbillon_durable::Delivery| {
        let sender = sender.clone();
        async move { sender.send(delivery.payload().len()).map_err(|error| error.to_string()) }
    };
    timers.on("mail", handler).unwrap();
    let application = schema.client();
    let call = |payload: &str| {
        let call = format!("SELECT tourbillon.create_timer('mail', after => '0 s', payload => {payload})");
        wait(application.batch_execute(&schema.sql(&call)))
    };
    for wrong in ["decode(repeat('00', 1048577), 'hex')", "NULL"] {
        let error = call(wrong).unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!((error.code().code(), error.message()), ("22023", "a payload has at most 1048576 bytes"));
    }
    call("decode(repeat('00', 1048576), 'hex')").unwrap();
    assert_eq!(delivered.recv_timeout(SECOND * 30), Ok(1_048_576));
    timers.blocking().shutdown(SECOND * 30).unwrap();
}

#[test]
fn u5_an_argument_that_is_wrong_is_named_in_the_error() {
    let Some(schema) = Schema::new() else { return };
    drop(schema.store());
    let application = schema.client();
    let call = |call: &str| {
        let result = wait(application.batch_execute(&schema.sql(&format!("SELECT tourbillon.{call}"))));
        result.map_err(|error| {
            let error = error.as_db_error().expect("the server refuses it");
            format!("{}: {} {}", error.code().code(), error.message(), error.hint().unwrap_or_default())
        })
    };
    for (wrong, code, text) in [
        ("create_timer('mail', at => '1969-12-31 23:59:59 UTC')", "22023", "from 1970-01-01T00:00:00Z to"),
        ("create_timer('mail', at => '-infinity')", "22023", "from 1970-01-01T00:00:00Z to"),
        ("create_timer('mail', every => '1 s', until => '1969-12-31 UTC')", "22023", "from 1970-01-01T00:00:00Z to"),
        ("create_timer('mail', every => '1 s', until => '1970-01-01 UTC')", "22023", "would never be due"),
        ("create_timer('mail', every => '1 month')", "22023", "\"every\" is not fixed: it has months"),
        ("create_timer('mail', after => '-1 s')", "22023", "\"after\" is negative"),
        ("create_timer('mail', after => '1 s', until => '2100-01-01')", "22023", "neither \"times\" nor \"until\""),
        ("create_timer('mail', after => '1 s', key => '')", "22023", "the key must have 1 to 512 bytes"),
        ("create_timer('mail', after => '1 s', key => repeat('ä', 257))", "22023", "the key must have 1 to 512 bytes"),
        ("create_timer('mail', after => '1 s', name => E'a\\tb')", "22023", "the name must have 1 to 512 bytes"),
        ("create_timer('mail', after => '1 s', namespace => NULL)", "22023", "the namespace must have 1 to 128"),
        ("create_timer(repeat('k', 129), after => '1 s')", "22023", "the kind must have 1 to 128"),
        ("create_timer('mail', cron => '0 9 * * *')", "0A000", "through the library or the server"),
        ("cancel()", "22023", "give one of"),
        ("cancel(key => 'k', name => 'n')", "22023", "give one of"),
    ] {
        let error = call(wrong).expect_err(wrong);
        assert!(error.starts_with(code) && error.contains(text), "{wrong}: {error}");
    }
    for right in [
        "create_timer('mail', at => '1970-01-01 UTC')",
        "create_timer('mail', after => '0 s', times => 1)",
        "create_timer('mail', after => '1 s', key => repeat('ä', 256))",
    ] {
        call(right).expect(right);
    }
}

#[test]
fn u2_u5_a_cancel_of_what_is_not_there_counts_it_as_gone_unless_it_is_by_name() {
    let Some(schema) = Schema::new() else { return };
    let store = schema.store();
    let application = schema.client();
    let cancel = |argument: &str| {
        let query = schema.sql(&format!("SELECT cancelled, in_flight, gone FROM tourbillon.cancel({argument})"));
        let row = wait(application.query_one(&query, &[])).unwrap();
        [0, 1, 2].map(|column| row.get::<_, i64>(column))
    };
    assert_eq!(cancel("key => 'k'"), [0, 0, 1]);
    assert_eq!(cancel("timer => '00000000-0000-0000-0000-000000000001'"), [0, 0, 1]);
    assert_eq!(cancel("name => 'n'"), [0, 0, 0]);
    let entry = arm(&store, 1, past("mail").key("k").name("n"));
    assert_eq!(cancel("key => 'k', namespace => 'other'"), [0, 0, 1], "a key belongs to its namespace");
    let (row, _) = take(&store, &own(&store, 1), entry);
    assert_eq!(cancel("name => 'n'"), [0, 1, 0], "a handler has it");
    finish(&store, &row, Verdict::Dead { error: "no".to_owned() }).unwrap();
    assert_eq!(cancel("name => 'n'"), [0, 0, 1], "a dead letter has ended");
    assert_eq!(cancel_name(&store, "n").gone, 1, "as the library counts it");
    assert_eq!(ask(|reply| store.counts(reply)).unwrap().dead, 1, "and stays");
    arm(&store, 2, far("mail"));
    assert_eq!(cancel(&format!("timer => '{}'", TimerId::from_u128(2).as_uuid())), [1, 0, 0]);
}

#[test]
fn u5_a_role_needs_what_the_guide_grants_and_no_more() {
    let Some(schema) = Schema::new() else { return };
    drop(schema.store());
    let role = format!("{}_role", schema.name);
    schema.run(&format!("CREATE ROLE {role}; GRANT {role} TO CURRENT_USER"));
    let guide = include_str!("../../../../docs/guide/durable-timers.md");
    let grants: Vec<&str> = guide.lines().filter(|line| line.starts_with("GRANT ")).collect();
    assert_eq!(grants.len(), 3, "{grants:?}");
    let call = |statement: &str| {
        let in_transaction = format!("BEGIN; SET LOCAL ROLE {role}; {statement}; COMMIT");
        wait(schema.client().batch_execute(&schema.sql(&in_transaction)))
    };
    let calls = [
        "SELECT tourbillon.create_timer('mail', after => '0 s', key => 'k')",
        "SELECT tourbillon.create_timer('mail', after => '1000 s', key => 'k', on_conflict => 'replace')",
        "SELECT tourbillon.cancel(key => 'k')",
    ];
    for missing in 0..grants.len() {
        let given = grants.iter().enumerate().filter(|(index, _)| *index != missing).map(|(_, grant)| *grant);
        grant(&schema, &role, given);
        let refused = calls.iter().find_map(|statement| call(statement).err()).expect("a right is missing");
        assert_eq!(refused.code(), Some(&tokio_postgres::error::SqlState::INSUFFICIENT_PRIVILEGE), "{refused:?}");
        schema.run(&format!("DROP OWNED BY {role}"));
    }
    grant(&schema, &role, grants.iter().copied());
    for statement in calls {
        call(statement).expect(statement);
    }
    schema.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

#[test]
fn u5_q8_a_node_delivers_with_the_rights_that_the_guide_names() {
    let Some(schema) = Schema::new() else { return };
    drop(schema.store());
    let role = format!("{}_node", schema.name);
    schema.run(&format!("CREATE ROLE {role}; GRANT {role} TO CURRENT_USER"));
    let guide = include_str!("../../../../docs/guide/durable-timers.md");
    let grants: Vec<String> = guide
        .lines()
        .filter_map(|line| line.strip_prefix("  GRANT "))
        .map(|grant| format!("GRANT {}", grant.replace("TO node", "TO app")))
        .collect();
    assert_eq!(grants.len(), 5, "{grants:?}");
    grant(&schema, &role, grants.iter().map(String::as_str));
    let options = schema.options_with(&schema.setting("role", &role)).create(false);
    let store = schema.open(options).unwrap();
    let owner = own(&store, 1);
    let (row, _) = take(&store, &owner, arm(&store, 1, past("mail").key("k")));
    assert_eq!(finish(&store, &row, Verdict::Done), Ok(None));
    assert_eq!(ask(|reply| store.history(TimerId::from_u128(1), reply)).unwrap().len(), 1);
    assert!(beat(&store, 1, Duration::ZERO).unwrap().shards.is_empty());
    ask(|reply| store.set_paused(true, reply)).unwrap();
    assert!(ask(|reply| store.counts(reply)).unwrap().is_paused);
    drop(store);
    schema.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

/// Runs the guide's statements for a role of a test.
fn grant<'g>(schema: &Schema, role: &str, grants: impl Iterator<Item = &'g str>) {
    for grant in grants {
        let grant = grant.replace("SCHEMA tourbillon ", &format!("SCHEMA {} ", schema.name));
        schema.run(&grant.replace(" app;", &format!(" {role};")));
    }
}

#[test]
fn u5_q8_a_policy_that_the_function_takes_does_not_end_the_nodes_that_read_it() {
    let Some(schema) = Schema::new() else { return };
    let store = schema.store();
    let application = schema.client();
    let create = |key: &str, policy: &str| {
        let statement =
            format!("SELECT timer FROM tourbillon.create_timer('mail', after => '1 h', key => '{key}', {policy})");
        wait(application.query_one(&schema.sql(&statement), &[])).unwrap();
        ask(|reply| store.get_key("default".into(), key.into(), reply)).unwrap().expect("it was created")
    };
    let five = create("a", r#"missed => '{"All": {"at_most": "5"}}'"#);
    assert_eq!(five.spec.missed, MissedFires::All { at_most: 5 });
    let minute = create("b", r#"missed => '{"DeadAfter": {"secs": "60", "nanos": "0"}}'"#);
    assert_eq!(minute.spec.missed, MissedFires::DeadAfter(60 * SECOND));
    let three = create("c", r#"retry => '{"attempts": "3", "jitter_percent": "0"}'"#);
    assert_eq!((three.spec.retry.attempts, three.spec.retry.jitter_percent), (3, 0));
    // An import of it verifies the policy.
    let short = create("d", r#"retry => '{"first": {"secs": 5, "nanos": 5}, "longest": {"secs": 5, "nanos": 0}}'"#);
    assert!(short.spec.check(Default::default()).is_ok());
}
