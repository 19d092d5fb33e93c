//! A thread that turns its own shard, others who arm timers there, and somebody who stands in.

use std::mem::forget;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shuttle::thread;

use super::explore;
use super::kept::Kept;
use super::world::{Turning, World, micros, one_of};
use crate::{Driver, Engine};

/// The worker turns until the others have gone, unless it leaves before. Of three others who use sleeps some share its shard.
fn beside_a_worker() {
    let turning = Arc::new(Turning::default());
    let world = World::driven_beside(Engine::builder().shards(1 + one_of(2)), Arc::clone(&turning));
    let others = Arc::new(AtomicUsize::new(3));
    world.spawn({
        let (turning, others) = (Arc::clone(&turning), Arc::clone(&others));
        move |world| work(world, &turning, &others)
    });
    for _ in 0..3 {
        let (turning, others) = (Arc::clone(&turning), Arc::clone(&others));
        world.spawn(move |world| {
            for _ in 0..3 {
                let mut sleep = Kept::new(world.engine.sleep(micros(0, 20_000)));
                match one_of(4) {
                    0 => _ = sleep.poll(world),
                    1 => {
                        let _armed = sleep.poll(world);
                        sleep.earlier(micros(1, 10_000));
                        sleep.wait(world);
                    }
                    _ => _ = sleep.wait(world),
                }
            }
            others.fetch_sub(1, Ordering::Relaxed);
            turning.call();
        });
    }
    world.run();
    world.check_wakes();
    world.engine.shutdown();
}

/// What the worker does, between its turns with sleeps of its own. Somebody may stand in for it at any moment.
fn work(world: &World, turning: &Arc<Turning>, others: &AtomicUsize) {
    let notify = {
        let turning = Arc::clone(turning);
        move || turning.call()
    };
    let Some(mut worker) = world.engine.worker(notify) else { return };
    let stand_in = worker.takeover();
    world.spawn(move |_| (0..2).for_each(|_| stand_in.take_over()));
    let mut turns = 1 + one_of(8);
    let mut own = None;
    turning.turn_while(|| {
        turns -= 1;
        let mut sleep = Kept::new(world.engine.sleep(micros(0, 10_000)));
        let _armed = sleep.poll(world);
        own = Some(sleep);
        (turns > 0 && others.load(Ordering::Relaxed) > 0).then(|| worker.turn())
    });
}

/// Two threads, and a shard for each. One may come when the other, which has forgotten its worker, is about to go.
fn one_after_the_other() {
    let engine = Engine::builder().driver(Driver::external()).shards(2).build().expect("it needs no threads");
    for _ in 0..2 {
        let engine = engine.clone();
        thread::spawn(move || forget(engine.worker(|| ()).expect("there is a shard for it")));
    }
}

#[test]
fn f4_a_shard_that_is_free_is_free_of_its_last_worker() {
    explore(one_after_the_other);
}

#[test]
fn f4_d44_p11_timers_in_the_shard_of_a_worker_end_in_time_whoever_turns_it() {
    explore(beside_a_worker);
}
