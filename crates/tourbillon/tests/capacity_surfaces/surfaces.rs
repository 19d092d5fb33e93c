//! Every surface on a full engine.

use std::pin::pin;
use std::task::Poll;

use tourbillon::delay_queue::DelayQueue;
use tourbillon::named::NamedTimers;
use tourbillon::scheduler::{Plan, Scheduler};
use tourbillon::time::{Deadline, MissedTickBehavior, interval, timeout, try_sleep, try_timeout};
use tourbillon::{ArmError, Engine, Outcome, Timer};

use crate::support::{Log, Outcomes, Supplied, Task, is_elapsed, is_stopped, ms, now};
use crate::{HOUR, Sleeper, full, with_slots};

#[test]
fn d64_a_timeout_on_a_full_engine_elapses_on_time_and_lets_its_value_through() {
    let (engine, taken) = full(1);
    let _entered = engine.enter();
    let task = Task::new();
    let mut late = pin!(timeout(ms(50), Supplied::<u8>(None)));
    let mut ready = Box::pin(timeout(ms(50), Supplied(None)));
    let mut held = pin!(timeout(HOUR, Supplied::<u8>(None)));
    assert!(task.poll(late.as_mut()).is_pending() && task.poll(ready.as_mut()).is_pending());
    assert!(task.poll(held.as_mut()).is_pending());
    engine.advance(ms(49));
    assert_eq!(task.wakes(), 0);
    ready.as_mut().get_mut().get_mut().0 = Some(7);
    assert_eq!(task.poll(ready.as_mut()), Poll::Ready(Ok(7)));
    drop(ready);
    engine.advance(ms(1));
    assert_eq!(task.wakes(), 1);
    assert!(is_elapsed(task.poll(late.as_mut())));
    held.as_mut().reset(now(&engine) + ms(10));
    engine.advance(ms(10));
    assert_eq!(task.wakes(), 1);
    assert!(is_elapsed(task.poll(held.as_mut())));
    assert_eq!(engine.stats().armed, 1);
    drop(taken);
    assert!(engine.try_sleep(HOUR).is_ok());
}

#[test]
fn d43_the_try_functions_report_that_the_engine_is_full() {
    let (engine, taken) = full(2);
    let _entered = engine.enter();
    let full = ArmError::Full { capacity: 2 };
    assert_eq!(try_sleep(HOUR).unwrap_err(), full);
    let Err((error, value)) = try_timeout(HOUR, Supplied(Some(7))) else { panic!("no slot is free") };
    assert_eq!((error, value.0), (full, Some(7)));
    drop(taken);
    assert!(try_sleep(HOUR).is_ok() && try_timeout(HOUR, Supplied(Some(7))).is_ok());
}

#[test]
fn d64_an_interval_on_a_full_engine_ticks_on_time() {
    for missed in [MissedTickBehavior::Burst, MissedTickBehavior::Delay, MissedTickBehavior::Skip] {
        let (engine, _taken) = full(1);
        let _entered = engine.enter();
        let task = Task::new();
        let mut interval = interval(ms(10));
        interval.set_missed_tick_behavior(missed);
        let start = now(&engine);
        assert_eq!(interval.poll_tick(&mut task.cx()), Poll::Ready(start));
        for number in 1..=10 {
            assert!(interval.poll_tick(&mut task.cx()).is_pending());
            engine.advance(ms(9));
            assert_eq!(task.wakes(), 0);
            engine.advance(ms(1));
            assert_eq!(task.wakes(), 1);
            assert_eq!(interval.poll_tick(&mut task.cx()), Poll::Ready(start + ms(10 * number)));
        }
        interval.reset_after(ms(5));
        assert!(interval.poll_tick(&mut task.cx()).is_pending());
        engine.advance(ms(5));
        assert_eq!(task.wakes(), 1);
        assert!(interval.poll_tick(&mut task.cx()).is_ready());
    }
}

#[test]
fn d64_a_delay_queue_on_a_full_engine_gives_each_item_on_time() {
    let (engine, _taken) = full(1);
    let _entered = engine.enter();
    let task = Task::new();
    let mut queue = DelayQueue::new();
    for number in [3, 1, 2] {
        queue.insert(number, ms(10 * number));
    }
    for number in 1..=3 {
        assert!(queue.poll_expired(&mut task.cx()).is_pending());
        engine.advance(ms(9));
        assert_eq!(task.wakes(), 0);
        engine.advance(ms(1));
        assert_eq!(task.wakes(), 1);
        let Poll::Ready(Some(expired)) = queue.poll_expired(&mut task.cx()) else { panic!("{number} is late") };
        assert_eq!(expired.into_inner(), number);
    }
    assert!(matches!(queue.poll_expired(&mut task.cx()), Poll::Ready(None)));
    // An item that is due before the deadline that the queue waits for.
    queue.insert(5, HOUR);
    assert!(queue.poll_expired(&mut task.cx()).is_pending());
    let key = queue.insert(4, ms(20));
    let _woken_to_look = task.wakes();
    assert!(queue.poll_expired(&mut task.cx()).is_pending());
    queue.reset(&key, ms(10));
    assert!(queue.poll_expired(&mut task.cx()).is_pending());
    let _woken_to_look = task.wakes();
    engine.advance(ms(10));
    assert_eq!(task.wakes(), 1);
    assert!(matches!(queue.poll_expired(&mut task.cx()), Poll::Ready(Some(expired)) if expired.get_ref() == &4));
}

#[test]
fn d64_a_timer_on_a_full_engine_ends_its_waits_on_time() {
    let (engine, _taken) = full(1);
    let (task, outcomes) = (Task::new(), Outcomes::default());
    let [first, second] = [(); 2].map(|()| Timer::on(&engine));
    first.expires_after(ms(20));
    second.expires_after(ms(10));
    let mut wait = pin!(first.wait());
    assert!(task.poll(wait.as_mut()).is_pending());
    second.on_expiry(outcomes.callback(1));
    engine.advance(ms(10));
    assert_eq!((outcomes.take(), task.wakes()), (vec![(1, Outcome::Fired)], 0));
    engine.advance(ms(10));
    assert_eq!(task.wakes(), 1);
    assert_eq!(task.poll(wait.as_mut()), Poll::Ready(Outcome::Fired));
    // Set again while the timer waits for a slot, to an earlier time; that cancels the first wait.
    first.expires_after(HOUR);
    first.on_expiry(outcomes.callback(2));
    assert_eq!(first.expires_after(ms(5)), 1);
    first.on_expiry(outcomes.callback(3));
    engine.advance(ms(5));
    assert_eq!(outcomes.take(), [(2, Outcome::Cancelled), (3, Outcome::Fired)]);
}

#[test]
fn d64_named_timers_on_a_full_engine_fire_on_time() {
    let (engine, taken) = full(1);
    let outcomes = Outcomes::default();
    let timers = NamedTimers::on(&engine);
    for number in [30, 10, 20] {
        timers.start("alike", ms(number), outcomes.callback(number)).unwrap();
    }
    for number in [10, 20, 30] {
        engine.advance(ms(9));
        assert_eq!(outcomes.take(), []);
        engine.advance(ms(1));
        assert_eq!(outcomes.take(), [(number, Outcome::Fired)]);
    }
    timers.start("late", HOUR, outcomes.callback(1)).unwrap();
    timers.start("early", ms(10), outcomes.callback(2)).unwrap();
    assert_eq!(timers.cancel("late"), 1);
    engine.advance(ms(10));
    assert_eq!(outcomes.take(), [(1, Outcome::Cancelled), (2, Outcome::Fired)]);
    drop((timers, taken));
    assert!(engine.try_sleep(HOUR).is_ok(), "they hold no slot");
}

#[test]
fn d64_a_scheduler_on_a_full_engine_makes_each_run_on_time() {
    let (engine, _taken) = full(1);
    let log = Log::default();
    let scheduler = Scheduler::builder().engine(&engine).threads(0).build().unwrap();
    for key in [3_u64, 5] {
        let log = log.clone();
        scheduler.schedule(key, Plan::every(ms(10 * key)), move |run| log.write(10 * key + run.number())).unwrap();
    }
    engine.advance(ms(29));
    assert_eq!(log.take(), []);
    engine.advance(ms(1));
    assert_eq!(log.take(), [31]);
    engine.advance(ms(20));
    assert_eq!(log.take(), [51]);
    engine.advance(ms(50));
    assert_eq!(log.take(), [32, 33, 52]);
    assert!(scheduler.remove(&3));
    engine.advance(ms(100));
    assert_eq!(log.take(), [53, 54]);
}

#[test]
fn d64_a_deadline_scope_on_a_full_engine_ends_on_time() {
    let (engine, _taken) = full(1);
    let _entered = engine.enter();
    let task = Task::new();
    let mut inner = pin!(Deadline::after(HOUR).scope(Deadline::after(ms(20)).scope(Supplied::<u8>(None))));
    let mut outer = pin!(Deadline::after(ms(30)).scope(Deadline::after(HOUR).scope(Supplied::<u8>(None))));
    assert!(task.poll(inner.as_mut()).is_pending() && task.poll(outer.as_mut()).is_pending());
    engine.advance(ms(19));
    assert_eq!(task.wakes(), 0);
    engine.advance(ms(1));
    assert!(task.wakes() > 0);
    assert!(matches!(task.poll(inner.as_mut()), Poll::Ready(Ok(Err(elapsed))) if !elapsed.is_stopped()));
    engine.advance(ms(10));
    assert!(task.wakes() > 0);
    assert!(task.poll(outer.as_mut()).is_ready());
    assert_eq!(engine.stats().armed, 1);
}

#[test]
fn d43_d64_surfaces_that_share_one_slot_take_turns_and_lose_nothing() {
    let engine = with_slots(1);
    let _entered = engine.enter();
    let (task, outcomes) = (Task::new(), Outcomes::default());
    let mut sleeper = Sleeper::new(&engine, ms(50));
    let mut limited = pin!(timeout(ms(40), Supplied::<u8>(None)));
    assert!(task.poll(limited.as_mut()).is_pending());
    let timer = Timer::on(&engine);
    timer.expires_after(ms(30));
    timer.on_expiry(outcomes.callback(30));
    let timers = NamedTimers::on(&engine);
    timers.start("named", ms(20), outcomes.callback(20)).unwrap();
    let log = Log::default();
    let scheduler = Scheduler::builder().engine(&engine).threads(0).build().unwrap();
    let runs = log.clone();
    scheduler.schedule(0, Plan::every(ms(10)).times(6), move |run| runs.write(run.number())).unwrap();
    for passed in 1..=6 {
        engine.advance(ms(10));
        assert!(engine.stats().pending <= 1);
        assert_eq!(log.take(), [passed], "one run per step");
        let expected = if matches!(passed, 2 | 3) { vec![(10 * passed, Outcome::Fired)] } else { Vec::new() };
        assert_eq!(outcomes.take(), expected);
        match passed {
            4 => assert!(is_elapsed(task.poll(limited.as_mut()))),
            ..5 => assert!(task.poll(limited.as_mut()).is_pending()),
            _ => {}
        }
        assert_eq!(sleeper.poll().is_ready(), passed >= 5);
    }
    drop((timer, timers, scheduler));
    engine.turn();
    assert_eq!(engine.stats().pending, 0);
    assert!(engine.try_sleep(HOUR).is_ok());
}

/// Checks that a sleep gets the slot that a surface waited for, after `makes_idle` has removed the last deadline of that surface.
fn assert_passes_slot_on<S>(surface: impl FnOnce(&Engine) -> S, makes_idle: impl FnOnce(&mut S)) {
    let (engine, taken) = full(1);
    let _entered = engine.enter();
    let mut surface = surface(&engine);
    let mut waits = Sleeper::new(&engine, HOUR);
    makes_idle(&mut surface);
    drop(taken);
    engine.turn();
    assert_eq!(waits.wakes(), 1, "the surface does not need the slot");
    assert!(waits.poll().is_pending());
    assert_eq!(engine.stats().pending, 1);
    drop(surface);
    engine.turn();
    assert_eq!((waits.wakes(), waits.sleep.outcome()), (0, None));
}

#[test]
fn d65_p7_a_timer_without_waits_passes_its_slot_on() {
    let timer = |engine: &Engine| {
        let timer = Timer::on(engine);
        timer.expires_after(ms(10));
        timer.on_expiry(|_| ());
        timer
    };
    assert_passes_slot_on(timer, |timer| assert_eq!(timer.cancel(), 1));
}

#[test]
fn d65_p7_named_timers_of_which_none_is_left_pass_their_slot_on() {
    let timers = |engine: &Engine| {
        let timers = NamedTimers::on(engine);
        timers.start("named", ms(10), |_| ()).unwrap();
        timers
    };
    assert_passes_slot_on(timers, |timers| assert_eq!(timers.cancel("named"), 1));
}

#[test]
fn d65_p7_an_empty_delay_queue_passes_its_slot_on() {
    let task = Task::new();
    let queue = |_: &Engine| {
        let mut queue = DelayQueue::new();
        queue.insert((), ms(10));
        assert!(queue.poll_expired(&mut task.cx()).is_pending());
        queue
    };
    assert_passes_slot_on(queue, |queue| {
        queue.clear();
        assert!(matches!(queue.poll_expired(&mut task.cx()), Poll::Ready(None)));
    });
}

#[test]
fn d28_p7_a_shutdown_ends_every_surface_that_waits_for_a_slot() {
    let (engine, _taken) = full(1);
    let _entered = engine.enter();
    let (task, outcomes) = (Task::new(), Outcomes::default());
    let mut limited = pin!(timeout(HOUR, Supplied::<u8>(None)));
    let mut ticks = interval(HOUR);
    let mut queue = DelayQueue::new();
    let (timer, timers) = (Timer::on(&engine), NamedTimers::on(&engine));
    queue.insert((), HOUR);
    assert!(task.poll(limited.as_mut()).is_pending() && queue.poll_expired(&mut task.cx()).is_pending());
    assert!(ticks.poll_tick(&mut task.cx()).is_ready() && ticks.poll_tick(&mut task.cx()).is_pending());
    timer.expires_after(HOUR);
    timer.on_expiry(outcomes.callback(1));
    timers.start("named", HOUR, outcomes.callback(2)).unwrap();
    engine.shutdown();
    assert_eq!(task.wakes(), 3);
    assert!(is_stopped(task.poll(limited.as_mut())));
    assert!(matches!(queue.poll_expired(&mut task.cx()), Poll::Ready(None)) && queue.is_stopped());
    assert!(ticks.poll_tick(&mut task.cx()).is_ready());
    engine.turn();
    let mut all = outcomes.take();
    all.sort_unstable_by_key(|(number, _)| *number);
    assert_eq!(all, [(1, Outcome::Stopped), (2, Outcome::Stopped)]);
}
