//! Resets, moves and disarming while a sleep waits for a slot.

use std::time::Duration;

use tourbillon::{ArmError, Clock, Engine, Outcome, Slack};

use crate::support::{ms, now, years};
use crate::{HOUR, Sleeper, elsewhere, full, wakes, with_slots};

#[test]
fn d64_a_waiting_sleep_that_is_reset_ends_at_the_new_deadline() {
    let (engine, _taken) = full(1);
    for (first, second) in [(ms(100), ms(40)), (ms(40), ms(100))] {
        let mut sleeper = Sleeper::new(&engine, first);
        sleeper.reset(&engine, second);
        engine.advance(second - ms(1));
        assert_eq!((sleeper.wakes(), sleeper.sleep.outcome()), (0, None), "from {first:?} to {second:?}");
        engine.advance(ms(1));
        assert_eq!((sleeper.wakes(), sleeper.sleep.outcome()), (1, Some(Outcome::Fired)));
        assert!(sleeper.poll().is_ready());
        // After its end the sleep can be reset again.
        sleeper.reset(&engine, ms(10));
        assert_eq!(sleeper.sleep.outcome(), None);
        assert!(sleeper.poll().is_pending());
        engine.advance(ms(10));
        assert_eq!(sleeper.wakes(), 1);
        assert!(sleeper.poll().is_ready());
    }
}

#[test]
fn d64_a_waiting_sleep_that_is_reset_to_the_past_ends_at_once() {
    let (engine, _taken) = full(1);
    engine.advance(ms(100));
    for back in [Duration::ZERO, ms(1), ms(100)] {
        let mut sleeper = Sleeper::new(&engine, HOUR);
        sleeper.sleep.as_mut().reset(now(&engine) - back);
        assert_eq!((sleeper.wakes(), sleeper.sleep.outcome()), (1, Some(Outcome::Fired)));
        assert!(sleeper.poll().is_ready());
        engine.advance(2 * HOUR);
        assert_eq!(sleeper.wakes(), 0);
    }
}

#[test]
fn d64_a_waiting_sleep_that_is_held_does_not_end_until_it_is_armed_again() {
    let (engine, taken) = full(1);
    let mut sleeper = Sleeper::new(&engine, ms(50));
    sleeper.sleep.as_mut().disarm();
    engine.advance(ms(20));
    sleeper.sleep.as_mut().arm();
    engine.advance(ms(29));
    assert_eq!((sleeper.wakes(), sleeper.sleep.outcome()), (0, None));
    sleeper.sleep.as_mut().disarm();
    engine.advance(ms(100));
    assert_eq!((sleeper.wakes(), sleeper.sleep.outcome()), (0, None), "a disarmed sleep never ends");
    sleeper.sleep.as_mut().arm();
    assert_eq!((sleeper.wakes(), sleeper.sleep.outcome()), (1, Some(Outcome::Fired)), "its deadline is past");
    assert!(sleeper.poll().is_ready());
    drop(taken);
    assert!(engine.try_sleep(HOUR).is_ok());
}

#[test]
fn d64_a_waiting_sleep_can_be_moved_to_another_thread() {
    let engine = Engine::builder().clock(Clock::manual()).slack(Slack::exact()).capacity(1).shards(2).build().unwrap();
    let taken = engine.try_sleep(years(1)).unwrap();
    let mut moved = Sleeper::new(&engine, ms(50));
    let mut armed = Sleeper::new(&engine, HOUR);
    let mut armed = elsewhere(|| {
        assert!(moved.poll().is_pending());
        assert!(armed.poll().is_pending());
        engine.advance(ms(50));
        assert_eq!(wakes([&moved, &armed]), [1, 0]);
        assert!(moved.poll().is_ready());
        armed
    });
    drop(taken);
    assert_eq!(armed.wakes(), 1);
    elsewhere(|| {
        assert!(armed.poll().is_pending());
        assert_eq!(engine.stats().pending, 1);
        drop(armed);
    });
    assert!(engine.try_sleep(HOUR).is_ok());
}

#[test]
fn d64_d65_with_one_slot_sleeps_hold_it_one_after_the_other_and_end_each_on_time() {
    let engine = with_slots(1);
    let mut all: Vec<_> = (1..=20).map(|number| Sleeper::new(&engine, ms(10 * number))).collect();
    for index in 0..20 {
        engine.advance(ms(9));
        assert!(all[index..].iter().all(|sleeper| sleeper.sleep.outcome().is_none()), "early");
        engine.advance(ms(1));
        assert_eq!(all[index].sleep.outcome(), Some(Outcome::Fired));
        assert!(all[index].poll().is_ready());
        // The next sleep takes the slot that this one had, or that was reserved for it.
        if let Some(next) = all.get_mut(index + 1) {
            assert_eq!(next.wakes(), 1);
            assert!(next.poll().is_pending());
            assert_eq!(engine.stats().pending, 1);
        }
    }
    assert_eq!((engine.stats().armed, engine.stats().fired), (20, 20), "each was armed before its deadline");
}

#[test]
fn p7_an_armed_sleep_or_timeout_keeps_its_slot_when_its_slack_is_set() {
    let engine = with_slots(1);
    let sleep = engine.try_sleep(ms(10)).unwrap().slack(Slack::up_to(ms(1)));
    assert_eq!(engine.try_sleep(HOUR).unwrap_err(), ArmError::Full { capacity: 1 }, "the slot is the sleep's");
    assert_eq!(engine.stats().pending, 1);
    engine.advance(ms(11));
    assert_eq!(sleep.outcome(), Some(Outcome::Fired), "it was armed without a poll");

    let deadline = now(&engine) + HOUR;
    let timeout = engine.try_timeout_at(deadline, std::future::pending::<()>()).unwrap().slack(Slack::exact());
    let full = engine.try_sleep_until(deadline).unwrap_err();
    assert_eq!(full, ArmError::Full { capacity: 1 });
    drop(timeout);
    assert!(engine.try_sleep_until(deadline).is_ok());
}
