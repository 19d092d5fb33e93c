//! The capacity of an engine: timers beyond it are refused, or wait in a queue for a slot.

mod support;

use std::pin::pin;
use std::thread;
use std::time::Duration;

use futures_lite::future::block_on;
use support::{Log, NANO, Task, ms, now, poll_with, years};
use tourbillon::time::Sleep;
use tourbillon::{ArmError, Clock, Engine, Outcome, Slack};

/// Returns an engine that is full, and the sleep that takes its only slot.
fn full() -> (Engine, Sleep) {
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
    let takes_all_slots = engine.try_sleep(years(1)).unwrap();
    (engine, takes_all_slots)
}

#[test]
fn d43_p7_at_capacity_try_sleep_gives_an_error_that_says_the_limit() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(3).build().unwrap();
    let mut held: Vec<_> = (0..3).map(|_| engine.try_sleep(ms(10)).unwrap()).collect();
    let full = engine.try_sleep(ms(10)).unwrap_err();
    assert_eq!(full, ArmError::Full { capacity: 3 });
    assert!(full.to_string().contains('3'), "{full}");
    assert!(engine.try_sleep(Duration::ZERO).is_ok(), "a sleep that is due already takes no slot");
    held.pop();
    let again = engine.try_sleep(ms(10)).unwrap();
    assert_eq!(engine.try_sleep(ms(10)).unwrap_err(), ArmError::Full { capacity: 3 });
    drop((held, again));
    let all: Vec<_> = (0..3).map(|_| engine.try_sleep(ms(10))).collect();
    assert!(all.iter().all(Result::is_ok), "every slot is free again");
}

#[test]
fn b7_the_try_forms_say_at_once_that_an_engine_is_full_or_stopped() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
    let _entered = engine.enter();
    let first = tourbillon::time::try_sleep(ms(10)).expect("one slot is free");
    assert_eq!(tourbillon::time::try_sleep(ms(10)).unwrap_err(), ArmError::Full { capacity: 1 });
    let (error, future) = tourbillon::time::try_timeout(ms(10), std::future::ready(7)).expect_err("it is full");
    assert_eq!((error, future.into_inner()), (ArmError::Full { capacity: 1 }, 7));
    drop(first);
    assert!(tourbillon::time::try_timeout(ms(10), std::future::ready(7)).is_ok());
    engine.shutdown();
    assert_eq!(tourbillon::time::try_sleep(ms(10)).unwrap_err(), ArmError::Stopped);
}

#[test]
fn d43_p1_at_capacity_a_plain_sleep_waits_for_a_slot_and_is_never_early() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
    let (first_task, task) = (Task::new(), Task::new());
    let mut first = Box::pin(engine.sleep(ms(10)));
    assert!(first_task.poll(first.as_mut()).is_pending());
    let mut soon = pin!(engine.sleep(ms(5)));
    let mut late = pin!(engine.sleep(ms(50)));
    assert!(task.poll(soon.as_mut()).is_pending());
    assert!(task.poll(late.as_mut()).is_pending());
    assert_eq!(engine.stats().armed, 1);
    engine.advance(ms(10));
    assert!(first_task.poll(first.as_mut()).is_ready());
    assert!(task.wakes() >= 1, "a slot is free");
    assert!(task.poll(soon.as_mut()).is_ready(), "its time has passed meanwhile");
    assert!(task.poll(late.as_mut()).is_pending());
    assert_eq!(engine.advance(ms(40) - NANO), 0);
    assert_eq!(engine.advance(NANO), 1);
    assert!(task.poll(late.as_mut()).is_ready());
}

#[test]
fn d43_a_sleep_that_waits_for_a_slot_is_stopped_by_a_shutdown() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
    let _held = engine.try_sleep(ms(5)).unwrap();
    let task = Task::new();
    let mut sleep = pin!(engine.sleep(ms(5)));
    assert!(task.poll(sleep.as_mut()).is_pending());
    engine.shutdown();
    assert_eq!(task.wakes(), 1);
    assert!(task.poll(sleep.as_mut()).is_ready());
    assert_eq!(sleep.outcome(), Some(Outcome::Stopped));
}

#[test]
fn d43_d32_an_engine_that_was_full_when_it_was_shut_down_reports_that_it_is_stopped() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
    let held = engine.try_sleep(ms(5)).unwrap();
    engine.shutdown();
    assert_eq!(engine.try_sleep(ms(5)).unwrap_err(), ArmError::Stopped);
    drop(held);
    assert_eq!(engine.try_sleep(ms(5)).unwrap_err(), ArmError::Stopped);
}

#[test]
fn d43_a_sleep_dropped_while_it_waits_for_a_slot_drops_its_waker_and_harms_no_other() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
    let held = engine.try_sleep(ms(100)).unwrap();
    let (waits, goes) = (Task::new(), Task::new());
    let mut waiting = pin!(engine.sleep(ms(10)));
    assert!(waits.poll(waiting.as_mut()).is_pending());
    for _ in 0..100 {
        let mut sleep = Box::pin(engine.sleep(ms(1)));
        assert!(goes.poll(sleep.as_mut()).is_pending());
        drop(sleep);
        assert_eq!(goes.wakers_held(), 0);
        // The other sleep may be woken to check again, and has to keep waiting.
        if waits.wakes() > 0 {
            assert!(waits.poll(waiting.as_mut()).is_pending());
        }
    }
    drop(held);
    assert!(waits.wakes() > 0, "a slot is free");
    assert!(waits.poll(waiting.as_mut()).is_pending());
    assert_eq!(engine.advance(ms(10)), 1);
    assert!(waits.poll(waiting.as_mut()).is_ready());
    assert_eq!(waits.wakers_held(), 0);
}

#[test]
fn d43_many_threads_share_a_small_capacity_and_all_get_through() {
    let engine = Engine::builder().capacity(2).shards(2).build().unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let start = std::time::Instant::now();
                    block_on(engine.sleep(Duration::from_micros(100)));
                    assert!(start.elapsed() >= Duration::from_micros(100));
                }
            });
        }
    });
    let stats = engine.stats();
    assert_eq!((stats.pending, stats.armed), (0, stats.fired));
}

#[test]
fn b6_d65_sleeps_that_wait_for_a_slot_are_woken_one_for_each_slot_in_the_order_in_which_they_came() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
    let takes_all_slots = engine.try_sleep(ms(10)).unwrap();
    let log = Log::default();
    let wakers: Vec<_> = (0..20).map(|name| log.waker(name)).collect();
    let mut sleeps: Vec<_> = wakers.iter().map(|_| Box::pin(engine.sleep(ms(10)))).collect();
    for _ in 0..2 {
        // A sleep that is polled twice keeps its slot.
        for (sleep, waker) in sleeps.iter_mut().zip(&wakers) {
            assert!(poll_with(sleep.as_mut(), waker).is_pending());
        }
    }
    drop(takes_all_slots);
    for name in 0..20 {
        assert_eq!(log.take(), [name], "one slot, one wake-up");
        drop(sleeps.remove(0));
    }
}

#[test]
fn b6_d65_a_sleep_that_waits_for_a_slot_keeps_its_slot_with_another_waker_and_no_other_overtakes_it() {
    let (engine, takes_all_slots) = full();
    let log = Log::default();
    let mut sleeps: Vec<_> = (0..20).map(|_| Box::pin(engine.sleep(ms(10)))).collect();
    for (name, sleep) in sleeps.iter_mut().enumerate() {
        assert!(poll_with(sleep.as_mut(), &log.waker(name as u64)).is_pending());
    }
    for (name, sleep) in sleeps.iter_mut().enumerate().rev() {
        assert!(poll_with(sleep.as_mut(), &log.waker(100 + name as u64)).is_pending());
    }
    drop(takes_all_slots);
    for name in 0..20 {
        assert_eq!(log.take(), [100 + name]);
        assert_eq!(engine.try_sleep(ms(10)).unwrap_err(), ArmError::Full { capacity: 1 }, "the slot is reserved");
        let mut first = sleeps.remove(0);
        // Armed or not, the sleep passes the slot on when it is dropped.
        let _armed = name % 2 == 0 && poll_with(first.as_mut(), &log.waker(0)).is_ready();
    }
    assert!(engine.try_sleep(ms(10)).is_ok());
}

#[test]
fn p7_a_sleep_that_waits_for_a_slot_keeps_the_newest_of_its_wakers_and_no_other() {
    let (engine, takes_all_slots) = full();
    let mut sleep = pin!(engine.sleep(ms(10)));
    let tasks: Vec<_> = (0..1000).map(|_| Task::new()).collect();
    for task in &tasks {
        assert!(task.poll(sleep.as_mut()).is_pending());
        assert_eq!(tasks.iter().map(Task::wakers_held).sum::<usize>(), 1);
        assert_eq!(task.wakers_held(), 1);
    }
    drop(takes_all_slots);
    let woken: Vec<_> = tasks.iter().map(Task::wakes).collect();
    assert_eq!((woken[999], woken.iter().sum()), (1, 1));
    assert!(tasks[0].poll(sleep.as_mut()).is_pending());
    assert_eq!(engine.stats().pending, 1, "the sleep has the slot");
    assert_eq!((engine.advance(ms(10)), tasks[0].wakes()), (1, 1));
}

#[test]
fn p7_a_sleep_that_gives_up_waiting_for_a_slot_disturbs_no_other_in_the_queue() {
    let (engine, takes_all_slots) = full();
    let (patient, impatient) = (Task::new(), Task::new());
    let mut sleep = pin!(engine.sleep(ms(10)));
    assert!(patient.poll(sleep.as_mut()).is_pending());
    for _ in 0..100 {
        let mut gives_up = Box::pin(engine.sleep(ms(10)));
        assert!(impatient.poll(gives_up.as_mut()).is_pending());
        assert_eq!(impatient.wakers_held(), 1);
        drop(gives_up);
        assert_eq!((impatient.wakers_held(), patient.wakers_held()), (0, 1));
    }
    assert_eq!((impatient.wakes(), patient.wakes()), (0, 0));
    drop(takes_all_slots);
    assert_eq!((impatient.wakes(), patient.wakes()), (0, 1));
}

#[test]
fn p7_a_sleep_that_waits_for_a_slot_has_a_deadline_as_any_other() {
    let (engine, takes_all_slots) = full();
    let start = now(&engine);
    let task = Task::new();
    let mut sleep = pin!(engine.sleep(ms(10)).slack(Slack::exact()));
    assert!(task.poll(sleep.as_mut()).is_pending());
    assert_eq!(sleep.deadline(), start + ms(10));
    sleep.as_mut().reset(start + ms(30));
    assert_eq!((sleep.deadline(), sleep.outcome()), (start + ms(30), None));
    assert!(task.poll(sleep.as_mut()).is_pending());
    // Disarmed, the sleep keeps waiting and has no deadline when it gets a slot; armed again, it is due as before.
    sleep.as_mut().disarm();
    assert_eq!((sleep.deadline(), task.wakers_held()), (start + ms(30), 1));
    assert_eq!(engine.advance(ms(20)), 0);
    drop(takes_all_slots);
    assert_eq!(task.wakes(), 1);
    assert!(task.poll(sleep.as_mut()).is_pending());
    assert_eq!((engine.stats().pending, sleep.deadline()), (1, start + ms(30)));
    sleep.as_mut().arm();
    assert_eq!((engine.advance(ms(10) - NANO), engine.advance(NANO)), (0, 1));
    assert_eq!(task.wakes(), 1);
}

#[test]
fn p4_d64_a_sleep_that_comes_due_while_it_waits_for_a_slot_ends_at_its_deadline() {
    let (engine, _takes_all_slots) = full();
    let start = now(&engine);
    let task = Task::new();
    let mut sleep = pin!(engine.sleep(ms(10)));
    assert!(task.poll(sleep.as_mut()).is_pending());
    engine.advance(ms(9));
    assert!(task.poll(sleep.as_mut()).is_pending());
    engine.advance(ms(1));
    assert!(sleep.is_elapsed(), "the sleep has ended before it is polled");
    assert!(task.poll(sleep.as_mut()).is_ready());
    assert_eq!((sleep.outcome(), sleep.deadline()), (Some(Outcome::Fired), start + ms(10)));
    assert_eq!((task.wakers_held(), task.wakes()), (0, 1));
    // After a reset the sleep waits again; a reset to the past wakes the task.
    sleep.as_mut().reset(start + ms(20));
    assert!(task.poll(sleep.as_mut()).is_pending());
    sleep.as_mut().reset(start);
    assert_eq!((task.wakes(), task.wakers_held(), sleep.outcome()), (1, 0, Some(Outcome::Fired)));
    assert!(task.poll(sleep.as_mut()).is_ready());
}

#[test]
fn p7_a_sleep_that_finds_neither_a_slot_nor_an_engine_leaves_no_waker_behind() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
    let _takes_all_slots = engine.try_sleep(ms(10)).unwrap();
    engine.shutdown();
    let (task, mut late) = (Task::new(), Box::pin(engine.sleep(ms(10))));
    assert!(task.poll(late.as_mut()).is_ready());
    drop(late);
    assert_eq!(task.wakers_held(), 0);
}
