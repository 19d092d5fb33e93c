//! Faults that other timer systems have or had, each with the test that it would have failed; and input that nobody
//! should give. The number in a test's name is that of the fault.

mod support;

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use support::{Random, on_every_queue, seed};
use tourbillon_queue::{Expired, Key, ListTree, Rounds, RoundsError, Settled, Span, Time, TimerQueue, Wheel};

const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLI;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY;

const MILLION: u64 = 1_000_000;

/// The wheel has so many levels; a slot of level `l` is `64^l` nanoseconds wide.
const LEVELS: u32 = 11;

fn at(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

/// Expires everything that is due and returns the values.
fn fired<Q: TimerQueue<u64>>(queue: &mut Q, nanos: u64) -> Vec<u64> {
    let mut values = Vec::new();
    let count = queue.expire(at(nanos), |timer| values.push(timer.value));
    assert_eq!(count, values.len());
    values
}

/// Nothing fires a nanosecond before `deadline`, and exactly `values` fire at it.
fn assert_fires_exactly_at<Q: TimerQueue<u64>>(queue: &mut Q, deadline: u64, values: &[u64]) {
    assert_eq!(queue.next_deadline(), Some(at(deadline)));
    if let Some(before) = deadline.checked_sub(1) {
        assert!(queue.pop(at(before)).is_none(), "early, before {deadline}");
    }
    assert_eq!(fired(queue, deadline), values, "at {deadline}");
}

#[test]
fn d01_a_timer_armed_after_an_idle_time_counts_from_then() {
    fn idle_then_arm<Q: TimerQueue<u64> + Clone>(empty: Q) {
        // Whether the queue has been told of the idle time, or hears of it only when the timer is due.
        for told in [true, false] {
            let mut queue = empty.clone();
            if told {
                assert!(queue.pop(at(10 * SECOND)).is_none());
            }
            queue.insert(at(15 * SECOND), 1);
            assert_fires_exactly_at(&mut queue, 15 * SECOND, &[1]);
        }
    }
    on_every_queue!(idle_then_arm);
}

/// Arms one timer for each of `periods` and arms it anew each time it fires, while time goes on by `step()` up to
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
        assert!(queue.next_deadline() > Some(at(now)), "something that is due was left behind");
    }
    counts
}

#[test]
fn d02_timers_near_and_far_are_on_time_when_time_goes_on_in_random_steps() {
    fn in_random_steps<Q: TimerQueue<u64>>(mut queue: Q) {
        let mut random = Random::new(seed());
        let periods = [10 * MILLI, 100 * MILLI, 5 * SECOND, 5 * MINUTE, HOUR];
        // A little more than the longest period, so that it too ends once.
        let end = HOUR + MINUTE;
        let counts = run_periods(&mut queue, &periods, end, || random.below(3 * MILLI));
        assert_eq!(counts, periods.map(|period| end / period));
    }
    on_every_queue!(in_random_steps);
}

#[test]
fn d03_neither_a_far_timer_nor_a_fast_ticker_starves_the_others() {
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
fn d04_cancel_after_a_wait_removes_exactly_that_timer() {
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

/// Runs a test where recursion over a list of timers would overflow the stack.
fn on_a_small_stack(test: fn()) {
    let thread = std::thread::Builder::new().stack_size(64 * 1024).spawn(test).unwrap();
    thread.join().unwrap();
}

fn arm_a_million_on_one_tick<Q: TimerQueue<u64>>(queue: &mut Q) -> Vec<Key> {
    (0..MILLION).map(|number| queue.insert(at(SECOND), number)).collect()
}

#[test]
fn d10_a_million_timers_on_one_tick_are_cancelled_on_a_small_stack() {
    fn cancel_all<Q: TimerQueue<u64>>(mut queue: Q) {
        let mut random = Random::new(seed());
        for in_order in [true, false] {
            let mut keys = arm_a_million_on_one_tick(&mut queue);
            if !in_order {
                shuffle(&mut keys, &mut random);
            }
            for key in keys {
                assert!(queue.remove(key).is_some());
            }
            assert!(queue.is_empty());
            assert_eq!(queue.next_deadline(), None);
        }
    }
    on_a_small_stack(|| {
        on_every_queue!(cancel_all);
    });
}

#[test]
fn d10_a_million_timers_on_one_tick_expire_on_a_small_stack() {
    fn expire_all<Q: TimerQueue<u64>>(mut queue: Q) {
        arm_a_million_on_one_tick(&mut queue);
        assert!(queue.pop(at(SECOND - 1)).is_none());
        let mut next = 0;
        queue.expire(at(SECOND), |timer| {
            assert_eq!(timer.value, next, "equal deadlines fire as they were armed");
            next += 1;
        });
        assert_eq!(next, MILLION);
        assert!(queue.is_empty());
    }
    on_a_small_stack(|| {
        on_every_queue!(expire_all);
    });
}

#[test]
fn d10_a_million_timers_on_one_tick_are_dropped_on_a_small_stack() {
    fn drop_all<Q: TimerQueue<u64>>(mut queue: Q) {
        arm_a_million_on_one_tick(&mut queue);
        queue.clear();
        assert!(queue.is_empty());
        arm_a_million_on_one_tick(&mut queue);
        drop(queue);
    }
    on_a_small_stack(|| {
        on_every_queue!(drop_all);
    });
}

fn shuffle<T>(items: &mut [T], random: &mut Random) {
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last as u64 + 1) as usize);
    }
}

/// Arms job 0 at `start` for every `interval`, arms it anew whenever it runs, and expects run `n` exactly at
/// `start + n * interval`.
fn assert_runs_every<Q: TimerQueue<u64>>(queue: &mut Q, start: u64, interval: u64) {
    assert!(queue.pop(at(start)).is_none());
    queue.insert(at(start + interval), 0);
    for run in 1..=100 {
        assert_fires_exactly_at(queue, start + run * interval, &[0]);
        queue.insert(at(start + (run + 1) * interval), 0);
    }
}

const TICK: u64 = 10 * MILLI;
const SLOTS: usize = 8;
const REVOLUTION: u64 = TICK * SLOTS as u64;

fn small_rounds() -> Rounds<u64> {
    Rounds::with_slots(Span::from_nanos(TICK), SLOTS).unwrap()
}

#[test]
fn d12_d13_intervals_of_whole_revolutions_run_on_time_the_first_time_and_every_time() {
    for interval in [TICK, REVOLUTION - TICK, REVOLUTION, REVOLUTION + TICK, 2 * REVOLUTION, 7 * REVOLUTION] {
        for start in [0, 1, TICK - 1, TICK, 3 * TICK + 5, REVOLUTION - 1, 11 * REVOLUTION + TICK / 2] {
            assert_runs_every(&mut small_rounds(), start, interval);
        }
    }
}

#[test]
fn d14_an_interval_of_one_and_a_half_ticks_is_neither_early_nor_does_its_error_add_up() {
    for start in [0, TICK / 2, 3 * TICK + 1] {
        assert_runs_every(&mut small_rounds(), start, TICK + TICK / 2);
    }
}

#[test]
fn d15_two_jobs_below_the_tick_in_one_slot_both_run_and_the_turn_ends() {
    let mut queue = small_rounds();
    let intervals = [TICK / 4, TICK / 5];
    let mut counts = [0; 2];
    for (interval, job) in intervals.iter().zip(0..) {
        queue.insert(at(*interval), job);
    }
    // A turn a tick: each job runs several times in a turn, and arms itself anew within it.
    for turn in 1..=100 {
        while let Some(job) = queue.pop(at(turn * TICK)) {
            counts[job.value as usize] += 1;
            queue.insert(job.deadline + Span::from_nanos(intervals[job.value as usize]), job.value);
        }
        assert_eq!(counts, intervals.map(|interval| turn * TICK / interval));
    }
}

#[test]
fn d16_any_tick_above_zero_works() {
    for tick in [1, 2, 999, 999_999, MILLI, u64::MAX] {
        for slots in [1, 2, 64, 65] {
            for interval in [1, 500, MILLI, SECOND] {
                let mut queue = Rounds::with_slots(Span::from_nanos(tick), slots).unwrap();
                assert_runs_every(&mut queue, 3, interval);
            }
        }
    }
}

#[test]
fn d26_a_crowded_slot_is_made_ready_in_small_steps_between_which_others_get_their_turn() {
    let mut random = Random::new(seed());
    let mut queue = Wheel::new();
    // All in one slot of level 6.
    let width = 64u64.pow(6);
    let begin = 3 * width;
    let mut keys: Vec<Key> = (0..MILLION).map(|number| queue.insert(at(begin + random.below(width)), number)).collect();
    shuffle(&mut keys, &mut random);

    let now = at(begin + width);
    let (mut waits, mut armed, mut cancelled) = (0, MILLION, HashSet::new());
    while queue.settle(now, 1000) == Settled::More {
        waits += 1;
        assert_eq!(queue.len() as u64, armed - cancelled.len() as u64, "settling fires nothing");
        queue.insert(at(begin + random.below(width)), armed);
        armed += 1;
        cancelled.insert(queue.remove(keys.pop().unwrap()).unwrap());
    }
    assert!(waits > 500, "a thousand times a thousand, but for what need not be moved: {waits}");
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
    // All are in the first 4096 ns of a slot of level 3: its first part is as crowded as the whole.
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
    // Two slots of level 1, whose items have to be sorted; the second is in the middle of its upkeep when the first fills.
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
fn d26_a_crowd_that_is_cancelled_while_it_is_made_ready_hides_nobody() {
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

#[test]
fn d38_a_key_of_a_clone_that_this_queue_has_not_given_finds_nothing() {
    fn clone_and_diverge<Q: TimerQueue<u64> + Clone>(mut queue: Q) {
        let key = queue.insert(at(1), 1);
        queue.remove(key);
        let mut clone = queue.clone();
        let foreign = queue.insert(at(2), 2);
        assert_eq!((clone.remove(foreign), clone.deadline(foreign), clone.len()), (None, None, 0));
        clone.check().unwrap();
    }
    on_every_queue!(clone_and_diverge);
}

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
        assert_eq!(queue.len(), 1, "what is never due stays");
    }
    on_every_queue!(beside_a_short_one);
}

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
fn d36_near_and_far_timers_fire_on_time_past_every_uptime_at_which_others_froze() {
    fn past_uptimes<Q: TimerQueue<u64> + Clone>(empty: Q) {
        // In milliseconds: 2^30, 2^31, 2^32, 2^36. 2^53 of them would be 285,000 years, and a `Time` ends after 584;
        // the last uptime stands for it, as late as leaves room for the far timers.
        let uptimes = [30, 31, 32, 36].map(|bits| (1u64 << bits) * MILLI);
        for uptime in uptimes.into_iter().chain([u64::MAX - 100 * DAY]) {
            let mut queue = empty.clone();
            // From before that uptime to after it, with what was armed at the very beginning and what was armed lately.
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

fn assert_refused<Q: TimerQueue<u64>>(queue: &mut Q, key: Key) {
    let len = queue.len();
    assert_eq!(queue.get(key), None);
    assert_eq!(queue.get_mut(key), None);
    assert_eq!(queue.deadline(key), None);
    assert_eq!(queue.reschedule(key, at(1)), None);
    assert_eq!(queue.remove(key), None);
    assert_eq!(queue.len(), len);
}

#[test]
fn d38_a_stale_key_is_refused_for_ever() {
    fn use_up_and_reuse<Q: TimerQueue<u64>>(mut queue: Q) {
        let expired = queue.insert(at(1), 0);
        let never_cleared = queue.insert(Time::NEVER, 0);
        let cleared = queue.insert(at(5), 0);
        let removed = queue.insert(at(5), 0);
        assert!(queue.pop(at(1)).is_some());
        assert!(queue.remove(removed).is_some());
        queue.clear();
        let stale = [expired, removed, cleared, never_cleared];
        stale.iter().for_each(|&key| assert_refused(&mut queue, key));

        // Their slots are given out again, over and over.
        for round in 0..100_000 {
            let keys = [0, 1, 2, 3].map(|number| queue.insert(at(round + number), number));
            stale.iter().for_each(|&key| assert_refused(&mut queue, key));
            assert!(keys.iter().all(|key| !stale.contains(key)), "a key was given out twice");
            assert_eq!(queue.remove(keys[3]), Some(3));
            assert_eq!(fired(&mut queue, round + 2), [0, 1, 2]);
            keys.iter().for_each(|&key| assert_refused(&mut queue, key));
        }
        queue.check().unwrap();
    }
    on_every_queue!(use_up_and_reuse);
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
        // The middle one first: the others must be found where they are then.
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
        assert!(queue.pop(at(19)).is_none(), "20 was due by the time before, and is not by this one");
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

#[test]
fn a_round_wheel_that_cannot_be_is_refused_with_what_was_asked_and_what_is_possible() {
    let new = |tick, slots| Rounds::<u64>::with_slots(Span::from_nanos(tick), slots).map(|_| ());
    assert_eq!(new(0, 8), Err(RoundsError::ZeroTick));
    assert_eq!(new(1, 0), Err(RoundsError::Slots { asked: 0 }));
    let most = RoundsError::MAX_SLOTS;
    assert_eq!(new(1, most + 1), Err(RoundsError::Slots { asked: most + 1 }));
    assert_eq!(new(1, usize::MAX), Err(RoundsError::Slots { asked: usize::MAX }));
    assert_eq!(new(1, most), Ok(()));

    let message = RoundsError::Slots { asked: most + 1 }.to_string();
    assert!(message.contains(&(most + 1).to_string()) && message.contains(&most.to_string()), "{message}");
    let message = RoundsError::ZeroTick.to_string();
    assert!(message.contains("tick") && message.contains("zero"), "{message}");
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

#[test]
fn a_sink_that_panics_leaves_what_it_has_not_been_given_in_the_queue() {
    fn panicking_sink<Q: TimerQueue<u64> + Clone>(empty: Q) {
        // All at one instant, in neighbouring slots, many in a slot.
        for spacing in [0, 1, 1000, MILLI] {
            let mut queue = empty.clone();
            let keys: Vec<Key> = (0..1000).map(|number| queue.insert(at(5 + number * spacing), number)).collect();
            let sink = |timer: Expired<u64>| assert!(timer.value < 300, "the sink has had enough");
            assert!(catch_unwind(AssertUnwindSafe(|| queue.expire(at(MINUTE), sink))).is_err());
            assert_eq!(queue.len(), 699, "0 to 299 were taken, and 300 was given too");
            queue.check().unwrap();
            assert_refused(&mut queue, keys[300]);
            assert_eq!(queue.remove(keys[301]), Some(301));
            assert_eq!(fired(&mut queue, MINUTE), Vec::from_iter(302..1000));
        }
    }
    on_every_queue!(panicking_sink);
}

#[test]
fn a_slot_that_a_tick_leaves_sparse_is_put_together() {
    // One slot for all. Of every 64 timers in it, 60 are due in the first tick and four in a later round.
    let mut queue = Rounds::with_slots(Span::from_nanos(1), 1).unwrap();
    for number in 0..640 {
        queue.insert(at(if number % 64 < 60 { 1 } else { 100 }), number);
    }
    assert_eq!(fired(&mut queue, 1).len(), 600);
    queue.check().unwrap();
    assert_eq!(fired(&mut queue, 100).len(), 40);
}

/// A value that may panic when it is dropped.
struct Fragile {
    breaks: bool,
}

impl Drop for Fragile {
    fn drop(&mut self) {
        assert!(!self.breaks, "a destructor panics");
    }
}

/// Clears a queue at `now` that has three timers at each of `deadlines`. One of those at the last deadline panics when
/// it is dropped.
fn clear_with_a_panic<Q: TimerQueue<Fragile>>(queue: &mut Q, now: Time, deadlines: &[Time]) {
    // Something that fires, so that time has really come to `now`.
    queue.insert(now, Fragile { breaks: false });
    assert_eq!(queue.expire(now, drop), 1);
    let mut keys = Vec::new();
    for (index, &deadline) in deadlines.iter().enumerate() {
        for number in 0..3 {
            let breaks = index + 1 == deadlines.len() && number == 1;
            keys.push(queue.insert(deadline, Fragile { breaks }));
        }
    }
    assert!(catch_unwind(AssertUnwindSafe(|| queue.clear())).is_err());

    assert!(queue.is_empty());
    queue.check().unwrap();
    assert!(keys.iter().all(|&key| queue.get(key).is_none()));
    assert!(queue.pop(Time::NEVER).is_none());
    queue.insert(at(1), Fragile { breaks: false });
    assert_eq!(queue.expire(Time::NEVER, drop), 1);
    queue.clear();
    queue.check().unwrap();
}

#[test]
fn a_destructor_that_panics_in_clear_leaves_an_empty_queue_in_order() {
    fn in_the_future<Q: TimerQueue<Fragile>>(mut queue: Q) {
        clear_with_a_panic(&mut queue, Time::ZERO, &[Time::NEVER, at(HOUR), at(SECOND)]);
    }
    on_every_queue!(in_the_future);
}

#[test]
fn a_destructor_of_an_overdue_timer_that_panics_in_clear_leaves_an_empty_queue_in_order() {
    fn in_the_past<Q: TimerQueue<Fragile>>(mut queue: Q) {
        clear_with_a_panic(&mut queue, at(MINUTE), &[Time::NEVER, at(HOUR), at(SECOND)]);
    }
    on_every_queue!(in_the_past);
}

#[test]
fn a_destructor_of_a_timer_without_end_that_panics_in_clear_leaves_an_empty_queue_in_order() {
    fn without_end<Q: TimerQueue<Fragile>>(mut queue: Q) {
        clear_with_a_panic(&mut queue, at(MINUTE), &[at(SECOND), at(HOUR), Time::NEVER]);
    }
    on_every_queue!(without_end);
}
