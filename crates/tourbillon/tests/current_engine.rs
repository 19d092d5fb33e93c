//! `Engine::enter`: which engine the functions of `tourbillon::time` use, whatever the order in which guards are dropped.

mod by_hand;

use std::pin::pin;
use std::task::Waker;

use by_hand::{manual, ms, poll_with, years};
use futures_lite::future::block_on;
use tourbillon::time::{self, Instant};
use tourbillon::{Engine, Outcome};

#[test]
fn p6_guards_nest_and_the_innermost_engine_is_used() {
    let (outer, inner) = (manual(), manual());
    let armed = || {
        let mut sleep = Box::pin(time::sleep(years(1)));
        assert!(poll_with(sleep.as_mut(), Waker::noop()).is_pending());
        sleep
    };
    let guard = outer.enter();
    let one = armed();
    let guard_again = outer.enter();
    let two = armed();
    let inner_guard = inner.enter();
    let three = armed();
    assert_eq!((outer.stats().pending, inner.stats().pending), (2, 1));
    drop(inner_guard);
    let four = armed();
    drop(guard_again);
    let five = armed();
    assert_eq!((outer.stats().pending, inner.stats().pending), (4, 1));
    drop(guard);
    let global = armed();
    assert_eq!((outer.stats().pending, inner.stats().pending), (4, 1));
    drop((one, two, three, four, five, global));
    assert_eq!((outer.stats().pending, inner.stats().pending), (0, 0));
}

#[test]
fn p6_guards_dropped_in_the_wrong_order_do_no_harm() {
    let (one, two) = (manual(), manual());
    let (guard_one, guard_two) = (one.enter(), two.enter());
    drop(guard_one);
    // What was entered before is gone by the time the second guard would return to it.
    drop(one);
    let others: Vec<_> = (0..4).map(|_| manual()).collect();
    for other in &others {
        let _ = poll_with(pin!(other.sleep(ms(1))), Waker::noop());
    }
    drop(guard_two);
    block_on(time::sleep(ms(1)));
    let _ = Instant::now();
}

#[test]
fn p6_guards_dropped_in_any_order_after_a_shutdown_return_to_homes_that_are_there() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        // Each step of the story with a shutdown of each engine, before the first guard goes or after it.
        for (shut_down, after) in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (0, 2), (1, 2)] {
            let engines = [manual(), manual(), manual()];
            let mut guards: Vec<_> = engines.iter().map(|engine| Some(engine.enter())).collect();
            for (step, which) in order.into_iter().enumerate() {
                if step == after {
                    engines[shut_down].shutdown();
                }
                // A new home, so that those go that can.
                drop(manual().sleep(ms(1)));
                guards[which] = None;
                drop(manual().sleep(ms(1)));
                // Whichever engine this is.
                let _ = poll_with(pin!(time::sleep(ms(1))), Waker::noop());
                let _ = Engine::current().stats();
            }
            if order == [2, 1, 0] {
                assert!(engines.iter().all(|engine| engine.stats().pending == 0));
            }
        }
    }
    // Whatever was entered last by now, one that is entered anew is the one that is used.
    let engine = manual();
    let _guard = engine.enter();
    let mut sleep = pin!(time::sleep(ms(10)));
    assert!(poll_with(sleep.as_mut(), Waker::noop()).is_pending());
    assert_eq!(engine.advance(ms(10)), 1);
}

#[test]
fn p6_a_guard_outlives_a_shutdown() {
    let engine = manual();
    let guard = engine.enter();
    engine.shutdown();
    let mut sleep = pin!(time::sleep(ms(10)));
    assert!(poll_with(sleep.as_mut(), Waker::noop()).is_ready());
    assert_eq!(sleep.outcome(), Some(Outcome::Stopped));
    // Others come and go on this thread meanwhile.
    for _ in 0..4 {
        let _ = poll_with(pin!(manual().sleep(ms(1))), Waker::noop());
    }
    assert!(Engine::current().is_shutdown());
    drop(guard);
    block_on(time::sleep(ms(1)));
}

#[test]
fn p6_a_guard_that_is_dropped_after_a_shutdown_returns_to_the_engine_before_it() {
    let (outer, inner) = (manual(), manual());
    let outer_guard = outer.enter();
    let inner_guard = inner.enter();
    outer.shutdown();
    (0..4).for_each(|_| drop(manual().sleep(ms(1))));
    drop(inner_guard);
    let mut sleep = pin!(time::sleep(ms(10)));
    assert!(poll_with(sleep.as_mut(), Waker::noop()).is_ready());
    assert_eq!(sleep.outcome(), Some(Outcome::Stopped), "it is the one that was shut down");
    (0..4).for_each(|_| drop(manual().sleep(ms(1))));
    drop(outer_guard);
    assert!(!Engine::current().is_shutdown());
}
