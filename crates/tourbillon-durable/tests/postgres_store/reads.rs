//! Reads of users: lists, counts and histories, beside the work of a node.

use std::sync::mpsc::channel;

use tourbillon_durable::store::Reply;

use super::*;

#[test]
fn q1_the_server_ends_a_read_whose_caller_has_given_up() {
    let Some(schema) = Schema::new() else { return };
    let application = format!("reads_{}", schema.name);
    let options = schema.options_with(&format!("application_name={application}"));
    let store = schema.open(options.request_timeout(SECOND)).unwrap();
    let holder = schema.client();
    let hold = schema.sql("BEGIN; LOCK TABLE tourbillon.timers IN ACCESS EXCLUSIVE MODE");
    wait(holder.batch_execute(&hold)).unwrap();
    let counts = ask(|reply| store.counts(reply));
    assert!(matches!(counts, Err(StoreError::Unavailable(_))), "{counts:?}");
    let list = ask(|reply| store.list(ListFilter::default(), None, 10, reply));
    assert!(matches!(list, Err(StoreError::Unavailable(_))), "{list:?}");
    let soon = ask(|reply| store.upcoming(ListFilter::default(), 10, reply));
    assert!(matches!(soon, Err(StoreError::Unavailable(_))), "{soon:?}");
    // The lock is still held, so only the server's own limit ends these statements.
    let admin = schema.client();
    let running = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND state = 'active'";
    let start = Instant::now();
    while wait(admin.query_one(running, &[&application])).unwrap().get::<_, i64>(0) > 0 {
        assert!(start.elapsed() < SECOND * 60, "the server goes on with what nobody waits for");
        thread::sleep(Duration::from_millis(50));
    }
    wait(holder.batch_execute("ROLLBACK")).unwrap();
    assert_eq!(ask(|reply| store.counts(reply)).unwrap().armed, 0);
}

#[test]
fn q4_reads_that_take_long_leave_connections_for_claims() {
    let Some(schema) = Schema::new() else { return };
    let store = schema.store();
    let owner = own(&store, 1);
    let entry = arm(&store, 1, past("mail"));
    // Every history waits for this lock.
    let holder = schema.client();
    let hold = schema.sql("BEGIN; LOCK TABLE tourbillon.history IN ACCESS EXCLUSIVE MODE");
    wait(holder.batch_execute(&hold)).unwrap();
    let (sender, histories) = channel();
    for _ in 0..20 {
        let sender = sender.clone();
        store.history(TimerId::from_u128(1), Reply::new(move |history| sender.send(history).unwrap()));
    }
    let admin = schema.client();
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = to_regclass($1)";
    let history = schema.sql("tourbillon.history");
    let start = Instant::now();
    while wait(admin.query_one(waiting, &[&history])).unwrap().get::<_, i64>(0) < 3 {
        assert!(start.elapsed() < SECOND * 60, "some histories wait for the lock");
        thread::sleep(Duration::from_millis(20));
    }
    let page = due(&store, "mail", StoreTime::from_micros(2_000_000_000_000), 10);
    assert_eq!(page.entries, [entry]);
    assert!(matches!(claim(&store, &owner, entry), ClaimAnswer::Claimed { .. }));
    assert!(histories.try_recv().is_err(), "the claim did not wait for them");
    wait(holder.batch_execute("ROLLBACK")).unwrap();
    assert!((0..20).all(|_| histories.recv().unwrap().is_ok()));
}
