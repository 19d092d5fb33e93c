//! `Engine::enter`: which engine the functions of `tourbillon::time` use, whatever the order in which guards are dropped.

mod support;

use std::pin::pin;
use std::task::Waker;
use std::time::Duration;

use futures_lite::future::block_on;
use support::{manual, ms, poll_with, years};
use tourbillon::time::{self, Instant};
use tourbillon::{Clock, Engine, Outcome};

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
    // The engine that was entered first is dropped before the second guard would return to it.
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
fn p6_guards_dropped_in_any_order_after_a_shutdown_return_to_engines_that_exist() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        // Each order with a shutdown of each engine, before or after the first guard is dropped.
        for (shut_down, after) in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (0, 2), (1, 2)] {
            let engines = [manual(), manual(), manual()];
            let mut guards: Vec<_> = engines.iter().map(|engine| Some(engine.enter())).collect();
            for (step, which) in order.into_iter().enumerate() {
                if step == after {
                    engines[shut_down].shutdown();
                }
                // A new shard of this thread makes the thread release the shards that it can.
                drop(manual().sleep(ms(1)));
                guards[which] = None;
                drop(manual().sleep(ms(1)));
                // The sleep may be on any engine.
                let _ = poll_with(pin!(time::sleep(ms(1))), Waker::noop());
                let _ = Engine::current().stats();
            }
            if order == [2, 1, 0] {
                assert!(engines.iter().all(|engine| engine.stats().pending == 0));
            }
        }
    }
    // Whichever engine is current by now, an engine that is entered now becomes current.
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
    // Other engines are made and dropped on this thread meanwhile.
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
    assert_eq!(sleep.outcome(), Some(Outcome::Stopped), "the current engine is the one that was shut down");
    (0..4).for_each(|_| drop(manual().sleep(ms(1))));
    drop(outer_guard);
    assert!(!Engine::current().is_shutdown());
}

/// Returns whether the current engine of this thread is the one with the index.
fn is_current(engines: &[Engine], index: usize) -> bool {
    let before: Vec<_> = engines.iter().map(|engine| engine.stats().armed).collect();
    let _armed = time::try_sleep(ms(10)).expect("the engine is not shut down");
    (0..engines.len()).all(|other| engines[other].stats().armed == before[other] + u64::from(other == index))
}

#[test]
fn d82_guards_of_engines_may_be_dropped_in_any_order() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let engines = [(); 3].map(|()| manual());
        let mut guards = [None, None, None];
        for (index, guard) in guards.iter_mut().enumerate() {
            *guard = Some(engines[index].enter());
            assert!(is_current(&engines, index));
        }
        for (count, dropped) in order.into_iter().enumerate() {
            guards[dropped] = None;
            let latest = guards.iter().rposition(Option::is_some);
            assert!(is_current(&engines, latest.unwrap_or(3)), "{order:?}, after {count}: not {latest:?}");
        }
    }
}

#[test]
fn d82_an_engine_that_was_entered_twice_is_left_when_both_guards_are_gone() {
    let engines = [manual(), manual()];
    let first = engines[0].enter();
    let between = engines[1].enter();
    let second = engines[0].enter();
    drop(first);
    assert!(is_current(&engines, 0));
    drop(second);
    assert!(is_current(&engines, 1));
    drop(between);
    assert!(is_current(&engines, 2));
}

#[test]
fn d82_guards_of_engines_and_workers_may_be_dropped_in_any_order() {
    for worker_first in [false, true] {
        let engines = [manual(), manual()];
        let worker = engines[0].worker(|| ()).expect("a shard is left");
        let guard = engines[1].enter();
        assert!(is_current(&engines, 1));
        let (first, second): (Box<dyn std::any::Any>, Box<dyn std::any::Any>) =
            if worker_first { (Box::new(worker), Box::new(guard)) } else { (Box::new(guard), Box::new(worker)) };
        drop(first);
        assert!(is_current(&engines, usize::from(worker_first)));
        drop(second);
        assert!(is_current(&engines, 2));
    }
}

/// The engine that was entered last stays current when engines that were entered before are dropped.
#[test]
fn d82_d70_a_dropped_engine_does_not_affect_the_guards_of_others() {
    let engine = manual();
    let mut guards = Vec::new();
    for _ in 0..100 {
        let other = manual();
        guards.push(other.enter());
        drop(other);
        guards.push(engine.enter());
        // A new shard of this thread makes the thread release the shards that it no longer needs.
        let shut_down = Engine::builder().clock(Clock::manual()).build().unwrap();
        shut_down.shutdown();
        drop(shut_down.sleep(Duration::ZERO));
    }
    for (count, guard) in guards.into_iter().enumerate() {
        drop(guard);
        let is_last = count == 199;
        assert!(is_current(std::slice::from_ref(&engine), usize::from(is_last)));
    }
}
