//! Which waiting sleep gets a slot, and when.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use tourbillon::time::timeout;
use tourbillon::{ArmError, Outcome};

use crate::support::{Log, Supplied, Task, ms, now, poll_with, waker};
use crate::{HOUR, Sleeper, full, wakes, with_slots};

#[test]
fn d65_p7_each_free_slot_wakes_one_waiter_in_the_order_in_which_they_came() {
    let (engine, mut taken) = full(3);
    let mut waits: Vec<_> = (0..5).map(|_| Sleeper::new(&engine, HOUR)).collect();
    for served in 0..3 {
        taken.pop();
        let woken: Vec<usize> = waits.iter().map(Sleeper::wakes).collect();
        let expected: Vec<usize> = (0..5).map(|index| usize::from(index == served)).collect();
        assert_eq!(woken, expected);
    }
    assert_eq!(engine.stats().pending, 0, "all three slots are reserved");
    for sleeper in waits.iter_mut().rev() {
        assert!(sleeper.poll().is_pending());
    }
    assert_eq!(engine.stats().pending, 3);
    assert!(waits.iter().all(|sleeper| sleeper.wakes() == 0));
    waits.remove(1);
    assert_eq!(waits.iter().map(Sleeper::wakes).collect::<Vec<_>>(), [0, 0, 1, 0]);
}

#[test]
fn d65_p7_timers_that_fire_in_one_turn_serve_the_queue_in_its_order() {
    let engine = with_slots(3);
    let _fired: Vec<_> = (0..3).map(|_| engine.try_sleep(ms(10)).unwrap()).collect();
    let log = Log::default();
    let mut waits: Vec<_> = (0..5).map(|_| Box::pin(engine.sleep(HOUR))).collect();
    for (number, sleep) in (0..).zip(&mut waits) {
        assert!(poll_with(sleep.as_mut(), &log.waker(number)).is_pending());
    }
    engine.advance(ms(10));
    assert_eq!(log.take(), [0, 1, 2]);
}

#[test]
fn d65_p7_a_waiter_that_is_polled_again_keeps_its_position_in_the_queue_and_is_woken_by_its_last_waker() {
    let (engine, taken) = full(1);
    let mut first = Sleeper::new(&engine, HOUR);
    let second = Sleeper::new(&engine, HOUR);
    let last = Task::new();
    assert!(first.poll().is_pending());
    assert!(last.poll(first.sleep.as_mut()).is_pending());
    assert_eq!(first.task.wakers_held(), 0);
    drop(taken);
    assert_eq!((wakes([&first, &second]), last.wakes()), ([0, 0], 1));
}

#[test]
fn d65_p7_a_waiter_that_is_reset_keeps_its_position_in_the_queue() {
    let (engine, taken) = full(1);
    let mut first = Sleeper::new(&engine, HOUR);
    let second = Sleeper::new(&engine, HOUR);
    first.reset(&engine, 2 * HOUR);
    first.reset(&engine, HOUR / 2);
    drop(taken);
    assert_eq!(wakes([&first, &second]), [1, 0]);
    // The sleep also keeps the slot that is reserved for it.
    first.reset(&engine, HOUR);
    assert_eq!(engine.try_sleep(HOUR).unwrap_err(), ArmError::Full { capacity: 1 });
    assert!(first.poll().is_pending());
    assert_eq!((engine.stats().pending, second.wakes()), (1, 0));
}

#[test]
fn d65_p7_a_slot_is_reserved_for_the_waiter_that_was_woken() {
    let (engine, taken) = full(1);
    let mut waits = Sleeper::new(&engine, HOUR);
    drop(taken);
    assert_eq!(waits.wakes(), 1);
    assert_eq!(engine.try_sleep(HOUR).unwrap_err(), ArmError::Full { capacity: 1 }, "the slot is reserved");
    let newcomer = Sleeper::new(&engine, HOUR);
    assert_eq!(engine.stats().pending, 0);
    assert!(waits.poll().is_pending());
    assert_eq!((engine.stats().pending, newcomer.wakes()), (1, 0));
    drop(waits);
    assert_eq!(newcomer.wakes(), 1);
}

#[test]
fn d65_p7_try_sleep_does_not_overtake_the_waiting_sleeps() {
    let (engine, mut taken) = full(2);
    let mut first = Sleeper::new(&engine, HOUR);
    let mut second = Sleeper::new(&engine, HOUR);
    let refused = || engine.try_sleep(HOUR).err() == Some(ArmError::Full { capacity: 2 });
    assert!(refused());
    taken.pop();
    assert!(refused(), "one slot is reserved, one is taken");
    taken.pop();
    assert!(refused(), "both slots are reserved");
    assert!(first.poll().is_pending());
    assert!(refused());
    assert!(second.poll().is_pending());
    assert!(refused(), "both slots are taken");
    assert_eq!((engine.stats().pending, wakes([&first, &second])), (2, [1, 1]));
    drop(first);
    assert!(engine.try_sleep(HOUR).is_ok(), "no sleep waits");
}

#[test]
fn d65_p7_a_woken_waiter_that_is_dropped_passes_its_slot_on() {
    let (engine, taken) = full(1);
    let [first, second, mut third] = [(); 3].map(|()| Sleeper::new(&engine, HOUR));
    drop(taken);
    assert_eq!(wakes([&first, &second, &third]), [1, 0, 0]);
    drop(first);
    assert_eq!(wakes([&second, &third]), [1, 0]);
    drop(second);
    assert_eq!(third.wakes(), 1);
    assert!(third.poll().is_pending());
    assert_eq!((engine.stats().armed, engine.stats().pending), (2, 1));
    drop(third);
    assert!(engine.try_sleep(HOUR).is_ok(), "no waiting sleep is left");
}

#[test]
fn d65_p7_a_waiter_that_is_dropped_before_it_is_woken_leaves_the_queue() {
    let (engine, taken) = full(1);
    let [first, second, third] = [(); 3].map(|()| Sleeper::new(&engine, HOUR));
    drop(second);
    drop(taken);
    assert_eq!(wakes([&first, &third]), [1, 0]);
    drop(third);
    drop(first);
    assert!(engine.try_sleep(HOUR).is_ok());
}

#[test]
fn d65_p7_a_woken_waiter_that_is_disarmed_passes_its_slot_on() {
    let (engine, taken) = full(1);
    let _entered = engine.enter();
    let task = Task::new();
    let mut first = pin!(timeout(HOUR, Supplied::<u8>(None)));
    assert!(task.poll(first.as_mut()).is_pending());
    let second = Sleeper::new(&engine, HOUR);
    drop(taken);
    assert_eq!((task.wakes(), second.wakes()), (1, 0));
    first.as_mut().disarm();
    assert_eq!(second.wakes(), 1);
    engine.advance(HOUR / 2);
    assert!(task.poll(first.as_mut()).is_pending(), "a disarmed sleep has no deadline");
    assert_eq!(engine.stats().pending, 0, "a disarmed sleep takes no slot");
}

#[test]
fn d64_d65_p7_a_woken_waiter_whose_deadline_passes_before_it_is_polled_passes_its_slot_on() {
    let (engine, taken) = full(1);
    let mut first = Sleeper::new(&engine, ms(20));
    let mut second = Sleeper::new(&engine, HOUR);
    drop(taken);
    assert_eq!(wakes([&first, &second]), [1, 0]);
    engine.advance(ms(19));
    assert_eq!((first.sleep.outcome(), second.wakes()), (None, 0));
    engine.advance(ms(1));
    assert_eq!((first.sleep.outcome(), second.wakes()), (Some(Outcome::Fired), 1));
    assert!(second.poll().is_pending());
    assert!(first.poll().is_ready());
    let stats = engine.stats();
    assert_eq!((stats.armed, stats.fired, stats.pending), (2, 0, 1), "the first was never armed");
    drop(first);
    assert!(engine.try_sleep(HOUR).is_err(), "its slot is not given back a second time");
}

#[test]
fn d65_p7_a_woken_waiter_that_is_reset_to_the_past_ends_and_passes_its_slot_on() {
    let (engine, taken) = full(1);
    engine.advance(ms(100));
    let mut first = Sleeper::new(&engine, HOUR);
    let second = Sleeper::new(&engine, HOUR);
    drop(taken);
    assert_eq!(wakes([&first, &second]), [1, 0]);
    first.sleep.as_mut().reset(now(&engine) - ms(1));
    assert_eq!((first.sleep.outcome(), second.wakes()), (Some(Outcome::Fired), 1));
    assert!(first.poll().is_ready());
}

#[test]
fn d65_p6_a_waker_that_panics_when_its_slot_is_given_leaves_the_slot_reserved() {
    let (engine, taken) = full(1);
    // `panic!` would run the hook, which prints.
    let panics = waker(|| std::panic::resume_unwind(Box::new("a waker panics, on purpose")));
    let mut first = Box::pin(engine.sleep(HOUR));
    assert!(poll_with(first.as_mut(), &panics).is_pending());
    let second = Sleeper::new(&engine, HOUR);
    drop(taken);
    assert_eq!((engine.stats().waker_panics, second.wakes()), (1, 0));
    drop(first);
    assert_eq!(second.wakes(), 1);
}

#[test]
fn d65_p10_a_waker_that_arms_and_drops_timers_of_the_same_engine_does_not_deadlock() {
    let (engine, taken) = full(1);
    let (its, tries) = (engine.clone(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&tries);
    let nosy = waker(move || {
        let mut sleep = pin!(its.sleep(HOUR));
        let refused = its.try_sleep(HOUR).is_err();
        let waits = poll_with(sleep.as_mut(), Waker::noop()).is_pending();
        count.fetch_add(usize::from(refused && waits), Ordering::SeqCst);
    });
    let mut waits = Box::pin(engine.sleep(HOUR));
    assert!(poll_with(waits.as_mut(), &nosy).is_pending());
    drop(taken);
    assert_eq!(tries.load(Ordering::SeqCst), 1);
    assert!(poll_with(waits.as_mut(), &nosy).is_pending());
    assert_eq!(engine.stats().pending, 1);
}
