//! An `ExpiringMap` that several threads share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tourbillon_queue::{Span, Time};

use super::checked_engine::{CheckedEngine, micros, one_of};
use super::explore;
use crate::sync::under_shuttle::time;
use crate::{Engine, ExpiringMap};

/// The longest time until an entry is due, in microseconds.
const MOST: u64 = 20_000;

/// Keys from here on belong to one thread each, which inserts their entries and waits for them.
const OWN: usize = 10;
/// Keys from here on belong to one thread each, which inserts and renews their entries; others remove them. (A renewal counts from the
/// beginning of its call. By a thread that was held up meanwhile it would make the deadline of a newer entry earlier.)
const RENEWED: usize = 20;
const THREADS: usize = 3;

/// How many values have come and gone. (In atomics that shuttle does not see.)
#[derive(Default)]
struct Counts {
    inserted: AtomicU64,
    expired: AtomicU64,
    /// Removed or replaced.
    taken: AtomicU64,
    /// Dropped with the map.
    dropped: AtomicU64,
}

/// A value of the map.
struct Value {
    /// It must not expire before this time.
    due: Time,
    has_left: AtomicBool,
    counts: Arc<Counts>,
}

impl Value {
    fn new(counts: &Arc<Counts>, after: Duration) -> Arc<Value> {
        let due = time() + Span::from(after);
        Arc::new(Value { due, has_left: AtomicBool::new(false), counts: Arc::clone(counts) })
    }

    #[track_caller]
    fn leave(&self, count: &AtomicU64) {
        assert!(!self.has_left.swap(true, Ordering::Relaxed), "a value that has left twice");
        count.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        let is_left = !*self.has_left.get_mut();
        self.counts.dropped.fetch_add(u64::from(is_left), Ordering::Relaxed);
    }
}

fn map(checked: &CheckedEngine, counts: &Arc<Counts>) -> ExpiringMap<usize, Arc<Value>> {
    let (checked_engine, counts) = (checked.clone(), Arc::clone(counts));
    let on_expiry = move |_, value: Arc<Value>| {
        // A panic is counted by the engine: see `CheckedEngine::check_outcomes`.
        assert!(time() >= value.due, "expired at {:?}, due at {:?}", time(), value.due);
        value.leave(&counts.expired);
        checked_engine.changed();
    };
    ExpiringMap::builder().engine(&checked.engine).on_expiry(on_expiry).build()
}

/// Inserts a value, and returns it unless it was refused.
fn insert(
    map: &ExpiringMap<usize, Arc<Value>>,
    counts: &Arc<Counts>,
    key: usize,
    after: Duration,
) -> Option<Arc<Value>> {
    let value = Value::new(counts, after);
    counts.inserted.fetch_add(1, Ordering::Relaxed);
    match map.insert(key, Arc::clone(&value), after) {
        Ok(old) => {
            old.inspect(|old| old.leave(&counts.taken));
            Some(value)
        }
        Err(_) => {
            value.leave(&counts.taken);
            None
        }
    }
}

fn use_it(
    checked: &CheckedEngine,
    map: &ExpiringMap<usize, Arc<Value>>,
    counts: &Arc<Counts>,
    thread: usize,
    may_end: bool,
) {
    let (own, renewed) = (OWN + thread, RENEWED + thread);
    for _ in 0..6 {
        let after = micros(0, MOST);
        match one_of(12) {
            0..3 => _ = insert(map, counts, one_of(2), after),
            3..5 => _ = insert(map, counts, renewed, after),
            // No deadline becomes earlier.
            5..7 => _ = map.get_and_renew(&renewed, Duration::from_micros(MOST)),
            7 => {
                let key = [0, 1, RENEWED + one_of(THREADS)][one_of(3)];
                map.remove(&key).inspect(|value| value.leave(&counts.taken));
            }
            8 => {
                let before = time();
                let deadline = map.deadline(&one_of(2));
                let deadline = deadline.map(|deadline| checked.engine.clock().time_of(deadline.into_std()));
                assert!(deadline.is_none_or(|deadline| deadline > before), "an entry was found after its deadline");
            }
            9 if may_end => checked.engine.shutdown(),
            _ => {
                if let Some(value) = insert(map, counts, own, after) {
                    let has_left = || value.has_left.load(Ordering::Relaxed) || checked.engine.is_shutdown();
                    checked.wait_for(after, has_left);
                }
            }
        }
    }
}

fn share(checked: CheckedEngine, may_end: bool) {
    let counts = Arc::new(Counts::default());
    let map = map(&checked, &counts);
    for thread in 0..THREADS {
        let (map, counts) = (map.clone(), Arc::clone(&counts));
        checked.spawn(move |checked| {
            use_it(checked, &map, &counts, thread, may_end);
            // A thread that waits for its value has to see that the engine was shut down.
            checked.changed();
        });
    }
    checked.run();
    for key in (0..2).chain(OWN..OWN + THREADS).chain(RENEWED..RENEWED + THREADS) {
        map.remove(&key).inspect(|value| value.leave(&counts.taken));
    }
    drop(map);
    checked.engine.shutdown();
    // Callbacks of what has expired are called all the same.
    let Counts { inserted, expired, taken, dropped } = &*counts;
    let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let gone = || get(expired) + get(taken) + get(dropped);
    checked.wait_now(|| gone() >= get(inserted));
    assert_eq!(gone(), get(inserted), "values that have left, and those that were inserted");
    checked.check_outcomes();
}

#[test]
fn p1_p2_e6_entries_of_a_map_that_threads_share_leave_once_and_in_time() {
    explore(|| share(CheckedEngine::driven(Engine::builder().shards(1 + one_of(3))), false));
}

#[test]
fn p2_e6_entries_of_a_map_are_not_lost_when_its_engine_is_shut_down() {
    explore(|| share(CheckedEngine::turned(Engine::builder(), 2), true));
}
