//! `Sleep`: what those who come from `tokio::time` rely on, and what is ours.

mod by_hand;

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use by_hand::{Log, NANO, Task, eventually, manual, ms, now, poll_with, waker, years};
use tourbillon::time::{Instant, Sleep, sleep};
use tourbillon::{Clock, Driver, Engine, Outcome, Slack};

fn boxed(sleep: Sleep) -> Pin<Box<Sleep>> {
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
    // And on the real clock, on the global engine.
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

#[test]
fn t8_is_elapsed_becomes_true_when_the_deadline_comes_and_stays_so() {
    let engine = manual();
    let task = Task::new();
    let mut sleep = pin!(engine.sleep(ms(50)));
    assert!(!sleep.is_elapsed(), "made");
    assert!(task.poll(sleep.as_mut()).is_pending());
    assert!(!sleep.is_elapsed(), "armed");
    engine.advance(ms(50) - NANO);
    assert!(!sleep.is_elapsed(), "a nanosecond to go");
    engine.advance(NANO);
    assert!(sleep.is_elapsed(), "fired, not polled yet");
    assert!(task.poll(sleep.as_mut()).is_ready());
    assert!(sleep.is_elapsed(), "polled");
    engine.advance(years(1));
    assert!(sleep.is_elapsed(), "long ago");
    assert!(task.poll(sleep.as_mut()).is_ready(), "polled again after Ready it stays Ready");
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
    // Short ones, those around the wrap of a slot of any level, at many positions of the wheel.
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
    // Short ones and such as are long enough for a cheaper clock.
    for duration in [Duration::ZERO, NANO, ms(1), ms(2), ms(100), years(1)] {
        for _ in 0..2000 {
            let before = Instant::now();
            let deadline = sleep(duration).deadline();
            assert!(deadline >= before + duration, "{duration:?}: by {:?}", (before + duration) - deadline);
        }
    }
}

#[test]
fn b2_sub_millisecond_sleeps_are_as_exact_as_any() {
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
fn t8_reset_before_the_first_poll_is_as_if_it_had_been_made_so() {
    let engine = manual();
    let task = Task::new();
    let start = now(&engine);
    let mut sleep = pin!(engine.sleep(ms(10)));
    sleep.as_mut().reset(start + ms(20));
    assert_eq!(sleep.deadline(), start + ms(20));
    assert!(task.poll(sleep.as_mut()).is_pending());
    assert_eq!(engine.advance(ms(20) - NANO), 0);
    assert_eq!(engine.advance(NANO), 1);
    assert!(task.poll(sleep.as_mut()).is_ready());
}

#[test]
fn t8_reset_before_the_turn_takes_effect_even_when_the_old_deadline_has_passed() {
    // Just armed, and after a turn that has given it its place in the queue.
    for turned_before in [false, true] {
        let engine = manual();
        let task = Task::new();
        let start = now(&engine);
        let mut sleep = pin!(engine.sleep(ms(10)));
        assert!(task.poll(sleep.as_mut()).is_pending());
        if turned_before {
            let mut first = pin!(engine.sleep(ms(1)));
            assert!(poll_with(first.as_mut(), Waker::noop()).is_pending());
            assert_eq!(engine.advance(ms(1)), 1);
        }
        // The clock has reached the deadline; the driver has not looked yet.
        engine.clock().advance(ms(10));
        sleep.as_mut().reset(start + ms(20));
        assert_eq!(engine.turn().fired, 0);
        assert!(!sleep.is_elapsed());
        assert_eq!(engine.advance(ms(10)), 1, "turned before: {turned_before}");
        assert_eq!(task.wakes(), 1);
        assert!(task.poll(sleep.as_mut()).is_ready());
    }
}

#[test]
fn t8_reset_after_firing_makes_it_wait_again() {
    let engine = manual();
    let task = Task::new();
    let mut sleep = pin!(engine.sleep(ms(10)));
    for polled_before_the_reset in [false, true] {
        assert!(task.poll(sleep.as_mut()).is_pending());
        engine.advance(ms(10));
        assert!(sleep.is_elapsed());
        assert_eq!(task.wakes(), 1);
        if polled_before_the_reset {
            assert!(task.poll(sleep.as_mut()).is_ready());
        }
        let next = now(&engine) + ms(10);
        sleep.as_mut().reset(next);
        assert_eq!((sleep.is_elapsed(), sleep.outcome(), sleep.deadline()), (false, None, next));
    }
    assert!(task.poll(sleep.as_mut()).is_pending());
    engine.advance(ms(10));
    assert!(task.poll(sleep.as_mut()).is_ready());
}

#[test]
fn t8_reset_into_the_past_ends_it_at_once_and_wakes_who_waits() {
    let engine = manual();
    engine.advance(ms(100));
    let task = Task::new();
    let mut sleep = pin!(engine.sleep(ms(10)));
    assert!(task.poll(sleep.as_mut()).is_pending());
    sleep.as_mut().reset(now(&engine) - ms(50));
    assert_eq!(task.wakes(), 1, "whoever waits is told, without polling again and without a turn");
    assert!(sleep.is_elapsed());
    engine.turn();
    assert_eq!(task.wakes(), 0, "and only once");
    assert!(task.poll(sleep.as_mut()).is_ready());
    let stats = engine.stats();
    assert_eq!((stats.armed, stats.fired, stats.pending), (1, 1, 0));
}

#[test]
fn t8_a_reset_after_firing_takes_back_the_outcome_be_the_new_deadline_past_or_not() {
    for (to, is_past) in [(ms(0), true), (ms(5), true), (ms(10), true), (ms(30), false)] {
        for polled_before_the_reset in [false, true] {
            let engine = manual();
            let task = Task::new();
            let start = now(&engine);
            let mut sleep = pin!(engine.sleep(ms(10)));
            assert!(task.poll(sleep.as_mut()).is_pending());
            engine.advance(ms(20));
            assert_eq!((task.wakes(), sleep.outcome()), (1, Some(Outcome::Fired)));
            if polled_before_the_reset {
                assert!(task.poll(sleep.as_mut()).is_ready());
            }
            sleep.as_mut().reset(start + to);
            assert_eq!(sleep.outcome(), None, "until the next poll: {to:?}");
            assert_eq!(task.poll(sleep.as_mut()).is_ready(), is_past, "{to:?}");
            assert_eq!(task.wakes(), 0, "nobody waited: {to:?}");
        }
    }
}

#[test]
fn p3_a_reset_to_the_same_deadline_leaves_a_sleep_its_place_among_equals() {
    let engine = manual();
    let log = Log::default();
    let deadline = now(&engine) + ms(10);
    let mut first = pin!(engine.sleep_until(deadline));
    let mut second = pin!(engine.sleep_until(deadline));
    assert!(poll_with(first.as_mut(), &log.waker(1)).is_pending());
    assert!(poll_with(second.as_mut(), &log.waker(2)).is_pending());
    first.as_mut().reset(deadline);
    engine.advance(ms(10));
    assert_eq!(log.take(), [1, 2]);
}

#[test]
fn t8_reset_into_the_future_and_back_wakes_at_the_last_deadline_only() {
    let engine = manual();
    let start = now(&engine);
    let task = Task::new();
    let mut sleep = pin!(engine.sleep(ms(50)));
    assert!(task.poll(sleep.as_mut()).is_pending());
    sleep.as_mut().reset(start + ms(500));
    sleep.as_mut().reset(start + ms(20));
    assert_eq!(sleep.deadline(), start + ms(20));
    engine.advance(ms(20) - NANO);
    assert_eq!(task.wakes(), 0);
    engine.advance(NANO);
    assert_eq!(task.wakes(), 1);
    engine.advance(ms(1000));
    assert_eq!(task.wakes(), 0, "the other deadlines are forgotten");
    assert!(task.poll(sleep.as_mut()).is_ready());
}

#[test]
fn t4_pushing_a_deadline_later_again_and_again_wakes_nobody_before_the_last() {
    let engine = manual();
    let task = Task::new();
    let mut sleep = pin!(engine.sleep(ms(10)));
    assert!(task.poll(sleep.as_mut()).is_pending());
    // As a keep-alive does: each answer pushes it on.
    for _ in 0..1000 {
        engine.advance(ms(9));
        let next = now(&engine) + ms(10);
        sleep.as_mut().reset(next);
    }
    assert_eq!(task.wakes(), 0);
    assert!(task.poll(sleep.as_mut()).is_pending());
    engine.advance(ms(10));
    assert_eq!(task.wakes(), 1);
    assert!(task.poll(sleep.as_mut()).is_ready());
    let stats = engine.stats();
    assert_eq!((stats.armed, stats.fired), (1, 1), "it was one timer all along");
}

#[test]
fn t8_a_sleep_dropped_after_a_reset_to_the_same_instant_is_gone() {
    let engine = manual();
    let task = Task::new();
    let start = now(&engine);
    let mut sleep = boxed(engine.sleep_until(start + ms(10)));
    assert!(task.poll(sleep.as_mut()).is_pending());
    sleep.as_mut().reset(start + ms(10));
    assert!(task.poll(sleep.as_mut()).is_pending());
    // Likewise when it has fired, and was armed once more for the same instant.
    engine.advance(ms(10));
    sleep.as_mut().reset(start + ms(10));
    drop(sleep);
    assert_eq!((task.wakers_held(), engine.stats().pending), (0, 0));

    let mut sleep = boxed(engine.sleep_until(start + ms(20)));
    assert!(task.poll(sleep.as_mut()).is_pending());
    sleep.as_mut().reset(start + ms(20));
    drop(sleep);
    assert_eq!((task.wakers_held(), engine.stats().pending), (0, 0));
    task.wakes();
    assert_eq!(engine.advance(ms(100)), 0);
    assert_eq!(task.wakes(), 0);
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
fn p10_timers_dropped_inside_a_waker_are_cancelled_and_the_rest_goes_on() {
    let engine = manual();
    let others: Arc<Mutex<Vec<Pin<Box<Sleep>>>>> = Arc::default();
    let task = Task::new();
    // Due before, together with, and after the one whose waker drops them.
    for millis in [20, 10, 30, 10] {
        let mut other = boxed(engine.sleep(ms(millis)));
        assert!(task.poll(other.as_mut()).is_pending());
        others.lock().unwrap().push(other);
    }
    let dropper = {
        let others = Arc::clone(&others);
        waker(move || others.lock().unwrap().clear())
    };
    let mut first = pin!(engine.sleep(ms(9)));
    let mut last = pin!(engine.sleep(ms(40)));
    assert!(poll_with(first.as_mut(), &dropper).is_pending());
    assert!(poll_with(last.as_mut(), Waker::noop()).is_pending());
    assert_eq!(engine.advance(ms(40)), 2);
    assert_eq!((task.wakes(), task.wakers_held()), (0, 0));
    let stats = engine.stats();
    assert_eq!((stats.armed, stats.fired, stats.cancelled, stats.pending), (6, 2, 4, 0));
}

#[test]
fn t5_a_sleep_that_is_never_polled_is_never_armed() {
    let engine = manual();
    let mut sleep = boxed(engine.sleep(ms(10)));
    sleep.as_mut().reset(now(&engine) + ms(20));
    sleep.as_mut().disarm();
    drop(sleep);
    let stats = engine.stats();
    assert_eq!((stats.armed, stats.cancelled), (0, 0));
}

#[test]
fn b7_a_disarmed_sleep_waits_for_ever_until_it_is_armed_again() {
    let engine = manual();
    let start = now(&engine);
    let task = Task::new();
    let mut sleep = pin!(engine.sleep(ms(10)));
    assert!(task.poll(sleep.as_mut()).is_pending());
    sleep.as_mut().disarm();
    assert_eq!(sleep.deadline(), start + ms(10), "the deadline is kept");
    assert_eq!(engine.advance(years(1)), 0);
    assert!(task.poll(sleep.as_mut()).is_pending());
    sleep.as_mut().disarm();
    sleep.as_mut().arm();
    engine.turn();
    assert_eq!(task.wakes(), 1, "its deadline is long past");
    assert!(task.poll(sleep.as_mut()).is_ready());
}

#[test]
fn b7_a_sleep_armed_again_in_time_fires_at_its_old_deadline() {
    let engine = manual();
    let task = Task::new();
    let mut sleep = pin!(engine.sleep(ms(10)));
    assert!(task.poll(sleep.as_mut()).is_pending());
    sleep.as_mut().disarm();
    engine.advance(ms(5));
    sleep.as_mut().arm();
    assert_eq!(engine.advance(ms(5) - NANO), 0);
    assert_eq!(engine.advance(NANO), 1);
    assert_eq!(task.wakes(), 1);
    assert!(task.poll(sleep.as_mut()).is_ready());
}

#[test]
fn b7_a_sleep_can_be_disarmed_before_it_is_polled_and_after_it_has_fired() {
    let engine = manual();
    let task = Task::new();
    let mut sleep = pin!(engine.sleep(ms(10)));
    sleep.as_mut().disarm();
    assert!(task.poll(sleep.as_mut()).is_pending());
    assert_eq!(engine.advance(ms(20)), 0);
    sleep.as_mut().arm();
    engine.turn();
    assert!(task.poll(sleep.as_mut()).is_ready());

    sleep.as_mut().disarm();
    assert_eq!(sleep.outcome(), None);
    assert!(task.poll(sleep.as_mut()).is_pending());
    assert_eq!(engine.advance(years(1)), 0);
    let next = now(&engine) + ms(5);
    sleep.as_mut().reset(next);
    assert_eq!(engine.advance(ms(5)), 1, "a reset arms it too");
    assert!(task.poll(sleep.as_mut()).is_ready());
}

#[test]
fn b7_arming_what_was_not_disarmed_changes_nothing() {
    let engine = manual();
    let task = Task::new();
    let mut sleep = pin!(engine.sleep(ms(10)));
    sleep.as_mut().arm();
    assert!(task.poll(sleep.as_mut()).is_pending());
    sleep.as_mut().arm();
    assert_eq!(engine.advance(ms(10)), 1);
    sleep.as_mut().arm();
    assert!(task.poll(sleep.as_mut()).is_ready());
    sleep.as_mut().arm();
    assert!(sleep.is_elapsed());
}

#[test]
fn b3_slack_of_one_sleep_makes_it_late_by_no_more_than_that_and_never_early() {
    let engine = manual();
    for most in [Duration::ZERO, NANO, Duration::from_micros(1), ms(1), ms(3), ms(1000)] {
        for duration in [NANO, Duration::from_nanos(12_345), ms(7), Duration::from_nanos(7_777_777)] {
            let task = Task::new();
            let deadline = now(&engine) + duration;
            let mut sleep = pin!(engine.sleep(duration).slack(Slack::upto(most)));
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
            // A queue may also want a turn to move timers nearer; that is nobody's wake-up.
            turns += usize::from(turn.fired > 0);
            fired += turn.fired;
        }
        assert_eq!(fired, 100);
        turns
    };
    assert_eq!(turns(Slack::exact()), 100);
    assert!(turns(Slack::upto(ms(1))) <= 3, "a millisecond of timers on a grid of half a millisecond");
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
fn w3_outcome_tells_fired_from_stopped_and_is_none_before() {
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
fn t8_only_the_waker_of_the_last_poll_is_woken() {
    let engine = manual();
    let tasks = [Task::new(), Task::new(), Task::new()];
    let mut sleep = pin!(engine.sleep(ms(10)));
    for task in &tasks {
        assert!(task.poll(sleep.as_mut()).is_pending());
        assert!(task.poll(sleep.as_mut()).is_pending());
    }
    assert_eq!(tasks.each_ref().map(Task::wakers_held), [0, 0, 1], "the others are let go");
    engine.advance(ms(10));
    assert_eq!(tasks.each_ref().map(Task::wakes), [0, 0, 1]);
    assert_eq!(tasks.each_ref().map(Task::wakers_held), [0, 0, 0]);
}

/// Engines whose threads have shards of their own, and where they have to share.
fn with_shards() -> [Engine; 2] {
    [1, 4].map(|shards| Engine::builder().clock(tourbillon::Clock::manual()).shards(shards).build().unwrap())
}

#[test]
fn t8_a_sleep_polled_on_another_thread_follows_its_task() {
    for engine in with_shards() {
        let (here, there) = (Task::new(), Task::new());
        let mut sleep = boxed(engine.sleep(ms(10)));
        assert!(here.poll(sleep.as_mut()).is_pending());
        let poll_there = |mut sleep: Pin<Box<Sleep>>| {
            thread::scope(|scope| {
                let poll = || {
                    assert!(there.poll(sleep.as_mut()).is_pending());
                    sleep
                };
                scope.spawn(poll).join().unwrap()
            })
        };
        sleep = poll_there(sleep);
        assert_eq!((here.wakers_held(), there.wakers_held()), (0, 1));
        engine.advance(ms(5));
        // Back again, and there again: each time from another thread than before.
        assert!(here.poll(sleep.as_mut()).is_pending());
        sleep = poll_there(sleep);
        assert_eq!(engine.advance(ms(5) - NANO), 0);
        assert_eq!(engine.advance(NANO), 1);
        assert_eq!((here.wakes(), there.wakes()), (0, 1));
        assert!(here.poll(sleep.as_mut()).is_ready());
        let stats = engine.stats();
        assert_eq!((stats.armed, stats.fired, stats.cancelled, stats.pending), (1, 1, 0, 0), "one timer all along");
    }
}

#[test]
fn b7_a_disarmed_sleep_that_follows_its_task_to_another_thread_stays_disarmed() {
    for engine in with_shards() {
        let (here, there) = (Task::new(), Task::new());
        let mut sleep = boxed(engine.sleep(ms(10)));
        assert!(here.poll(sleep.as_mut()).is_pending());
        sleep.as_mut().disarm();
        thread::scope(|scope| {
            scope.spawn(|| assert!(there.poll(sleep.as_mut()).is_pending()));
        });
        assert_eq!(engine.advance(years(1)), 0);
        assert!(there.poll(sleep.as_mut()).is_pending());
        sleep.as_mut().arm();
        engine.turn();
        assert_eq!((here.wakes(), there.wakes()), (0, 1));
        assert!(there.poll(sleep.as_mut()).is_ready());
    }
}

#[test]
fn t8_a_sleep_polled_by_the_same_task_on_another_thread_needs_no_other_waker() {
    for engine in with_shards() {
        let task = Task::new();
        let mut sleep = boxed(engine.sleep(ms(10)));
        assert!(task.poll(sleep.as_mut()).is_pending());
        thread::scope(|scope| {
            scope.spawn(|| assert!(task.poll(sleep.as_mut()).is_pending()));
        });
        assert_eq!(engine.advance(ms(10)), 1);
        assert_eq!(task.wakes(), 1);
    }
}

#[test]
#[cfg_attr(miri, ignore = "here a waker and its clone need not be known for the same")]
fn p3_a_poll_by_the_same_task_on_another_thread_leaves_a_sleep_its_place_among_equals() {
    let engine = Engine::builder().clock(Clock::manual()).shards(1).build().unwrap();
    let log = Log::default();
    let [mut first, mut second] = [ms(10), ms(10)].map(|duration| boxed(engine.sleep(duration)));
    let waker = log.waker(1);
    assert!(poll_with(first.as_mut(), &waker).is_pending());
    assert!(poll_with(second.as_mut(), &log.waker(2)).is_pending());
    thread::scope(|scope| {
        scope.spawn(|| assert!(poll_with(first.as_mut(), &waker).is_pending()));
    });
    engine.advance(ms(10));
    assert_eq!(log.take(), [1, 2]);
}

#[test]
fn f9_a_sleep_dropped_on_another_thread_is_cancelled() {
    for engine in with_shards() {
        let task = Task::new();
        let mut sleep = boxed(engine.sleep(ms(10)));
        assert!(task.poll(sleep.as_mut()).is_pending());
        thread::spawn(move || drop(sleep)).join().unwrap();
        assert_eq!(task.wakers_held(), 0, "its waker is gone at once");
        let stats = engine.stats();
        assert_eq!((stats.armed, stats.cancelled, stats.pending), (1, 1, 0));
        assert_eq!(engine.advance(ms(20)), 0);
        assert_eq!(task.wakes(), 0);
    }
}

#[test]
fn t8_a_sleep_reset_on_another_thread_wakes_its_task_at_the_new_deadline() {
    for engine in with_shards() {
        for (to, what) in [(ms(50), "later"), (ms(5), "earlier"), (ms(10), "the same"), (Duration::ZERO, "at once")] {
            let task = Task::new();
            let start = now(&engine);
            let mut sleep = boxed(engine.sleep(ms(10)));
            assert!(task.poll(sleep.as_mut()).is_pending());
            let mut sleep = thread::spawn(move || {
                sleep.as_mut().reset(start + to);
                sleep
            })
            .join()
            .unwrap();
            if to > Duration::ZERO {
                engine.advance(to - NANO);
                assert_eq!(task.wakes(), 0, "{what}");
                engine.advance(NANO);
            }
            assert_eq!(task.wakes(), 1, "{what}");
            engine.advance(ms(100));
            assert_eq!(task.wakes(), 0, "{what}");
            assert!(task.poll(sleep.as_mut()).is_ready());
        }
        let stats = engine.stats();
        assert_eq!((stats.armed, stats.fired, stats.pending), (4, 4, 0));
    }
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
            // Few different deadlines, so that many are equal.
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
#[cfg_attr(miri, ignore = "virtual time moves by itself only where the kernel says who waits")]
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
fn t12_a_task_that_wakes_itself_all_the_time_still_sees_its_timer() {
    // Real executors, so the real clock: the task never lets its thread rest, and the timer has to come from elsewhere.
    async fn spin() {
        let mut sleep = pin!(sleep(ms(20)));
        std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            sleep.as_mut().poll(context)
        })
        .await;
    }
    let current_thread = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let multi_thread = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    current_thread.block_on(spin());
    multi_thread.block_on(async { tokio::spawn(spin()).await.unwrap() });
    smol::block_on(spin());
    futures_lite::future::block_on(spin());
}

#[test]
fn d41_a_runtime_dropped_while_a_sleep_is_held_elsewhere_harms_neither() {
    let engine = manual();
    let held: Arc<Mutex<Option<Pin<Box<Sleep>>>>> = Arc::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let task = {
        let (held, engine) = (Arc::clone(&held), engine.clone());
        runtime.spawn(async move {
            let mut sleep = boxed(engine.sleep(ms(10)));
            std::future::poll_fn(|context| {
                assert!(sleep.as_mut().poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
            *held.lock().unwrap() = Some(sleep);
            // The task lives on, and its waker with it, until the runtime goes.
            std::future::pending::<()>().await;
        })
    };
    eventually("the task holds its sleep", || held.lock().unwrap().is_some());
    drop(runtime);
    drop(task);
    let mut sleep = held.lock().unwrap().take().unwrap();
    assert!(!sleep.is_elapsed());
    // It fires, into a waker of a runtime that is gone; or it is polled elsewhere first.
    let here = Task::new();
    assert!(here.poll(sleep.as_mut()).is_pending());
    assert_eq!(engine.advance(ms(10)), 1);
    assert_eq!(here.wakes(), 1);
    assert!(here.poll(sleep.as_mut()).is_ready());
}

#[test]
fn d41_a_sleep_whose_runtime_is_gone_fires_into_nothing() {
    let engine = manual();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut sleep = boxed(engine.sleep(ms(10)));
    runtime.block_on(std::future::poll_fn(|context| {
        assert!(sleep.as_mut().poll(context).is_pending());
        Poll::Ready(())
    }));
    drop(runtime);
    assert_eq!(engine.advance(ms(10)), 1);
    assert_eq!((sleep.outcome(), engine.stats().waker_panics), (Some(Outcome::Fired), 0));
}

#[test]
fn p10_a_sleep_armed_inside_a_waker_fires_in_its_turn() {
    // Each waker arms the next: neither recursion nor a deadlock, and each at its own time.
    let engine = manual();
    let fired = Arc::new(AtomicUsize::new(0));
    let chain: Arc<Mutex<Vec<Pin<Box<Sleep>>>>> = Arc::default();
    fn arm_next(engine: Engine, fired: Arc<AtomicUsize>, chain: Arc<Mutex<Vec<Pin<Box<Sleep>>>>>) {
        let mut sleep = boxed(engine.sleep(ms(1)));
        let next = {
            let chain = Arc::clone(&chain);
            waker(move || {
                fired.fetch_add(1, Ordering::SeqCst);
                arm_next(engine.clone(), Arc::clone(&fired), Arc::clone(&chain));
            })
        };
        assert!(poll_with(sleep.as_mut(), &next).is_pending());
        chain.lock().unwrap().push(sleep);
    }
    arm_next(engine.clone(), Arc::clone(&fired), Arc::clone(&chain));
    assert_eq!(engine.advance(ms(1000)), 1000);
    assert_eq!(fired.load(Ordering::SeqCst), 1000);
    // The wakers hold the engine, and the engine holds the last waker.
    chain.lock().unwrap().clear();
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
fn f8_made_and_polled_in_one_go_it_counts_towards_the_capacity_as_any_other() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
    let _entered = engine.enter();
    let (task, other) = (Task::new(), Task::new());
    let (first, poll) = Sleep::polled(ms(10), &mut task.cx());
    assert!(poll.is_pending());
    let (second, poll) = Sleep::polled(ms(5), &mut other.cx());
    assert!(poll.is_pending());
    assert_eq!(engine.stats().pending, 1, "the second waits for room");
    drop(first);
    let mut second = Box::pin(second);
    assert_eq!((task.wakes(), other.wakes()), (0, 1));
    assert!(other.poll(second.as_mut()).is_pending());
    assert_eq!(engine.advance(ms(5)), 1);
    assert_eq!(other.poll(second.as_mut()), Poll::Ready(()));
}

#[test]
fn f8_made_and_polled_in_one_go_it_is_ready_if_it_is_due_and_after_a_shutdown() {
    let engine = manual();
    let _entered = engine.enter();
    let (zero, poll) = Sleep::polled(Duration::ZERO, &mut Task::new().cx());
    assert_eq!((poll, zero.outcome(), engine.stats().armed), (Poll::Ready(()), Some(Outcome::Fired), 0));
    engine.shutdown();
    let (late, poll) = Sleep::polled(ms(1), &mut Task::new().cx());
    assert_eq!((poll, late.outcome()), (Poll::Ready(()), Some(Outcome::Stopped)));
}

#[test]
fn f8_t7_made_and_polled_in_one_go_it_wakes_a_driver_that_sleeps_for_longer() {
    let engine = Engine::builder().build().unwrap();
    let _entered = engine.enter();
    let (far, near) = (Task::new(), Task::new());
    let (_far, poll) = Sleep::polled(years(1), &mut far.cx());
    assert!(poll.is_pending());
    thread::sleep(ms(20));
    let (_near, _) = Sleep::polled(ms(5), &mut near.cx());
    eventually("the nearer one fires", || near.wakes() == 1);
    assert_eq!(far.wakes(), 0);
}

#[test]
fn p5_durations_from_zero_to_max_are_all_valid() {
    let engine = manual();
    let task = Task::new();
    let start = now(&engine);
    for duration in [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_nanos(u64::MAX), years(600)] {
        for slack in [Slack::adaptive(), Slack::exact(), Slack::upto(Duration::MAX), Slack::precise()] {
            let mut sleep = pin!(engine.sleep(duration).slack(slack));
            assert!(sleep.deadline() > start + years(100));
            assert!(task.poll(sleep.as_mut()).is_pending());
            assert!(engine.try_sleep(duration).is_ok());
            // They can be moved like any other.
            sleep.as_mut().reset(start + Duration::MAX);
            sleep.as_mut().disarm();
            sleep.as_mut().arm();
            assert_eq!(engine.advance(ms(1)), 0);
            assert!(task.poll(sleep.as_mut()).is_pending());
            let soon = now(&engine) + ms(1);
            sleep.as_mut().reset(soon);
            let most = if slack == Slack::upto(Duration::MAX) { None } else { Some(1) };
            assert!(most.is_none_or(|fired| engine.advance(ms(1)) == fired), "{duration:?} with {slack:?}");
        }
    }
    assert!(task.poll(pin!(engine.sleep(Duration::ZERO))).is_ready());
}

#[test]
fn p8_b8_a_sleep_until_a_time_of_day_is_counted_from_what_is_left_or_by_the_wall_clock_itself() {
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
