//! Guards that make an engine the current one of a thread.

mod by_hand;

use std::time::Duration;

use tourbillon::{Clock, Engine, time};

use self::by_hand::{manual, ms};

/// The engines, and whether the current one of this thread is that with the index.
fn is_current(engines: &[Engine], index: usize) -> bool {
    let before: Vec<_> = engines.iter().map(|engine| engine.stats().armed).collect();
    let _armed = time::try_sleep(ms(10)).expect("an engine that is open");
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

/// What was entered last stays current, whatever becomes of engines that were entered before.
#[test]
fn d82_d70_an_engine_that_is_gone_leaves_the_guards_of_others_alone() {
    let engine = manual();
    let mut guards = Vec::new();
    for _ in 0..100 {
        let other = manual();
        guards.push(other.enter());
        drop(other);
        guards.push(engine.enter());
        // Another home of this thread makes those go that nobody needs.
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
