//! `Instant`: arithmetic that neither panics nor wraps.
#![cfg(feature = "test-util")]

mod support;

use std::time::Duration;

use support::{Paused, ms, years};
use tourbillon::time::Instant;
use tourbillon::{Clock, Driver, Engine};

#[test]
fn t8_now_and_elapsed_follow_the_virtual_clock() {
    let time = Paused::new();
    let start = Instant::now();
    assert_eq!(start.elapsed(), Duration::ZERO);
    time.advance(ms(7));
    assert_eq!(start.elapsed(), ms(7));
    assert_eq!(Instant::now(), start + ms(7));
    assert_eq!((start + ms(20)).elapsed(), Duration::ZERO);
}

#[test]
fn t8_conversions_lose_nothing() {
    let std = std::time::Instant::now();
    assert_eq!(Instant::from_std(std).into_std(), std);
    assert_eq!(std::time::Instant::from(Instant::from(std)), std);
    assert_eq!(format!("{:?}", Instant::from_std(std)), format!("{std:?}"));
}

#[test]
fn t8_differences_saturate_at_zero_and_the_checked_one_is_none() {
    let early = Instant::now();
    let late = early + ms(5);
    assert_eq!(late.duration_since(early), ms(5));
    assert_eq!(early.duration_since(late), Duration::ZERO);
    assert_eq!(late.saturating_duration_since(early), ms(5));
    assert_eq!(early.saturating_duration_since(late), Duration::ZERO);
    assert_eq!(late.checked_duration_since(early), Some(ms(5)));
    assert_eq!(early.checked_duration_since(late), None);
    assert_eq!(late - early, ms(5));
    assert_eq!(early - late, Duration::ZERO);
}

#[test]
fn t8_operators_are_exact_within_centuries() {
    let start = Instant::now();
    let mut moved = start;
    moved += years(500);
    assert_eq!(moved, start + years(500));
    assert_eq!(moved, start.checked_add(years(500)).unwrap());
    moved -= years(500) + Duration::from_nanos(1);
    assert_eq!(moved, start - Duration::from_nanos(1));
    assert_eq!(moved, start.checked_sub(Duration::from_nanos(1)).unwrap());
}

#[test]
fn p5_p6_a_sum_that_overflows_is_the_far_future() {
    let now = Instant::now();
    assert_eq!(now.checked_add(Duration::MAX), None);
    let never = now + Duration::MAX;
    assert!(never > now + years(500));
    assert_eq!(never + ms(1), never);
    assert_eq!(never + Duration::MAX, never);
    assert_eq!(now + ms(1) + Duration::MAX, never);
    assert_eq!(now + years(100_000), never, "a longer duration must not give an earlier instant");
    let mut sum = now;
    sum += Duration::MAX;
    assert_eq!(sum, never);
    // There are instants above it: adding to it with the standard library's operators does not panic.
    let _ = never.into_std() + years(1000);
}

#[test]
fn p6_adding_to_an_instant_beyond_the_far_future_does_not_go_back() {
    let now = Instant::now();
    let beyond = now.checked_add(years(5000)).unwrap();
    assert_eq!(beyond + ms(1), beyond);
    assert_eq!(beyond + Duration::MAX, beyond);
}

#[test]
fn p6_a_difference_that_underflows_is_the_earliest_instant() {
    let now = Instant::now();
    assert_eq!(now.checked_sub(Duration::MAX), None);
    let earliest = now - Duration::MAX;
    assert!(earliest < now);
    assert_eq!(earliest.checked_sub(Duration::from_nanos(1)), None);
    assert_eq!(earliest - ms(1), earliest);
    let mut difference = now;
    difference -= Duration::MAX;
    assert_eq!(difference, earliest);
}

/// Otherwise a deadline that is counted from `now` would be early.
#[test]
fn p1_p8_now_is_not_before_the_call_whatever_the_clock() {
    for clock in [Clock::monotonic(), Clock::boot(), Clock::wall()] {
        let engine = Engine::builder().clock(clock).driver(Driver::external()).build().unwrap();
        let _entered = engine.enter();
        for _ in 0..10_000 {
            let before = std::time::Instant::now();
            let now = Instant::now().into_std();
            assert!((before..=std::time::Instant::now()).contains(&now), "{:?}", engine.clock());
        }
    }
}
