//! When a slot becomes free.

use std::pin::pin;
use std::time::Duration;

use tourbillon::time::timeout;
use tourbillon::{ArmError, Outcome, Slack};

use crate::support::{Supplied, Task, ms};
use crate::{HOUR, Sleeper, wakes, with_slots};

#[test]
fn d64_p7_a_timer_that_has_fired_holds_no_slot_before_it_is_polled() {
    let engine = with_slots(1);
    let fired = engine.try_sleep(ms(10)).unwrap();
    assert_eq!(engine.try_sleep(ms(10)).unwrap_err(), ArmError::Full { capacity: 1 });
    engine.advance(ms(10));
    assert!(fired.is_elapsed());
    let again = engine.try_sleep(ms(10)).expect("the first one has fired");
    assert_eq!(engine.stats().pending, 1);
    drop(fired);
    assert_eq!(engine.try_sleep(ms(10)).unwrap_err(), ArmError::Full { capacity: 1 }, "no slot is given back twice");
    drop(again);
    assert!(engine.try_sleep(ms(10)).is_ok());
}

#[test]
fn d64_p7_the_turn_that_fires_a_timer_wakes_the_sleep_that_waits_for_its_slot() {
    let engine = with_slots(1);
    let mut first = Sleeper::new(&engine, ms(10));
    let mut second = Sleeper::new(&engine, HOUR);
    engine.advance(ms(10));
    assert_eq!(wakes([&first, &second]), [1, 1], "the first has not been polled");
    assert!(second.poll().is_pending());
    assert_eq!((engine.stats().pending, engine.stats().armed), (1, 2));
    assert!(first.poll().is_ready());
    drop(first);
    engine.advance(HOUR);
    assert_eq!(second.wakes(), 1);
    assert!(second.poll().is_ready());
}

#[test]
fn d64_p7_a_timer_that_fires_within_a_reset_gives_its_slot_back_in_that_call() {
    let engine = with_slots(1);
    let mut armed = Sleeper::new(&engine, HOUR);
    let waits = Sleeper::new(&engine, HOUR);
    armed.reset(&engine, Duration::ZERO);
    assert_eq!(wakes([&armed, &waits]), [1, 1]);
    assert_eq!(armed.sleep.outcome(), Some(Outcome::Fired));
}

#[test]
fn d43_p7_a_timer_that_is_cancelled_in_any_way_gives_its_slot_back_at_once() {
    let engine = with_slots(1);
    let _entered = engine.enter();
    let task = Task::new();
    drop(engine.try_sleep(HOUR).unwrap());
    let mut disarmed = pin!(timeout(HOUR, Supplied::<u8>(None)));
    assert!(task.poll(disarmed.as_mut()).is_pending());
    assert!(engine.try_sleep(HOUR).is_err());
    disarmed.as_mut().disarm();
    let armed = engine.try_sleep(HOUR).expect("the timeout has no timer any more");
    drop(armed.slack(Slack::precise()));
    assert!(engine.try_sleep(HOUR).is_ok());
}
