//! Stories about lists of rows.

use tourbillon_durable::store::{Cursor, ListFilter, ListPage, RowId, RowState, Store, TimerRow, Verdict};
use tourbillon_durable::{NewTimer, StoreTime, TimerId};

use super::ask::{arm, ask, cancel_key, finish, own, take};
use super::stories::{counts, far, long_ago, past};

pub(super) fn lists(store: &dyn Store) {
    for number in 0..10_u128 {
        let timer =
            NewTimer::after("mail", far()).key(format!("order {number}")).name(if number < 5 { "low" } else { "high" });
        arm(store, number + 1, timer);
    }
    let all = ListFilter { namespace: Some("default".into()), ..ListFilter::default() };
    let first = list(store, &all, None, 4);
    assert_eq!(first.rows.len(), 4);
    // What goes and comes between two pages changes neither the pages before nor the place.
    assert_eq!(cancel_key(store, "order 3"), counts(1, 0, 0));
    let second = list(store, &all, first.next, 4);
    let third = list(store, &all, second.next, 4);
    assert_eq!(numbers(&second.rows), [5, 6, 7, 8]);
    assert_eq!((numbers(&third.rows), third.next), (vec![9, 10], None));
    let named = ListFilter { name: Some("low".into()), ..all.clone() };
    assert_eq!(numbers(&list(store, &named, None, 100).rows), [1, 2, 3, 5]);
    let prefix = ListFilter { prefix: Some("hig".into()), ..all.clone() };
    assert_eq!(list(store, &prefix, None, 100).rows.len(), 5);
    let dead = ListFilter { state: Some(RowState::Dead), ..all };
    assert_eq!(list(store, &dead, None, 100).rows.len(), 0);
    let holder = ask(|reply| store.get_key("default".into(), "order 0".into(), reply)).unwrap();
    assert_eq!(holder.map(|row| row.id.timer), Some(TimerId::from_u128(1)));
    assert_eq!(ask(|reply| store.get(TimerId::from_u128(4), reply)).unwrap(), []);
}

fn list(store: &dyn Store, filter: &ListFilter, cursor: Option<Cursor>, limit: usize) -> ListPage {
    ask(|reply| store.list(filter.clone(), cursor, limit, reply)).unwrap()
}

fn numbers(rows: &[TimerRow]) -> Vec<u128> {
    rows.iter().map(|row| row.id.timer.as_u128()).collect()
}

/// Returns all timers that pass a filter, by pages of each size from one on, and fails if the pages differ from the list in one page.
fn all(store: &dyn Store, filter: &ListFilter) -> Vec<u128> {
    let whole = list(store, filter, None, 1_000);
    assert_eq!(whole.next, None, "{filter:?}");
    for limit in 1..=whole.rows.len() + 1 {
        let (mut rows, mut cursor) = (Vec::new(), None);
        loop {
            let page = list(store, filter, cursor, limit);
            assert!(page.rows.len() == limit || page.next.is_none(), "only the last page is short: {filter:?}");
            rows.extend(page.rows);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(rows, whole.rows, "{filter:?} in pages of {limit}");
    }
    numbers(&whole.rows)
}

pub(super) fn filters(store: &dyn Store) {
    let owner = own(store, 1);
    // The timers 1 to 6 are due at the seconds 10 to 60.
    for (number, key, name) in [
        (1, "a", None),
        (2, "ab", None),
        (3, "b", Some("ab%")),
        (4, "a_", Some("b")),
        (5, "A", Some("\u{e4}b")),
        (6, "\u{e4}", Some("a")),
    ] {
        let timer = past(if number < 4 { "mail" } else { "page" }, number as u64 * 10).key(key);
        arm(store, number, name.into_iter().fold(timer, NewTimer::name));
    }
    arm(store, 7, past("mail", 15).namespace("other").name("ab"));
    let (claimed, _) = take(store, &owner, arm(store, 8, past("mail", 70)));
    let (dead, _) = take(store, &owner, arm(store, 9, past("mail", 80).name("abc")));
    finish(store, &dead, Verdict::Dead { error: "no".into() }).unwrap();

    let any = ListFilter::default;
    let prefix = |text: &str| ListFilter { prefix: Some(text.into()), ..any() };
    for (text, found) in [
        ("", vec![1, 2, 3, 4, 5, 6, 7, 9]),
        ("a", vec![1, 2, 3, 4, 6, 7, 9]),
        ("ab", vec![2, 3, 7, 9]),
        ("a_", vec![4]),
        ("ab%", vec![3]),
        ("A", vec![5]),
        ("\u{e4}", vec![5, 6]),
        ("abcd", vec![]),
    ] {
        assert_eq!(all(store, &prefix(text)), found, "{text:?} is a prefix of a key or a name, and no pattern");
    }
    let time = |seconds| Some(StoreTime::try_from(long_ago(seconds)).unwrap());
    let due = |from, before| ListFilter { due_from: from, due_before: before, ..any() };
    assert_eq!(all(store, &due(time(20), time(50))), [2, 3, 4], "the end is not part of the range");
    assert_eq!(all(store, &due(time(61), None)), [8, 9]);
    assert_eq!(all(store, &due(None, time(16))), [1, 7]);
    assert_eq!(all(store, &due(time(50), time(50))), [0_u128; 0]);
    let state = |state| ListFilter { state: Some(state), ..any() };
    assert_eq!(all(store, &state(RowState::Armed)), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(all(store, &state(RowState::Claimed)), [claimed.id.timer.as_u128()]);
    assert_eq!(all(store, &state(RowState::Dead)), [9]);
    // All that is set must match.
    let several = ListFilter { namespace: Some("default".into()), kind: Some("mail".into()), ..prefix("ab") };
    assert_eq!(all(store, &several), [2, 3, 9]);
    assert_eq!(all(store, &ListFilter { due_from: time(25), due_before: time(75), ..several.clone() }), [3]);
    assert_eq!(all(store, &ListFilter { state: Some(RowState::Dead), ..several }), [9]);
}

pub(super) fn changes_between_pages(store: &dyn Store) {
    let timer = |number: u128| NewTimer::after("mail", far()).key(format!("key {number}")).name("all");
    let by_name = ListFilter { namespace: Some("default".into()), name: Some("all".into()), ..ListFilter::default() };
    let by_prefix = ListFilter { prefix: Some("key".into()), ..ListFilter::default() };
    let by_time = ListFilter { due_from: Some(StoreTime::ZERO), ..ListFilter::default() };
    for (round, filter) in (0..).zip([ListFilter::default(), by_name, by_prefix, by_time]) {
        // Only even numbers at first.
        let base = 1_000 * (round + 1);
        for number in (2..=12).step_by(2) {
            arm(store, base + number, timer(base + number));
        }
        let begin = Some(Cursor(RowId { timer: TimerId::from_u128(base), occurrence: 1 }));
        let first = list(store, &filter, begin, 2);
        assert_eq!(numbers(&first.rows), [base + 2, base + 4], "{filter:?}");
        // The row of the cursor goes, and so does a row behind it; rows come before and behind it.
        for number in [4, 8] {
            assert_eq!(cancel_key(store, &format!("key {}", base + number)), counts(1, 0, 0));
        }
        for number in [3, 5, 11] {
            arm(store, base + number, timer(base + number));
        }
        let second = list(store, &filter, first.next, 3);
        assert_eq!(numbers(&second.rows), [base + 5, base + 6, base + 10], "{filter:?}");
        // All rows behind the cursor go: the last page is empty.
        for number in [11, 12] {
            assert_eq!(cancel_key(store, &format!("key {}", base + number)), counts(1, 0, 0));
        }
        assert_eq!(list(store, &filter, second.next, 3), ListPage::default(), "{filter:?}");
    }
}
