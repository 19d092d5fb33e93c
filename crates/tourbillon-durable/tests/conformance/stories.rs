//! Stories that every store passes.

use std::time::{Duration, SystemTime};

use tourbillon_durable::spec::FirstDue;
use tourbillon_durable::store::{
    CancelCounts, ClaimAnswer, CreateAnswer, DeadLetterOp, DueEntry, ExtendOp, ImportAnswer, ImportOp, ListFilter,
    Reply, RescheduleAnswer, RescheduleOp, RowId, RowState, ShardId, StaleDelivery, Store, Target, TimerRow, Verdict,
    WriteAnswer, WriteOp,
};
use tourbillon_durable::{MemoryStore, MissedFires, NewTimer, OnConflict, RetryPolicy, StoreTime, TimerId};

use super::ask::{
    LEASE, arm, ask, cancel, cancel_key, cancel_name, claim, claim_as, create, create_op, due, due_after, finish, own,
    take, write, write_all,
};
use super::{listing, missed};

type Story = (&'static str, fn(&dyn Store));

pub(crate) const ALL: &[Story] = &[
    ("u1: a repeated create gives the same timer, a different one is a conflict", repeated_creates),
    ("u1: replace, keep, earlier and later", conflict_modes),
    ("u1: a delay is another time each time that it is asked for", relative_times),
    ("u1: a key that is being delivered is armed again by replace", keys_in_flight),
    ("u1: a repeated create finds its timer although it would never be due now", repeated_too_late),
    ("u2: a cancel by name is exact, and what it counts is never claimed", cancel_by_name),
    ("u2: a cancel of nothing says gone", cancel_of_nothing),
    ("u3: a reschedule compares versions", reschedules),
    ("u4: lists have cursors that stay valid", listing::lists),
    ("u4: each filter finds its rows, page by page and together with others", listing::filters),
    ("u4: rows that come and go between pages are neither repeated nor hide others", listing::changes_between_pages),
    ("u4: the next timers of all kinds come in the order of time", upcoming_rows),
    ("u4: failed rows and dead letters are found and counted among others", failures_are_found),
    ("u6: the next occurrence is armed by the claim of this one", repeating),
    ("u7: missed fires follow their policy", missed::missed_fires),
    ("u7: a dense cron line fires once after a long outage", missed::dense_cron_once),
    ("u7: of a dense cron line exactly the newest are delivered", missed::dense_cron_newest),
    ("u6: a timer whose zone this process does not know waits for another", missed::unknown_zones),
    ("u7: a dense cron line is skipped, ended and limited as exactly as another", missed::dense_cron_limits),
    ("v4: retries, dead letters and replay", retries_and_dead_letters),
    ("v4: a retry that comes too late is a dead letter", late_retries),
    ("v5: an older attempt can neither finish nor extend", stale_deliveries),
    ("q4: nothing is claimed early", never_early),
    ("q7: an owner whose epoch is over is fenced, and its rows are orphans", fencing),
    ("q1: a batch is applied in its order", batches),
    ("u8: the last time can be stored, and what leads beyond it is refused", the_last_time),
    ("p6: a text that no timer can have finds nothing", impossible_texts),
    ("due rows come in order, page by page", due_pages),
    ("o4: a pause is told to owners, and ends", pauses),
    ("o4: a snapshot has all rows, and another store takes them", snapshots_and_imports),
    ("q2, o4: an import that is repeated revives and doubles nothing", repeated_imports),
    ("o4: the rows of a timer whose key is taken are refused together", imports_without_their_key),
];

pub(super) fn long_ago(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
}

pub(super) fn far() -> Duration {
    Duration::from_secs(1_000_000)
}

pub(super) fn past(kind: &str, seconds: u64) -> NewTimer {
    NewTimer::at(kind, long_ago(seconds))
}

pub(super) fn counts(cancelled: u64, in_flight: u64, gone: u64) -> CancelCounts {
    CancelCounts { cancelled, in_flight, gone }
}

fn repeated_creates(store: &dyn Store) {
    let timer = || NewTimer::after("mail", far()).key("order 1").payload(b"one");
    let first = create(store, 1, timer());
    let CreateAnswer::Created { entry, due, replaced: None, in_flight: false } = first else { panic!("{first:?}") };
    assert_eq!((entry.id.timer, entry.id.occurrence, entry.wake), (TimerId::from_u128(1), 1, due));
    let again = create(store, 2, timer());
    assert_eq!(
        again,
        CreateAnswer::Existing { id: TimerId::from_u128(1), due, version: entry.version, in_flight: false }
    );
    let other = create(store, 3, timer().payload(b"two"));
    assert_eq!(other, CreateAnswer::Conflict { id: TimerId::from_u128(1) });
    // The same key in another namespace is another timer, and without a key every create makes one.
    arm(store, 4, timer().namespace("other"));
    arm(store, 5, NewTimer::after("mail", far()));
    arm(store, 6, NewTimer::after("mail", far()));
    assert_eq!(create(store, 7, NewTimer::cron("mail", "0 0 30 2 *", "UTC")), CreateAnswer::NeverDue);
}

fn conflict_modes(store: &dyn Store) {
    let timer =
        |seconds: u64, mode| NewTimer::after("mail", far() + Duration::from_secs(seconds)).key("k").on_conflict(mode);
    arm(store, 1, timer(0, OnConflict::Refuse));
    let kept = |answer: CreateAnswer, number| match answer {
        CreateAnswer::Existing { id, .. } => assert_eq!(id, TimerId::from_u128(number)),
        other => panic!("{other:?}"),
    };
    let replaced = |answer: CreateAnswer, number| match answer {
        CreateAnswer::Created { replaced, .. } => assert_eq!(replaced, Some(TimerId::from_u128(number))),
        other => panic!("{other:?}"),
    };
    kept(create(store, 2, timer(100, OnConflict::Keep)), 1);
    kept(create(store, 3, timer(100, OnConflict::Earlier)), 1);
    replaced(create(store, 4, timer(100, OnConflict::Later)), 1);
    kept(create(store, 5, timer(50, OnConflict::Later)), 4);
    replaced(create(store, 6, timer(50, OnConflict::Earlier)), 4);
    replaced(create(store, 7, timer(50, OnConflict::Replace).payload(b"x")), 6);
    assert_eq!(cancel_key(store, "k"), counts(1, 0, 0), "only the last one is pending");
    assert_eq!(ask(|reply| store.counts(reply)).unwrap().armed, 0);
    // A timer that is being delivered loses its key, and goes on.
    let owner = own(store, 1);
    let (row, _) = take(store, &owner, arm(store, 8, past("mail", 0).key("k")));
    replaced(create(store, 9, timer(0, OnConflict::Replace)), 8);
    assert_eq!(finish(store, &row, Verdict::Done), Ok(None));
    assert_eq!(cancel_key(store, "k"), counts(1, 0, 0));
}

fn relative_times(store: &dyn Store) {
    // Two creates may come in the same microsecond of the store's clock.
    let pass = || std::thread::sleep(Duration::from_millis(2));
    let lease = |mode| NewTimer::after("lease", far()).key("session").on_conflict(mode);
    let mut last = arm(store, 1, lease(OnConflict::Later));
    for (number, mode) in [(2, OnConflict::Later), (3, OnConflict::Replace)] {
        pass();
        let CreateAnswer::Created { entry, due, replaced, in_flight: false } = create(store, number, lease(mode))
        else {
            panic!("{mode:?} moves the timer")
        };
        assert_eq!(replaced, Some(last.id.timer));
        assert!(due > last.wake);
        last = entry;
    }
    pass();
    for (number, mode) in [(4, OnConflict::Refuse), (5, OnConflict::Keep), (6, OnConflict::Earlier)] {
        let CreateAnswer::Existing { id, due, .. } = create(store, number, lease(mode)) else { panic!("{mode:?}") };
        assert_eq!((id, due), (last.id.timer, last.wake), "{mode:?} moves nothing");
    }
    // What a process asks for each time that it starts stays, and so does a time that is not relative.
    let every = || NewTimer::every("tick", far()).key("every").on_conflict(OnConflict::Replace);
    let at = SystemTime::UNIX_EPOCH + far() * 5_000;
    let once = || NewTimer::at("mail", at).key("at").on_conflict(OnConflict::Replace);
    for (number, entry) in [(10, arm(store, 10, every())), (20, arm(store, 20, once()))] {
        pass();
        let again = create(store, number + 1, if number == 10 { every() } else { once() });
        assert!(matches!(again, CreateAnswer::Existing { id, .. } if id == entry.id.timer), "{again:?}");
    }
}

fn keys_in_flight(store: &dyn Store) {
    let owner = own(store, 1);
    let timer = |mode| past("mail", 0).key("k").on_conflict(mode);
    let (first, _) = take(store, &owner, arm(store, 1, timer(OnConflict::Refuse)));
    for (number, mode) in [(2, OnConflict::Refuse), (3, OnConflict::Keep), (4, OnConflict::Later)] {
        let answer = create(store, number, timer(mode));
        let CreateAnswer::Existing { id, in_flight: true, .. } = answer else { panic!("{mode:?}: {answer:?}") };
        assert_eq!(id, first.id.timer);
    }
    let answer = create(store, 5, timer(OnConflict::Replace));
    let CreateAnswer::Created { entry, replaced, in_flight: true, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(replaced, Some(first.id.timer));
    assert_eq!(finish(store, &first, Verdict::Done), Ok(None), "its delivery goes on");
    let (second, _) = take(store, &owner, entry);
    assert_ne!(second.id.timer, first.id.timer);
    assert_eq!(finish(store, &second, Verdict::Done), Ok(None));
    assert_eq!(cancel_key(store, "k"), counts(0, 0, 1));
}

fn repeated_too_late(store: &dyn Store) {
    // A timer of which the first time has become impossible, as at the end of a timer that repeats.
    let timer = || NewTimer::every("tick", Duration::MAX).key("k");
    assert_eq!(create(store, 1, timer()), CreateAnswer::NeverDue);
    let WriteOp::Create(op) = create_op(2, timer()) else { unreachable!() };
    let row = TimerRow { spec: op.spec, ..foreign(2, NewTimer::after("tick", far()).key("k")) };
    assert_eq!(import_row(store, row), ImportAnswer::Written);
    let id = TimerId::from_u128(2);
    for (number, timer) in [(3, timer()), (4, timer().payload("other").on_conflict(OnConflict::Keep))] {
        let again = create(store, number, timer);
        assert!(matches!(again, CreateAnswer::Existing { id: found, .. } if found == id), "{again:?}");
    }
    for (number, mode) in [(5, OnConflict::Refuse), (6, OnConflict::Replace), (7, OnConflict::Later)] {
        let other = timer().payload("other").on_conflict(mode);
        assert_eq!(create(store, number, other), CreateAnswer::NeverDue, "{mode:?}");
    }
    assert_eq!(cancel_key(store, "k"), counts(1, 0, 0));
}

fn late_retries(store: &dyn Store) {
    let owner = own(store, 1);
    let retry = RetryPolicy { give_up_after: Some(Duration::from_secs(3600)), ..RetryPolicy::attempts(10) };
    let now = StoreTime::try_from(SystemTime::now()).unwrap();
    let claim_of = |number: u128, change: fn(TimerRow, StoreTime) -> TimerRow| {
        // As after an outage of decades.
        let row = change(foreign(number, past("mail", 0).key(format!("key {number}")).retry(retry)), now);
        assert_eq!(import_row(store, row.clone()), ImportAnswer::Written);
        claim(store, &owner, DueEntry { shard: shard_now(store, &row), ..DueEntry::from(&row) })
    };
    let given_up = claim_of(1, |row, _| TimerRow { attempt: 1, last_error: Some("busy".into()), ..row });
    assert_eq!(given_up, ClaimAnswer::GivenUp { is_dead: true, next: None });
    let dead = &ask(|reply| store.get(TimerId::from_u128(1), reply)).unwrap()[0];
    assert_eq!((dead.state, dead.last_error.as_deref()), (RowState::Dead, Some("busy")));
    assert_eq!(cancel_key(store, "key 1"), counts(0, 0, 1), "its key is free");
    // First deliveries are a matter of the policy for missed fires, and a replayed letter is as old as its replay.
    let claimed = [
        claim_of(2, |row, _| row),
        claim_of(3, |row, _| TimerRow { attempt: 1, returned: 1, ..row }),
        claim_of(4, |row, now| TimerRow { attempt: 1, replayed_at: Some(now), ..row }),
    ];
    assert!(claimed.iter().all(|answer| matches!(answer, ClaimAnswer::Claimed { .. })), "{claimed:?}");
}

fn impossible_texts(store: &dyn Store) {
    let kept = arm(store, 1, NewTimer::after("mail", far()).key("k").name("n"));
    let long = "x".repeat(100_000);
    for text in ["", "a\0b", "a\nb", "\u{1f600}", &long] {
        let text = || text.to_owned();
        for (namespace, of_namespace) in [("default".to_owned(), text()), (text(), "k".to_owned())] {
            let key = Target::Key { namespace: namespace.clone(), key: of_namespace.clone() };
            let name = Target::Name { namespace: namespace.clone(), name: of_namespace.clone() };
            assert_eq!(cancel(store, key.clone()), counts(0, 0, 1));
            assert_eq!(cancel(store, name), counts(0, 0, 0));
            let op = RescheduleOp { target: key, when: FirstDue::Next, if_version: None };
            assert_eq!(write(store, WriteOp::Reschedule(op)), WriteAnswer::Reschedule(RescheduleAnswer::NotFound));
            let (key, name) = (of_namespace.clone(), Some(of_namespace));
            assert_eq!(ask(|reply| store.get_key(namespace.clone(), key, reply)), Ok(None));
            let filter = ListFilter { namespace: Some(namespace), name, ..ListFilter::default() };
            assert_eq!(ask(|reply| store.list(filter.clone(), None, 9, reply)).map(|page| page.rows), Ok(Vec::new()));
            assert_eq!(ask(|reply| store.upcoming(filter, 9, reply)), Ok(Vec::new()));
        }
        assert_eq!(due(store, &text(), StoreTime::MAX, 9).entries, []);
        let shards = (0..store.traits().shards).map(ShardId).collect();
        assert_eq!(ask(|reply| store.orphans(text(), shards, 9, reply)), Ok(Vec::new()));
    }
    assert_eq!(due(store, "mail", StoreTime::MAX, 9).entries, [kept], "the store goes on");
}

fn cancel_by_name(store: &dyn Store) {
    let owner = own(store, 1);
    for number in 0..10 {
        arm(store, 100 + number, NewTimer::after("mail", far()).name("client 7"));
    }
    let entries: Vec<_> = (0..3).map(|n| arm(store, 200 + n, past("mail", 0).name("client 7"))).collect();
    arm(store, 300, NewTimer::after("mail", far()).name("client 8"));
    arm(store, 301, NewTimer::after("mail", far()).name("client 7").namespace("other"));
    let (row, _) = take(store, &owner, entries[0]);
    let (dead, _) = take(store, &owner, entries[1]);
    assert_eq!(finish(store, &dead, Verdict::Dead { error: "no".into() }), Ok(None));
    assert_eq!(cancel_name(store, "client 7"), counts(11, 1, 1));
    assert_eq!(claim(store, &owner, entries[2]), ClaimAnswer::Lost, "what was counted is never delivered");
    assert_eq!(finish(store, &row, Verdict::Done), Ok(None));
    assert_eq!(cancel_name(store, "client 7"), counts(0, 0, 1));
    assert_eq!(cancel_name(store, "client 8"), counts(1, 0, 0));
}

fn cancel_of_nothing(store: &dyn Store) {
    assert_eq!(cancel_key(store, "none"), counts(0, 0, 1));
    assert_eq!(cancel(store, Target::Id(TimerId::from_u128(9))), counts(0, 0, 1));
    assert_eq!(cancel_name(store, "none"), counts(0, 0, 0));
    arm(store, 1, NewTimer::after("mail", far()));
    assert_eq!(cancel(store, Target::Id(TimerId::from_u128(1))), counts(1, 0, 0));
    assert_eq!(cancel(store, Target::Id(TimerId::from_u128(1))), counts(0, 0, 1));
    let ended = ask(|reply| store.history(TimerId::from_u128(1), reply)).unwrap();
    assert_eq!(ended.len(), 1, "the history tells of it");
}

fn reschedules(store: &dyn Store) {
    let entry = arm(store, 1, NewTimer::after("mail", far()).key("k"));
    let target = || Target::Key { namespace: "default".into(), key: "k".into() };
    let reschedule =
        |target, when, if_version| match write(store, WriteOp::Reschedule(RescheduleOp { target, when, if_version })) {
            WriteAnswer::Reschedule(answer) => answer,
            other => panic!("{other:?}"),
        };
    let at = StoreTime::from_micros(1_000_000_000_000);
    let moved = reschedule(target(), FirstDue::At(at), Some(entry.version));
    let RescheduleAnswer::Moved { entry: moved, due, .. } = moved else { panic!("{moved:?}") };
    assert_eq!((moved.wake, due), (at, at));
    assert!(moved.version > entry.version);
    assert_eq!(reschedule(target(), FirstDue::At(at), Some(entry.version)), RescheduleAnswer::VersionIs(moved.version));
    assert_eq!(reschedule(target(), FirstDue::After(Duration::MAX), None), RescheduleAnswer::OutOfRange);
    let owner = own(store, 1);
    assert_eq!(claim(store, &owner, entry), ClaimAnswer::Lost, "the owner knew an older version");
    let (row, _) = take(store, &owner, moved);
    assert_eq!(row.due, at);
    assert_eq!(reschedule(target(), FirstDue::At(at), None), RescheduleAnswer::InFlight);
    assert_eq!(finish(store, &row, Verdict::Done), Ok(None));
    assert_eq!(reschedule(target(), FirstDue::At(at), None), RescheduleAnswer::NotFound);
}

fn upcoming_rows(store: &dyn Store) {
    let owner = own(store, 1);
    for (number, kind, seconds) in [(1, "mail", 30), (2, "page", 10), (3, "mail", 20), (4, "a", 40), (5, "page", 50)] {
        arm(store, number, past(kind, seconds).namespace(if number == 5 { "other" } else { "default" }));
    }
    arm(store, 6, NewTimer::after("mail", far()));
    let numbers = |filter: ListFilter, limit| {
        let rows = ask(|reply| store.upcoming(filter, limit, reply)).unwrap();
        rows.iter().map(|row| row.id.timer.as_u128()).collect::<Vec<_>>()
    };
    assert_eq!(numbers(ListFilter::default(), 10), [2, 3, 1, 4, 5, 6]);
    assert_eq!(numbers(ListFilter::default(), 2), [2, 3]);
    assert_eq!(numbers(ListFilter { namespace: Some("other".into()), ..ListFilter::default() }, 10), [5]);
    assert_eq!(numbers(ListFilter { kind: Some("mail".into()), ..ListFilter::default() }, 10), [3, 1, 6]);
    // A claimed row comes at the end of its lease, a dead letter not at all.
    let entry = arm(store, 7, past("mail", 0));
    let (row, _) = take(store, &owner, entry);
    let claimed = ListFilter { state: Some(RowState::Claimed), ..ListFilter::default() };
    assert_eq!(numbers(claimed.clone(), 10), [7]);
    assert_eq!(numbers(ListFilter { state: Some(RowState::Armed), ..ListFilter::default() }, 10), [2, 3, 1, 4, 5, 6]);
    assert_eq!(finish(store, &row, Verdict::Dead { error: "no".into() }), Ok(None));
    assert_eq!(numbers(claimed, 10), [0_u128; 0]);
    assert_eq!(numbers(ListFilter { state: Some(RowState::Dead), ..ListFilter::default() }, 10), [0_u128; 0]);
}

fn failures_are_found(store: &dyn Store) {
    let owner = own(store, 1);
    for number in 0..5 {
        arm(store, number, NewTimer::after("mail", far()));
    }
    arm(store, 5, NewTimer::after("mail", Duration::from_secs(30)));
    let again = Verdict::Retry { after: far(), error: "busy".into() };
    for (number, verdict) in [(6, again.clone()), (7, Verdict::Dead { error: "no".into() }), (8, again)] {
        let (row, _) = take(store, &owner, arm(store, number, past("mail", 0)));
        finish(store, &row, verdict).unwrap();
    }
    let counts = ask(|reply| store.counts(reply)).unwrap();
    assert_eq!((counts.armed, counts.dead, counts.failed, counts.due_soon), (8, 1, 2, 1), "{counts:?}");
    let page = |filter: &ListFilter, cursor, limit| {
        let page = ask(|reply| store.list(filter.clone(), cursor, limit, reply)).unwrap();
        (page.rows.iter().map(|row| row.id.timer.as_u128()).collect::<Vec<_>>(), page.next)
    };
    let failed = ListFilter { state: Some(RowState::Armed), failed: true, ..ListFilter::default() };
    let (first, next) = page(&failed, None, 1);
    assert_eq!((first, page(&failed, next, 1)), (vec![6], (vec![8], None)));
    let any_failed = ListFilter { failed: true, ..ListFilter::default() };
    assert_eq!(page(&any_failed, None, 9), (vec![6, 7, 8], None));
    let dead = ListFilter { state: Some(RowState::Dead), ..ListFilter::default() };
    assert_eq!(page(&dead, None, 9), (vec![7], None));
    // A replayed dead letter is a failed row until it is delivered.
    let id = tourbillon_durable::store::RowId { timer: TimerId::from_u128(7), occurrence: 1 };
    write(store, WriteOp::DeadLetter(DeadLetterOp { id, replay: true }));
    assert_eq!((page(&dead, None, 9).0.len(), page(&failed, None, 9).0), (0, vec![6, 7, 8]));
}

fn repeating(store: &dyn Store) {
    let owner = own(store, 1);
    let all = MissedFires::All { at_most: u64::MAX };
    let timer =
        NewTimer::every("tick", Duration::from_secs(60)).first_at(long_ago(0)).times(3).missed(all).key("t").name("n");
    let mut entry = Some(arm(store, 1, timer));
    let mut rows = Vec::new();
    while let Some(due) = entry {
        let (row, next) = take(store, &owner, due);
        // The same claim again, as after a lost answer, gives the same row and the same next one.
        let again = claim_as(store, &owner, due, due.version);
        assert_eq!(again, ClaimAnswer::Claimed { row: row.clone(), next });
        rows.push(row);
        entry = next;
    }
    let dues: Vec<u64> = rows.iter().map(|row| row.due.as_micros() / 1_000_000 - 1_000_000).collect();
    assert_eq!(dues, [0, 60, 120]);
    assert_eq!(rows.iter().map(|row| row.id.occurrence).collect::<Vec<_>>(), [1, 2, 3]);
    // The key belongs to the last occurrence, and passes to an earlier one that is still being delivered.
    assert_eq!(finish(store, &rows[2], Verdict::Done), Ok(None));
    let retried = finish(store, &rows[0], Verdict::Retry { after: far(), error: "later".into() }).unwrap();
    assert!(retried.is_some());
    assert_eq!(cancel_key(store, "t"), counts(1, 1, 0), "one waits for its retry, one is being delivered");
    assert_eq!(finish(store, &rows[1], Verdict::Done), Ok(None));
    assert_eq!(cancel_key(store, "t"), counts(0, 0, 1));
}

fn retries_and_dead_letters(store: &dyn Store) {
    let owner = own(store, 1);
    let timer = past("mail", 0).key("k").retry(RetryPolicy { give_up_after: None, ..RetryPolicy::attempts(2) });
    let (row, _) = take(store, &owner, arm(store, 1, timer));
    assert_eq!(row.attempt, 1);
    let retry = |error: &str| Verdict::Retry { after: Duration::ZERO, error: error.into() };
    let again = finish(store, &row, retry("busy")).unwrap().expect("one attempt is left");
    assert_eq!(
        create(store, 2, past("mail", 1).key("k")),
        CreateAnswer::Conflict { id: row.id.timer },
        "it has its key"
    );
    let (row, _) = take(store, &owner, again);
    assert_eq!((row.attempt, row.last_error.as_deref()), (2, Some("busy")));
    assert_eq!(finish(store, &row, retry("still busy")), Ok(None), "no attempt is left");
    let dead = &ask(|reply| store.get(row.id.timer, reply)).unwrap()[0];
    assert_eq!((dead.state, dead.last_error.as_deref()), (RowState::Dead, Some("still busy")));
    arm(store, 3, NewTimer::after("mail", far()).key("k"));
    let letter = |replay| write(store, WriteOp::DeadLetter(DeadLetterOp { id: row.id, replay }));
    let WriteAnswer::DeadLetter(Some(Some(replayed))) = letter(true) else { panic!("it can be replayed") };
    assert_eq!(letter(true), WriteAnswer::DeadLetter(None), "it is no dead letter any more");
    let (row, _) = take(store, &owner, replayed);
    assert_eq!(row.attempt, 3);
    assert_eq!(finish(store, &row, Verdict::Dead { error: "broken".into() }), Ok(None));
    assert_eq!(letter(false), WriteAnswer::DeadLetter(Some(None)));
    assert_eq!(ask(|reply| store.get(row.id.timer, reply)).unwrap(), []);
    assert_eq!(cancel_key(store, "k"), counts(1, 0, 0), "the key is the newer timer's");
    // Of an error as much is kept as a row may have besides what was asked for.
    let (row, _) = take(store, &owner, arm(store, 4, past("mail", 0)));
    finish(store, &row, retry(&"\u{20ac}".repeat(1_000_000))).unwrap().expect("attempts are left");
    let row = &ask(|reply| store.get(row.id.timer, reply)).unwrap()[0];
    assert_eq!(row.last_error, Some("\u{20ac}".repeat(8 * 1024 / 3)));
}

fn stale_deliveries(store: &dyn Store) {
    let owner = own(store, 1);
    let (first, _) = take(store, &owner, arm(store, 1, past("mail", 0)));
    let again = finish(store, &first, Verdict::Return { after: Duration::ZERO }).unwrap().expect("it is armed again");
    let (second, _) = take(store, &owner, again);
    assert_eq!(second.attempt, 2);
    let extend = |attempt| {
        let op = ExtendOp { id: second.id, attempt, epoch: second.epoch, lease: LEASE };
        write(store, WriteOp::Extend(op))
    };
    assert_eq!(extend(1), WriteAnswer::Extend(Err(StaleDelivery)));
    assert_eq!(extend(2), WriteAnswer::Extend(Ok(())));
    assert_eq!(finish(store, &first, Verdict::Done), Err(StaleDelivery));
    assert_eq!(finish(store, &second, Verdict::Done), Ok(None));
    assert_eq!(finish(store, &second, Verdict::Done), Err(StaleDelivery), "it ends once");
}

fn never_early(store: &dyn Store) {
    let owner = own(store, 1);
    let entry = arm(store, 1, NewTimer::after("mail", far()));
    assert_eq!(claim(store, &owner, entry), ClaimAnswer::Early(entry.wake));
    let (row, _) = take(store, &owner, arm(store, 2, past("mail", 0)));
    let again = finish(store, &row, Verdict::Retry { after: far(), error: String::new() }).unwrap().unwrap();
    assert_eq!(claim(store, &owner, again), ClaimAnswer::Early(again.wake), "a retry neither");
}

fn fencing(store: &dyn Store) {
    let first = own(store, 1);
    let claimed = arm(store, 1, past("mail", 0));
    let (row, _) = take(store, &first, claimed);
    let waiting = arm(store, 2, past("mail", 0));
    // The first node leaves, and another takes its shards over.
    let leave = tourbillon_durable::store::Heartbeat {
        node: tourbillon_durable::store::NodeId(TimerId::from_u128(1).as_uuid()),
        lease: Duration::ZERO,
        release: Vec::new(),
        kinds: None,
    };
    assert_eq!(ask(|reply| store.heartbeat(leave, reply)).unwrap().shards, []);
    let second = own(store, 2);
    assert!(second.shards.iter().zip(&first.shards).all(|(new, old)| new.1 > old.1), "each epoch is higher");
    assert_eq!(claim(store, &first, waiting), ClaimAnswer::Fenced);
    assert_eq!(finish(store, &row, Verdict::Done), Err(StaleDelivery));
    let shards: Vec<_> = second.shards.iter().map(|(shard, _)| *shard).collect();
    let orphans = ask(|reply| store.orphans("mail".into(), shards, 10, reply)).unwrap();
    assert_eq!(orphans.iter().map(|entry| entry.id).collect::<Vec<_>>(), [row.id]);
    let (again, _) = take(store, &second, orphans[0]);
    assert_eq!(again.attempt, 2);
    assert_eq!(finish(store, &again, Verdict::Done), Ok(None));
    take(store, &second, waiting);
}

fn batches(store: &dyn Store) {
    let cancel = |name: &str| {
        let target = Target::Name { namespace: "default".into(), name: name.into() };
        WriteOp::Cancel(tourbillon_durable::store::CancelOp { target })
    };
    let timer = || NewTimer::after("mail", far()).key("k").name("n");
    let answers = write_all(
        store,
        vec![
            cancel("n"),
            create_op(1, timer()),
            create_op(2, timer()),
            cancel("n"),
            cancel("n"),
            create_op(3, timer()),
        ],
    );
    let cancelled = answers.iter().filter_map(|answer| match answer {
        WriteAnswer::Cancel(counts) => Some(counts.cancelled),
        _ => None,
    });
    let cancelled: Vec<u64> = cancelled.collect();
    assert_eq!(cancelled, [0, 1, 0]);
    assert!(matches!(answers[1], WriteAnswer::Create(CreateAnswer::Created { .. })));
    assert!(matches!(answers[2], WriteAnswer::Create(CreateAnswer::Existing { .. })));
    assert!(matches!(answers[5], WriteAnswer::Create(CreateAnswer::Created { .. })));
    assert_eq!(write_all(store, Vec::new()), []);
}

fn the_last_time(store: &dyn Store) {
    let owner = own(store, 1);
    let last = StoreTime::MAX;
    let entry = arm(store, 1, NewTimer::at("mail", last.to_system()));
    assert_eq!((entry.wake, claim(store, &owner, entry)), (last, ClaimAnswer::Early(last)));
    assert_eq!(due(store, "mail", last, 10).entries, [entry]);
    // No time comes after the last one.
    for (number, delay) in [(2, Duration::MAX), (3, last.since(StoreTime::ZERO))] {
        assert_eq!(create(store, number, NewTimer::after("mail", delay)), CreateAnswer::NeverDue, "{delay:?}");
        assert_eq!(create(store, number, NewTimer::every("mail", delay)), CreateAnswer::NeverDue, "{delay:?}");
    }
    let forever = MissedFires::Skip { older_than: Duration::MAX };
    let once = NewTimer::every("mail", Duration::MAX).first_at(long_ago(0)).until(last.to_system()).missed(forever);
    let (row, next) = take(store, &owner, arm(store, 4, once));
    assert_eq!((row.due, row.stands_for, next), (StoreTime::try_from(long_ago(0)).unwrap(), 0, None));
    // What has been accepted once waits until the last time at most.
    let retry = Verdict::Retry { after: Duration::MAX, error: "later".into() };
    assert_eq!(finish(store, &row, retry).unwrap().map(|again| again.wake), Some(last));
    let (row, _) = take(store, &owner, arm(store, 5, past("mail", 0)));
    let again = finish(store, &row, Verdict::Return { after: Duration::MAX }).unwrap();
    assert_eq!(again.map(|again| again.wake), Some(last));
}

fn due_pages(store: &dyn Store) {
    for number in 0..25_u128 {
        arm(store, number + 1, past("mail", (number as u64 * 7) % 25));
        arm(store, number + 101, past("other", 0));
    }
    arm(store, 200, NewTimer::after("mail", far()));
    let until = StoreTime::try_from(long_ago(19)).unwrap();
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = due_after(store, "mail", after, until, 8);
        after = page.entries.last().map(|entry| (entry.wake, entry.id));
        seen.extend(page.entries);
        if !page.has_more {
            break;
        }
    }
    assert_eq!(seen.len(), 20);
    assert!(seen.is_sorted_by_key(|entry| (entry.wake, entry.id)));
    assert_eq!(due(store, "unknown", StoreTime::MAX, 10).entries, []);
    let overdue = ask(|reply| store.counts(reply)).unwrap().overdue;
    assert_eq!(overdue, [("mail".to_owned(), 25), ("other".to_owned(), 25)]);
}

fn pauses(store: &dyn Store) {
    assert!(!own(store, 1).is_paused);
    ask(|reply| store.set_paused(true, reply)).unwrap();
    ask(|reply| store.set_paused(true, reply)).unwrap();
    assert!(own(store, 1).is_paused && ask(|reply| store.counts(reply)).unwrap().is_paused);
    arm(store, 1, past("mail", 0).key("k"));
    assert_eq!(cancel_key(store, "k"), counts(1, 0, 0), "requests go on");
    ask(|reply| store.set_paused(false, reply)).unwrap();
    assert!(!own(store, 1).is_paused && !ask(|reply| store.counts(reply)).unwrap().is_paused);
}

/// Returns all rows of a snapshot.
fn snapshot(store: &dyn Store) -> Vec<TimerRow> {
    let (sender, pages) = async_channel::bounded(1);
    let (done, count) = std::sync::mpsc::channel();
    store.snapshot(sender, Reply::new(move |result| done.send(result).unwrap()));
    let rows: Vec<TimerRow> = std::iter::from_fn(|| pages.recv_blocking().ok()).flatten().collect();
    assert_eq!(count.recv().unwrap(), Ok(rows.len() as u64));
    rows
}

fn snapshots_and_imports(store: &dyn Store) {
    assert_eq!(snapshot(store), []);
    let owner = own(store, 1);
    let timers =
        (1..=1_500).map(|number| create_op(number, NewTimer::after("mail", far()).key(format!("key {number}"))));
    write_all(store, timers.collect());
    let (claimed, _) = take(store, &owner, arm(store, 2_000, past("mail", 0).key("claimed")));
    let (dead, _) = take(store, &owner, arm(store, 2_001, past("mail", 1)));
    finish(store, &dead, Verdict::Dead { error: "broken".into() }).unwrap();
    let exported = snapshot(store);
    assert_eq!(exported.len(), 1_502);
    assert!(exported.is_sorted_by_key(|row| row.id));

    // The reference takes what this store has exported, and this store takes back what it has lost.
    let other = MemoryStore::new();
    let import = |store: &dyn Store| {
        let ops = ImportOp::of_rows(exported.clone()).into_iter().map(WriteOp::Import);
        let answers = write_all(store, ops.collect());
        let is = |wanted: ImportAnswer| answers.iter().filter(|answer| **answer == WriteAnswer::Import(wanted)).count();
        (is(ImportAnswer::Written), is(ImportAnswer::Exists))
    };
    assert_eq!((import(&other), import(&other)), ((1_502, 0), (0, 1_502)), "a second import changes nothing");
    let found = ask(|reply| other.counts(reply)).unwrap();
    assert_eq!((found.armed, found.claimed, found.dead), (1_501, 0, 1), "what was being delivered is delivered again");
    let again = &ask(|reply| other.get(claimed.id.timer, reply)).unwrap()[0];
    assert_eq!((again.state, again.wake, again.attempt), (RowState::Armed, claimed.due, 1));
    assert_eq!(cancel_key(store, "key 7"), counts(1, 0, 0));
    let taken =
        arm(store, 3_000, NewTimer::after("mail", far()).key("key 8").payload("new").on_conflict(OnConflict::Replace));
    assert_eq!(import(store), (0, 1_500), "two have ended, and nothing is revived");
    let exported = |key: &str| exported.iter().find(|row| row.spec.key.as_deref() == Some(key)).unwrap().clone();
    assert_eq!(import_row(store, exported("key 7")), ImportAnswer::Ended);
    assert_eq!(import_row(store, exported("key 8")), ImportAnswer::Ended);
    let unknown = RowId { timer: TimerId::from_u128(3_001), occurrence: 1 };
    let other = TimerRow { id: unknown, ..exported("key 8") };
    assert_eq!(import_row(store, other), ImportAnswer::Conflict(taken.id.timer));
}

fn import_row(store: &dyn Store, row: TimerRow) -> ImportAnswer {
    match write(store, WriteOp::Import(ImportOp { row, has_heir: false })) {
        WriteAnswer::Import(answer) => answer,
        other => panic!("not the answer to an import: {other:?}"),
    }
}

/// Returns the row of a timer as another store exports it.
fn foreign(number: u128, timer: NewTimer) -> TimerRow {
    let other = MemoryStore::new();
    let entry = arm(&other, number, timer);
    ask(|reply| other.get(entry.id.timer, reply)).unwrap().remove(0)
}

fn repeated_imports(store: &dyn Store) {
    let owner = own(store, 1);
    let hour = Duration::from_secs(3600);
    let start = SystemTime::now() - Duration::from_secs(60);
    let exported = [
        foreign(1, NewTimer::every("tick", hour).first_at(start)),
        foreign(2, past("mail", 0)),
        foreign(3, past("mail", 0).key("k")),
        foreign(4, NewTimer::every("tick", hour).first_at(start).times(2).key("twice")),
    ];
    let import = |wanted: ImportAnswer| {
        let ops = ImportOp::of_rows(exported.to_vec()).into_iter().map(WriteOp::Import);
        let answers = write_all(store, ops.collect());
        answers.iter().filter(|answer| **answer == WriteAnswer::Import(wanted)).count()
    };
    assert_eq!(import(ImportAnswer::Written), 4);
    for row in [&exported[0], &exported[1], &exported[3]] {
        let (row, _) = take(store, &owner, DueEntry { shard: shard_now(store, row), ..DueEntry::from(row) });
        assert_eq!(finish(store, &row, Verdict::Done), Ok(None));
    }
    assert_eq!(cancel_key(store, "k"), counts(1, 0, 0));
    let before = snapshot(store);
    assert_eq!(before.iter().map(|row| row.id.occurrence).collect::<Vec<_>>(), [2, 2]);
    assert_eq!(import(ImportAnswer::Exists), 2, "the second occurrences are there");
    assert_eq!(import(ImportAnswer::Ended), 2);
    assert_eq!(snapshot(store), before);
    // An earlier occurrence that is pending arms the later ones itself.
    let first = foreign(5, NewTimer::every("tick", hour).first_at(start));
    let second = TimerRow { id: RowId { occurrence: 2, ..first.id }, version: 2, ..first.clone() };
    assert_eq!(import_row(store, first), ImportAnswer::Written);
    assert_eq!(import_row(store, second), ImportAnswer::Exists);
    let found = ask(|reply| store.counts(reply)).unwrap();
    assert_eq!((found.armed, found.claimed, found.dead), (3, 0, 0));
    // When all occurrences have ended, the history tells it of the first as of the last.
    assert_eq!(cancel(store, Target::Id(exported[3].id.timer)), counts(1, 0, 0));
    assert_eq!(import_row(store, exported[3].clone()), ImportAnswer::Ended);
}

/// Returns the shard that a row of another store has in this one.
fn shard_now(store: &dyn Store, row: &TimerRow) -> ShardId {
    ask(|reply| store.get(row.id.timer, reply)).unwrap()[0].shard
}

fn imports_without_their_key(store: &dyn Store) {
    let holder = arm(store, 1, NewTimer::after("mail", far()).key("k"));
    let other = MemoryStore::new();
    let node = own(&other, 1);
    let start = SystemTime::now() - Duration::from_secs(60);
    let entry = arm(&other, 2, NewTimer::every("tick", Duration::from_secs(3600)).first_at(start).key("k"));
    take(&other, &node, entry);
    let exported = snapshot(&other);
    assert_eq!(exported.iter().map(|row| row.is_head).collect::<Vec<_>>(), [false, true]);
    let in_flight = exported[0].clone();
    for op in ImportOp::of_rows(exported) {
        let conflict = WriteAnswer::Import(ImportAnswer::Conflict(holder.id.timer));
        assert_eq!(write(store, WriteOp::Import(op)), conflict);
    }
    // One that has lost its key to another timer has no later occurrence, and is not lost.
    assert_eq!(import_row(store, in_flight), ImportAnswer::Written);
    // A dead letter needs no key.
    let dead = TimerRow { state: RowState::Dead, is_head: false, ..foreign(3, past("mail", 0).key("k")) };
    assert_eq!(import_row(store, dead), ImportAnswer::Written);
}
