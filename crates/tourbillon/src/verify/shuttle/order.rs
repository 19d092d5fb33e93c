//! Timers of one shard fire in the order of their deadlines, and equal ones in the order in which they were armed.

use std::sync::{Arc, Mutex as StdMutex};
use std::task::{Wake, Waker};
use std::time::Duration;

use tourbillon_queue::{Span, Time};

use super::explore;
use super::kept::Kept;
use super::world::{World, one_of};
use crate::{Engine, Slack};

/// A timer, by when it was armed.
struct Numbered {
    number: usize,
    timer: Kept,
}

/// What has become of them.
struct Log {
    /// When each is due at last.
    due: Vec<Time>,
    /// The numbers of those that have fired.
    fired: Vec<usize>,
}

/// Writes down that a timer has fired.
struct Writes {
    number: usize,
    log: Arc<StdMutex<Log>>,
    world: World,
}

impl Wake for Writes {
    fn wake(self: Arc<Self>) {
        self.log.lock().unwrap().fired.push(self.number);
        self.world.changed();
    }
}

/// The main thread arms all; then one thread waits for them, and others cancel some and push others later, while they fire.
fn in_order(slack: Slack) {
    let world = World::driven(Engine::builder().shards(1));
    let log = Arc::new(StdMutex::new(Log { due: Vec::new(), fired: Vec::new() }));
    let mut parts: [Vec<Numbered>; 3] = Default::default();
    for number in 0..9 {
        // Few times, so that some are equal.
        let mut timer = Kept::new(world.engine.sleep(Duration::from_millis(1 + one_of(3) as u64)).slack(slack));
        log.lock().unwrap().due.push(timer.due(&world));
        let writes = Writes { number, log: Arc::clone(&log), world: world.clone() };
        assert!(timer.poll_as(&world, &Waker::from(Arc::new(writes))).is_pending());
        parts[number % 3].push(Numbered { number, timer });
    }
    let [stay, leave, push] = parts;
    world.spawn(|_| drop(leave));
    world.spawn({
        let log = Arc::clone(&log);
        move |world| push_later(world, push, &log)
    });
    world.spawn({
        let log = Arc::clone(&log);
        move |world| wait_for(world, stay, &log)
    });
    world.run();
    world.engine.shutdown();
    let Log { due, fired } = &*log.lock().unwrap();
    let fired: Vec<_> = fired.iter().map(|number| (due[*number], *number)).collect();
    assert!(fired.is_sorted(), "fired in this order: {fired:?}");
}

/// Pushes all of them later, each to a time of its own, and waits for them.
fn push_later(world: &World, mut timers: Vec<Numbered>, log: &StdMutex<Log>) {
    for Numbered { number, timer } in &mut timers {
        timer.later(Duration::from_nanos(500_000 + *number as u64));
        // If it had fired before, that was in time.
        if timer.is_armed() {
            log.lock().unwrap().due[*number] = timer.due(world);
        }
    }
    timers.retain(|Numbered { timer, .. }| timer.is_armed());
    wait_for(world, timers, log);
}

fn wait_for(world: &World, timers: Vec<Numbered>, log: &StdMutex<Log>) {
    let has_fired = |number| log.lock().unwrap().fired.contains(number);
    world.wait_for(Duration::from_millis(4), || timers.iter().all(|Numbered { number, .. }| has_fired(number)));
    drop(timers);
}

#[test]
fn p3_timers_of_a_shard_fire_in_order_while_others_cancel_and_push_some() {
    explore(|| in_order(if one_of(2) == 0 { Slack::exact() } else { Slack::adaptive() }));
}
