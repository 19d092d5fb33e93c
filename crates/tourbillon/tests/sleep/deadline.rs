//! When a sleep fires: its deadline, its clock, its slack.

use std::pin::pin;
use std::task::Waker;
use std::time::Duration;

use tourbillon::time::{Instant, sleep};
use tourbillon::{Clock, Driver, Engine, Outcome, Slack};

use crate::boxed;
use crate::support::{Log, NANO, Task, manual, ms, now, poll_with, years};

#[test]
fn t8_is_elapsed_becomes_true_when_the_deadline_comes_and_stays_so() {
    let engine = manual();
    let task = Task::new();
    let mut sleep = pin!(engine.sleep(ms(50)));
    assert!(!sleep.is_elapsed(), "made");
    assert!(task.poll(sleep.as_mut()).is_pending());
    assert!(!sleep.is_elapsed(), "armed");
    engine.advance(ms(50) - NANO);
    assert!(!sleep.is_elapsed(), "one nanosecond before the deadline");
    engine.advance(NANO);
    assert!(sleep.is_elapsed(), "fired, not polled yet");
    assert!(task.poll(sleep.as_mut()).is_ready());
    assert!(sleep.is_elapsed(), "polled");
    engine.advance(years(1));
    assert!(sleep.is_elapsed(), "long after the deadline");
    assert!(task.poll(sleep.as_mut()).is_ready(), "still ready when polled again");
}

#[test]
fn t8_the_clock_starts_when_the_sleep_is_made_not_when_it_is_polled() {
    let engine = manual();
    let sleep = engine.sleep(ms(10));
    assert_eq!(sleep.deadline(), now(&engine) + ms(10));
    engine.advance(ms(10));
    assert!(Task::new().poll(pin!(sleep)).is_ready());
}

#[test]
fn p1_t8_a_sleep_fires_at_its_deadline_and_not_a_nanosecond_before() {
    // Short sleeps, and sleeps around the slot boundaries of every level, from many positions of the wheel.
    let millis = [1, 10, 60, 63, 64, 65, 255, 256, 257, 1000, 4095, 4096, 4097, 262_143, 262_144, 262_145];
    let wraps = (0..50).flat_map(|bits| [(1_u64 << bits) - 1, 1 << bits, (1 << bits) + 1]).map(Duration::from_nanos);
    let durations = millis.into_iter().map(ms).chain(wraps.filter(|duration| *duration > NANO));
    for duration in durations {
        for offset in [0, 1, 63, 64, 999_999, 1_000_000, 67_108_863] {
            let engine = manual();
            engine.advance(Duration::from_nanos(offset));
            let task = Task::new();
            let mut sleep = pin!(engine.sleep(duration));
            assert!(task.poll(sleep.as_mut()).is_pending());
            assert_eq!(engine.advance(duration - NANO), 0, "{duration:?} after {offset}");
            assert!(task.poll(sleep.as_mut()).is_pending(), "{duration:?} after {offset}");
            assert_eq!(task.wakes(), 0);
            assert_eq!(engine.advance(NANO), 1, "{duration:?} after {offset}");
            assert_eq!(task.wakes(), 1);
            assert!(task.poll(sleep.as_mut()).is_ready());
        }
    }
}

#[test]
fn p1_a_deadline_is_never_before_the_start_and_the_duration() {
    // Short sleeps, and sleeps that are long enough for a cheaper clock.
    for duration in [Duration::ZERO, NANO, ms(1), ms(2), ms(100), years(1)] {
        for _ in 0..2000 {
            let before = Instant::now();
            let deadline = sleep(duration).deadline();
            assert!(deadline >= before + duration, "{duration:?}: by {:?}", (before + duration) - deadline);
        }
    }
}

#[test]
fn b2_sub_millisecond_sleeps_are_exact_to_the_nanosecond() {
    let engine = manual();
    let log = Log::default();
    let nanos = [999_999, 1, 500_000, 2, 999, 1000, 1001];
    let mut sleeps: Vec<_> = nanos.iter().map(|nanos| boxed(engine.sleep(Duration::from_nanos(*nanos)))).collect();
    for (sleep, name) in sleeps.iter_mut().zip(nanos) {
        assert!(poll_with(sleep.as_mut(), &log.waker(name)).is_pending());
    }
    let mut at = 0;
    for next in [1, 2, 999, 1000, 1001, 500_000, 999_999] {
        engine.advance(Duration::from_nanos(next - 1 - at));
        assert_eq!(log.take(), [], "before {next}");
        engine.advance(NANO);
        assert_eq!(log.take(), [next]);
        at = next;
    }
}

#[test]
fn p5_very_long_sleeps_end_to_the_nanosecond() {
    for long in [years(5), years(10), years(100)] {
        let engine = manual();
        let task = Task::new();
        let mut sleep = pin!(engine.sleep(long));
        assert!(task.poll(sleep.as_mut()).is_pending());
        assert_eq!(engine.advance(long - NANO), 0);
        assert_eq!(engine.advance(NANO), 1);
        assert!(task.poll(sleep.as_mut()).is_ready());
    }
}

#[test]
fn b3_slack_makes_a_sleep_late_by_no_more_than_that_and_never_early() {
    let engine = manual();
    for most in [Duration::ZERO, NANO, Duration::from_micros(1), ms(1), ms(3), ms(1000)] {
        for duration in [NANO, Duration::from_nanos(12_345), ms(7), Duration::from_nanos(7_777_777)] {
            let task = Task::new();
            let deadline = now(&engine) + duration;
            let mut sleep = pin!(engine.sleep(duration).slack(Slack::up_to(most)));
            assert_eq!(sleep.deadline(), deadline, "slack does not move the deadline");
            assert!(task.poll(sleep.as_mut()).is_pending());
            assert_eq!(engine.advance(duration - NANO), 0, "early: {duration:?} with {most:?}");
            assert_eq!(engine.advance(NANO + most), 1, "too late: {duration:?} with {most:?}");
            assert!(task.poll(sleep.as_mut()).is_ready());
        }
    }
}

#[test]
fn b3_sleeps_with_slack_share_a_turn_and_exact_ones_do_not() {
    let turns = |slack: Slack| {
        let engine = manual();
        let mut sleeps: Vec<_> =
            (1..=100).map(|n| boxed(engine.sleep(Duration::from_micros(10 * n)).slack(slack))).collect();
        sleeps.iter_mut().for_each(|sleep| assert!(poll_with(sleep.as_mut(), Waker::noop()).is_pending()));
        let (mut turns, mut fired) = (0, 0);
        while let Some(next) = engine.turn().next {
            engine.clock().set(next);
            let turn = engine.turn();
            // A queue may also need a turn to move timers nearer; that wakes no task.
            turns += usize::from(turn.fired > 0);
            fired += turn.fired;
        }
        assert_eq!(fired, 100);
        turns
    };
    assert_eq!(turns(Slack::exact()), 100);
    assert!(
        turns(Slack::up_to(ms(1))) <= 3,
        "timers of one millisecond share the ticks of a grid of half a millisecond"
    );
}

#[test]
fn b3_every_slack_is_exact_in_virtual_time_where_it_can_be() {
    for slack in [Slack::adaptive(), Slack::exact(), Slack::precise()] {
        let engine = manual();
        let task = Task::new();
        let mut sleep = pin!(engine.sleep(Duration::from_nanos(1_234_567)).slack(slack));
        assert!(task.poll(sleep.as_mut()).is_pending());
        assert_eq!(engine.advance(Duration::from_nanos(1_234_566)), 0, "{slack:?}");
        assert_eq!(engine.advance(NANO), 1, "{slack:?}");
    }
}

#[test]
fn w3_the_outcome_is_fired_or_stopped_and_none_before_the_end() {
    let engine = manual();
    let task = Task::new();
    let mut fires = pin!(engine.sleep(ms(10)));
    let mut stops = pin!(engine.sleep(ms(20)));
    let mut unpolled = pin!(engine.sleep(ms(20)));
    assert!(task.poll(fires.as_mut()).is_pending());
    assert!(task.poll(stops.as_mut()).is_pending());
    assert_eq!((fires.outcome(), stops.outcome(), unpolled.outcome()), (None, None, None));
    engine.advance(ms(10));
    assert_eq!((fires.outcome(), stops.outcome()), (Some(Outcome::Fired), None));
    engine.shutdown();
    assert_eq!(task.wakes(), 2);
    assert_eq!((fires.outcome(), stops.outcome()), (Some(Outcome::Fired), Some(Outcome::Stopped)));
    assert!(task.poll(fires.as_mut()).is_ready());
    assert!(task.poll(stops.as_mut()).is_ready());
    assert!(task.poll(unpolled.as_mut()).is_ready());
    assert_eq!((fires.outcome(), stops.outcome()), (Some(Outcome::Fired), Some(Outcome::Stopped)));
    assert_eq!(unpolled.outcome(), Some(Outcome::Stopped));
}

#[test]
fn b6_ten_thousand_sleeps_fire_in_the_same_order_in_two_runs() {
    let count = if cfg!(miri) { 300 } else { 10_000 };
    let run = || {
        let engine = manual();
        let log = Log::default();
        let mut state = 1_u64;
        let mut sleeps = Vec::new();
        for name in 0..count {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Few distinct deadlines, so that many are equal.
            let millis = 1 + (state >> 33) % 500;
            let mut sleep = boxed(engine.sleep(ms(millis)));
            assert!(poll_with(sleep.as_mut(), &log.waker(name)).is_pending());
            sleeps.push((millis, name, sleep));
        }
        assert_eq!(engine.advance(ms(500)), count as usize);
        sleeps.sort_by_key(|(millis, name, _)| (*millis, *name));
        (log.take(), sleeps.into_iter().map(|(_, name, _)| name).collect::<Vec<_>>())
    };
    let ((first, sorted), (second, _)) = (run(), run());
    assert!(first == second, "two runs differ");
    assert!(first == sorted, "not by deadline and order of arming");
}

#[cfg(feature = "test-util")]
#[test]
#[cfg_attr(miri, ignore = "virtual time moves by itself only where the kernel reports which threads wait")]
fn b6_ten_thousand_tasks_of_a_paused_runtime_wake_up_in_the_same_order_in_two_runs() {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            tourbillon::time::pause();
            let log = Log::default();
            let tasks: Vec<_> = (0..10_000_u64)
                .map(|name| {
                    let log = log.clone();
                    tokio::spawn(async move {
                        sleep(ms(1 + name * 7919 % 1000)).await;
                        log.write(name);
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            log.take()
        })
    };
    let first = run();
    assert!(first.is_sorted_by_key(|name| (name * 7919 % 1000, *name)));
    assert!(first == run());
}

#[test]
fn p8_b8_a_sleep_until_a_time_of_day_follows_the_monotonic_clock_or_the_wall_clock() {
    let manual = Engine::builder().clock(Clock::manual()).build().unwrap();
    let wall = Engine::builder().clock(Clock::wall()).driver(Driver::external()).build().unwrap();
    let soon = std::time::SystemTime::now() + Duration::from_secs(3600);
    for engine in [&manual, &wall] {
        let mut sleep = std::pin::pin!(engine.sleep_until_wall(soon));
        assert!(poll_with(sleep.as_mut(), std::task::Waker::noop()).is_pending());
        let mut past = std::pin::pin!(engine.sleep_until_wall(std::time::SystemTime::UNIX_EPOCH));
        assert!(poll_with(past.as_mut(), std::task::Waker::noop()).is_ready());
    }
    let left = manual.turn().next.expect("one is pending") - manual.clock().now();
    assert!(left <= Duration::from_secs(3600).into() && left > Duration::from_secs(3000).into());
    let due = wall.turn().next.expect("one is pending").as_nanos();
    assert_eq!(u128::from(due), soon.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap().as_nanos());
}
