//! `Sleep`: the behaviour of `tokio::time::Sleep`, and additions to it.

mod arming;
mod deadline;
mod ready_at_once;
mod reset;
#[path = "../support/mod.rs"]
mod support;
mod threads;
mod wakers;

use std::pin::{Pin, pin};
use std::time::Duration;

use support::{Task, manual, ms, now, years};
use tourbillon::Slack;
use tourbillon::time::Sleep;

pub(crate) fn boxed(sleep: Sleep) -> Pin<Box<Sleep>> {
    Box::pin(sleep)
}

#[test]
fn t8_a_sleep_is_send_and_sync_and_not_unpin() {
    fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Sleep>();

    // If `Sleep` were `Unpin`, both of these would hold for it, and the compiler could not choose.
    trait NotUnpin<Which> {
        fn holds() {}
    }
    impl<T> NotUnpin<()> for T {}
    impl<T: Unpin> NotUnpin<u8> for T {}
    <Sleep as NotUnpin<_>>::holds();
}

#[test]
fn t8_debug_shows_the_deadline_and_the_outcome() {
    let engine = manual();
    let mut sleep = pin!(engine.sleep(ms(10)));
    let _ = Task::new().poll(sleep.as_mut());
    engine.advance(ms(10));
    let text = format!("{:?}", *sleep);
    assert!(text.contains("deadline") && text.contains("Fired"), "{text}");
}

#[test]
fn p5_durations_from_zero_to_max_are_all_valid() {
    let engine = manual();
    let task = Task::new();
    let start = now(&engine);
    for duration in [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_nanos(u64::MAX), years(600)] {
        for slack in [Slack::adaptive(), Slack::exact(), Slack::up_to(Duration::MAX), Slack::precise()] {
            let mut sleep = pin!(engine.sleep(duration).slack(slack));
            assert!(sleep.deadline() > start + years(100));
            assert!(task.poll(sleep.as_mut()).is_pending());
            assert!(engine.try_sleep(duration).is_ok());
            // They can be reset like any other sleep.
            sleep.as_mut().reset(start + Duration::MAX);
            sleep.as_mut().disarm();
            sleep.as_mut().arm();
            assert_eq!(engine.advance(ms(1)), 0);
            assert!(task.poll(sleep.as_mut()).is_pending());
            let soon = now(&engine) + ms(1);
            sleep.as_mut().reset(soon);
            let most = if slack == Slack::up_to(Duration::MAX) { None } else { Some(1) };
            assert!(most.is_none_or(|fired| engine.advance(ms(1)) == fired), "{duration:?} with {slack:?}");
        }
    }
    assert!(task.poll(pin!(engine.sleep(Duration::ZERO))).is_ready());
}
