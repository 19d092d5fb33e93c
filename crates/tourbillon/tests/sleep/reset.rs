//! `reset`, `disarm` and `arm`.

use std::pin::pin;
use std::task::Waker;

use tourbillon::Outcome;

use crate::boxed;
use crate::support::{Log, NANO, Task, manual, ms, now, poll_with, years};

#[test]
fn t8_a_reset_before_the_first_poll_is_the_same_as_making_the_sleep_with_that_deadline() {
    let engine = manual();
    let task = Task::new();
    let start = now(&engine);
    let mut sleep = pin!(engine.sleep(ms(10)));
    sleep.as_mut().reset(start + ms(20));
    assert_eq!(sleep.deadline(), start + ms(20));
    assert!(task.poll(sleep.as_mut()).is_pending());
    assert_eq!(engine.advance(ms(20) - NANO), 0);
    assert_eq!(engine.advance(NANO), 1);
    assert!(task.poll(sleep.as_mut()).is_ready());
}

#[test]
fn t8_reset_before_the_turn_takes_effect_even_when_the_old_deadline_has_passed() {
    // The sleep was just armed, or a turn has put it into the queue since.
    for turned_before in [false, true] {
        let engine = manual();
        let task = Task::new();
        let start = now(&engine);
        let mut sleep = pin!(engine.sleep(ms(10)));
        assert!(task.poll(sleep.as_mut()).is_pending());
        if turned_before {
            let mut first = pin!(engine.sleep(ms(1)));
            assert!(poll_with(first.as_mut(), Waker::noop()).is_pending());
            assert_eq!(engine.advance(ms(1)), 1);
        }
        // The clock has reached the deadline; the driver has not run yet.
        engine.clock().advance(ms(10));
        sleep.as_mut().reset(start + ms(20));
        assert_eq!(engine.turn().fired, 0);
        assert!(!sleep.is_elapsed());
        assert_eq!(engine.advance(ms(10)), 1, "turned before: {turned_before}");
        assert_eq!(task.wakes(), 1);
        assert!(task.poll(sleep.as_mut()).is_ready());
    }
}

#[test]
fn t8_reset_after_firing_makes_it_wait_again() {
    let engine = manual();
    let task = Task::new();
    let mut sleep = pin!(engine.sleep(ms(10)));
    for polled_before_the_reset in [false, true] {
        assert!(task.poll(sleep.as_mut()).is_pending());
        engine.advance(ms(10));
        assert!(sleep.is_elapsed());
        assert_eq!(task.wakes(), 1);
        if polled_before_the_reset {
            assert!(task.poll(sleep.as_mut()).is_ready());
        }
        let next = now(&engine) + ms(10);
        sleep.as_mut().reset(next);
        assert_eq!((sleep.is_elapsed(), sleep.outcome(), sleep.deadline()), (false, None, next));
    }
    assert!(task.poll(sleep.as_mut()).is_pending());
    engine.advance(ms(10));
    assert!(task.poll(sleep.as_mut()).is_ready());
}

#[test]
fn t8_a_reset_into_the_past_ends_a_sleep_at_once_and_wakes_its_task() {
    let engine = manual();
    engine.advance(ms(100));
    let task = Task::new();
    let mut sleep = pin!(engine.sleep(ms(10)));
    assert!(task.poll(sleep.as_mut()).is_pending());
    sleep.as_mut().reset(now(&engine) - ms(50));
    assert_eq!(task.wakes(), 1, "the task is woken without another poll or turn");
    assert!(sleep.is_elapsed());
    engine.turn();
    assert_eq!(task.wakes(), 0, "the task is woken only once");
    assert!(task.poll(sleep.as_mut()).is_ready());
    let stats = engine.stats();
    assert_eq!((stats.armed, stats.fired, stats.pending), (1, 1, 0));
}

#[test]
fn t8_a_reset_after_firing_takes_back_the_outcome_whether_the_new_deadline_is_past_or_not() {
    for (to, is_past) in [(ms(0), true), (ms(5), true), (ms(10), true), (ms(30), false)] {
        for polled_before_the_reset in [false, true] {
            let engine = manual();
            let task = Task::new();
            let start = now(&engine);
            let mut sleep = pin!(engine.sleep(ms(10)));
            assert!(task.poll(sleep.as_mut()).is_pending());
            engine.advance(ms(20));
            assert_eq!((task.wakes(), sleep.outcome()), (1, Some(Outcome::Fired)));
            if polled_before_the_reset {
                assert!(task.poll(sleep.as_mut()).is_ready());
            }
            sleep.as_mut().reset(start + to);
            assert_eq!(sleep.outcome(), None, "until the next poll: {to:?}");
            assert_eq!(task.poll(sleep.as_mut()).is_ready(), is_past, "{to:?}");
            assert_eq!(task.wakes(), 0, "no task was waiting: {to:?}");
        }
    }
}

#[test]
fn p3_a_reset_to_the_same_deadline_keeps_a_sleep_in_its_place_among_equals() {
    let engine = manual();
    let log = Log::default();
    let deadline = now(&engine) + ms(10);
    let mut first = pin!(engine.sleep_until(deadline));
    let mut second = pin!(engine.sleep_until(deadline));
    assert!(poll_with(first.as_mut(), &log.waker(1)).is_pending());
    assert!(poll_with(second.as_mut(), &log.waker(2)).is_pending());
    first.as_mut().reset(deadline);
    engine.advance(ms(10));
    assert_eq!(log.take(), [1, 2]);
}

#[test]
fn t8_reset_into_the_future_and_back_wakes_at_the_last_deadline_only() {
    let engine = manual();
    let start = now(&engine);
    let task = Task::new();
    let mut sleep = pin!(engine.sleep(ms(50)));
    assert!(task.poll(sleep.as_mut()).is_pending());
    sleep.as_mut().reset(start + ms(500));
    sleep.as_mut().reset(start + ms(20));
    assert_eq!(sleep.deadline(), start + ms(20));
    engine.advance(ms(20) - NANO);
    assert_eq!(task.wakes(), 0);
    engine.advance(NANO);
    assert_eq!(task.wakes(), 1);
    engine.advance(ms(1000));
    assert_eq!(task.wakes(), 0, "the other deadlines no longer count");
    assert!(task.poll(sleep.as_mut()).is_ready());
}

#[test]
fn t4_moving_a_deadline_later_again_and_again_causes_no_wake_up_before_the_last() {
    let engine = manual();
    let task = Task::new();
    let mut sleep = pin!(engine.sleep(ms(10)));
    assert!(task.poll(sleep.as_mut()).is_pending());
    // Like a keep-alive timer: each answer moves the deadline.
    for _ in 0..1000 {
        engine.advance(ms(9));
        let next = now(&engine) + ms(10);
        sleep.as_mut().reset(next);
    }
    assert_eq!(task.wakes(), 0);
    assert!(task.poll(sleep.as_mut()).is_pending());
    engine.advance(ms(10));
    assert_eq!(task.wakes(), 1);
    assert!(task.poll(sleep.as_mut()).is_ready());
    let stats = engine.stats();
    assert_eq!((stats.armed, stats.fired), (1, 1), "it was one timer the whole time");
}

#[test]
fn t8_a_sleep_dropped_after_a_reset_to_the_same_instant_is_gone() {
    let engine = manual();
    let task = Task::new();
    let start = now(&engine);
    let mut sleep = boxed(engine.sleep_until(start + ms(10)));
    assert!(task.poll(sleep.as_mut()).is_pending());
    sleep.as_mut().reset(start + ms(10));
    assert!(task.poll(sleep.as_mut()).is_pending());
    // The same when the sleep has fired and was armed once more for the same instant.
    engine.advance(ms(10));
    sleep.as_mut().reset(start + ms(10));
    drop(sleep);
    assert_eq!((task.wakers_held(), engine.stats().pending), (0, 0));

    let mut sleep = boxed(engine.sleep_until(start + ms(20)));
    assert!(task.poll(sleep.as_mut()).is_pending());
    sleep.as_mut().reset(start + ms(20));
    drop(sleep);
    assert_eq!((task.wakers_held(), engine.stats().pending), (0, 0));
    task.wakes();
    assert_eq!(engine.advance(ms(100)), 0);
    assert_eq!(task.wakes(), 0);
}

#[test]
fn b7_a_disarmed_sleep_waits_until_it_is_armed_again() {
    let engine = manual();
    let start = now(&engine);
    let task = Task::new();
    let mut sleep = pin!(engine.sleep(ms(10)));
    assert!(task.poll(sleep.as_mut()).is_pending());
    sleep.as_mut().disarm();
    assert_eq!(sleep.deadline(), start + ms(10), "the deadline is kept");
    assert_eq!(engine.advance(years(1)), 0);
    assert!(task.poll(sleep.as_mut()).is_pending());
    sleep.as_mut().disarm();
    sleep.as_mut().arm();
    engine.turn();
    assert_eq!(task.wakes(), 1, "its deadline passed long ago");
    assert!(task.poll(sleep.as_mut()).is_ready());
}

#[test]
fn b7_a_sleep_armed_again_in_time_fires_at_its_old_deadline() {
    let engine = manual();
    let task = Task::new();
    let mut sleep = pin!(engine.sleep(ms(10)));
    assert!(task.poll(sleep.as_mut()).is_pending());
    sleep.as_mut().disarm();
    engine.advance(ms(5));
    sleep.as_mut().arm();
    assert_eq!(engine.advance(ms(5) - NANO), 0);
    assert_eq!(engine.advance(NANO), 1);
    assert_eq!(task.wakes(), 1);
    assert!(task.poll(sleep.as_mut()).is_ready());
}

#[test]
fn b7_a_sleep_can_be_disarmed_before_it_is_polled_and_after_it_has_fired() {
    let engine = manual();
    let task = Task::new();
    let mut sleep = pin!(engine.sleep(ms(10)));
    sleep.as_mut().disarm();
    assert!(task.poll(sleep.as_mut()).is_pending());
    assert_eq!(engine.advance(ms(20)), 0);
    sleep.as_mut().arm();
    engine.turn();
    assert!(task.poll(sleep.as_mut()).is_ready());

    sleep.as_mut().disarm();
    assert_eq!(sleep.outcome(), None);
    assert!(task.poll(sleep.as_mut()).is_pending());
    assert_eq!(engine.advance(years(1)), 0);
    let next = now(&engine) + ms(5);
    sleep.as_mut().reset(next);
    assert_eq!(engine.advance(ms(5)), 1, "a reset arms it too");
    assert!(task.poll(sleep.as_mut()).is_ready());
}

#[test]
fn b7_arming_a_sleep_that_was_not_disarmed_changes_nothing() {
    let engine = manual();
    let task = Task::new();
    let mut sleep = pin!(engine.sleep(ms(10)));
    sleep.as_mut().arm();
    assert!(task.poll(sleep.as_mut()).is_pending());
    sleep.as_mut().arm();
    assert_eq!(engine.advance(ms(10)), 1);
    sleep.as_mut().arm();
    assert!(task.poll(sleep.as_mut()).is_ready());
    sleep.as_mut().arm();
    assert!(sleep.is_elapsed());
}
