//! Stories about fires that were missed.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tourbillon_durable::spec::Recurrence;
use tourbillon_durable::store::{ClaimAnswer, DueEntry, Ownership, RowState, Store, WriteOp};
use tourbillon_durable::{MissedFires, NewTimer, StoreTime, TimerId};

use super::ask::{arm, ask, claim, create_op, due, own, take, write};
use super::stories::{long_ago, past};

pub(super) fn missed_fires(store: &dyn Store) {
    let owner = own(store, 1);
    let minute = Duration::from_secs(60);
    let timer = |missed| NewTimer::every("tick", minute).first_at(long_ago(0)).missed(missed).times(10);
    let (row, next) = take(store, &owner, arm(store, 1, timer(MissedFires::Once)));
    assert_eq!((row.stands_for, row.due.as_micros()), (9, (1_000_000 + 9 * 60) * 1_000_000));
    assert_eq!(next, None, "all ten are over");
    let all = MissedFires::All { at_most: 2 };
    let entry = arm(store, 2, timer(all));
    let ClaimAnswer::GivenUp { is_dead: false, next: Some(next) } = claim(store, &owner, entry) else {
        panic!("the oldest are skipped")
    };
    assert_eq!(next.id.occurrence, 9);
    let (_, last) = take(store, &owner, next);
    let (row, none) = take(store, &owner, last.unwrap());
    assert_eq!((row.id.occurrence, none), (10, None));
    let skip = MissedFires::Skip { older_than: minute };
    let skipped = claim(store, &owner, arm(store, 3, timer(skip)));
    assert_eq!(skipped, ClaimAnswer::GivenUp { is_dead: false, next: None });
    let forever = NewTimer::every("tick", minute).first_at(long_ago(0)).missed(skip);
    let ClaimAnswer::GivenUp { is_dead: false, next: Some(next) } = claim(store, &owner, arm(store, 4, forever)) else {
        panic!()
    };
    assert!(next.id.occurrence > 1_000_000, "it continues with the present");
    let ended = claim(store, &owner, arm(store, 5, past("tick", 0).missed(MissedFires::DeadAfter(minute))));
    assert_eq!(ended, ClaimAnswer::GivenUp { is_dead: true, next: None });
    assert_eq!(ask(|reply| store.get(TimerId::from_u128(5), reply)).unwrap()[0].state, RowState::Dead);
}

/// Describes a timer that is due each second, for the first time decades ago.
fn each_second(zone: &str, missed: MissedFires) -> NewTimer {
    NewTimer::cron("tick", "* * * * * *", zone).first_at(long_ago(0)).missed(missed)
}

/// Claims an occurrence of which the policy gives up, and returns the next one.
fn give_up(store: &dyn Store, owner: &Ownership, entry: DueEntry) -> Option<DueEntry> {
    match claim(store, owner, entry) {
        ClaimAnswer::GivenUp { is_dead: false, next } => next,
        other => panic!("the occurrence was not skipped: {other:?}"),
    }
}

fn at(time: SystemTime) -> StoreTime {
    StoreTime::try_from(time).unwrap()
}

pub(super) fn dense_cron_once(store: &dyn Store) {
    let owner = own(store, 1);
    let first = at(long_ago(0));
    for (number, line, zone, seconds) in [
        (1, "* * * * * *", "UTC", 1),
        (2, "* * * * * *", "Europe/Berlin", 1),
        (3, "* * * * *", "UTC", 60),
        (4, "* * * * *", "Australia/Lord_Howe", 60),
    ] {
        let before = at(SystemTime::now());
        let timer = NewTimer::cron("tick", line, zone).first_at(long_ago(0));
        let (row, next) = take(store, &owner, arm(store, number, timer));
        let (next, interval) = (next.expect("the timer goes on"), Duration::from_secs(seconds));
        assert!(row.due.saturating_add(interval) > before, "{line} in {zone} is due at {}, before {before}", row.due);
        // The first time is forty seconds after a full minute, the others are at full minutes.
        assert_eq!(row.stands_for, row.due.since(first).as_secs().div_ceil(seconds), "{line} in {zone}");
        assert_eq!(next.wake, row.due.saturating_add(interval), "{line} in {zone}");
        assert_eq!(next.id.occurrence, row.stands_for + 2, "{line} in {zone}");
    }
}

pub(super) fn dense_cron_newest(store: &dyn Store) {
    const TIMES: u64 = 1_000_000;

    let owner = own(store, 1);
    let timer = each_second("America/New_York", MissedFires::All { at_most: 3 }).times(TIMES);
    let mut next = give_up(store, &owner, arm(store, 1, timer));
    let mut delivered = Vec::new();
    while let Some(entry) = next {
        let (row, later) = take(store, &owner, entry);
        delivered.push((row.id.occurrence, row.due, row.left, row.stands_for));
        next = later;
    }
    let nth = |occurrence: u64| (occurrence, at(long_ago(occurrence - 1)), Some(TIMES - occurrence + 1), 0);
    assert_eq!(delivered, [nth(TIMES - 2), nth(TIMES - 1), nth(TIMES)]);
}

pub(super) fn dense_cron_limits(store: &dyn Store) {
    let owner = own(store, 1);
    let hour = Duration::from_secs(3600);
    // The number of occurrences and the end limit what is missed.
    let limited = each_second("UTC", MissedFires::Once).times(100_000);
    let (row, next) = take(store, &owner, arm(store, 1, limited));
    assert_eq!((row.due, row.stands_for, next), (at(long_ago(99_999)), 99_999, None));
    let ended = each_second("UTC", MissedFires::Once).until(long_ago(20_000) + Duration::from_millis(500));
    let (row, next) = take(store, &owner, arm(store, 2, ended));
    assert_eq!((row.due, row.stands_for, next), (at(long_ago(20_000)), 20_000, None));
    // One claim skips all that is too old.
    let skip = MissedFires::Skip { older_than: hour };
    assert_eq!(give_up(store, &owner, arm(store, 3, each_second("UTC", skip).times(100_000))), None);
    let before = at(SystemTime::now());
    let next = give_up(store, &owner, arm(store, 4, each_second("UTC", skip))).expect("the timer goes on");
    let after = at(SystemTime::now());
    assert!(
        next.wake >= before.saturating_sub(hour)
            && next.wake.saturating_add(Duration::from_secs(1)) > before.saturating_sub(hour)
    );
    assert!(
        next.wake <= after.saturating_sub(hour).saturating_add(Duration::from_secs(1)),
        "{} is not the oldest",
        next.wake
    );
    assert_eq!(next.id.occurrence, next.wake.since(at(long_ago(0))).as_secs() + 1);
    // Dead letters are made one by one, because each of them is kept.
    let dead = each_second("UTC", MissedFires::DeadAfter(hour)).times(2);
    let ClaimAnswer::GivenUp { is_dead: true, next: Some(next) } = claim(store, &owner, arm(store, 5, dead)) else {
        panic!("the first is a dead letter")
    };
    assert_eq!((next.id.occurrence, next.wake), (2, at(long_ago(1))));
    assert_eq!(claim(store, &owner, next), ClaimAnswer::GivenUp { is_dead: true, next: None });
}

pub(super) fn unknown_zones(store: &dyn Store) {
    let owner = own(store, 1);
    for (number, line, zone) in [(1, "* * * * *", "No/Such"), (2, "a line of the future", "UTC")] {
        // A process that knows the zone and the line has created the timer.
        let known = NewTimer::cron("tick", "* * * * *", "UTC").first_at(long_ago(0)).key(format!("key {number}"));
        let WriteOp::Create(mut op) = create_op(number, known) else { unreachable!() };
        let recurrence = Recurrence::Cron { line: line.to_owned(), zone: zone.to_owned() };
        Arc::make_mut(&mut op.spec).recurrence = recurrence;
        write(store, WriteOp::Create(op));
        let id = TimerId::from_u128(number);
        let before = ask(|reply| store.get(id, reply)).unwrap();
        let entry = DueEntry::from(&before[0]);
        let now = at(SystemTime::now());
        let ClaimAnswer::Early(again) = claim(store, &owner, entry) else { panic!("{line} in {zone} was decided") };
        assert!(again > now, "it is asked again later");
        assert_eq!(ask(|reply| store.get(id, reply)).unwrap(), before, "the row is pending as it was");
        assert!(due(store, "tick", StoreTime::MAX, 10).entries.contains(&entry), "and it is found as due");
        assert!(ask(|reply| store.history(id, reply)).unwrap().is_empty());
    }
    assert_eq!(ask(|reply| store.counts(reply)).unwrap().overdue, [("tick".to_owned(), 2)]);
}
