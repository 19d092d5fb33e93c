//! The whole range of time: level boundaries, uptimes, centuries, deadlines in the past and without end.

use std::time::Duration;

use tourbillon_queue::{Span, Time, TimerQueue};

use crate::support::{Random, on_every_queue, seed};
use crate::{DAY, HOUR, LEVELS, MILLI, MINUTE, SECOND, YEAR, assert_fires_exactly_at, at, fired};

#[test]
fn d29_deadlines_around_every_level_boundary_fire_to_the_nanosecond() {
    /// One before, at, and one after some slot boundaries of every level that come after `elapsed`, in order.
    fn around_boundaries(elapsed: u64) -> Vec<u64> {
        let mut deadlines = Vec::new();
        for level in 0..LEVELS {
            let width = 64u64.pow(level);
            for slot in [1, 2, 63, 64] {
                let Some(boundary) = (elapsed / width).checked_add(slot).and_then(|slot| slot.checked_mul(width))
                else {
                    continue;
                };
                deadlines.extend((boundary - 1..=boundary + 1).filter(|&deadline| deadline > elapsed));
            }
        }
        deadlines.sort_unstable();
        deadlines.dedup();
        deadlines
    }
    fn alone_and_together<Q: TimerQueue<u64> + Clone>(empty: Q) {
        let positions = [0, 1, 63, 64, 64u64.pow(3) - 1, 64u64.pow(5) + 17, (1 << 40) + 12_345, (1 << 60) - 1, 1 << 63];
        for elapsed in positions {
            let mut empty = empty.clone();
            assert!(empty.pop(at(elapsed)).is_none());
            let mut together = empty.clone();
            let deadlines = around_boundaries(elapsed);
            // The farthest first, so that arming order and deadline order differ.
            for &deadline in deadlines.iter().rev() {
                let mut alone = empty.clone();
                alone.insert(at(deadline), deadline);
                assert_fires_exactly_at(&mut alone, deadline, &[deadline]);
                together.insert(at(deadline), deadline);
            }
            for deadline in deadlines {
                assert_fires_exactly_at(&mut together, deadline, &[deadline]);
            }
        }
    }
    on_every_queue!(alone_and_together);
}

#[test]
fn d31_the_longest_durations_do_not_disturb_a_short_one() {
    fn beside_a_short_one<Q: TimerQueue<u64>>(mut queue: Q) {
        queue.insert(Time::ZERO + Span::from(Duration::MAX), 2);
        queue.insert(at(u64::MAX - 1), 1);
        queue.insert(at(10 * MILLI), 0);
        assert_fires_exactly_at(&mut queue, 10 * MILLI, &[0]);
        assert!(fired(&mut queue, 100 * YEAR).is_empty());
        assert_eq!(queue.len(), 2);
        assert_fires_exactly_at(&mut queue, u64::MAX - 1, &[1]);
        assert_eq!(queue.len(), 1, "the timer that is never due stays");
    }
    on_every_queue!(beside_a_short_one);
}

#[test]
fn d36_near_and_far_timers_fire_on_time_past_every_uptime_at_which_others_froze() {
    fn past_uptimes<Q: TimerQueue<u64> + Clone>(empty: Q) {
        // 2^30, 2^31, 2^32 and 2^36 milliseconds. 2^53 would be 285,000 years, and a `Time` ends after 584; instead, the
        // last uptime is as late as the distances of the timers allow.
        let uptimes = [30, 31, 32, 36].map(|bits| (1u64 << bits) * MILLI);
        for uptime in uptimes.into_iter().chain([u64::MAX - 100 * DAY]) {
            let mut queue = empty.clone();
            // From before that uptime to after it, with timers armed at the very beginning and timers armed lately.
            let distances = [1, MILLI, SECOND, MINUTE, HOUR, DAY, 40 * DAY];
            let mut deadlines: Vec<u64> = distances.iter().map(|distance| uptime + distance).collect();
            for &deadline in deadlines.iter().rev() {
                queue.insert(at(deadline), deadline);
            }
            let lately = uptime - SECOND;
            assert!(queue.pop(at(lately)).is_none());
            for distance in distances {
                queue.insert(at(lately + distance), lately + distance);
                deadlines.push(lately + distance);
            }
            deadlines.sort_unstable();
            deadlines.dedup();
            for deadline in deadlines {
                assert_eq!(queue.next_deadline(), Some(at(deadline)));
                assert!(queue.pop(at(deadline - 1)).is_none());
                let due = fired(&mut queue, deadline);
                assert!(!due.is_empty() && due.iter().all(|&value| value == deadline));
                queue.check().unwrap();
            }
            assert!(queue.is_empty());
        }
    }
    on_every_queue!(past_uptimes);
}

#[test]
fn d37_a_hundred_years_go_by_with_near_and_far_timers() {
    fn for_a_hundred_years<Q: TimerQueue<u64>>(mut queue: Q) {
        let mut random = Random::new(seed());
        let distances = [1, MILLI, SECOND, HOUR, DAY, 30 * DAY, YEAR, 50 * YEAR];
        let (mut now, mut armed, mut count) = (0, 0, 0);
        while now < 100 * YEAR {
            for distance in distances {
                queue.insert(at(now + distance + random.below(distance)), 0);
                armed += 1;
            }
            let before = at(now);
            now += random.below(30 * DAY);
            queue.expire(at(now), |timer| {
                assert!(before < timer.deadline && timer.deadline <= at(now), "early, or a step late");
                count += 1;
            });
            assert!(queue.next_deadline() > Some(at(now)));
            assert_eq!(queue.len(), armed - count);
        }
        queue.check().unwrap();
        queue.expire(at(now + 100 * YEAR), |_| count += 1);
        assert_eq!(count, armed);
    }
    on_every_queue!(for_a_hundred_years);
}

#[test]
fn deadlines_at_zero_and_in_the_past_come_out_at_the_next_call_in_their_order() {
    fn in_the_past<Q: TimerQueue<u64>>(mut queue: Q) {
        queue.insert(Time::ZERO, 0);
        assert_eq!(fired(&mut queue, 0), [0]);
        assert!(queue.pop(at(SECOND)).is_none());
        for (deadline, number) in [(500, 4), (SECOND, 6), (0, 1), (300, 2), (500, 5), (300, 3), (SECOND + 1, 7)] {
            queue.insert(at(deadline), number);
        }
        assert_eq!(queue.next_deadline(), Some(Time::ZERO));
        assert_eq!(fired(&mut queue, SECOND), [1, 2, 3, 4, 5, 6]);
        assert_eq!(fired(&mut queue, SECOND + 1), [7]);
    }
    on_every_queue!(in_the_past);
}

#[test]
fn a_timer_without_end_is_counted_and_never_comes_out() {
    fn without_end<Q: TimerQueue<u64>>(mut queue: Q) {
        let key = queue.insert(Time::NEVER, 7);
        queue.insert(at(u64::MAX - 1), 8);
        assert_eq!((queue.len(), queue.deadline(key), queue.get(key)), (2, Some(Time::NEVER), Some(&7)));
        assert_eq!(fired(&mut queue, u64::MAX), [8]);
        assert_eq!((queue.next_deadline(), queue.next_wakeup()), (None, None));
        assert!(queue.pop(Time::NEVER).is_none());
        assert_eq!(queue.len(), 1);
        assert_eq!(queue.remove(key), Some(7));
        assert!(queue.is_empty());
        queue.check().unwrap();
    }
    on_every_queue!(without_end);
}

#[test]
fn a_timer_can_be_rescheduled_to_no_end_and_back() {
    fn to_and_from_never<Q: TimerQueue<u64>>(mut queue: Q) {
        let keys = [0, 1, 2].map(|number| queue.insert(at(100), number));
        for key in keys {
            assert_eq!(queue.reschedule(key, Time::NEVER), Some(at(100)));
        }
        assert!(queue.pop(Time::NEVER).is_none());
        // The middle one first: the queue moves another timer to its place and must still find that.
        assert_eq!(queue.reschedule(keys[1], at(200)), Some(Time::NEVER));
        assert_eq!(queue.reschedule(keys[0], at(300)), Some(Time::NEVER));
        assert_eq!(queue.reschedule(keys[2], Time::NEVER), Some(Time::NEVER));
        queue.check().unwrap();
        assert_eq!(fired(&mut queue, 200), [1]);
        assert_eq!(fired(&mut queue, 300), [0]);
        assert_eq!(queue.remove(keys[2]), Some(2));
    }
    on_every_queue!(to_and_from_never);
}

#[test]
fn when_now_goes_backwards_nothing_comes_out_before_its_deadline() {
    fn backwards<Q: TimerQueue<u64>>(mut queue: Q) {
        for deadline in [10, 20, 30, HOUR] {
            queue.insert(at(deadline), deadline);
        }
        assert_eq!(queue.pop(at(25)).map(|timer| timer.value), Some(10));
        assert!(queue.pop(at(19)).is_none(), "20 was due at the previous `now`, and is not at this one");
        queue.insert(at(5), 5);
        queue.insert(at(15), 15);
        assert!(queue.pop(at(4)).is_none());
        assert_eq!(fired(&mut queue, 14), [5]);
        assert_eq!(fired(&mut queue, 29), [15, 20]);
        assert!(queue.pop(at(HOUR - 1)).is_some());
        assert!(queue.pop(at(HOUR - 1)).is_none());
        assert!(queue.pop(Time::ZERO).is_none());
        queue.insert(at(40), 40);
        assert!(queue.pop(at(39)).is_none());
        queue.check().unwrap();
        assert_eq!(fired(&mut queue, HOUR), [40, HOUR]);
    }
    on_every_queue!(backwards);
}
