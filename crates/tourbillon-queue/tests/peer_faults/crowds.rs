//! Crowded slots, made ready in small steps.

use std::collections::HashSet;

use tourbillon_queue::{Key, Settled, TimerQueue, Wheel};

use crate::support::{Random, seed};
use crate::{MILLION, at, shuffle};

#[test]
fn d26_a_crowded_slot_is_made_ready_in_small_steps_with_arms_and_cancels_in_between() {
    let mut random = Random::new(seed());
    let mut queue = Wheel::new();
    // All in one slot of level 6.
    let width = 64u64.pow(6);
    let begin = 3 * width;
    let mut keys: Vec<Key> = (0..MILLION).map(|number| queue.insert(at(begin + random.below(width)), number)).collect();
    shuffle(&mut keys, &mut random);

    let now = at(begin + width);
    let (mut steps, mut armed, mut cancelled) = (0, MILLION, HashSet::new());
    while queue.settle(now, 1000) == Settled::More {
        steps += 1;
        assert_eq!(queue.len() as u64, armed - cancelled.len() as u64, "settling fires nothing");
        queue.insert(at(begin + random.below(width)), armed);
        armed += 1;
        cancelled.insert(queue.remove(keys.pop().unwrap()).unwrap());
    }
    assert!(steps > 500, "a million timers in steps of a thousand took only {steps} steps");
    queue.check().unwrap();

    let mut previous = None;
    let mut count = 0;
    queue.expire(now, |timer| {
        let order = Some((timer.deadline, timer.value));
        assert!(previous < order, "by deadline, equal ones as they were armed");
        assert!(!cancelled.contains(&timer.value));
        (previous, count) = (order, count + 1);
    });
    assert_eq!(count, armed - cancelled.len() as u64);
    assert!(queue.is_empty());
}

#[test]
fn d26_timers_armed_while_a_crowd_in_a_crowd_is_made_ready_are_not_lost() {
    // All are in the first 4096 ns of a slot of level 3, so its first part is as crowded as the whole.
    let begin = 64u64.pow(3);
    let mut queue = Wheel::new();
    for number in 0..40_000 {
        queue.insert(at(begin + number % 4096), number);
    }
    let mut armed = 40_000;
    while queue.settle(at(begin + 5000), 64) == Settled::More {
        queue.insert(at(begin + if armed % 2 == 0 { 100 } else { 4000 }), armed);
        armed += 1;
        queue.check().unwrap();
    }
    let mut previous = None;
    let count = queue.expire(at(begin + 5000), |timer| {
        assert!(previous < Some((timer.deadline, timer.value)), "by deadline, equal ones as they were armed");
        previous = Some((timer.deadline, timer.value));
    });
    assert_eq!(count as u64, armed);
}

#[test]
fn d26_a_crowd_armed_before_one_that_is_being_made_ready_comes_out_first_and_in_order() {
    let mut queue = Wheel::new();
    // Two slots of level 1, whose items must be sorted; the second is in the middle of its split when the first fills.
    let deadline = |slot: u64, number: u64| at(64 * slot + 63 - number % 64);
    for number in 0..20_000 {
        queue.insert(deadline(10, number), number);
    }
    assert_eq!(queue.settle(at(64 * 11), 64), Settled::More);
    for number in 20_000..40_000 {
        queue.insert(deadline(5, number), number);
    }
    queue.check().unwrap();
    let mut previous = None;
    let count = queue.expire(at(64 * 11), |timer| {
        assert!(previous < Some((timer.deadline, timer.value)), "by deadline, equal ones as they were armed");
        previous = Some((timer.deadline, timer.value));
    });
    assert_eq!(count, 40_000);
    queue.check().unwrap();
}

#[test]
fn d26_a_crowd_that_is_cancelled_while_it_is_made_ready_hides_no_other_timer() {
    let width = 64u64.pow(5);
    let mut queue = Wheel::new();
    let crowd: Vec<Key> = (0..20_000).map(|number| queue.insert(at(width + 1000 * number), number)).collect();
    queue.insert(at(10 * width), 1);
    assert_eq!(queue.settle(at(width + 30_000_000), 64), Settled::More);
    for key in crowd {
        assert!(queue.remove(key).is_some());
    }
    assert_eq!((queue.next_deadline(), queue.next_wakeup()), (Some(at(10 * width)), Some(at(10 * width))));
    queue.check().unwrap();
}
