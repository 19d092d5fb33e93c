//! When a sleep is armed: at the first poll, or in one call.

use std::task::Poll;
use std::thread;
use std::time::Duration;

use tourbillon::time::Sleep;
use tourbillon::{Clock, Engine, Outcome};

use crate::boxed;
use crate::support::{Task, eventually, manual, ms, now, years};

#[test]
fn t5_a_sleep_that_is_never_polled_is_never_armed() {
    let engine = manual();
    let mut sleep = boxed(engine.sleep(ms(10)));
    sleep.as_mut().reset(now(&engine) + ms(20));
    sleep.as_mut().disarm();
    drop(sleep);
    let stats = engine.stats();
    assert_eq!((stats.armed, stats.cancelled), (0, 0));
}

#[test]
fn f8_a_sleep_made_and_polled_in_one_call_counts_towards_the_capacity() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
    let _entered = engine.enter();
    let (task, other) = (Task::new(), Task::new());
    let (first, poll) = Sleep::polled(ms(10), &mut task.cx());
    assert!(poll.is_pending());
    let (second, poll) = Sleep::polled(ms(5), &mut other.cx());
    assert!(poll.is_pending());
    assert_eq!(engine.stats().pending, 1, "the second waits for a slot");
    drop(first);
    let mut second = Box::pin(second);
    assert_eq!((task.wakes(), other.wakes()), (0, 1));
    assert!(other.poll(second.as_mut()).is_pending());
    assert_eq!(engine.advance(ms(5)), 1);
    assert_eq!(other.poll(second.as_mut()), Poll::Ready(()));
}

#[test]
fn f8_a_sleep_made_and_polled_in_one_call_is_ready_if_it_is_due_and_after_a_shutdown() {
    let engine = manual();
    let _entered = engine.enter();
    let (zero, poll) = Sleep::polled(Duration::ZERO, &mut Task::new().cx());
    assert_eq!((poll, zero.outcome(), engine.stats().armed), (Poll::Ready(()), Some(Outcome::Fired), 0));
    engine.shutdown();
    let (late, poll) = Sleep::polled(ms(1), &mut Task::new().cx());
    assert_eq!((poll, late.outcome()), (Poll::Ready(()), Some(Outcome::Stopped)));
}

#[test]
fn f8_t7_a_sleep_made_and_polled_in_one_call_wakes_a_driver_that_would_sleep_longer() {
    let engine = Engine::builder().build().unwrap();
    let _entered = engine.enter();
    let (far, near) = (Task::new(), Task::new());
    let (_far, poll) = Sleep::polled(years(1), &mut far.cx());
    assert!(poll.is_pending());
    thread::sleep(ms(20));
    let (_near, _) = Sleep::polled(ms(5), &mut near.cx());
    eventually("the nearer one fires", || near.wakes() == 1);
    assert_eq!(far.wakes(), 0);
}
