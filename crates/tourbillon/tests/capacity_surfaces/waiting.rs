//! The own deadline of a sleep that waits for a slot.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tourbillon::{Clock, Driver, Engine, Outcome, Slack};

use crate::support::{Task, ms, poll_with};
use crate::{HOUR, Sleeper, full, recording_waker, wakes};

#[test]
fn d64_a_sleep_that_waits_for_a_slot_is_woken_and_ends_at_its_own_deadline() {
    let (engine, _taken) = full(1);
    let mut sleep = Box::pin(engine.sleep(ms(50)));
    let (waker, times) = recording_waker(&engine);
    assert!(poll_with(sleep.as_mut(), &waker).is_pending());
    engine.advance(ms(49));
    assert_eq!((sleep.outcome(), times.lock().unwrap().len()), (None, 0));
    engine.advance(HOUR);
    assert_eq!(*times.lock().unwrap(), [50], "once, when virtual time reaches its deadline");
    assert_eq!(
        (sleep.is_elapsed(), sleep.outcome()),
        (true, Some(Outcome::Fired)),
        "the sleep has ended without another poll"
    );
    assert!(poll_with(sleep.as_mut(), &waker).is_ready());
}

#[test]
fn d64_many_sleeps_that_wait_for_a_slot_end_each_at_its_own_deadline() {
    let (engine, _taken) = full(2);
    let all: Vec<_> = (1..=300)
        .map(|number| {
            let (waker, times) = recording_waker(&engine);
            // Far and near deadlines alternate in the queue.
            let after = if number % 2 == 0 { number } else { 1000 - number };
            let mut sleep = Box::pin(engine.sleep(ms(after)));
            assert!(poll_with(sleep.as_mut(), &waker).is_pending());
            (sleep, after, times)
        })
        .collect();
    engine.advance(ms(1000));
    for (sleep, after, times) in &all {
        assert_eq!(*times.lock().unwrap(), [u128::from(*after)]);
        assert_eq!(sleep.outcome(), Some(Outcome::Fired));
    }
    assert_eq!(engine.stats().pending, 2);
}

#[test]
fn d64_a_turn_ends_the_sleeps_that_wait_for_a_slot_and_returns_when_the_next_of_them_is_due() {
    let (engine, _taken) = full(1);
    let near = Sleeper::new(&engine, ms(20));
    let far = Sleeper::new(&engine, ms(30));
    let start = engine.clock().now().as_nanos();
    let next = |passed: u64| Some(start + passed * 1_000_000);
    assert_eq!(engine.turn().next.map(tourbillon::Time::as_nanos), next(20));
    engine.clock().advance(ms(20));
    assert_eq!(near.sleep.outcome(), None, "the driver has not passed its deadline");
    assert_eq!(engine.turn().next.map(tourbillon::Time::as_nanos), next(30));
    assert_eq!((near.sleep.outcome(), far.sleep.outcome()), (Some(Outcome::Fired), None));
    assert_eq!(wakes([&near, &far]), [1, 0]);
    drop(far);
    assert_ne!(engine.turn().next.map(tourbillon::Time::as_nanos), next(30), "it waits no longer");
}

#[test]
fn d64_a_driver_is_notified_of_a_waiting_sleep_that_is_due_before_all_others() {
    let notified = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&notified);
    let driver = Driver::external_with(move || _ = count.fetch_add(1, Ordering::SeqCst));
    let build = Engine::builder().clock(Clock::manual()).slack(Slack::exact()).driver(driver).capacity(1);
    let engine = build.build().unwrap();
    let _taken = engine.try_sleep(HOUR).unwrap();
    engine.turn();
    let before = notified.load(Ordering::SeqCst);
    let mut waits = Sleeper::new(&engine, ms(20));
    assert!(notified.load(Ordering::SeqCst) > before, "a driver that sleeps for an hour would be too late");
    engine.turn();
    let before = notified.load(Ordering::SeqCst);
    waits.reset(&engine, ms(10));
    assert!(notified.load(Ordering::SeqCst) > before);
}

#[test]
fn d64_a_sleep_that_was_never_armed_is_in_no_count() {
    let (engine, taken) = full(1);
    let mut waits = Sleeper::new(&engine, ms(50));
    engine.advance(ms(50));
    assert!(waits.poll().is_ready());
    let stats = engine.stats();
    assert_eq!((stats.armed, stats.fired, stats.pending), (1, 0, 1));
    drop(taken);
    let stats = engine.stats();
    assert_eq!((stats.armed, stats.cancelled, stats.pending), (1, 1, 0));
}

#[test]
fn d64_a_new_sleep_that_is_due_needs_no_slot() {
    let (engine, _taken) = full(1);
    let mut sleep = pin!(engine.sleep(Duration::ZERO));
    let task = Task::new();
    assert!(task.poll(sleep.as_mut()).is_ready());
    assert!(engine.try_sleep(Duration::ZERO).unwrap().is_elapsed());
}
