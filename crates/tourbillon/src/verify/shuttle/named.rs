//! `NamedTimers` that several threads start and cancel.

use std::sync::Arc;
use std::time::Duration;

use tourbillon_queue::Span;

use super::checked_engine::{CheckedEngine, micros, one_of};
use super::explore;
use super::outcome_counts::OutcomeCounts;
use crate::multi::waiter::block_on;
use crate::sync::under_shuttle::time;
use crate::{ArmError, Engine, NamedTimers, Outcome};

/// The longest time until a timer is due, in microseconds.
const MOST: u64 = 20_000;

/// The name of timers that are renewed.
const RENEWED: &str = "renewed";

fn use_it(checked: &CheckedEngine, timers: &NamedTimers, counts: &Arc<OutcomeCounts>, may_end: bool) {
    let name = || ["a", "b", ""][one_of(3)];
    for _ in 0..6 {
        let after = micros(0, MOST);
        let callback = |counts: &Arc<OutcomeCounts>| counts.callback(checked, time() + Span::from(after));
        let started = match one_of(16) {
            0..5 => timers.start(name(), after, callback(counts)),
            12 => timers.restart(name(), after, callback(counts)).map(|cancelled| counts.cancel(cancelled)),
            13 => match timers.start_if_fewer(name(), 2, after, callback(counts)) {
                Ok(false) => {
                    counts.uncount();
                    continue;
                }
                started => started.map(drop),
            },
            // Timers under a name of their own, which threads do not wait for: a renewal puts them off.
            14 => timers.start(RENEWED, after, callback(counts)),
            15 => {
                // No deadline becomes earlier.
                timers.renew(RENEWED, Duration::from_micros(MOST));
                continue;
            }
            5 => {
                let created = timers.create(name());
                counts.cancel(timers.cancel_up_to(name(), 1));
                created.start(after, callback(counts))
            }
            6 => {
                // If another thread cancels it before it is dropped, that thread counts it.
                let created = timers.create(name());
                counts.begin();
                drop(created);
                counts.withdraw();
                continue;
            }
            7..9 => {
                counts.cancel(timers.cancel(name()));
                continue;
            }
            9 => {
                counts.cancel(timers.cancel_up_to(name(), 1 + one_of(2)));
                continue;
            }
            10 if may_end => {
                checked.engine.shutdown();
                continue;
            }
            _ => wait(checked, timers, counts, name()),
        };
        if started.is_err() {
            counts.uncount();
        }
    }
}

fn wait(checked: &CheckedEngine, timers: &NamedTimers, counts: &OutcomeCounts, name: &str) -> Result<(), ArmError> {
    counts.begin();
    let after = micros(0, MOST);
    let due = time() + Span::from(after);
    let wait = timers.create(name).wait(after)?;
    let outcome = {
        let _waits = checked.waits_until(time() + Span::from(after));
        block_on(wait)
    };
    assert!(outcome != Outcome::Fired || time() >= due, "fired at {:?}, due at {due:?}", time());
    counts.record(outcome);
    Ok(())
}

fn share(checked: CheckedEngine, may_end: bool) {
    let (timers, counts) = (NamedTimers::on(&checked.engine), Arc::new(OutcomeCounts::default()));
    for _ in 0..3 {
        let (timers, counts) = (timers.clone(), Arc::clone(&counts));
        checked.spawn(move |checked| use_it(checked, &timers, &counts, may_end));
    }
    checked.run();
    ["a", "b", "", RENEWED].iter().for_each(|name| counts.cancel(timers.cancel(name)));
    counts.check(&checked);
    assert!(timers.is_empty() && timers.names().is_empty(), "{} are left", timers.len());
    checked.engine.shutdown();
    checked.check_outcomes();
}

#[test]
fn p1_p2_w3_w5_timers_by_name_end_once_and_cancels_are_counted_exactly() {
    explore(|| share(CheckedEngine::driven(Engine::builder().shards(1 + one_of(3))), false));
}

#[test]
fn p2_w7_timers_by_name_end_once_when_the_engine_is_shut_down() {
    explore(|| share(CheckedEngine::driven(Engine::builder().shards(1 + one_of(3))), true));
}

#[test]
fn p1_p2_w3_timers_by_name_on_an_engine_that_is_turned_by_two_threads() {
    explore(|| share(CheckedEngine::turned(Engine::builder(), 2), true));
}
