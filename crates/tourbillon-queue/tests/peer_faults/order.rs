//! The order in which timers come out.

use tourbillon_queue::{ListTree, TimerQueue};

use crate::support::{Random, on_every_queue, seed};
use crate::{HOUR, MILLI, SECOND, assert_fires_exactly_at, at, fired};

#[test]
fn d33_a_batch_comes_out_in_the_order_of_deadlines_and_ties_in_the_order_of_arming() {
    fn in_one_batch<Q: TimerQueue<u64> + Clone>(empty: Q) {
        let mut random = Random::new(seed());
        // Hardly any ties, some, and many.
        for spread in [SECOND, 1000, 3] {
            let mut queue = empty.clone();
            let mut expected: Vec<(u64, u64)> = (0..20_000).map(|number| (random.below(spread), number)).collect();
            for &(deadline, number) in &expected {
                queue.insert(at(deadline), number);
            }
            expected.sort_unstable();
            let mut batch = Vec::new();
            queue.expire(at(spread), |timer| batch.push((timer.deadline.as_nanos(), timer.value)));
            assert_eq!(batch, expected);
        }
    }
    on_every_queue!(in_one_batch);
}

#[test]
fn d34_far_timers_among_near_ones_leave_the_order_right() {
    let mut queue = ListTree::new();
    let mut expected = Vec::new();
    for number in 0..10_000 {
        let armed_at = number * MILLI;
        // Every hundredth is an hour away, among those of a second.
        let deadline = armed_at + if number % 100 == 50 { HOUR } else { SECOND };
        queue.insert(at(deadline), number);
        expected.push((deadline, number));
    }
    expected.sort_unstable();
    for (deadline, number) in expected {
        assert_fires_exactly_at(&mut queue, deadline, &[number]);
    }
    assert!(queue.is_empty());
}

#[test]
fn rescheduling_to_the_same_deadline_goes_behind_its_equals() {
    fn to_the_same<Q: TimerQueue<u64> + Clone>(empty: Q) {
        // In the future, and when the deadline has already passed.
        for elapsed in [0, 200] {
            let mut queue = empty.clone();
            assert!(queue.pop(at(elapsed)).is_none());
            let first = queue.insert(at(100), 0);
            queue.insert(at(100), 1);
            queue.insert(at(100), 2);
            assert_eq!(queue.reschedule(first, at(100)), Some(at(100)));
            assert_eq!(fired(&mut queue, 200), [1, 2, 0]);
        }
    }
    on_every_queue!(to_the_same);
}
