//! An engine that has room for fewer sleeps than there are: those beyond wait for room, and each that there is goes to somebody.

use std::sync::Arc;
use std::time::Duration;

use shuttle::sync::Mutex;

use super::explore;
use super::kept::Kept;
use super::world::{World, micros, one_of};
use crate::{ArmError, Engine};

/// Sleeps that belong to nobody at the moment. They take room that others may wait for, so who is about to wait or to leave lets go
/// of them.
#[derive(Clone, Default)]
struct Hat(Arc<Mutex<Vec<Kept>>>);

impl Hat {
    fn clear(&self) {
        let left = std::mem::take(&mut *self.0.lock().unwrap());
        drop(left);
    }
}

fn use_it(world: &World, hat: &Hat, may_end: bool) {
    for _ in 0..1 + one_of(4) {
        let mut sleep = match one_of(6) {
            0 => hat.0.lock().unwrap().pop().unwrap_or_else(|| Kept::new(world.engine.sleep(micros(0, 20_000)))),
            1 => match Kept::try_new(world, micros(0, 20_000)) {
                Ok(sleep) => sleep,
                Err(_) => continue,
            },
            _ => Kept::new(world.engine.sleep(micros(0, 20_000))),
        };
        match one_of(8) {
            0..4 => {
                hat.clear();
                sleep.wait(world);
            }
            // Dropped while it waits, for room or for its time.
            4 => _ = sleep.poll(world),
            5 => {
                let _pending = sleep.poll(world);
                sleep.earlier(micros(1, 10_000));
                let _pending = sleep.poll(world);
            }
            6 => {
                let _pending = sleep.poll(world);
                hat.0.lock().unwrap().push(sleep);
            }
            _ if may_end => world.engine.shutdown(),
            _ => sleep.later(micros(1, 10_000)),
        }
    }
    hat.clear();
}

fn many(may_end: bool) {
    // The fewer there are, the more it matters who comes last.
    let (room, threads) = (1 + one_of(2), 2 + one_of(3));
    let world = World::driven(Engine::builder().shards(1 + one_of(3)).capacity(room));
    let hat = Hat::default();
    for _ in 0..threads {
        let hat = hat.clone();
        world.spawn(move |world| use_it(world, &hat, may_end));
    }
    world.run();
    world.check_sleeps();
    let capacity = world.engine.core().capacity.as_ref().expect("it has one");
    assert!((0..room).all(|_| capacity.take()), "room that was not given back");
    assert!(!capacity.take(), "room that was given back twice");
    assert!(capacity.take_waiting().is_empty(), "a waker that is left");
    let is_stopped = world.engine.is_shutdown();
    let full = if is_stopped { ArmError::Stopped } else { ArmError::Full { capacity: room } };
    assert_eq!(world.engine.try_sleep(Duration::from_secs(1)).err(), Some(full));
    world.engine.shutdown();
}

#[test]
fn p1_p2_p7_who_waits_for_room_gets_it_and_in_the_end_all_of_it_is_there() {
    explore(|| many(false));
}

#[test]
fn p2_p7_who_waits_for_room_is_told_of_the_end() {
    explore(|| many(true));
}
