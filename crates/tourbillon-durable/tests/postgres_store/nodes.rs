//! Nodes that share the store: leases, claims and hints.

use super::*;

#[test]
fn o9_q7_a_node_whose_lease_has_run_out_is_taken_over_and_fenced() {
    let Some(schema) = Schema::new() else { return };
    let (first, second) = (schema.store(), schema.store());
    let lease = SECOND * 1_000;
    let old = beat(&first, 1, lease).unwrap();
    assert_eq!(old.shards.len(), 256);
    let (row, _) = take(&first, &old, arm(&first, 1, past("mail")));
    assert_eq!(beat(&second, 2, SECOND).unwrap().shards, [], "the first node is alive");
    // It keeps its shards and their epochs as long as it says that it lives.
    schema.set_clock(lease / 2);
    assert_eq!(beat(&first, 1, lease).unwrap().shards, old.shards);
    schema.set_clock(lease);
    assert_eq!(beat(&second, 2, SECOND).unwrap().shards, [], "its lease is not over");
    schema.set_clock(lease * 2);
    let new = beat(&second, 2, lease).unwrap();
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
    beat(&store, 1, SECOND * 100).unwrap();
    // What a process does that stops in the middle of a claim.
    let zombie = schema.client();
    let hold = schema.sql("BEGIN; SELECT epoch FROM tourbillon.shards WHERE shard = 7 FOR SHARE");
    wait(zombie.batch_execute(&hold)).unwrap();
    schema.set_clock(SECOND * 100);
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
fn d55_creates_of_what_is_due_soon_share_their_hints() {
    let Some(schema) = Schema::new() else { return };
    let (listener, creator) = (schema.store(), schema.store());
    let (sender, hints) = std::sync::mpsc::channel();
    listener.listen(move |due| _ = sender.send(due));
    assert_eq!(hints.recv_timeout(SECOND * 30), Ok(StoreTime::ZERO), "it listens");
    let start = Instant::now();
    for id in 1..=200 {
        arm(&creator, id, past("mail"));
    }
    let mut count = 0;
    while hints.recv_timeout(SECOND / 2).is_ok() {
        count += 1;
    }
    let most = start.elapsed().as_millis() / 20 + 1;
    assert!(count >= 1 && count <= most, "{count} hints in {:?}", start.elapsed());
    println!("{count} hints for 200 timers");
}

#[test]
fn d53_q2_q7_a_row_whose_owner_has_no_handler_is_claimed_once_by_a_node_that_has_one() {
    let Some(schema) = Schema::new() else { return };
    let (owner, other) = (schema.store(), schema.store());
    let owned = beat_with(&owner, 1, SECOND * 3600, &["mail"]).unwrap();
    assert_eq!((owned.shards.len(), owned.delegated.len()), (256, 0));
    let delegated = beat_with(&other, 2, SECOND * 3600, &["tick"]).unwrap().delegated;
    assert_eq!((delegated.len(), delegated["tick"].len()), (1, 256));
    let fence = pull_fence(77 << 2);
    let entry = arm(&owner, 1, past("tick"));
    let answers = write_all(&other, vec![claim_op(entry, fence)]);
    assert!(is_claimed(&answers[0]));
    // The owner registers the handler and is too late; then it loses its shards, which takes no row from the other node.
    assert_eq!(claim(&owner, &owned, entry), ClaimAnswer::Lost);
    assert_eq!(beat(&owner, 1, Duration::ZERO).unwrap().shards, []);
    let taken = beat_with(&other, 2, SECOND * 3600, &["tick"]).unwrap();
    assert_eq!((taken.shards.len(), taken.delegated.len()), (256, 0), "its own shards are not delegated to it");
    let shards = taken.shards.iter().map(|(shard, _)| *shard).collect();
    assert_eq!(ask(|reply| other.orphans("tick".into(), shards, 10, reply)).unwrap(), []);
    assert_eq!(write_all(&other, vec![finish_op(answers[0].clone())]), [WriteAnswer::Finish(Ok(None))]);
    assert_eq!(write_all(&other, vec![finish_op(answers[0].clone())]), [WriteAnswer::Finish(Err(StaleDelivery))]);
}

#[test]
fn d53_q3_nodes_with_different_handlers_deliver_all_timers_of_both() {
    const EACH: usize = 60;
    let Some(schema) = Schema::new() else { return };
    let (sender, delivered) = std::sync::mpsc::channel();
    let kinds = ["mail", "tick"];
    let start = |kind: &'static str| {
        let sender = sender.clone();
        let builder = tourbillon_durable::Timers::builder().node_lease(SECOND * 6);
        let timers = wait(builder.connect_with(schema.options())).unwrap();
        let handler = move |delivery: tourbillon_durable::Delivery| {
            let sent = sender.send((kind, delivery.kind().to_owned(), delivery.row_id(), delivery.attempt()));
            async move { sent.map_err(|error| error.to_string()) }
        };
        timers.on(kind, handler).unwrap();
        timers
    };
    let nodes = kinds.map(start);
    // Of each kind, by each node, at once and a little later; names spread them over all shards.
    for (index, node) in nodes.iter().enumerate() {
        for number in 0..EACH {
            let kind = kinds[number % 2];
            let timer =
                NewTimer::after(kind, Duration::from_millis(number as u64 * 20)).name(format!("{index} {number}"));
            wait(node.create(timer)).unwrap();
        }
    }
    let mut rows = std::collections::BTreeSet::new();
    for _ in 0..2 * EACH {
        let (has, kind, row, attempt) = delivered.recv_timeout(SECOND * 60).expect("every timer is delivered");
        assert_eq!((has, attempt), (&*kind, 1), "by a node that has its handler, once");
        assert!(rows.insert(row));
    }
    for node in &nodes {
        wait(node.shutdown(SECOND * 30)).unwrap();
    }
    assert!(delivered.try_recv().is_err());
}

#[test]
fn d55_while_hints_cannot_come_the_store_asks_for_looks_itself() {
    let Some(schema) = Schema::new() else { return };
    let store = schema.store();
    let (sender, hints) = std::sync::mpsc::channel();
    store.listen(move |due| _ = sender.send(due));
    assert_eq!(hints.recv_timeout(SECOND * 30), Ok(StoreTime::ZERO), "it listens");
    // Every new connection for hints is ended, so none is there for a while.
    let client = schema.client();
    let end =
        format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN \"{}\"'", schema.name);
    let (begin, mut looks) = (Instant::now(), 0);
    while begin.elapsed() < SECOND * 2 {
        wait(client.batch_execute(&end)).unwrap();
        looks += hints.try_iter().filter(|due| *due == StoreTime::ZERO).count();
        thread::sleep(Duration::from_millis(20));
    }
    assert!(looks >= 2, "{looks} looks in two seconds");
}
