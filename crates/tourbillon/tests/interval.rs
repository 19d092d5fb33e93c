//! `Interval`: schedules, missed ticks, resets.
#![cfg(feature = "test-util")]

mod support;

use std::panic::catch_unwind;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use support::{Paused, Task, ms, years};
use tourbillon::time::{Instant, Interval, MissedTickBehavior, interval, interval_at, try_interval, try_interval_at};
use tourbillon::{Clock, Driver, Engine};

/// An interval in paused time, and the time at which both began.
struct Story {
    time: Paused,
    task: Task,
    start: Instant,
    interval: Interval,
}

impl Story {
    /// Makes an interval of 300 ms that starts now.
    fn new(behavior: MissedTickBehavior) -> Story {
        let time = Paused::new();
        let start = Instant::now();
        let mut interval = interval_at(start, ms(300));
        interval.set_missed_tick_behavior(behavior);
        Story { time, task: Task::new(), start, interval }
    }

    /// Advances the time to `at` ms after the start and asserts that exactly these ticks are ready then.
    fn at(&mut self, at: u64, ticks: &[u64]) -> &mut Story {
        self.time.advance_to(self.start + ms(at));
        for &tick in ticks {
            let polled = self.interval.poll_tick(&mut self.task.cx());
            assert_eq!(polled, Poll::Ready(self.start + ms(tick)), "at {at} ms");
        }
        assert_eq!(self.interval.poll_tick(&mut self.task.cx()), Poll::Pending, "one tick too many at {at} ms");
        self
    }
}

#[test]
fn f7_the_first_tick_is_at_once_and_the_others_are_a_period_apart() {
    let time = Paused::new();
    let task = Task::new();
    let start = Instant::now();
    let mut interval = interval(ms(10));
    for tick in 0..100 {
        assert_eq!(interval.poll_tick(&mut task.cx()), Poll::Ready(start + ms(10) * tick));
        assert_eq!(interval.poll_tick(&mut task.cx()), Poll::Pending);
        time.advance(ms(10) - Duration::from_nanos(1));
        assert_eq!(task.wakes(), 0);
        assert_eq!(interval.poll_tick(&mut task.cx()), Poll::Pending);
        time.advance(Duration::from_nanos(1));
        assert_eq!(task.wakes(), 1);
    }
}

#[test]
fn f7_the_first_tick_is_scheduled_for_the_time_at_which_the_interval_was_made() {
    let time = Paused::new();
    let start = Instant::now();
    let mut interval = interval(ms(10));
    time.advance(ms(3));
    assert_eq!(interval.poll_tick(&mut Task::new().cx()), Poll::Ready(start));
    assert_eq!(interval.period(), ms(10));
}

#[test]
fn f7_a_later_start_delays_the_first_tick() {
    let time = Paused::new();
    let task = Task::new();
    let start = Instant::now() + ms(50);
    let mut interval = interval_at(start, ms(10));
    assert!(interval.poll_tick(&mut task.cx()).is_pending());
    time.advance(ms(50));
    assert_eq!(task.wakes(), 1);
    assert_eq!(interval.poll_tick(&mut task.cx()), Poll::Ready(start));
}

#[test]
fn f7_burst_is_the_default_and_makes_up_for_missed_ticks() {
    assert_eq!(MissedTickBehavior::default(), MissedTickBehavior::Burst);
    let _time = Paused::new();
    assert_eq!(interval(ms(1)).missed_tick_behavior(), MissedTickBehavior::Burst);

    let mut story = Story::new(MissedTickBehavior::default());
    story.at(0, &[0]).at(100, &[]).at(300, &[300]);
    // The task is busy from 300 to 950: two ticks were missed and come at once, then the schedule continues.
    story.at(950, &[600, 900]).at(1150, &[]).at(1200, &[1200]).at(1500, &[1500]).at(1800, &[1800]);
}

#[test]
fn f7_burst_catches_up_with_a_long_absence_tick_by_tick() {
    let mut story = Story::new(MissedTickBehavior::Burst);
    let ticks: Vec<u64> = (0..=1000).map(|tick| 300 * tick).collect();
    story.at(300_000, &ticks).at(300_299, &[]).at(300_300, &[300_300]);
}

#[test]
fn f7_d8_delay_gives_one_tick_per_period_and_a_new_schedule_after_a_late_one() {
    let mut story = Story::new(MissedTickBehavior::Delay);
    story.at(0, &[0]).at(100, &[]).at(300, &[300]);
    story.at(950, &[600]).at(1050, &[]).at(1249, &[]).at(1250, &[1250]).at(1549, &[]).at(1550, &[1550]);
}

#[test]
fn d8_delay_without_lateness_ticks_once_per_period() {
    let mut story = Story::new(MissedTickBehavior::Delay);
    for tick in 0..200 {
        story.at(300 * tick, &[300 * tick]).at(300 * tick + 299, &[]);
    }
}

#[test]
fn f7_skip_drops_missed_ticks_and_keeps_to_multiples_of_the_period() {
    let mut story = Story::new(MissedTickBehavior::Skip);
    story.at(0, &[0]).at(100, &[]).at(300, &[300]);
    story.at(950, &[600]).at(1199, &[]).at(1200, &[1200]).at(1500, &[1500]).at(1800, &[1800]);
}

#[test]
fn f7_skip_after_a_whole_number_of_periods_waits_a_whole_period() {
    let mut story = Story::new(MissedTickBehavior::Skip);
    story.at(0, &[0]);
    // The tick of 300 is taken at 900, itself a multiple: the next one is 1200.
    story.at(900, &[300]).at(1199, &[]).at(1200, &[1200]);
}

#[test]
fn f7_skip_after_centuries_does_not_overflow() {
    let time = Paused::new();
    let start = Instant::now();
    let mut interval = interval_at(start, years(200) + ms(7));
    interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
    time.advance(years(250));
    let task = Task::new();
    assert_eq!(interval.poll_tick(&mut task.cx()), Poll::Ready(start));
    time.advance(years(150) + ms(13));
    assert!(interval.poll_tick(&mut task.cx()).is_pending());
    time.advance(ms(1));
    assert_eq!(interval.poll_tick(&mut task.cx()), Poll::Ready(start + (years(200) + ms(7)) * 2));
}

#[test]
fn f7_a_tick_late_by_five_milliseconds_is_not_missed() {
    for behavior in [MissedTickBehavior::Burst, MissedTickBehavior::Delay, MissedTickBehavior::Skip] {
        let mut story = Story::new(behavior);
        story.at(0, &[0]).at(305, &[300]).at(599, &[]).at(600, &[600]);
    }
}

#[test]
fn f7_a_tick_late_by_more_than_five_milliseconds_is_missed() {
    let mut story = Story::new(MissedTickBehavior::Delay);
    story.at(0, &[0]);
    story.time.advance(ms(305) + Duration::from_nanos(1));
    let start = story.start;
    let task = Task::new();
    assert_eq!(story.interval.poll_tick(&mut task.cx()), Poll::Ready(start + ms(300)));
    story.time.advance(ms(300) - Duration::from_nanos(1));
    assert!(story.interval.poll_tick(&mut task.cx()).is_pending());
    story.time.advance(Duration::from_nanos(1));
    let next = start + ms(605) + Duration::from_nanos(1);
    assert_eq!(story.interval.poll_tick(&mut task.cx()), Poll::Ready(next));
}

#[test]
fn f7_a_period_below_the_tolerance_skips_only_when_it_is_later_than_that() {
    let time = Paused::new();
    let task = Task::new();
    let start = Instant::now();
    let mut interval = interval_at(start, ms(1));
    interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
    time.advance(ms(4));
    // Four milliseconds late: not missed, so all ticks come.
    for tick in 0..=4 {
        assert_eq!(interval.poll_tick(&mut task.cx()), Poll::Ready(start + ms(tick)));
    }
    assert!(interval.poll_tick(&mut task.cx()).is_pending());
    time.advance(ms(7));
    assert_eq!(interval.poll_tick(&mut task.cx()), Poll::Ready(start + ms(5)));
    assert!(interval.poll_tick(&mut task.cx()).is_pending(), "six milliseconds late: 6 to 11 are skipped");
    time.advance(ms(1));
    assert_eq!(interval.poll_tick(&mut task.cx()), Poll::Ready(start + ms(12)));
}

#[test]
fn f7_reset_makes_the_next_tick_one_period_from_now() {
    let mut story = Story::new(MissedTickBehavior::Burst);
    story.at(0, &[0]).at(300, &[300]).at(400, &[]);
    story.interval.reset();
    story.at(650, &[]).at(699, &[]).at(700, &[700]).at(1000, &[1000]);
}

#[test]
fn f7_reset_immediately_ticks_now() {
    let mut story = Story::new(MissedTickBehavior::Burst);
    story.at(0, &[0]).at(300, &[300]).at(400, &[]);
    story.interval.reset_immediately();
    story.at(400, &[400]).at(699, &[]).at(700, &[700]);
}

#[test]
fn f7_reset_after_ticks_after_that_time_and_then_every_period() {
    let mut story = Story::new(MissedTickBehavior::Burst);
    story.at(0, &[0]).at(300, &[300]).at(400, &[]);
    story.interval.reset_after(ms(20));
    story.at(419, &[]).at(420, &[420]).at(719, &[]).at(720, &[720]);
}

#[test]
fn f7_reset_at_ticks_at_that_time_even_beyond_a_period_and_in_the_past() {
    let mut story = Story::new(MissedTickBehavior::Burst);
    story.at(0, &[0]).at(300, &[300]).at(400, &[]);
    story.interval.reset_at(story.start + ms(1400));
    story.at(700, &[]).at(1399, &[]).at(1400, &[1400]).at(1700, &[1700]);
    story.interval.reset_at(story.start + ms(1698));
    story.at(1700, &[1698]).at(1997, &[]).at(1998, &[1998]);
}

#[test]
fn f7_a_reset_to_an_earlier_time_wakes_the_pending_task() {
    let mut story = Story::new(MissedTickBehavior::Burst);
    story.at(0, &[0]);
    story.interval.reset_at(story.start + ms(10));
    story.time.advance(ms(10));
    assert_eq!(story.task.wakes(), 1);
    story.interval.reset_after(ms(5));
    story.at(14, &[]).at(15, &[15]);
}

#[test]
fn f7_p5_the_longest_periods_and_resets_do_not_panic() {
    let time = Paused::new();
    let task = Task::new();
    let mut interval = interval(Duration::MAX);
    assert!(interval.poll_tick(&mut task.cx()).is_ready());
    assert!(interval.poll_tick(&mut task.cx()).is_pending());
    interval.reset();
    interval.reset_after(Duration::MAX);
    time.advance(years(100));
    assert!(interval.poll_tick(&mut task.cx()).is_pending());
    for behavior in [MissedTickBehavior::Burst, MissedTickBehavior::Delay, MissedTickBehavior::Skip] {
        interval.set_missed_tick_behavior(behavior);
        assert_eq!(interval.missed_tick_behavior(), behavior);
        interval.reset_immediately();
        time.advance(years(1));
        assert!(interval.poll_tick(&mut task.cx()).is_ready());
        assert!(interval.poll_tick(&mut task.cx()).is_pending());
    }
    assert_eq!(interval.period(), Duration::MAX);
}

#[test]
fn f7_a_ready_tick_registers_no_waker() {
    let time = Paused::new();
    let task = Task::new();
    let mut interval = interval(ms(10));
    assert!(interval.poll_tick(&mut task.cx()).is_ready());
    assert_eq!(task.wakers_held(), 0);
    time.advance(ms(50));
    assert_eq!(task.wakes(), 0);

    // The same after it has been pending.
    while interval.poll_tick(&mut task.cx()).is_ready() {}
    assert_eq!(task.wakers_held(), 1);
    time.advance(ms(10));
    assert_eq!(task.wakes(), 1);
    assert!(interval.poll_tick(&mut task.cx()).is_ready());
    assert_eq!(task.wakers_held(), 0);
    time.advance(ms(100));
    assert_eq!(task.wakes(), 0);
}

#[test]
fn f7_a_tick_whose_future_is_dropped_while_pending_is_not_lost() {
    let time = Paused::new();
    let task = Task::new();
    let start = Instant::now();
    let mut interval = interval(ms(10));
    assert_eq!(task.poll(pin!(interval.tick())), Poll::Ready(start));
    for _ in 0..3 {
        assert_eq!(task.poll(pin!(interval.tick())), Poll::Pending);
    }
    time.advance(ms(10));
    drop(interval.tick());
    assert_eq!(task.poll(pin!(interval.tick())), Poll::Ready(start + ms(10)));
    assert_eq!(task.poll(pin!(interval.tick())), Poll::Pending);
}

#[test]
fn f7_only_the_task_that_polled_last_is_woken() {
    let time = Paused::new();
    let (first, second) = (Task::new(), Task::new());
    let mut interval = interval_at(Instant::now() + ms(5), ms(10));
    assert!(interval.poll_tick(&mut first.cx()).is_pending());
    assert!(interval.poll_tick(&mut second.cx()).is_pending());
    time.advance(ms(5));
    assert_eq!((first.wakes(), second.wakes()), (0, 1));
}

#[test]
fn f7_d8_a_zero_period_panics_with_the_message_of_tokio() {
    let _time = Paused::new();
    let now = Instant::now();
    let panics: [fn(Instant) -> Interval; 2] = [|_| interval(Duration::ZERO), |now| interval_at(now, Duration::ZERO)];
    for panic in panics {
        let payload = catch_unwind(|| panic(now)).expect_err("a zero period was accepted");
        let words = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
        assert_eq!(words, Some("`period` must be non-zero."));
    }
}

#[test]
fn p6_d8_the_try_functions_refuse_a_zero_period_with_an_error() {
    let _time = Paused::new();
    let now = Instant::now();
    let refused = try_interval(Duration::ZERO).expect_err("a zero period was accepted");
    assert_eq!(refused.to_string(), "`period` must be non-zero.");
    assert_eq!(try_interval_at(now, Duration::ZERO).expect_err("a zero period was accepted"), refused);
    let mut interval = try_interval_at(now, Duration::from_nanos(1)).unwrap();
    assert_eq!(interval.poll_tick(&mut Task::new().cx()), Poll::Ready(now));
    assert!(try_interval(ms(1)).is_ok());
}

#[test]
fn d32_a_stopped_engine_neither_hangs_an_interval_nor_lets_it_starve_other_tasks() {
    let engine = Engine::builder().build().unwrap();
    let _entered = engine.enter();
    let task = Task::new();
    let start = Instant::now() + years(1);
    let mut interval = interval_at(start, ms(300));
    assert!(interval.poll_tick(&mut task.cx()).is_pending());
    assert!(!interval.is_stopped());

    engine.shutdown();
    assert_eq!(task.wakes(), 1);
    assert_eq!(interval.poll_tick(&mut task.cx()), Poll::Ready(start));
    assert!(interval.is_stopped());
    for tick in 1..10 {
        assert_eq!(interval.poll_tick(&mut task.cx()), Poll::Pending);
        assert_eq!(task.wakes(), 1, "the task yields, and is woken at once");
        assert_eq!(interval.poll_tick(&mut task.cx()), Poll::Ready(start + ms(300) * tick));
        assert_eq!((task.wakes(), task.wakers_held()), (0, 0));
    }
}

#[test]
fn f7_an_interval_can_be_sent_shared_and_moved_while_it_is_pending() {
    fn is_send_sync_unpin<T: Send + Sync + Unpin>(_: &T) {}
    let time = Paused::new();
    let task = Task::new();
    let start = Instant::now() + ms(5);
    let mut interval = interval_at(start, ms(10));
    is_send_sync_unpin(&interval);
    assert!(interval.poll_tick(&mut task.cx()).is_pending());
    let mut moved = Box::new(interval);
    time.advance(ms(5));
    assert_eq!(task.wakes(), 1);
    assert_eq!(moved.poll_tick(&mut task.cx()), Poll::Ready(start));
    assert!(format!("{moved:?}").contains("Interval"));
}

#[cfg(feature = "futures")]
#[test]
fn f7_an_interval_is_a_stream_of_its_ticks() {
    use futures_lite::StreamExt;
    let time = Paused::new();
    let start = Instant::now();
    let interval = interval(ms(10));
    time.advance(ms(40));
    let ticks: Vec<Instant> = futures_lite::future::block_on(interval.take(5).collect());
    assert_eq!(ticks, [0, 10, 20, 30, 40].map(|tick| start + ms(tick)));
}

#[cfg(feature = "futures")]
#[test]
fn t10_the_stream_of_an_interval_ends_when_its_engine_is_shut_down() {
    use futures_lite::StreamExt;
    let engine = Engine::builder().build().unwrap();
    let _entered = engine.enter();
    let mut ticks = interval(years(1)).map(|_| engine.shutdown());
    assert_eq!(futures_lite::future::block_on(async { (ticks.next().await, ticks.next().await) }), (Some(()), None));
}

/// The boot-time clock and that of `Instant` are read one after the other each time, some nanoseconds apart.
#[test]
fn p1_d14_on_the_boot_time_clock_no_tick_is_early_and_the_error_does_not_accumulate() {
    let engine = Engine::builder().clock(Clock::boot()).driver(Driver::external()).build().unwrap();
    let _entered = engine.enter();
    let (period, count) = (Duration::from_micros(10), 100_000);
    let start = Instant::now() - 2 * count * period;
    let mut interval = interval_at(start, period);
    let task = Task::new();
    // On a slow machine the interval yields now and then, and is ready when it is polled again.
    let mut poll_tick = || match interval.poll_tick(&mut task.cx()) {
        Poll::Pending => interval.poll_tick(&mut task.cx()),
        ready @ Poll::Ready(_) => ready,
    };
    let late = (0..count).map(|tick| match poll_tick() {
        Poll::Ready(at) => at.checked_duration_since(start + tick * period).expect("a tick is early"),
        Poll::Pending => panic!("all ticks are in the past"),
    });
    let least_late = late.skip(count as usize / 2).min();
    assert!(least_late < Some(period), "every later tick is at least {least_late:?} late");
}
