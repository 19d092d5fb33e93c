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
