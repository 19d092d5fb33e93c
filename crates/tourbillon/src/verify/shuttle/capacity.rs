//! An engine with fewer slots than sleeps. The sleeps beyond its capacity wait for a slot, end at their own
//! deadlines at the latest (D64), and get every slot that another sleep gives back (D65).
//!
//! Time moves on only while no thread waits that should have been woken. So a waiting sleep that is woken neither for its slot nor
//! for its deadline leaves its thread parked for ever, which shuttle reports.

use std::sync::Arc;
use std::time::Duration;

use shuttle::sync::Mutex;
use shuttle::thread;

use super::checked_engine::{CheckedEngine, micros, one_of};
use super::counted_sleep::CountedSleep;
use super::explore;
use crate::{ArmError, Engine, Outcome};

/// Sleeps that no thread polls at the moment: armed, fired, or waiting for a slot. They do not block others: a sleep that has fired holds
/// no slot, and a slot that is reserved for a sleep passes on at its deadline.
type Unpolled = Arc<Mutex<Vec<CountedSleep>>>;

fn use_engine(checked: &CheckedEngine, unpolled: &Unpolled, may_end: bool) {
    for _ in 0..1 + one_of(4) {
        let mut sleep = match one_of(6) {
            0 => unpolled
                .lock()
                .unwrap()
                .pop()
                .unwrap_or_else(|| CountedSleep::new(checked.engine.sleep(micros(0, 20_000)))),
            1 => match CountedSleep::try_new(checked, micros(0, 20_000)) {
                Ok(sleep) => sleep,
                Err(_) => continue,
            },
            _ => CountedSleep::new(checked.engine.sleep(micros(0, 20_000))),
        };
        match one_of(8) {
            0..4 => _ = sleep.wait(checked),
            // Dropped while it waits, for a slot or for its deadline.
            4 => _ = sleep.poll(checked),
            5 => {
                let _pending = sleep.poll(checked);
                sleep.earlier(micros(1, 10_000));
                let _pending = sleep.poll(checked);
            }
            6 => {
                let _pending = sleep.poll(checked);
                unpolled.lock().unwrap().push(sleep);
            }
            _ if may_end => checked.engine.shutdown(),
            _ => sleep.later(micros(1, 10_000)),
        }
    }
}

/// Takes every slot of an engine in which no timer is left. The driver counts a fire before it gives the slot back, so this waits for
/// the driver; a slot that is lost makes it wait until shuttle stops the schedule.
fn take_all(checked: &CheckedEngine, slots: usize) {
    let capacity = checked.engine.core().capacity.as_ref().expect("the engine has a capacity");
    for _ in 0..slots {
        while !capacity.take() {
            thread::yield_now();
        }
    }
    assert!(!capacity.take(), "a slot that was given back twice");
    assert!(capacity.is_unawaited(), "a wait that is left");
}

fn many(may_end: bool) {
    // The fewer slots there are, the more the order of the sleeps matters.
    let (slots, threads) = (1 + one_of(2), 2 + one_of(3));
    let checked = CheckedEngine::driven(Engine::builder().shards(1 + one_of(3)).capacity(slots));
    let unpolled = Unpolled::default();
    for _ in 0..threads {
        let unpolled = Arc::clone(&unpolled);
        checked.spawn(move |checked| use_engine(checked, &unpolled, may_end));
    }
    checked.run();
    let left = std::mem::take(&mut *unpolled.lock().unwrap());
    drop(left);
    checked.check_sleeps();
    take_all(&checked, slots);
    let is_stopped = checked.engine.is_shutdown();
    let full = if is_stopped { ArmError::Stopped } else { ArmError::Full { capacity: slots } };
    assert_eq!(checked.engine.try_sleep(Duration::from_secs(1)).err(), Some(full));
    checked.engine.shutdown();
}

/// Sleeps that wait for a slot which no thread gives back before they are due.
fn taken_for_long() {
    let (slots, threads) = (1 + one_of(2), 1 + one_of(3));
    let checked = CheckedEngine::driven(Engine::builder().shards(1 + one_of(3)).capacity(slots));
    let taken: Vec<_> =
        (0..slots).map(|_| CountedSleep::try_new(&checked, Duration::from_secs(3600)).expect("a slot")).collect();
    for _ in 0..threads {
        checked.spawn(move |checked| {
            for _ in 0..1 + one_of(3) {
                let mut sleep = CountedSleep::new(checked.engine.sleep(micros(0, 20_000)));
                match one_of(4) {
                    0 => {
                        let _pending = sleep.poll(checked);
                        sleep.earlier(micros(1, 10_000));
                    }
                    1 => {
                        let _pending = sleep.poll(checked);
                        sleep.later(micros(1, 10_000));
                    }
                    2 => {
                        let _pending = sleep.poll(checked);
                        sleep.hold();
                    }
                    _ => {}
                }
                assert_eq!(sleep.wait(checked), Outcome::Fired);
                assert!(!sleep.is_armed());
            }
        });
    }
    checked.run();
    let stats = checked.engine.stats();
    assert_eq!((stats.armed, stats.pending, stats.fired), (slots as u64, slots as u64, 0), "{stats:?}");
    drop(taken);
    checked.check_sleeps();
    take_all(&checked, slots);
    checked.engine.shutdown();
}

#[test]
fn d64_a_sleep_that_waits_for_a_slot_ends_at_its_own_deadline() {
    explore(taken_for_long);
}

#[test]
fn p1_p2_p7_a_sleep_that_waits_for_a_slot_gets_it_and_in_the_end_all_slots_are_free() {
    explore(|| many(false));
}

#[test]
fn p2_p7_a_sleep_that_waits_for_a_slot_is_woken_by_shutdown() {
    explore(|| many(true));
}
