//! Lists whose filter few of many rows pass.

use std::sync::mpsc::{Sender, channel};

use tempfile::TempDir;
use tourbillon_durable::store::{Cursor, EmbeddedStore, ListFilter, ListPage, Reply, Store};
use tourbillon_durable::{NewTimer, StoreError};

use crate::conformance::ask::{arm, ask};
use crate::support::{create_all, far, options};

/// More rows than the store looks at in one go.
const ROWS: u128 = 50_100;

fn needle(number: u128) -> NewTimer {
    far(number).key(format!("needle {number}"))
}

/// Opens a store that has one row for which tests search, many others, and a second one.
fn haystack(directory: &TempDir) -> EmbeddedStore {
    let store = options().open(directory.path()).unwrap();
    arm(&store, 1, needle(1));
    for begin in (0..ROWS).step_by(5_010) {
        create_all(&store, (begin..begin + 5_010).map(|number| 10 + number)).unwrap();
    }
    arm(&store, 100_000, needle(100_000));
    store
}

fn needles() -> ListFilter {
    ListFilter { prefix: Some("needle".into()), ..ListFilter::default() }
}

fn numbers(page: &ListPage) -> Vec<u128> {
    page.rows.iter().map(|row| row.id.timer.as_u128()).collect()
}

#[test]
fn u4_a_page_has_a_row_until_the_list_ends_however_few_rows_pass() {
    let directory = TempDir::new().unwrap();
    let store = haystack(&directory);
    let list = |cursor: Option<Cursor>, limit| ask(|reply| store.list(needles(), cursor, limit, reply)).unwrap();
    // A page may be short, but it has rows and says where the next begins.
    let first = list(None, 10);
    assert_eq!(numbers(&first), [1]);
    assert_eq!(numbers(&list(first.next, 10)), [100_000]);
    let second = list(first.rows.first().map(|row| Cursor(row.id)), 1);
    assert_eq!((numbers(&second), second.next), (vec![100_000], None));
    let none = ListFilter { prefix: Some("nothing".into()), ..ListFilter::default() };
    assert_eq!(ask(|reply| store.list(none, None, 10, reply)), Ok(ListPage::default()), "the end was found");
}

#[test]
fn u4_a_long_search_lets_other_questions_pass() {
    let directory = TempDir::new().unwrap();
    let store = haystack(&directory);
    let (answers, answered) = channel();
    let told = |name: &'static str, answers: &Sender<&'static str>| {
        let answers = answers.clone();
        move || answers.send(name).unwrap()
    };
    // The thread for lists waits here until both other questions have come.
    let (release, released) = channel();
    store.counts(Reply::new(move |_| released.recv().unwrap()));
    let (long, short) = (told("long", &answers), told("short", &answers));
    let nothing = ListFilter { prefix: Some("nothing".into()), ..ListFilter::default() };
    store.list(
        nothing,
        None,
        10,
        Reply::new(move |page| {
            assert_eq!(page, Ok(ListPage::default()));
            long();
        }),
    );
    store.list(ListFilter::default(), None, 1, Reply::new(move |_| short()));
    release.send(()).unwrap();
    drop(answers);
    assert_eq!(answered.iter().collect::<Vec<_>>(), ["short", "long"]);
}

#[test]
fn q6_what_nobody_waits_for_any_more_is_not_read() {
    let directory = TempDir::new().unwrap();
    let store = haystack(&directory);
    let (answers, answered) = channel();
    let nothing = || ListFilter { prefix: Some("nothing".into()), ..ListFilter::default() };
    // The thread for lists waits here until all questions have come.
    let (release, released) = channel();
    store.counts(Reply::new(move |_| released.recv().unwrap()));
    for _ in 0..100 {
        let answers = answers.clone();
        store.list(nothing(), None, 10, Reply::new_while(|| false, move |page| answers.send(page).unwrap()));
    }
    // This one is given up after its first part.
    let (asked, was_asked) = channel();
    let is_wanted = std::sync::Mutex::new(true);
    let is_wanted = move || {
        asked.send(()).unwrap();
        std::mem::replace(&mut *is_wanted.lock().unwrap(), false)
    };
    store.list(nothing(), None, 10, Reply::new_while(is_wanted, move |page| answers.send(page).unwrap()));
    release.send(()).unwrap();
    assert_eq!(ask(|reply| store.counts(reply)).unwrap().armed, (ROWS + 2) as u64);
    let answers: Vec<_> = answered.iter().collect();
    assert_eq!(answers, vec![Err(StoreError::Closed); 101], "no list was searched to its end");
    assert_eq!(was_asked.iter().count(), 2, "before each part");
}
