//! `Wheel::first` returns the timer that expires first.

mod support;

use support::{Random, operations, seed};
use tourbillon_queue::{Settled, Span, Time, TimerQueue, Wheel};

/// The default of the variable `TOURBILLON_OPERATIONS`.
const OPERATIONS: u64 = 120_000;
/// The number of operations after which a new wheel is made, at another time.
const EPISODE: u64 = 400;

/// The last moment of all: every timer that can expire is due.
const END: Time = Time::from_nanos(u64::MAX - 1);

fn check(wheel: &Wheel<u64>) {
    let popped = wheel.clone().pop(END);
    assert_eq!(wheel.first(), popped.map(|timer| timer.key));
}

#[test]
fn the_first_timer_is_the_one_that_is_popped_next() {
    let seed = seed();
    for episode in 0..operations(OPERATIONS).div_ceil(EPISODE) {
        let mut random = Random::new(seed ^ episode);
        let mut wheel = Wheel::new();
        let mut keys = Vec::new();
        let mut now = Time::from_nanos(random.next() >> (20 + random.below(40)));
        for step in 0..EPISODE {
            // Few distinct deadlines, near and far, past and future, so that many are equal.
            let (digit, shift) = (random.below(4), random.below(50));
            let distance = Span::from_nanos(digit << shift);
            match random.below(10) {
                0..5 => keys.push(wheel.insert(now + distance, step)),
                5 => keys.push(wheel.insert(now - distance, step)),
                6 if !keys.is_empty() => drop(wheel.remove(keys[random.below(keys.len() as u64) as usize])),
                7 => {
                    now = wheel.next_deadline().unwrap_or(now).max(now);
                    wheel.pop(now);
                }
                8 => match wheel.settle(now + distance, random.below(5) as usize) {
                    Settled::Done | Settled::More => {}
                },
                _ => now = now + Span::from_nanos(random.next() % (1 << (shift % 30))),
            }
            check(&wheel);
        }
        wheel.check().unwrap();
    }
}

#[test]
fn of_equal_deadlines_in_a_crowd_that_is_being_split_the_oldest_is_first() {
    let mut wheel = Wheel::new();
    let start = Time::from_nanos(1 << 36);
    let keys: Vec<_> = (0..20_000).map(|n| wheel.insert(start + Span::from_nanos(7), n)).collect();
    while wheel.settle(start, 1000) == Settled::More {
        assert_eq!(wheel.first(), Some(keys[0]));
    }
    assert_eq!(wheel.first(), Some(keys[0]));
    wheel.remove(keys[0]);
    assert_eq!(wheel.first(), Some(keys[1]));
    wheel.check().unwrap();
}

#[test]
fn a_timer_that_never_expires_is_not_first() {
    let mut wheel = Wheel::new();
    wheel.insert(Time::NEVER, 0);
    assert_eq!(wheel.first(), None);
    let late = wheel.insert(Time::from_nanos(5), 1);
    assert_eq!(wheel.first(), Some(late));
}
