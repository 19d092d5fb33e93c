//! Models of `ExpiringMap`, over a simulated engine: see [`timer`](super::timer).

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use loom::thread;

use super::timer::{ModelEngine, spawn};
use super::{DUE, LATER, WakerTally, explore_up_to};
use crate::core::error::ArmError;
use crate::expiring_map::{Expirations, ExpiringMap};

type Map = ExpiringMap<u32, &'static str>;

/// The values that the callback of a map was given. (In a lock that loom does not see.)
#[derive(Clone, Default)]
struct Expired(Arc<Mutex<Vec<&'static str>>>);

impl Expired {
    fn map(&self, model: &ModelEngine) -> Map {
        let Expired(values) = self.clone();
        let on_expiry = move |_, value| values.lock().unwrap().push(value);
        ExpiringMap::on_core(model.core.clone(), ExpiringMap::builder().on_expiry(on_expiry))
    }

    /// Runs all callbacks, and returns the values that they were given.
    fn take(&self, model: &ModelEngine) -> Vec<&'static str> {
        model.outcomes();
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn on_thread<R: 'static>(map: &Map, act: impl FnOnce(&Map) -> R + 'static) -> thread::JoinHandle<R> {
    let map = map.clone();
    thread::spawn(move || act(&map))
}

#[test]
fn e6_p2_an_entry_that_is_removed_while_it_expires_leaves_the_map_once() {
    explore_up_to(3, || {
        let (model, expired) = (ModelEngine::new(), Expired::default());
        let map = expired.map(&model);
        map.insert_due(1, "one", DUE).unwrap();
        let fires = spawn(&model, |model| model.fire(DUE));
        let removed = map.remove(&1);
        fires.join().unwrap();
        assert_eq!(expired.take(&model).len() + usize::from(removed.is_some()), 1);
        assert!(map.is_empty());
        drop(map);
        model.assert_idle();
    });
}

#[test]
fn e6_p1_an_entry_that_is_renewed_while_it_expires_stays_or_was_too_late() {
    explore_up_to(3, || {
        let (model, expired) = (ModelEngine::new(), Expired::default());
        let map = expired.map(&model);
        map.insert_due(1, "one", DUE).unwrap();
        let fires = spawn(&model, |model| model.fire(DUE));
        let is_renewed = map.renew_due(&1, LATER);
        fires.join().unwrap();
        assert_eq!(expired.take(&model), if is_renewed { vec![] } else { vec!["one"] });
        model.fire(LATER);
        assert_eq!(expired.take(&model), if is_renewed { vec!["one"] } else { vec![] });
        drop(map);
        model.assert_idle();
    });
}

#[test]
fn e6_d39_an_entry_that_is_inserted_while_another_expires_is_not_forgotten() {
    explore_up_to(3, || {
        let (model, expired) = (ModelEngine::new(), Expired::default());
        let map = expired.map(&model);
        map.insert_due(1, "one", DUE).unwrap();
        let fires = spawn(&model, |model| model.fire(DUE));
        let old = map.insert_due(1, "new", LATER).unwrap();
        fires.join().unwrap();
        // The old value was replaced, or had expired before; the new one is there in any case.
        assert_eq!(expired.take(&model).len() + usize::from(old.is_some()), 1);
        assert_eq!(map.get(&1), Some("new"));
        model.fire(LATER);
        assert_eq!(expired.take(&model), ["new"]);
        drop(map);
        model.assert_idle();
    });
}

#[test]
fn e6_of_two_threads_that_insert_if_absent_one_does() {
    explore_up_to(3, || {
        let (model, expired) = (ModelEngine::new(), Expired::default());
        let map = expired.map(&model);
        let other = on_thread(&map, |map| map.insert_if_absent_due(1, "other", LATER).unwrap().is_none());
        let is_first = map.insert_if_absent_due(1, "first", LATER).unwrap().is_none();
        assert_ne!(is_first, other.join().unwrap());
        assert_eq!(map.get(&1), Some(if is_first { "first" } else { "other" }));
        drop(map);
        assert_eq!(expired.take(&model), [""; 0], "entries of a map that is dropped do not expire");
        model.assert_idle();
    });
}

#[test]
fn e6_d32_an_entry_that_is_inserted_during_a_shutdown_is_refused_or_there() {
    explore_up_to(3, || {
        let (model, expired) = (ModelEngine::new(), Expired::default());
        let map = expired.map(&model);
        let stops = spawn(&model, ModelEngine::stop);
        let inserted = map.insert_due(1, "one", DUE);
        stops.join().unwrap();
        match inserted {
            Ok(_) => assert_eq!(map.get(&1), Some("one")),
            Err(error) => assert_eq!((error, map.len()), (ArmError::Stopped, 0)),
        }
        assert_eq!(map.insert_due(2, "late", DUE), Err(ArmError::Stopped));
        drop(map);
        model.assert_idle();
    });
}

fn poll(
    expirations: &mut Expirations<u32, &'static str>,
    tally: &'static WakerTally,
) -> Poll<Option<(u32, &'static str)>> {
    expirations.poll_expired(&mut Context::from_waker(&tally.waker()))
}

#[test]
fn e6_d39_a_task_that_waits_while_an_entry_expires_is_woken() {
    explore_up_to(3, || {
        let model = ModelEngine::new();
        let (map, mut expirations) = Map::with_expirations(model.core.clone(), ExpiringMap::builder());
        map.insert_due(1, "one", DUE).unwrap();
        let tally = WakerTally::new();
        let fires = spawn(&model, |model| model.fire(DUE));
        let first = poll(&mut expirations, &tally);
        fires.join().unwrap();
        if first.is_pending() {
            assert_eq!(tally.woken(), 1, "no thread would wake it");
            assert_eq!(poll(&mut expirations, &tally), Poll::Ready(Some((1, "one"))));
        }
        drop(map);
        assert_eq!(poll(&mut expirations, &tally), Poll::Ready(None));
        drop(expirations);
        model.assert_idle();
    });
}

#[test]
fn e6_d39_a_task_that_waits_while_the_map_is_dropped_is_told() {
    explore_up_to(3, || {
        let model = ModelEngine::new();
        let (map, mut expirations) = Map::with_expirations(model.core.clone(), ExpiringMap::builder());
        map.insert_due(1, "one", DUE).unwrap();
        let tally = WakerTally::new();
        let drops = thread::spawn(move || drop(map));
        let first = poll(&mut expirations, &tally);
        drops.join().unwrap();
        assert!(first == Poll::Ready(None) || tally.woken() == 1, "no thread would wake it");
        assert_eq!(poll(&mut expirations, &tally), Poll::Ready(None));
        drop(expirations);
        model.assert_idle();
    });
}
