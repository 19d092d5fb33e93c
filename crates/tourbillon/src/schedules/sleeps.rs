//! Sleeps that are armed, moved, handed from thread to thread and dropped, in any order.

use std::sync::Arc;
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Mutex;

use super::explore;
use super::world::{Kept, SLACK, World};
use crate::{Builder, Engine, Slack};

/// Sleeps that belong to nobody at the moment.
type Hat = Arc<Mutex<Vec<Kept>>>;

/// What threads can do, beside using their sleeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// Nothing ends the engine but that all have gone.
    Last,
    /// Somebody may shut it down.
    AnyTime,
}

fn micros(least: u64, most: u64) -> Duration {
    Duration::from_micros(thread_rng().gen_range(least..=most))
}

fn slack() -> Slack {
    match thread_rng().gen_range(0..6) {
        0 => Slack::exact(),
        1 => Slack::upto(Duration::from_micros(SLACK)),
        2 => Slack::precise(),
        _ => Slack::adaptive(),
    }
}

fn builder() -> Builder {
    Engine::builder().shards(thread_rng().gen_range(1..=3))
}

/// Uses the engine for so many steps.
fn use_it(world: &World, hat: &Hat, ends: Ends, steps: usize) {
    let mut mine: Vec<Kept> = Vec::new();
    for _ in 0..steps {
        let chance = thread_rng().gen_range(0..20);
        let last = mine.last_mut();
        match (chance, last) {
            (0..5, _) | (_, None) => {
                let mut sleep = Kept::new(world.engine.sleep(micros(0, 4000)).slack(slack()));
                let _armed = sleep.poll(world);
                mine.push(sleep);
            }
            (5, Some(sleep)) => sleep.earlier(micros(1, 5000)),
            (6, Some(sleep)) => sleep.later(micros(1, 2000)),
            (7, Some(sleep)) => sleep.hold(),
            (8, Some(sleep)) => _ = sleep.poll(world),
            (9..12, Some(sleep)) => _ = sleep.wait(world),
            (12..14, _) => drop(mine.pop()),
            (14..16, _) => {
                let given = mine.pop();
                hat.lock().unwrap().extend(given);
            }
            (16..18, _) => {
                let taken = hat.lock().unwrap().pop();
                mine.extend(taken);
            }
            (18, _) if ends == Ends::AnyTime => world.engine.shutdown(),
            // In an engine that is turned from outside who turns has to come again when the turn says so.
            (19, _) if !world.engine.core().driving.is_external() => _ = world.engine.turn(),
            _ => _ = world.engine.stats(),
        }
    }
    for mut sleep in mine {
        if thread_rng().gen_bool(0.5) {
            sleep.wait(world);
        }
    }
}

/// So many threads use the engine at once; the last of them ends it, unless another does.
fn many(world: World, threads: usize, ends: Ends) {
    let hat = Hat::default();
    for _ in 0..threads {
        let hat = Arc::clone(&hat);
        world.spawn(move |world| use_it(world, &hat, ends, 6));
    }
    world.run();
    hat.lock().unwrap().clear();
    world.check_books();
    world.engine.shutdown();
}

#[test]
fn p1_p2_p4_d39_sleeps_of_three_threads_and_a_driver_end_once_and_in_time() {
    explore(1000, || many(World::driven(builder()), 3, Ends::Last));
}

#[test]
fn p1_p2_d39_an_engine_is_shut_down_at_any_moment() {
    explore(1000, || many(World::driven(builder()), 3, Ends::AnyTime));
}

#[test]
fn p1_p2_d39_sleeps_of_an_engine_that_two_threads_turn() {
    explore(1000, || many(World::turned(builder(), 2), 3, Ends::AnyTime));
}
