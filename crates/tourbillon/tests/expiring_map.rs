//! `ExpiringMap`: entries that expire at their own deadlines, exactly, once, and on any thread.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use support::{NANO, Task, assert_shareable, manual, ms, now};
use tourbillon::expiring_map::Expirations;
use tourbillon::{ArmError, Engine, ExpiringMap, Slack};

/// The entries that a callback was given.
#[derive(Clone, Default)]
struct Expired(Arc<Mutex<Vec<(u32, &'static str)>>>);

impl Expired {
    fn callback(&self) -> impl Fn(u32, &'static str) + Send + Sync + 'static {
        let Expired(entries) = self.clone();
        move |key, value| entries.lock().unwrap().push((key, value))
    }

    fn take(&self) -> Vec<(u32, &'static str)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn with_callback(engine: &Engine) -> (ExpiringMap<u32, &'static str>, Expired) {
    let expired = Expired::default();
    (ExpiringMap::builder().engine(engine).on_expiry(expired.callback()).build(), expired)
}

/// Polls for one expired entry.
fn next(task: &Task, expirations: &mut Expirations<u32, &'static str>) -> Poll<Option<(u32, &'static str)>> {
    expirations.poll_expired(&mut task.cx())
}

#[test]
fn e6_p1_an_entry_is_found_until_its_deadline_and_expires_once() {
    let engine = manual();
    let (map, expired) = with_callback(&engine);
    assert_eq!(map.insert(1, "one", ms(10)), Ok(None));
    assert_eq!(map.insert(2, "two", ms(20)), Ok(None));
    assert_eq!(map.deadline(&1), Some(now(&engine) + ms(10)));
    engine.advance(ms(10) - NANO);
    assert_eq!((map.get(&1), map.contains_key(&1), expired.take()), (Some("one"), true, vec![]));
    engine.advance(NANO);
    assert_eq!((map.get(&1), map.contains_key(&1), map.deadline(&1)), (None, false, None));
    assert_eq!((expired.take(), map.len()), (vec![(1, "one")], 1));
    engine.advance(ms(100));
    assert_eq!((expired.take(), map.is_empty()), (vec![(2, "two")], true));
}

#[test]
fn e6_p1_an_entry_is_not_found_after_its_deadline_even_if_the_driver_is_late() {
    let engine = manual();
    let (map, expired) = with_callback(&engine);
    map.insert(1, "one", ms(10)).unwrap();
    map.insert(2, "two", ms(10)).unwrap();
    engine.clock().advance(ms(10));
    assert_eq!((map.get(&1), map.contains_key(&1), map.deadline(&1), map.remove(&1)), (None, false, None, None));
    assert!(!map.renew(&1, ms(10)) && map.get_and_renew(&1, ms(10)).is_none(), "it is too late");
    assert_eq!(map.len(), 2, "no turn has been made");
    assert_eq!(map.insert(1, "new", ms(10)), Ok(None), "the old value has expired, and is not replaced");
    assert_eq!(map.insert_if_absent(2, "new too", ms(10)), Ok(None));
    assert_eq!(expired.take(), [], "no callback runs inside the call");
    engine.turn();
    assert_eq!(expired.take(), [(1, "one"), (2, "two")]);
    assert_eq!((map.get(&1), map.get(&2)), (Some("new"), Some("new too")));
}

#[test]
fn e6_an_entry_that_is_renewed_stays_and_one_that_is_removed_or_replaced_does_not_expire() {
    let engine = manual();
    let (map, expired) = with_callback(&engine);
    for key in 1..=4 {
        map.insert(key, "old", ms(10)).unwrap();
    }
    engine.advance(ms(9));
    assert!(map.renew(&1, ms(10)) && !map.renew(&7, ms(10)));
    assert_eq!(map.get_and_renew(&2, ms(2)), Some("old"));
    assert_eq!(map.remove(&3), Some("old"));
    assert_eq!(map.insert(4, "new", ms(20)), Ok(Some("old")));
    engine.advance(ms(2));
    assert_eq!(expired.take(), [(2, "old")]);
    engine.advance(ms(8));
    assert_eq!(expired.take(), [(1, "old")]);
    assert!(map.renew_at(&4, now(&engine) + ms(1)), "also earlier");
    engine.advance(ms(1));
    assert_eq!((expired.take(), map.len()), (vec![(4, "new")], 0));
}

#[test]
fn e6_p3_entries_expire_in_the_order_of_their_deadlines() {
    let engine = manual();
    let (map, expired) = with_callback(&engine);
    for (key, after) in [(1, 30), (2, 10), (3, 20), (4, 10), (5, 50)] {
        map.insert(key, "", ms(after)).unwrap();
    }
    map.renew(&5, ms(15));
    engine.clock().advance(ms(100));
    engine.turn();
    assert_eq!(expired.take().iter().map(|(key, _)| *key).collect::<Vec<_>>(), [2, 4, 5, 3, 1]);
}

#[test]
fn e6_p5_every_time_to_live_is_valid() {
    let engine = manual();
    let (map, expired) = with_callback(&engine);
    map.insert(1, "zero", Duration::ZERO).unwrap();
    map.insert(2, "for ever", Duration::MAX).unwrap();
    map.insert_at(3, "past", now(&engine) - ms(5)).unwrap();
    assert_eq!((map.get(&1), map.get(&2), map.get(&3)), (None, Some("for ever"), None));
    engine.turn();
    let mut ended = expired.take();
    ended.sort_unstable();
    assert_eq!(ended, [(1, "zero"), (3, "past")]);
    engine.advance(Duration::from_secs(100 * 365 * 24 * 3600));
    assert_eq!(map.get(&2), Some("for ever"));
    assert!(map.deadline(&2).is_some_and(|deadline| deadline > now(&engine)));
    assert!(map.renew(&2, Duration::ZERO));
    engine.turn();
    assert_eq!(expired.take(), [(2, "for ever")]);
}

#[test]
fn e6_p7_a_full_map_refuses_new_keys_and_takes_new_values_of_old_ones() {
    let engine = manual();
    let (map, mut expirations) = ExpiringMap::builder().engine(&engine).capacity(2).build_with_expirations();
    map.insert(1, "one", ms(10)).unwrap();
    map.insert(2, "two", ms(20)).unwrap();
    assert_eq!(map.insert(3, "three", ms(10)), Err(ArmError::Full { capacity: 2 }));
    assert_eq!(map.insert_if_absent(3, "three", ms(10)), Err(ArmError::Full { capacity: 2 }));
    assert_eq!(map.insert_if_absent(1, "again", ms(10)), Ok(Some("again")), "the value comes back");
    assert_eq!(map.insert(1, "uno", ms(10)), Ok(Some("one")));
    engine.advance(ms(10));
    assert_eq!(map.len(), 1);
    assert_eq!(map.insert(3, "three", ms(10)), Err(ArmError::Full { capacity: 2 }), "one waits for the stream");
    assert_eq!(next(&Task::new(), &mut expirations), Poll::Ready(Some((1, "uno"))));
    assert_eq!(map.insert(3, "three", ms(10)), Ok(None));
    let none: ExpiringMap<u32, ()> = ExpiringMap::builder().engine(&engine).capacity(0).build();
    assert_eq!(none.insert(1, (), ms(1)), Err(ArmError::Full { capacity: 0 }));
}

#[test]
fn e6_the_stream_returns_expired_entries_and_ends_with_the_map() {
    let (engine, task) = (manual(), Task::new());
    let (map, mut expirations) = ExpiringMap::builder().engine(&engine).build_with_expirations();
    assert_eq!(next(&task, &mut expirations), Poll::Pending);
    map.insert(1, "one", ms(10)).unwrap();
    map.insert(2, "two", ms(10)).unwrap();
    map.insert(3, "three", ms(60)).unwrap();
    assert_eq!(task.wakes(), 0, "nothing has expired");
    engine.advance(ms(10));
    assert_eq!(task.wakes(), 1);
    assert_eq!(next(&task, &mut expirations), Poll::Ready(Some((1, "one"))));
    assert_eq!(next(&task, &mut expirations), Poll::Ready(Some((2, "two"))));
    assert_eq!(next(&task, &mut expirations), Poll::Pending);
    drop(map);
    assert_eq!((task.wakes(), next(&task, &mut expirations)), (1, Poll::Ready(None)), "the third has not expired");
}

#[test]
fn e6_a_stream_that_is_dropped_leaves_the_map_as_it_is() {
    let engine = manual();
    let (map, expirations) = ExpiringMap::builder().engine(&engine).capacity(1).build_with_expirations();
    map.insert(1, Arc::new(()), ms(10)).unwrap();
    engine.advance(ms(10));
    let value = Arc::new(());
    assert_eq!(map.insert(2, Arc::clone(&value), ms(10)), Err(ArmError::Full { capacity: 1 }));
    drop(expirations);
    assert_eq!(map.insert(2, Arc::clone(&value), ms(10)), Ok(None));
    engine.advance(ms(10));
    engine.turn();
    assert_eq!((map.len(), Arc::strong_count(&value)), (0, 1), "expired entries are dropped");
}

#[test]
fn e6_w7_after_a_shutdown_entries_can_be_read_until_their_deadlines_and_removed() {
    let (engine, task) = (manual(), Task::new());
    let (map, mut expirations) = ExpiringMap::builder().engine(&engine).build_with_expirations();
    for (key, after) in [(1, 10), (2, 20), (3, 30)] {
        map.insert(key, "there", ms(after)).unwrap();
    }
    assert_eq!(next(&task, &mut expirations), Poll::Pending);
    engine.shutdown();
    assert_eq!(task.wakes(), 1);
    assert_eq!(map.insert(4, "late", ms(10)), Err(ArmError::Stopped));
    assert_eq!(map.insert(1, "late", ms(10)), Err(ArmError::Stopped));
    assert_eq!((map.get(&1), map.remove(&3)), (Some("there"), Some("there")));
    engine.clock().advance(ms(10));
    assert_eq!((map.get(&1), map.get(&2)), (None, Some("there")));
    assert_eq!(next(&task, &mut expirations), Poll::Ready(Some((1, "there"))), "it is due at the time of the poll");
    assert_eq!(next(&task, &mut expirations), Poll::Ready(None));
    map.clear();
    assert!(map.is_empty());
}

#[test]
fn e6_p10_a_callback_uses_the_map_and_its_panic_is_counted() {
    let engine = manual();
    let handle: Arc<Mutex<Option<ExpiringMap<u32, u32>>>> = Arc::default();
    let own = Arc::clone(&handle);
    let map = ExpiringMap::builder().engine(&engine).on_expiry(move |key, value: u32| {
        let map = own.lock().unwrap().clone().unwrap();
        assert!(key != 7, "a callback that panics");
        if value > 0 {
            map.insert(key, value - 1, ms(10)).unwrap();
        }
    });
    let map = map.build();
    *handle.lock().unwrap() = Some(map.clone());
    map.insert(1, 3, ms(10)).unwrap();
    map.insert(7, 0, ms(10)).unwrap();
    engine.advance(ms(30));
    assert_eq!((map.get(&1), engine.stats().callback_panics), (Some(0), 1));
    engine.advance(ms(10));
    assert!(map.is_empty());
    handle.lock().unwrap().take();
}

#[test]
fn p6_p10_values_whose_destructors_panic_or_use_the_map_harm_no_other_entry() {
    struct Value(ExpiringMap<u32, Value>, Arc<AtomicUsize>);

    impl Drop for Value {
        fn drop(&mut self) {
            // Under the lock this would never return.
            let _other = self.0.contains_key(&1);
            self.1.fetch_add(1, Ordering::SeqCst);
            if !thread::panicking() {
                panic!("a destructor that panics");
            }
        }
    }

    let engine = manual();
    let (map, drops) = (ExpiringMap::on(&engine), Arc::new(AtomicUsize::new(0)));
    for key in 0..300 {
        map.insert(key, Value(map.clone(), Arc::clone(&drops)), ms(10)).unwrap();
    }
    engine.advance(ms(10));
    while engine.turn().more {}
    assert_eq!((map.len(), drops.load(Ordering::SeqCst)), (0, 300));
    assert_eq!(engine.stats().callback_panics, 300);
}

#[test]
fn p6_a_key_whose_hash_panics_does_not_stop_the_map() {
    use std::hash::{Hash, Hasher};
    use std::sync::atomic::AtomicBool;

    #[derive(Clone)]
    struct Key(u32, Arc<AtomicBool>);

    impl PartialEq for Key {
        fn eq(&self, other: &Key) -> bool {
            self.0 == other.0
        }
    }

    impl Eq for Key {}

    impl Hash for Key {
        fn hash<H: Hasher>(&self, state: &mut H) {
            assert!(!self.1.load(Ordering::SeqCst), "a hash that panics");
            self.0.hash(state);
        }
    }

    let engine = manual();
    let map = ExpiringMap::on(&engine);
    let [good, bad] = [false; 2].map(|panics| Arc::new(AtomicBool::new(panics)));
    map.insert(Key(1, Arc::clone(&bad)), (), ms(10)).unwrap();
    map.insert(Key(2, Arc::clone(&good)), (), ms(20)).unwrap();
    bad.store(true, Ordering::SeqCst);
    engine.advance(ms(10));
    bad.store(false, Ordering::SeqCst);
    engine.advance(ms(20));
    assert_eq!((map.len(), map.contains_key(&Key(2, Arc::clone(&good)))), (1, false), "the other entry has left");
    assert_eq!(map.insert(Key(1, bad), (), ms(10)), Ok(None));
    engine.advance(ms(10));
    assert_eq!((map.len(), map.contains_key(&Key(1, good))), (0, false));
}

#[test]
fn e6_d26_many_entries_that_are_due_together_all_expire() {
    let engine = manual();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let map = ExpiringMap::builder().engine(&engine).on_expiry(move |_, ()| _ = counted.fetch_add(1, Ordering::SeqCst));
    let map = map.build();
    for key in 0..10_000 {
        map.insert(key, (), ms(10)).unwrap();
    }
    engine.advance(ms(10));
    assert_eq!((count.load(Ordering::SeqCst), map.len()), (10_000, 0));
}

#[test]
fn p9_e6_a_map_without_entries_that_expire_needs_no_wake_up() {
    let engine = manual();
    let map = ExpiringMap::on(&engine);
    assert_eq!(engine.turn().time_left(), None);
    map.insert("a", (), ms(10)).unwrap();
    assert_eq!(engine.turn().time_left(), Some(ms(10)));
    engine.advance(ms(10));
    assert_eq!(engine.turn().time_left(), None);
    assert_eq!(engine.stats().pending, 0, "the map holds no timer");
}

#[test]
fn e7_p4_a_map_has_a_slack_of_its_own_which_no_reader_sees() {
    let engine = manual();
    let (slack, expired) = (Duration::from_nanos(1 << 24), Expired::default());
    let map = ExpiringMap::builder().engine(&engine).slack(Slack::up_to(slack)).on_expiry(expired.callback()).build();
    map.insert(1, "one", ms(1)).unwrap();
    let next = engine.turn().time_left().expect("an entry is there");
    assert!(next >= ms(1) && next <= ms(1) + slack, "{next:?}");
    engine.clock().advance(ms(1));
    assert_eq!(map.get(&1), None);
    engine.clock().advance(slack);
    engine.turn();
    assert_eq!(expired.take(), [(1, "one")]);
}

#[test]
fn e6_of_many_threads_that_insert_if_absent_one_does_and_each_value_leaves_once() {
    for _ in 0..50 {
        let engine = manual();
        let (map, expirations) = ExpiringMap::builder().engine(&engine).build_with_expirations();
        let (inserted, removed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for key in 0..50 {
                        let is_new = map.insert_if_absent(key, (), ms(10)).unwrap().is_none();
                        inserted.fetch_add(usize::from(is_new), Ordering::SeqCst);
                        map.renew(&key, ms(20));
                        if key % 3 == 0 {
                            removed.fetch_add(usize::from(map.remove(&key).is_some()), Ordering::SeqCst);
                        }
                    }
                });
            }
        });
        let left = map.len();
        engine.advance(ms(20));
        drop(map);
        let expired = futures_lite::future::block_on(async {
            let (mut count, mut expirations) = (0, expirations);
            while expirations.next().await.is_some() {
                count += 1;
            }
            count
        });
        assert_eq!((expired, expired + removed.into_inner()), (left, inserted.into_inner()));
    }
}

#[test]
fn b1_e6_maps_and_their_streams_can_be_shared_and_sent() {
    assert_shareable::<ExpiringMap<String, Vec<u8>>>();
    assert_shareable::<Expirations<String, Vec<u8>>>();
    let map: ExpiringMap<String, u32> = ExpiringMap::default();
    assert_eq!(map.get("a text, without a `String`"), None);
    assert!(format!("{map:?}").contains("len: 0"));
}

#[test]
#[cfg(feature = "test-util")]
fn b6_e6_a_map_follows_virtual_time() {
    use tourbillon::time::{self, Instant};

    time::run(async {
        let (map, mut expirations) = ExpiringMap::builder().build_with_expirations();
        let start = Instant::now();
        map.insert("a", 1, Duration::from_secs(3600)).unwrap();
        map.insert("b", 2, Duration::from_secs(60)).unwrap();
        map.remove("b");
        assert_eq!(expirations.next().await, Some(("a", 1)));
        assert_eq!(start.elapsed(), Duration::from_secs(3600));
    });
}

#[tokio::test(start_paused = true)]
#[cfg(all(feature = "futures", feature = "tokio"))]
async fn b6_e6_the_stream_of_a_map_works_on_a_paused_tokio_runtime() {
    use tokio_stream::StreamExt;

    let start = tokio::time::Instant::now();
    let (map, expirations) = ExpiringMap::builder().build_with_expirations();
    for key in 0..5_u32 {
        map.insert(key, (), Duration::from_secs(10 * u64::from(key + 1))).unwrap();
    }
    map.renew(&0, Duration::from_secs(60));
    let keys: Vec<_> = expirations.take(5).map(|(key, ())| key).collect().await;
    assert_eq!((keys, start.elapsed()), (vec![1, 2, 3, 4, 0], Duration::from_secs(60)));
}
