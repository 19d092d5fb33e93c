//! Which waker is woken, and what a waker may do.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use tourbillon::Engine;
use tourbillon::time::Sleep;

use crate::boxed;
use crate::support::{Task, manual, ms, poll_with, waker};

#[test]
fn p10_timers_dropped_inside_a_waker_are_cancelled_and_the_others_fire() {
    let engine = manual();
    let others: Arc<Mutex<Vec<Pin<Box<Sleep>>>>> = Arc::default();
    let task = Task::new();
    // Due before, together with, and after the sleep whose waker drops them.
    for millis in [20, 10, 30, 10] {
        let mut other = boxed(engine.sleep(ms(millis)));
        assert!(task.poll(other.as_mut()).is_pending());
        others.lock().unwrap().push(other);
    }
    let dropper = {
        let others = Arc::clone(&others);
        waker(move || others.lock().unwrap().clear())
    };
    let mut first = pin!(engine.sleep(ms(9)));
    let mut last = pin!(engine.sleep(ms(40)));
    assert!(poll_with(first.as_mut(), &dropper).is_pending());
    assert!(poll_with(last.as_mut(), Waker::noop()).is_pending());
    assert_eq!(engine.advance(ms(40)), 2);
    assert_eq!((task.wakes(), task.wakers_held()), (0, 0));
    let stats = engine.stats();
    assert_eq!((stats.armed, stats.fired, stats.cancelled, stats.pending), (6, 2, 4, 0));
}

#[test]
fn t8_only_the_waker_of_the_last_poll_is_woken() {
    let engine = manual();
    let tasks = [Task::new(), Task::new(), Task::new()];
    let mut sleep = pin!(engine.sleep(ms(10)));
    for task in &tasks {
        assert!(task.poll(sleep.as_mut()).is_pending());
        assert!(task.poll(sleep.as_mut()).is_pending());
    }
    assert_eq!(tasks.each_ref().map(Task::wakers_held), [0, 0, 1], "the wakers of the earlier polls are dropped");
    engine.advance(ms(10));
    assert_eq!(tasks.each_ref().map(Task::wakes), [0, 0, 1]);
    assert_eq!(tasks.each_ref().map(Task::wakers_held), [0, 0, 0]);
}

#[test]
fn p10_a_sleep_armed_inside_a_waker_fires_in_its_turn() {
    // Each waker arms the next sleep: no recursion, no deadlock, and each fires at its own time.
    let engine = manual();
    let fired = Arc::new(AtomicUsize::new(0));
    let chain: Arc<Mutex<Vec<Pin<Box<Sleep>>>>> = Arc::default();
    fn arm_next(engine: Engine, fired: Arc<AtomicUsize>, chain: Arc<Mutex<Vec<Pin<Box<Sleep>>>>>) {
        let mut sleep = boxed(engine.sleep(ms(1)));
        let next = {
            let chain = Arc::clone(&chain);
            waker(move || {
                fired.fetch_add(1, Ordering::SeqCst);
                arm_next(engine.clone(), Arc::clone(&fired), Arc::clone(&chain));
            })
        };
        assert!(poll_with(sleep.as_mut(), &next).is_pending());
        chain.lock().unwrap().push(sleep);
    }
    arm_next(engine.clone(), Arc::clone(&fired), Arc::clone(&chain));
    assert_eq!(engine.advance(ms(1000)), 1000);
    assert_eq!(fired.load(Ordering::SeqCst), 1000);
    // The wakers hold the engine, and the engine holds the last waker: break the cycle.
    chain.lock().unwrap().clear();
}
