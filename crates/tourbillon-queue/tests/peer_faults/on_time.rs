//! Timers are on time, whatever the distance and the steps of time.

use tourbillon_queue::{Span, TimerQueue, Wheel};

use crate::support::{Random, on_every_queue, seed};
use crate::{DAY, HOUR, LEVELS, MILLI, MINUTE, SECOND, YEAR, assert_fires_exactly_at, at, fired};

#[test]
fn d1_a_timer_armed_after_an_idle_time_counts_from_then() {
    fn idle_then_arm<Q: TimerQueue<u64> + Clone>(empty: Q) {
        // The queue is polled during the idle time, or not before the timer is due.
        for polled in [true, false] {
            let mut queue = empty.clone();
            if polled {
                assert!(queue.pop(at(10 * SECOND)).is_none());
            }
            queue.insert(at(15 * SECOND), 1);
            assert_fires_exactly_at(&mut queue, 15 * SECOND, &[1]);
        }
    }
    on_every_queue!(idle_then_arm);
}

/// Arms one timer for each of `periods` and arms it again each time it fires, while time advances by `step()` up to
/// `end`. Each must fire in the first step that reaches its deadline. Returns how often each has fired.
fn run_periods<Q: TimerQueue<u64>>(
    queue: &mut Q,
    periods: &[u64],
    end: u64,
    mut step: impl FnMut() -> u64,
) -> Vec<u64> {
    let mut counts = vec![0; periods.len()];
    for (period, number) in periods.iter().zip(0..) {
        queue.insert(at(*period), number);
    }
    let mut now = 0;
    while now < end {
        let before = at(now);
        now = (now + step()).min(end);
        while let Some(timer) = queue.pop(at(now)) {
            assert!(before < timer.deadline && timer.deadline <= at(now), "early, or a step late");
            counts[timer.value as usize] += 1;
            queue.insert(timer.deadline + Span::from_nanos(periods[timer.value as usize]), timer.value);
        }
        assert!(queue.next_deadline() > Some(at(now)), "a timer that is due has not come out");
    }
    counts
}

#[test]
fn d2_timers_near_and_far_are_on_time_when_time_advances_in_random_steps() {
    fn in_random_steps<Q: TimerQueue<u64>>(mut queue: Q) {
        let mut random = Random::new(seed());
        let periods = [10 * MILLI, 100 * MILLI, 5 * SECOND, 5 * MINUTE, HOUR];
        // A little more than the longest period, so that its timer too fires once.
        let end = HOUR + MINUTE;
        let counts = run_periods(&mut queue, &periods, end, || random.below(3 * MILLI));
        assert_eq!(counts, periods.map(|period| end / period));
    }
    on_every_queue!(in_random_steps);
}

#[test]
fn d3_neither_a_far_timer_nor_a_fast_ticker_starves_the_others() {
    fn polled_each_milli<Q: TimerQueue<u64> + Clone>(empty: Q) {
        for periods in [vec![HOUR, 100 * MILLI, 10 * MILLI], vec![MILLI, 100 * MILLI]] {
            let counts = run_periods(&mut empty.clone(), &periods, MINUTE, || MILLI);
            let expected: Vec<u64> = periods.iter().map(|period| MINUTE / period).collect();
            assert_eq!(counts, expected);
        }
    }
    on_every_queue!(polled_each_milli);
}

#[test]
fn d4_cancel_after_a_wait_removes_exactly_that_timer() {
    fn arm_wait_cancel<Q: TimerQueue<u64> + Clone>(empty: Q, start: u64, distance: u64, wait: u64) {
        let mut queue = empty;
        assert!(queue.pop(at(start)).is_none());
        let deadline = start + distance;
        queue.insert(at(deadline + 1), 3);
        queue.insert(at(deadline), 1);
        let victim = queue.insert(at(deadline), 99);
        queue.insert(at(deadline), 2);
        queue.insert(at(deadline - 1), 0);

        let mut bystanders = fired(&mut queue, start + wait);
        assert_eq!(queue.len(), 5 - bystanders.len());
        assert_eq!(queue.remove(victim), Some(99));
        assert_eq!(queue.len(), 4 - bystanders.len());
        queue.check().unwrap();
        assert_eq!(queue.remove(victim), None);

        bystanders.append(&mut fired(&mut queue, deadline + 1));
        assert_eq!(bystanders, [0, 1, 2, 3], "distance {distance}, wait {wait}");
        assert!(queue.is_empty());
    }
    fn at_every_level<Q: TimerQueue<u64> + Clone>(empty: Q) {
        for level in 0..LEVELS {
            let width = 64u64.pow(level);
            for distance in [width, width + 1, 2 * width + width / 3, width.saturating_mul(63)] {
                for start in [0, 12_345_678_901] {
                    if distance >= u64::MAX - start - 1 {
                        continue;
                    }
                    for wait in [0, 1, width / 64, distance / 2, distance - width / 2, distance - 1] {
                        arm_wait_cancel(empty.clone(), start, distance, wait.min(distance - 1));
                    }
                }
            }
        }
    }
    on_every_queue!(at_every_level);
}

#[test]
fn p9_a_far_timer_causes_no_wake_up_before_it_is_due() {
    let mut queue = Wheel::new();
    let distances = [1, MILLI, SECOND, MINUTE, HOUR, DAY, 100 * DAY, YEAR, 10 * YEAR, 100 * YEAR, 500 * YEAR];
    for start in [0, 5 * SECOND + 123_456_789, 3 * HOUR + 1] {
        assert!(queue.pop(at(start)).is_none());
        for distance in distances {
            queue.insert(at(start + distance), distance);
        }
        // A driver that sleeps until each wake-up has something to fire each time.
        for distance in distances {
            assert_eq!(queue.next_wakeup(), queue.next_deadline());
            assert_eq!(queue.next_wakeup(), Some(at(start + distance)));
            assert_eq!(fired(&mut queue, start + distance), [distance]);
        }
        assert_eq!(queue.next_wakeup(), None);
        queue = Wheel::new();
    }
}
