//! An engine with fewer slots than sleeps. The sleeps beyond its capacity wait for a slot, end at their own
//! deadlines at the latest (D64), and get every slot that another sleep gives back (D65).
//!
//! World time moves on only while no thread waits that should have been woken. So a waiting sleep that is woken neither for its slot nor
//! for its deadline leaves its thread parked for ever, which shuttle reports.

use std::sync::Arc;
use std::time::Duration;

use shuttle::sync::Mutex;
use shuttle::thread;

use super::counted_sleep::CountedSleep;
use super::explore;
use super::world::{World, micros, one_of};
use crate::{ArmError, Engine, Outcome};

/// Sleeps that no thread polls at the moment: armed, fired, or waiting for a slot. They do not block others: a sleep that has fired holds
/// no slot, and a slot that is reserved for a sleep passes on at its deadline.
type Unpolled = Arc<Mutex<Vec<CountedSleep>>>;

fn use_engine(world: &World, unpolled: &Unpolled, may_end: bool) {
    for _ in 0..1 + one_of(4) {
        let mut sleep = match one_of(6) {
            0 => unpolled
                .lock()
                .unwrap()
                .pop()
                .unwrap_or_else(|| CountedSleep::new(world.engine.sleep(micros(0, 20_000)))),
            1 => match CountedSleep::try_new(world, micros(0, 20_000)) {
                Ok(sleep) => sleep,
                Err(_) => continue,
            },
            _ => CountedSleep::new(world.engine.sleep(micros(0, 20_000))),
        };
        match one_of(8) {
            0..4 => _ = sleep.wait(world),
            // Dropped while it waits, for a slot or for its deadline.
            4 => _ = sleep.poll(world),
            5 => {
                let _pending = sleep.poll(world);
                sleep.earlier(micros(1, 10_000));
                let _pending = sleep.poll(world);
            }
            6 => {
                let _pending = sleep.poll(world);
                unpolled.lock().unwrap().push(sleep);
            }
            _ if may_end => world.engine.shutdown(),
            _ => sleep.later(micros(1, 10_000)),
        }
    }
}

/// Takes every slot of an engine in which no timer is left. The driver counts a fire before it gives the slot back, so this waits for
/// the driver; a slot that is lost makes it wait until shuttle stops the schedule.
fn take_all(world: &World, slots: usize) {
    let capacity = world.engine.core().capacity.as_ref().expect("the engine has a capacity");
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
    let world = World::driven(Engine::builder().shards(1 + one_of(3)).capacity(slots));
    let unpolled = Unpolled::default();
    for _ in 0..threads {
        let unpolled = Arc::clone(&unpolled);
        world.spawn(move |world| use_engine(world, &unpolled, may_end));
    }
    world.run();
    let left = std::mem::take(&mut *unpolled.lock().unwrap());
    drop(left);
    world.check_sleeps();
    take_all(&world, slots);
    let is_stopped = world.engine.is_shutdown();
    let full = if is_stopped { ArmError::Stopped } else { ArmError::Full { capacity: slots } };
    assert_eq!(world.engine.try_sleep(Duration::from_secs(1)).err(), Some(full));
    world.engine.shutdown();
}

/// Sleeps that wait for a slot which no thread gives back before they are due.
fn taken_for_long() {
    let (slots, threads) = (1 + one_of(2), 1 + one_of(3));
    let world = World::driven(Engine::builder().shards(1 + one_of(3)).capacity(slots));
    let taken: Vec<_> =
        (0..slots).map(|_| CountedSleep::try_new(&world, Duration::from_secs(3600)).expect("a slot")).collect();
    for _ in 0..threads {
        world.spawn(move |world| {
            for _ in 0..1 + one_of(3) {
                let mut sleep = CountedSleep::new(world.engine.sleep(micros(0, 20_000)));
                match one_of(4) {
                    0 => {
                        let _pending = sleep.poll(world);
                        sleep.earlier(micros(1, 10_000));
                    }
                    1 => {
                        let _pending = sleep.poll(world);
                        sleep.later(micros(1, 10_000));
                    }
                    2 => {
                        let _pending = sleep.poll(world);
                        sleep.hold();
                    }
                    _ => {}
                }
                assert_eq!(sleep.wait(world), Outcome::Fired);
                assert!(!sleep.is_armed());
            }
        });
    }
    world.run();
    let stats = world.engine.stats();
    assert_eq!((stats.armed, stats.pending, stats.fired), (slots as u64, slots as u64, 0), "{stats:?}");
    drop(taken);
    world.check_sleeps();
    take_all(&world, slots);
    world.engine.shutdown();
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
