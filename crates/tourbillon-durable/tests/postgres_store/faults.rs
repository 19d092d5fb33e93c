//! Servers and schemas that are gone, full, damaged, older or newer.

use super::*;

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
fn q8_an_address_that_asks_for_tls_is_an_error_that_names_what_has_it() {
    for mode in ["require", "prefer"] {
        let nowhere = format!("host=/nonexistent user=nobody dbname=none sslmode={mode}");
        let options = tourbillon_durable::store::PostgresOptions::new(&nowhere).unwrap();
        let error = wait(tourbillon_durable::store::PostgresStore::open(options)).err().unwrap();
        match mode {
            "require" => {
                assert!(matches!(&error, StoreError::BadOptions(text) if text.contains("open_tls")), "{error:?}");
            }
            _ => assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}"),
        }
    }
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
    assert_eq!(refused, Some(StoreError::NewerFormat { found: 99, known: 6 }));
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
    let read_only = &schema.setting("default_transaction_read_only", "on");
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
fn q8_a_user_without_a_privilege_is_an_error_that_says_what_is_missing() {
    let Some(schema) = Schema::new() else { return };
    arm(&schema.store(), 1, far("mail").key("k"));
    let role = &schema.name;
    schema.run(&format!(
        "CREATE ROLE {role}; GRANT USAGE ON SCHEMA {role} TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA {role} TO {role}"
    ));
    let store = schema.open(schema.options_with(&schema.setting("role", role))).unwrap();
    assert!(ask(|reply| store.get_key("default".into(), "k".into(), reply)).unwrap().is_some());
    let refused = ask(|reply| store.write(vec![create_op(2, far("mail"))], reply)).unwrap_err();
    assert!(matches!(&refused, StoreError::NotPermitted(text) if text.contains("timers")), "{refused:?}");
    drop(store);
    schema.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
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

#[test]
fn o5_tables_of_the_format_before_are_upgraded_and_keep_all_that_they_have() {
    let Some(schema) = Schema::new() else { return };
    let store = schema.store();
    arm(&store, 1, far("mail").key("k"));
    drop(store);
    // As a program of format 1 left them.
    schema.run(
        "DROP FUNCTION tourbillon.due_rows; DROP TABLE tourbillon.settings; ALTER TABLE tourbillon.timers DROP COLUMN returned;
        ALTER TABLE tourbillon.nodes DROP COLUMN kinds; DROP TABLE tourbillon.api_keys;
        DELETE FROM tourbillon.formats WHERE version > 1",
    );
    // An application goes on with its transactions meanwhile.
    schema.run("SELECT tourbillon.create_timer('mail', after => '1000 s', key => 'of an application')");
    let store = schema.store();
    assert!(!ask(|reply| store.counts(reply)).unwrap().is_paused);
    let owner = own(&store, 1);
    assert_eq!(take(&store, &owner, arm(&store, 2, past("mail"))).0.returned, 0);
    assert_eq!(cancel_key(&store, "k").cancelled + cancel_key(&store, "of an application").cancelled, 2);
}

#[test]
fn o5_q4_an_upgrade_that_meets_a_lock_lets_others_pass_and_comes_again() {
    let Some(schema) = Schema::new() else { return };
    drop(schema.store());
    schema.run("DELETE FROM tourbillon.formats WHERE version = (SELECT max(version) FROM tourbillon.formats)");
    let (holder, admin) = (schema.client(), schema.client());
    let hold = schema.sql("BEGIN; LOCK TABLE tourbillon.formats IN SHARE MODE");
    wait(holder.batch_execute(&hold)).unwrap();
    let wait_until = |waits: i64| {
        let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = to_regclass($1)";
        let start = Instant::now();
        while wait(admin.query_one(waiting, &[&schema.sql("tourbillon.formats")])).unwrap().get::<_, i64>(0) != waits {
            assert!(start.elapsed() < SECOND * 25, "{waits} should wait for the lock");
            thread::sleep(Duration::from_millis(5));
        }
    };
    let store = thread::scope(|scope| {
        let opening = scope.spawn(|| schema.store());
        wait_until(1);
        wait_until(0);
        wait(holder.batch_execute("ROLLBACK")).unwrap();
        opening.join().unwrap()
    });
    arm(&store, 1, far("mail"));
}

#[test]
fn o5_a_store_that_is_opened_for_a_look_is_neither_made_nor_upgraded() {
    let Some(schema) = Schema::new() else { return };
    let look = || schema.open(schema.options().create(false));
    let count = |row: &str| -> i64 {
        let query = schema.sql(&format!("SELECT count(*) FROM {row}"));
        wait(schema.client().query_one(&query, &[])).unwrap().get(0)
    };
    let missing = || match look().err() {
        Some(StoreError::Missing(text)) => text,
        other => panic!("there is no store: {other:?}"),
    };
    let text = missing();
    assert!(text.contains(&format!("has no schema {:?}", schema.name)) && text.contains("address"), "{text}");
    assert_eq!(count(&format!("pg_namespace WHERE nspname = '{}'", schema.name)), 0);
    schema.run(&format!("CREATE SCHEMA {}", schema.name));
    let text = missing();
    assert!(
        text.contains(&format!("the schema {:?}", schema.name)) && text.contains("has no durable timers"),
        "{text}"
    );
    assert_eq!(count(&format!("pg_class WHERE relnamespace = '{}'::regnamespace", schema.name)), 0);

    arm(&schema.store(), 1, far("mail").key("k"));
    schema.run(
        "DO $$ DECLARE part regclass; BEGIN
            FOR part IN SELECT inhrelid FROM pg_inherits WHERE inhparent = 'tourbillon.history'::regclass
                AND inhrelid <> 'tourbillon.history_rest'::regclass LOOP EXECUTE format('DROP TABLE %s', part); END LOOP;
        END $$",
    );
    let store = look().unwrap();
    assert_eq!(ask(|reply| store.counts(reply)).unwrap().armed, 1);
    assert_eq!(cancel_key(&store, "k").cancelled, 1, "such a store can be written");
    assert_eq!(count("pg_inherits WHERE inhparent = 'tourbillon.history'::regclass"), 1, "others make the partitions");

    schema.run("DROP TABLE tourbillon.api_keys; DELETE FROM tourbillon.formats WHERE version > 3");
    let older = look().err().expect("it is not upgraded");
    assert_eq!(older, StoreError::OlderFormat { found: 3, wanted: 6 });
    assert!(older.to_string().contains("format 3") && older.to_string().contains("upgrades it"), "{older}");
    assert_eq!(count("tourbillon.formats"), 3);
    drop(schema.store());
    assert!(look().is_ok(), "it was upgraded");
    schema.run("INSERT INTO tourbillon.formats (version) VALUES (99)");
    assert_eq!(look().err(), Some(StoreError::NewerFormat { found: 99, known: 6 }));
}

#[test]
fn o5_d53_a_node_of_the_format_before_goes_on_and_keeps_its_shards_for_itself() {
    let Some(schema) = Schema::new() else { return };
    drop(schema.store());
    schema.run(
        "ALTER TABLE tourbillon.nodes DROP COLUMN kinds; DROP TABLE tourbillon.api_keys;
        DELETE FROM tourbillon.formats WHERE version > 2",
    );
    // As a program of format 2 says that it lives, before the upgrade and after it.
    let old = |schema: &Schema| {
        schema.run(&format!(
            "INSERT INTO tourbillon.nodes (node, alive_until) VALUES ('{}', tourbillon.now_micros() + 3600000000)
            ON CONFLICT (node) DO UPDATE SET alive_until = excluded.alive_until;
            UPDATE tourbillon.shards SET node = '{0}', epoch = 1 WHERE shard < 128",
            TimerId::from_u128(7).as_uuid()
        ));
    };
    old(&schema);
    let store = schema.store();
    old(&schema);
    let ownership = beat_with(&store, 1, SECOND * 3600, &["mail"]).unwrap();
    assert_eq!((ownership.shards.len(), ownership.delegated.len()), (128, 0), "an old node may have every handler");
}

#[test]
fn o4_timers_move_from_a_directory_to_postgresql_and_back() {
    use tourbillon_durable::store::{EmbeddedStore, TimerRow};
    use tourbillon_durable::transfer::{export, import};

    let Some(schema) = Schema::new() else { return };
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let open = |index: usize| EmbeddedStore::options().reserve(0).open(directories[index].path()).unwrap();
    let (from, server, to) = (open(0), schema.store(), open(1));
    let timer = |number: u128| match number % 3 {
        0 => NewTimer::every("mail", SECOND * 3600).times(9).missed(MissedFires::All { at_most: 2 }),
        1 => NewTimer::cron("mail", "30 2 * * *", "Europe/Berlin").payload(vec![0, 255]),
        _ => far("mail").name("Name \u{1f511}").content_type("x/y"),
    };
    write_all(&from, (1..=1_200).map(|number| create_op(number, timer(number).key(number.to_string()))).collect());
    let text = |store: &dyn Store| {
        let mut out = Vec::new();
        assert_eq!(export(store, &mut out, &mut |_| ()), Ok(1_200));
        String::from_utf8(out).unwrap()
    };
    let move_to = |store: &dyn Store, text: &str| {
        let imported = import(store, &mut text.as_bytes(), &mut |_| ()).unwrap();
        assert_eq!((imported.written, imported.conflicts), (1_200, 0));
    };
    let first = text(&from);
    move_to(&server, &first);
    move_to(&to, &text(&server));
    let rows = |text: &str| -> Vec<TimerRow> {
        let lines = text.lines().skip(1).take(1_200);
        lines.map(|line| TimerRow { shard: ShardId(0), ..serde_json::from_str(line).unwrap() }).collect()
    };
    assert_eq!(rows(&text(&to)), rows(&first));
}
