//! Deadlines that have passed: the sleep is ready at the first poll.

use std::pin::pin;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use tourbillon::time::{Instant, sleep};
use tourbillon::{Clock, Driver, Engine, Outcome};

use crate::boxed;
use crate::support::{Task, manual, ms, now, years};

#[test]
fn f6_a_deadline_that_is_now_or_past_never_suspends() {
    let engine = manual();
    engine.advance(ms(1000));
    let task = Task::new();
    for deadline in [now(&engine), now(&engine) - ms(1), now(&engine) - ms(1000), now(&engine) - years(10)] {
        let mut sleep = pin!(engine.sleep_until(deadline));
        assert_eq!(task.poll(sleep.as_mut()), Poll::Ready(()));
        assert_eq!(sleep.outcome(), Some(Outcome::Fired));
    }
    assert_eq!((task.wakes(), task.wakers_held()), (0, 0));
    assert_eq!(engine.stats().armed, 0, "none of them was armed");
}

#[test]
fn f6_a_deadline_that_has_passed_when_it_is_first_polled_never_suspends_on_the_real_clock_either() {
    let engine = Engine::builder().build().unwrap();
    let task = Task::new();
    let mut sleep = pin!(engine.sleep(ms(1)));
    while Instant::now() < sleep.deadline() + ms(1) {
        thread::sleep(ms(1));
    }
    assert!(task.poll(sleep.as_mut()).is_ready());
    assert_eq!((sleep.outcome(), engine.stats().armed), (Some(Outcome::Fired), 0));
}

#[test]
fn f6_a_thousand_zero_sleeps_never_suspend() {
    let engine = manual();
    let task = Task::new();
    for _ in 0..1000 {
        assert!(task.poll(pin!(engine.sleep(Duration::ZERO))).is_ready());
    }
    // The same on the real clock, on the global engine.
    for _ in 0..1000 {
        assert!(task.poll(pin!(sleep(Duration::ZERO))).is_ready());
    }
    assert_eq!(engine.stats().armed, 0);
}

#[test]
fn f6_a_zero_sleep_while_a_turn_is_overdue_is_ready_after_that_turn() {
    let engine = manual();
    let task = Task::new();
    let mut overdue = pin!(engine.sleep(ms(5)));
    assert!(task.poll(overdue.as_mut()).is_pending());
    engine.clock().advance(ms(10));
    let mut zero = pin!(engine.sleep(Duration::ZERO));
    let _ = task.poll(zero.as_mut());
    engine.turn();
    assert!(task.poll(zero.as_mut()).is_ready());
    assert!(task.poll(overdue.as_mut()).is_ready());
}

#[test]
#[cfg_attr(miri, ignore = "there is no boot-time clock")]
fn f6_a_zero_sleep_is_ready_at_once_on_every_clock_of_the_system_while_a_turn_is_overdue() {
    for clock in [Clock::monotonic(), Clock::boot(), Clock::wall()] {
        let engine = Engine::builder().clock(clock).driver(Driver::external()).build().unwrap();
        let task = Task::new();
        let mut overdue = boxed(engine.sleep(ms(1)));
        while task.poll(overdue.as_mut()).is_ready() {
            overdue = boxed(engine.sleep(ms(1)));
        }
        thread::sleep(ms(2));
        assert!(task.poll(pin!(engine.sleep(Duration::ZERO))).is_ready(), "{:?}", engine.clock());
        assert!(!overdue.is_elapsed());
    }
}
