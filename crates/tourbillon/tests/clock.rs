//! The clock of an engine: set back and forward manually, at the end of time, and one that cannot be set.

mod support;

use std::pin::pin;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use support::{Log, NANO, Task, manual, ms, poll_with, years};
use tourbillon::{Clock, Driver, Engine, QueueKind, Slack, Span, Time};

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn p8_a_manual_clock_stepped_back_postpones_and_stepped_forward_fires_at_once() {
    for queue in [QueueKind::Wheel, QueueKind::Heap, QueueKind::ListTree, QueueKind::Rounds { tick: ms(1), slots: 64 }]
    {
        // A day after its origin: a manual clock starts with the machine's uptime, which may be less than the step back.
        let clock = Clock::manual();
        clock.set(Time::ZERO + Span::from(24 * HOUR));
        let engine = Engine::builder().clock(clock.clone()).queue(queue).build().unwrap();
        let log = Log::default();
        let start = clock.now();
        let mut sleeps: Vec<_> = [10, 20, 4000].map(|millis| (millis, Box::pin(engine.sleep(ms(millis))))).into();
        for (name, sleep) in &mut sleeps {
            assert!(poll_with(sleep.as_mut(), &log.waker(*name)).is_pending());
        }
        clock.advance(ms(5));
        engine.turn();
        // An hour back: pending timers are due at the same times as before, which are an hour further away.
        clock.set(start - Span::from(HOUR));
        engine.turn();
        assert_eq!(log.take(), [], "{queue:?}");
        let mut early = Box::pin(engine.sleep(ms(1)));
        assert!(poll_with(early.as_mut(), &log.waker(1)).is_pending());
        clock.advance(ms(1));
        let mut turn = engine.turn();
        while turn.more {
            turn = engine.turn();
        }
        assert_eq!(log.take(), [1], "{queue:?}: a timer armed after the step");
        // Forward past all of them.
        clock.set(start + ms(5000).into());
        while engine.turn().more {}
        assert_eq!(log.take(), [10, 20, 4000], "{queue:?}");
    }
}

#[test]
fn d59_p8_a_clock_that_is_set_back_beyond_its_origin_stops_there_and_postpones() {
    for uptime in [Duration::ZERO, NANO, ms(1), Duration::from_secs(5), HOUR - NANO, HOUR] {
        let clock = Clock::manual();
        clock.set(Time::ZERO + Span::from(uptime));
        let engine = Engine::builder().clock(clock.clone()).build().unwrap();
        let log = Log::default();
        let mut before = pin!(engine.sleep(ms(10)));
        assert!(poll_with(before.as_mut(), &log.waker(1)).is_pending());
        clock.set(clock.now() - Span::from(HOUR));
        engine.turn();
        assert_eq!((clock.now(), log.take()), (Time::ZERO, vec![]), "after {uptime:?}");
        let mut after = pin!(engine.sleep(ms(5)));
        assert!(poll_with(after.as_mut(), &log.waker(2)).is_pending());
        assert_eq!((engine.advance(ms(5)), log.take()), (1, vec![2]), "after {uptime:?}");
        engine.advance(uptime + ms(5) - NANO);
        assert_eq!(log.take(), [], "after {uptime:?}");
        engine.advance(NANO);
        assert_eq!(log.take(), [1], "after {uptime:?}");
    }
}

#[test]
fn p5_a_manual_clock_can_be_advanced_to_the_end_of_time() {
    let engine = manual();
    let task = Task::new();
    let mut far = pin!(engine.sleep(years(100)));
    let mut never = pin!(engine.sleep(Duration::MAX));
    assert!(task.poll(far.as_mut()).is_pending());
    assert!(task.poll(never.as_mut()).is_pending());
    assert_eq!(engine.advance(Duration::MAX), 1);
    assert!(far.is_elapsed() && !never.is_elapsed());
}

#[test]
fn p5_at_the_end_of_time_an_endless_sleep_does_not_end() {
    let set: [fn(&Engine); 3] = [
        |engine| engine.clock().set(Time::NEVER),
        |engine| engine.clock().advance(Duration::MAX),
        |engine| _ = engine.advance(Duration::MAX),
    ];
    for set in set {
        let engine = manual();
        let task = Task::new();
        let mut armed = pin!(engine.sleep(Duration::MAX));
        assert!(task.poll(armed.as_mut()).is_pending());
        set(&engine);
        let mut held = pin!(engine.sleep(Duration::ZERO));
        held.as_mut().disarm();
        for never in [armed.as_mut(), held.as_mut(), pin!(engine.sleep(Duration::MAX)), pin!(engine.sleep(years(1)))] {
            assert_eq!((task.poll(never), engine.turn().fired), (Poll::Pending, 0));
        }
        assert_eq!(task.poll(pin!(engine.sleep(Duration::ZERO))), Poll::Ready(()), "a sleep of zero is ready");
    }
}

#[test]
fn p1_p5_the_last_timers_fire_before_the_end_of_time_whatever_their_slack() {
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let up_to = [ms(1), minutes(3), Duration::MAX].map(Slack::up_to);
    for slack in [Slack::adaptive(), Slack::exact(), Slack::precise()].into_iter().chain(up_to) {
        let engine = manual();
        engine.clock().set(Time::NEVER);
        let end = engine.clock().now();
        engine.clock().set(end - Span::from(minutes(2)));
        let task = Task::new();
        let mut sleep = pin!(engine.sleep(minutes(1)).slack(slack));
        assert!(task.poll(sleep.as_mut()).is_pending());
        assert_eq!(engine.advance(minutes(1) - NANO), 0);
        assert_eq!((engine.advance(Duration::MAX), task.wakes()), (1, 1), "{slack:?}");
    }
}

#[test]
fn p6_advancing_an_engine_whose_clock_cannot_be_set_only_fires_due_timers() {
    let engine = Engine::builder().driver(Driver::external()).build().unwrap();
    let task = Task::new();
    let mut due = Box::pin(engine.sleep(ms(1)));
    while task.poll(due.as_mut()).is_ready() {
        due = Box::pin(engine.sleep(ms(1)));
    }
    let mut far = pin!(engine.sleep(years(1)));
    assert!(task.poll(far.as_mut()).is_pending());
    thread::sleep(ms(2));
    assert_eq!(engine.advance(years(2)), 1);
    assert!(due.is_elapsed() && !far.is_elapsed());
}
