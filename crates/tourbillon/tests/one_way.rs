//! What all surfaces say in the same way: outcomes, engines, slack, arm and disarm, times.

mod support;

use std::time::Duration;

use support::{manual, ms};
use tourbillon::{Clock, Engine, Outcome};

#[test]
fn e7_a_match_on_an_outcome_names_three_ways_and_each_is_written_as_a_word() {
    for outcome in [Outcome::Fired, Outcome::Cancelled, Outcome::Stopped] {
        let word = match outcome {
            Outcome::Fired => "fired",
            Outcome::Cancelled => "cancelled",
            Outcome::Stopped => "stopped",
        };
        assert_eq!(outcome.to_string(), word);
        assert_eq!(format!("{outcome:>10}"), format!("{word:>10}"));
    }
}

#[test]
fn e7_a_turn_says_how_long_until_the_next_one() {
    let engine = manual();
    assert_eq!(engine.turn().time_left(), None);
    let _sleep = engine.try_sleep(ms(5)).unwrap();
    assert_eq!(engine.turn().time_left(), Some(ms(5)));
    engine.advance(ms(2));
    assert_eq!(engine.turn().time_left(), Some(ms(3)));
}

#[test]
fn e7_a_turn_that_leaves_due_timers_says_that_no_time_is_left() {
    let engine = manual();
    let _sleeps: Vec<_> = (0..100_000).map(|_| engine.try_sleep(ms(1)).unwrap()).collect();
    engine.clock().advance(ms(1));
    let turn = engine.turn();
    assert!(turn.more, "{turn:?}");
    assert_eq!(turn.time_left(), Some(Duration::ZERO));
}

#[test]
fn e7_a_manual_clock_is_read_and_set_by_durations() {
    let clock = Clock::manual();
    let engine = Engine::builder().clock(clock.clone()).build().unwrap();
    clock.set_elapsed(Duration::from_secs(3600));
    assert_eq!(clock.elapsed(), Duration::from_secs(3600));
    let start = engine.now();
    assert_eq!(engine.advance(ms(7)), 0);
    assert_eq!((engine.now() - start, clock.elapsed()), (ms(7), Duration::from_secs(3600) + ms(7)));
    assert_eq!(engine.sleep(ms(1)).deadline(), engine.now() + ms(1));
    clock.set_elapsed(Duration::MAX);
    let last = clock.elapsed();
    assert!(last > Duration::from_secs(500 * 365 * 24 * 3600), "{last:?}");
    clock.set_elapsed(Duration::ZERO);
    assert_eq!(clock.elapsed(), Duration::ZERO);
    Clock::monotonic().set_elapsed(Duration::ZERO);
    assert!(Clock::monotonic().elapsed() > Duration::ZERO, "only a manual clock can be set");
}
