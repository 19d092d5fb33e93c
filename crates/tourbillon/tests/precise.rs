//! Precise timers on a runtime's worker.

mod support;

use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use support::us;
use tourbillon::time::Sleep;
use tourbillon::{Clock, Engine, Slack};

fn armed(engine: &Engine, after: Duration, slack: Slack) -> Pin<Box<Sleep>> {
    let mut sleep = Box::pin(engine.sleep(after).slack(slack));
    assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    sleep
}

#[test]
fn d73_a_precise_timer_that_is_far_away_keeps_no_worker_awake_before_other_timers() {
    let engine = Engine::builder().clock(Clock::manual()).build().unwrap();
    let mut worker = engine.worker(|| ()).unwrap();
    let usual = worker.too_short_to_sleep();
    let hour = Duration::from_secs(3600);
    let precise = armed(&engine, hour, Slack::precise());
    worker.turn();
    assert_eq!(worker.too_short_to_sleep(), usual);
    for slack in [Slack::adaptive(), Slack::exact()] {
        let other = armed(&engine, us(150), slack);
        assert!(!worker.turn().more);
        assert_eq!(worker.too_short_to_sleep(), usual, "before {slack:?}");
        assert_eq!(worker.time_left(), Some(us(150)));
        engine.clock().advance(us(150));
        assert_eq!(worker.turn().fired, 1);
        assert!(other.is_elapsed());
    }
    // The worker has to wake up before the precise timer is due, and then stay awake.
    let left = worker.time_left().unwrap();
    assert!(left < hour - us(300), "no time is left to wake up in");
    engine.clock().advance(left);
    assert_eq!(worker.turn().fired, 0);
    assert!(worker.time_left().unwrap() <= worker.too_short_to_sleep());
    assert!(worker.too_short_to_sleep() > usual);
    engine.clock().advance(worker.time_left().unwrap());
    assert_eq!(worker.turn().fired, 1);
    assert!(precise.is_elapsed());
    assert_eq!(worker.too_short_to_sleep(), usual);
}
