//! Sleeps that are armed, moved, handed from thread to thread and dropped, in any order.

use std::sync::Arc;
use std::time::Duration;

use shuttle::sync::Mutex;

use super::checked_engine::{CheckedEngine, SLACK, micros, one_of};
use super::counted_sleep::CountedSleep;
use super::explore;
use crate::{Builder, Engine, Slack};

/// Sleeps that one thread has given up and another may take.
type Exchange = Arc<Mutex<Vec<CountedSleep>>>;

/// When the engine is shut down.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// After all threads have ended.
    Last,
    AnyTime,
}

/// Uses the engine for `steps` steps.
fn use_engine(checked: &CheckedEngine, exchange: &Exchange, ends: Ends, steps: usize) {
    let mut mine: Vec<CountedSleep> = Vec::new();
    for _ in 0..steps {
        match (one_of(20), mine.last_mut()) {
            (0..5, _) | (_, None) => {
                let mut sleep = CountedSleep::new(checked.engine.sleep(micros(0, 20_000)).slack(slack()));
                let _armed = sleep.poll(checked);
                mine.push(sleep);
            }
            (5, Some(sleep)) => sleep.earlier(micros(1, 25_000)),
            (6, Some(sleep)) => sleep.later(micros(1, 10_000)),
            (7, Some(sleep)) => sleep.hold(),
            (8, Some(sleep)) => _ = sleep.poll(checked),
            (9..12, Some(sleep)) => _ = sleep.wait(checked),
            (12..14, _) => drop(mine.pop()),
            (14..16, _) => {
                let given = mine.pop();
                exchange.lock().unwrap().extend(given);
            }
            (16..18, _) => {
                let taken = exchange.lock().unwrap().pop();
                mine.extend(taken);
            }
            (18, _) if ends == Ends::AnyTime => checked.engine.shutdown(),
            // Not with an external driver: the thread that turns the engine must turn again when the turn says so.
            (19, _) if !checked.engine.core().driver.is_external() => _ = checked.engine.turn(),
            _ => _ = checked.engine.stats(),
        }
    }
    for mut sleep in mine {
        if one_of(2) == 0 {
            sleep.wait(checked);
        }
    }
}

/// Three threads and sometimes more use the engine.
fn many(checked: CheckedEngine, ends: Ends) {
    let exchange = Exchange::default();
    for _ in 0..3 {
        let exchange = Arc::clone(&exchange);
        checked.spawn(move |checked| {
            use_engine(checked, &exchange, ends, 6);
            // Another thread, which may get the shard of this one.
            if one_of(3) == 0 {
                checked.spawn(move |checked| use_engine(checked, &exchange, ends, 3));
            }
        });
    }
    checked.run();
    exchange.lock().unwrap().clear();
    checked.check_wakes();
    checked.engine.shutdown();
}

fn builder() -> Builder {
    Engine::builder().shards(1 + one_of(3))
}

fn slack() -> Slack {
    match one_of(6) {
        0 => Slack::exact(),
        1 => Slack::up_to(Duration::from_micros(SLACK)),
        2 => Slack::precise(),
        _ => Slack::adaptive(),
    }
}

#[test]
fn p1_p2_p4_d39_sleeps_of_several_threads_and_a_driver_end_once_and_in_time() {
    explore(|| many(CheckedEngine::driven(builder()), Ends::Last));
}

#[test]
fn p1_p2_d32_d39_an_engine_is_shut_down_at_any_moment() {
    explore(|| many(CheckedEngine::driven(builder()), Ends::AnyTime));
}

#[test]
fn p1_p2_d39_sleeps_of_an_engine_that_two_threads_turn() {
    explore(|| many(CheckedEngine::turned(builder(), 2), Ends::AnyTime));
}
