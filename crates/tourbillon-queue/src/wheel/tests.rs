use alloc::vec::Vec;

use super::*;
use crate::{Span, TimerQueue};

/// The start of a slot of level 4, and one past its end.
const BEGIN: u64 = 3 * WIDTH;
const END: u64 = BEGIN + WIDTH;
const WIDTH: u64 = 1 << (4 * DIGIT);

fn at(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

/// Returns a wheel with `count` timers spread over one slot, none of them at its start.
fn wheel_with(count: u32) -> Wheel<u64> {
    let mut wheel = Wheel::new();
    for number in 1..=u64::from(count) {
        wheel.insert(at(BEGIN + WIDTH * number / (u64::from(count) + 1)), number);
    }
    wheel
}

#[test]
fn d26_a_crowded_slot_is_split_in_steps_and_one_that_is_not_is_opened_at_once() {
    assert_eq!(wheel_with(CROWDED).settle(at(END), 1), Settled::Done);
    assert_eq!(wheel_with(CROWDED + 1).settle(at(END), 1), Settled::More);
    // A nanosecond is not split, however many are due in it.
    let mut wheel = Wheel::new();
    for number in 0..=CROWDED {
        wheel.insert(at(5), number);
    }
    assert_eq!(wheel.settle(at(5), 1), Settled::Done);
}

#[test]
fn d26_settling_moves_no_more_timers_than_it_was_allowed_and_none_if_that_is_zero() {
    const BLOCKS: u32 = 4 * CROWDED / BLOCK;
    let mut wheel = wheel_with(BLOCKS * BLOCK);
    let mut calls = 1;
    while wheel.settle(at(END), BLOCK as usize) == Settled::More {
        assert_eq!(wheel.settle(at(END), 0), Settled::More);
        calls += 1;
    }
    assert!((BLOCKS..=BLOCKS + 1).contains(&calls), "a block at a time, {calls} times, of {BLOCKS}");
    wheel.check().unwrap();
}

#[test]
fn p9_few_timers_cause_no_early_wake_up_and_many_cause_one_when_their_slot_begins() {
    let few = wheel_with(SCAN_LIMIT);
    assert_eq!(few.next_wakeup(), few.next_deadline());
    let mut many = wheel_with(SCAN_LIMIT + 1);
    assert_eq!(many.next_wakeup(), Some(at(BEGIN)));
    assert!(many.pop(at(BEGIN)).is_none());
    assert!(many.next_deadline() > Some(at(BEGIN)) && many.next_wakeup() == many.next_deadline());
}

#[test]
fn the_wheel_stays_no_more_than_some_milliseconds_behind_while_nothing_is_due() {
    let mut wheel = Wheel::new();
    wheel.insert(at(0) + Span::from_secs(3600), 0);
    for micros in (0..1_000_000).step_by(100) {
        let now = at(0) + Span::from_nanos(1000 * micros);
        assert!(wheel.pop(now).is_none() && wheel.expire(now, drop) == 0);
        assert!(now.as_nanos() - wheel.raw().0.elapsed < Span::from_millis(17).as_nanos());
    }
    let now = at(0) + Span::from_secs(60);
    assert!(wheel.pop(now).is_none());
    assert_eq!(wheel.raw().0.elapsed, now.as_nanos(), "after a long time one poll brings it up to date");
}

#[test]
fn f2_empty_levels_are_kept_for_a_while_and_freed_after_many_idle_polls() {
    let mut wheel = Wheel::new();
    // Each step is longer than `elapsed` may lag behind, so that no poll takes the short path.
    let mut now = 0;
    let mut poll = |wheel: &mut Wheel<u32>, times: u32| {
        for _ in 0..times {
            now += MAX_LAG;
            assert!(wheel.pop(at(now)).is_none());
        }
    };
    let keys: Vec<_> = (0..LEVELS as u32).map(|height| wheel.insert(at(1 << (DIGIT * height)), height)).collect();
    keys.into_iter().for_each(|key| assert!(wheel.remove(key).is_some()));
    poll(&mut wheel, TRIM_EVERY + TRIM_EVERY - 1);
    assert_eq!(wheel.raw().0.levels.allocated_levels(), LEVELS, "the levels were in use before the first trim");
    poll(&mut wheel, 1);
    assert_eq!(wheel.raw().0.levels.allocated_levels(), 0);
}

#[test]
fn p3_of_equal_deadlines_in_two_runs_the_one_armed_first_comes_first() {
    let mut wheel = Wheel::new();
    wheel.insert(at(BEGIN + 70), 1);
    assert!(wheel.pop(at(BEGIN)).is_none(), "not due yet, but its slot is open now");
    wheel.insert(at(BEGIN + 70), 2);
    let mut fired = Vec::new();
    wheel.expire(at(BEGIN + 70), |timer| fired.push(timer.value));
    assert_eq!(fired, [1, 2]);
}

#[test]
fn p3_d26_a_crowd_in_a_slot_before_one_that_is_being_split_comes_out_first_and_in_order() {
    const CROWD: u64 = CROWDED as u64 + 2 * BLOCK as u64;
    let mut wheel = Wheel::new();
    // Two slots of level 1, filled from their ends.
    let fill = |wheel: &mut Wheel<u64>, slot: u64| {
        for number in 0..CROWD {
            wheel.insert(at(64 * slot + 63 - number % 64), number);
        }
    };
    fill(&mut wheel, 10);
    assert_eq!(wheel.settle(at(64 * 11), 1), Settled::More);
    fill(&mut wheel, 5);
    let mut previous = None;
    let count = wheel.expire(at(64 * 11), |timer| {
        let order = Some((timer.deadline, timer.value));
        assert!(previous < order, "by deadline, equal ones as they were armed");
        previous = order;
    });
    assert_eq!(count as u64, 2 * CROWD);
}

#[test]
fn p3_p5_the_timers_of_one_slot_come_out_in_order_at_every_level() {
    for height in 1..LEVELS as u32 {
        let width = 1u64 << (DIGIT * height);
        let deadlines = [0, 1, width / 3, width / 2, width - 2, width - 1].map(|offset| at(width + offset));
        let mut wheel = Wheel::new();
        for deadline in deadlines.into_iter().rev() {
            wheel.insert(deadline, height);
        }
        let mut fired = Vec::new();
        wheel.expire(at(2 * width), |timer| fired.push(timer.deadline));
        assert_eq!(fired, deadlines);
    }
}

#[test]
fn d26_timers_distributed_by_a_split_still_fire_when_the_rest_of_the_slot_is_cancelled() {
    let mut wheel = Wheel::new();
    let insert = |number: u32| wheel.insert(at(BEGIN + 1000 * u64::from(number)), number);
    let keys: Vec<_> = (0..CROWDED + 2 * BLOCK).map(insert).collect();
    assert_eq!(wheel.settle(at(END), 1), Settled::More);
    let (distributed, rest) = keys.split_at(BLOCK as usize);
    for key in rest {
        assert!(wheel.remove(*key).is_some());
    }
    wheel.check().unwrap();
    let mut cancelled = wheel.clone();
    assert_eq!(wheel.expire(at(END), |timer| assert!(distributed.contains(&timer.key))), distributed.len());

    for key in distributed {
        assert!(cancelled.remove(*key).is_some());
    }
    cancelled.check().unwrap();
    assert_eq!((cancelled.next_deadline(), cancelled.next_wakeup()), (None, None));
}

#[test]
fn d26_the_next_deadline_is_known_while_a_crowd_within_a_crowd_is_split() {
    let mut wheel = Wheel::new();
    for number in 0..2 * CROWDED {
        wheel.insert(at(BEGIN + 1 + u64::from(number % 60)), number);
    }
    while wheel.settle(at(END), CROWDED as usize / 4) == Settled::More {
        assert_eq!(wheel.next_deadline(), Some(at(BEGIN + 1)));
        assert_eq!(wheel.next_wakeup(), Some(at(BEGIN)), "the wheel has upkeep to do by then");
        wheel.check().unwrap();
    }
    wheel.check().unwrap();
    assert_eq!(wheel.next_deadline(), Some(at(BEGIN + 1)));
}

#[test]
fn p3_d26_a_timer_armed_while_a_crowd_within_a_crowd_is_split_comes_after_its_equals() {
    let mut wheel = Wheel::new();
    let mut armed = 0..;
    let mut arm = |wheel: &mut Wheel<u64>| {
        let number = armed.next().unwrap();
        wheel.insert(at(BEGIN + 1 + number % 7), number);
    };
    (0..2 * CROWDED).for_each(|_| arm(&mut wheel));
    for _ in 0..20 {
        let _more = wheel.settle(at(END), CROWDED as usize / 4);
        (0..3).for_each(|_| arm(&mut wheel));
        wheel.check().unwrap();
    }
    let mut fired = Vec::new();
    wheel.expire(at(END), |timer| fired.push((timer.deadline, timer.value)));
    assert!(fired.is_sorted(), "by deadline, equal ones as they were armed");
}

#[test]
fn p1_at_no_level_does_a_timer_come_out_a_nanosecond_early() {
    for height in 1..LEVELS as u32 {
        let width = 1u64 << (DIGIT * height);
        let mut wheel = Wheel::new();
        let offsets = [0, width / 2, width - 1];
        for offset in offsets {
            wheel.insert(at(width + offset), offset);
        }
        for offset in offsets {
            assert!(wheel.pop(at(width + offset - 1)).is_none(), "level {height}, {offset}");
            assert_eq!(wheel.pop(at(width + offset)).map(|timer| timer.value), Some(offset));
        }
    }
}

#[test]
fn p1_when_time_goes_back_a_due_timer_that_has_not_come_out_waits_again() {
    let mut wheel = Wheel::new();
    for number in [1, 2] {
        wheel.insert(at(5), number);
    }
    assert_eq!(wheel.pop(at(5)).map(|timer| timer.value), Some(1));
    assert!(wheel.pop(at(4)).is_none());
    assert_eq!(wheel.pop(at(5)).map(|timer| timer.value), Some(2));
}

#[test]
fn p3_a_long_run_comes_out_in_order_at_every_level() {
    const COUNT: u64 = 1000;
    for height in 1..LEVELS as u32 {
        let width = 1u64 << (DIGIT * height);
        let mut wheel = Wheel::new();
        // All over the slot and not in order; on the lower levels many are equal.
        for number in 0..COUNT {
            let part = number * 617 % COUNT;
            wheel.insert(at(width + (u128::from(width) * u128::from(part) / u128::from(COUNT)) as u64), number);
        }
        let mut fired = Vec::new();
        wheel.expire(at(2 * width), |timer| fired.push((timer.deadline, timer.value)));
        assert!(fired.len() as u64 == COUNT && fired.is_sorted(), "level {height}");
    }
}

#[test]
fn while_nothing_is_due_a_poll_is_a_comparison_and_the_wheel_stays_where_it_is() {
    let mut wheel = Wheel::new();
    wheel.insert(at(0) + Span::from_secs(3600), 0);
    let start = at(0) + Span::from_secs(1);
    assert!(wheel.pop(start).is_none());
    for millis in [0, 1, 5, 16] {
        let now = start + Span::from_millis(millis);
        assert!(wheel.pop(now).is_none() && wheel.expire(now, drop) == 0);
        assert_eq!(wheel.raw().0.elapsed, start.as_nanos(), "after {millis} ms");
    }
}

/// Entries that store no place and count how often one was set.
struct PlaceCounter(usize);

impl Entries<u64> for PlaceCounter {
    fn place(&self, _: &u64) -> Place {
        unreachable!("opening a slot reads no place")
    }

    fn set_place(&mut self, _: &u64, _: Place) {
        self.0 += 1;
    }
}

#[test]
fn a_slot_of_any_level_is_opened_without_moving_a_timer_unless_it_is_crowded() {
    for height in 1..=10 {
        for count in [2, u64::from(CROWDED)] {
            let width = 1u64 << (DIGIT * height);
            let (mut wheel, mut entries) = (RawWheel::new(), PlaceCounter(0));
            for number in (0..count).rev() {
                let _place = wheel.insert(&mut entries, number, at(width + number % width));
            }
            assert_eq!(wheel.peek(&mut entries, at(2 * width)), Some(at(width)));
            assert_eq!(entries.0, 0, "level {height}, {count} timers");
        }
    }
}
