//! Every queue compared with the naive one, over tens of millions of random operations; and, with more timers than the
//! naive one can handle, with the heap.

mod support;

use support::{Op, Pair, Random, operations, seed};
use tourbillon_queue::{Heap, ListTree, Naive, Rounds, Span, Time, TimerQueue, Wheel};

/// The default of the variable `TOURBILLON_OPERATIONS`.
const OPERATIONS: u64 = 10_000_000;
/// The number of operations after which new queues are made, at another time.
const EPISODE: u64 = 5_000;
/// One episode in this many verifies all invariants after every step.
const CHECKED: u64 = 50;

fn random_op(random: &mut Random) -> Op {
    let (a, b) = (random.next(), random.next());
    match random.below(1000) {
        0..380 => Op::Arm(a),
        380..600 => Op::Cancel(a),
        600..740 => Op::Reschedule(a, b),
        740..760 => Op::Advance(0),
        760..900 => Op::Advance(a % 4096),
        900..930 => Op::Advance(a % (1 << (b % 40))),
        930..934 => Op::Advance(a % (1 << (b % 62))),
        934..940 => Op::Backwards(a % 10_000),
        940..970 => Op::Some((a % 400) as usize),
        970..999 => Op::Stale(a),
        _ => {
            if a % 8 == 0 {
                Op::Clear
            } else {
                Op::Stale(a)
            }
        }
    }
}

fn compare_with_naive<Q: TimerQueue<u64>>(new: impl Fn() -> Q) {
    let seed = seed();
    for episode in 0..operations(OPERATIONS).div_ceil(EPISODE) {
        let mut random = Random::new(seed ^ episode);
        let mut pair = Pair::new(new(), Naive::new());
        if episode % 3 != 0 {
            pair.now = Time::from_nanos(random.next() >> random.below(40));
            pair.expire(0, pair.now);
        }
        for step in 0..EPISODE {
            pair.apply(random_op(&mut random));
            if pair.len() > 80 {
                pair.cancel(random.next());
            }
            if episode % CHECKED == 0 || step % 64 == 0 {
                pair.check();
            }
        }
        pair.now = Time::NEVER;
        pair.expire(usize::MAX, Time::NEVER);
        pair.check();
    }
}

#[test]
fn p3_wheel_answers_like_the_naive_queue() {
    compare_with_naive(Wheel::new);
}

#[test]
fn p3_heap_answers_like_the_naive_queue() {
    compare_with_naive(Heap::new);
}

#[test]
fn p3_list_tree_answers_like_the_naive_queue() {
    compare_with_naive(ListTree::new);
}

#[test]
fn p3_rounds_answers_like_the_naive_queue() {
    compare_with_naive(|| Rounds::with_slots(Span::from_nanos(64), 64).unwrap());
}

#[test]
fn p3_rounds_of_odd_shapes_answer_like_the_naive_queue() {
    let seed = seed();
    for (tick, slots) in [(1, 1), (1, 7), (7, 3), (1_000_000, 65), (u64::MAX, 2), (u64::MAX / 3, 130)] {
        let mut random = Random::new(seed);
        let mut pair = Pair::new(Rounds::with_slots(Span::from_nanos(tick), slots).unwrap(), Naive::new());
        for _ in 0..(operations(OPERATIONS) / 500).max(1000) {
            pair.apply(random_op(&mut random));
            if pair.len() > 80 {
                pair.cancel(random.next());
            }
            pair.check();
        }
    }
}

/// Compares a queue with the heap: many timers, crowded slots, and settling in small steps in between.
fn compare_in_a_crowd<Q: TimerQueue<u64>>(new: impl Fn() -> Q) {
    let seed = seed();
    // How many timers, spread over how many nanoseconds; the last two cases have few instants. `share` scales them down.
    let share = OPERATIONS.div_ceil(operations(OPERATIONS).max(1));
    for (episode, (count, spread)) in
        [(60_000, 1 << 22), (60_000, 1 << 34), (200_000, 1 << 31), (60_000, 1000), (60_000, 3)].into_iter().enumerate()
    {
        let mut random = Random::new(seed ^ episode as u64);
        let mut pair = Pair::new(new(), Heap::new());
        let start = Time::from_nanos(random.next() >> 20);
        pair.now = start;
        pair.expire(0, start);
        for _ in 0..count / share {
            pair.arm(start + Span::from_nanos(random.below(spread)));
        }
        pair.check();
        for round in 0..400 {
            for _ in 0..50 {
                match random.below(5) {
                    0 => pair.cancel(random.next()),
                    1 => pair.reschedule(random.next(), start + Span::from_nanos(random.below(spread))),
                    2 => pair.arm(pair.now + Span::from_nanos(random.below(spread))),
                    3 => {
                        let steps = random.below(500) as usize;
                        let _ = pair.tested.settle(pair.now, steps);
                    }
                    _ => pair.expire(random.below(200) as usize, pair.now),
                }
            }
            if round % 40 == 0 {
                pair.check();
            }
            pair.now = pair.now + Span::from_nanos(random.below(spread / 100 + 2));
        }
        pair.expire(usize::MAX, pair.now);
        pair.check();
        while pair.len() > 0 && pair.oracle.next_deadline().is_some() {
            pair.now = pair.now + Span::from_nanos(spread / 10 + 1);
            pair.expire(usize::MAX, pair.now);
        }
        assert_eq!(pair.tested.len(), 0);
        pair.check();
    }
}

#[test]
fn p3_wheel_answers_like_the_heap_in_a_crowd() {
    compare_in_a_crowd(Wheel::new);
}

#[test]
fn p3_list_tree_answers_like_the_heap_in_a_crowd() {
    compare_in_a_crowd(ListTree::new);
}

#[test]
fn p3_rounds_answers_like_the_heap_in_a_crowd() {
    compare_in_a_crowd(Rounds::new);
}

/// Timers around the start of a slot of some level, many of them in its first part, and settling a few steps at a time, with
/// arms and cancels in between. (It finds most with `--cfg tourbillon_small`, where a dozen timers are a crowd.)
#[test]
fn p3_wheel_answers_like_the_naive_queue_in_the_middle_of_splits() {
    let seed = seed();
    for episode in 0..operations(OPERATIONS).div_ceil(2_500).max(40) {
        let mut random = Random::new(seed ^ episode);
        let mut pair = Pair::new(Wheel::new(), Naive::new());
        let width = 1 << (6 * (2 + random.below(4)));
        let begin = Time::from_nanos(width * (1 + random.below(200)));
        let spread = width >> random.below(18);
        let deadline = |random: &mut Random| begin + Span::from_nanos(random.below(spread.max(1)));
        pair.arm(begin + Span::from_nanos(10 * width));
        for _ in 0..200 {
            match random.below(10) {
                0..5 => pair.arm(deadline(&mut random)),
                5 => pair.cancel(random.next()),
                6 => pair.reschedule(random.next(), deadline(&mut random)),
                7 if random.chance(3) => (0..pair.len()).for_each(|_| pair.cancel(0)),
                8 if random.chance(5) => {
                    pair.now = pair.now.max(deadline(&mut random));
                    pair.expire(random.below(20) as usize, pair.now);
                }
                _ => {
                    let _ = pair.tested.settle(begin + Span::from_nanos(width), random.below(6) as usize);
                }
            }
            pair.check();
        }
        pair.now = begin + Span::from_nanos(20 * width);
        pair.expire(usize::MAX, pair.now);
        pair.check();
        assert!(pair.tested.is_empty());
    }
}
