//! The end of an engine: shut down, or dropped while its timers are held. Every timer gets its outcome, and no thread waits for ever.

mod support;

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use futures_lite::future::block_on;
use support::{Task, eventually, manual, ms, now, poll_with, waker, with_shards, years};
use tourbillon::time::{self, Sleep};
use tourbillon::{ArmError, Clock, Driver, Engine, Outcome};

#[test]
fn w7_d32_after_shutdown_nothing_is_armed_and_every_call_reports_that() {
    let engine = manual();
    let task = Task::new();
    let mut armed = pin!(engine.sleep(ms(10)));
    assert!(task.poll(armed.as_mut()).is_pending());
    assert!(!engine.is_shutdown());
    engine.shutdown();
    engine.shutdown();
    assert!(engine.is_shutdown());
    assert_eq!(task.wakes(), 1);
    assert!(task.poll(armed.as_mut()).is_ready());
    assert_eq!(armed.outcome(), Some(Outcome::Stopped));
    // New sleeps of any length, and old ones that are reset.
    assert_eq!(engine.try_sleep(ms(10)).unwrap_err(), ArmError::Stopped);
    assert_eq!(engine.try_sleep(Duration::MAX).unwrap_err(), ArmError::Stopped);
    assert_eq!(engine.try_sleep(Duration::ZERO).unwrap_err(), ArmError::Stopped);
    assert!(ArmError::Stopped.to_string().starts_with("the engine has been shut down"));
    let later = now(&engine) + ms(10);
    armed.as_mut().reset(later);
    assert!(task.poll(armed.as_mut()).is_ready());
    for duration in [Duration::ZERO, ms(10), Duration::MAX] {
        let mut sleep = pin!(engine.sleep(duration));
        assert!(task.poll(sleep.as_mut()).is_ready());
        assert_eq!(sleep.outcome(), Some(Outcome::Stopped));
    }
    assert_eq!(engine.advance(years(1)), 0);
    let stats = engine.stats();
    assert_eq!((stats.armed, stats.stopped, stats.pending), (1, 1, 0));
}

#[test]
fn w7_after_shutdown_no_turn_is_needed() {
    let engine = with_shards(2);
    let sleeps: Vec<_> = [ms(1), ms(10), years(1)].map(|duration| engine.try_sleep(duration).unwrap()).into();
    engine.clock().advance(ms(5));
    engine.shutdown();
    for _ in 0..2 {
        let turn = engine.turn();
        assert_eq!((turn.fired, turn.more, turn.next), (0, false, None));
        assert_eq!(engine.advance(ms(100)), 0);
    }
    assert!(sleeps.iter().all(|sleep| sleep.outcome() == Some(Outcome::Stopped)));
}

#[test]
fn w7_d41_a_shutdown_while_other_threads_arm_leaves_no_thread_waiting() {
    for round in 0..20 {
        let engine = Engine::builder().shards(2).build().unwrap();
        let (stopped, fired) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while stopped.load(Ordering::SeqCst) < 100 {
                        // Half of the sleeps would not end within this test.
                        for duration in [Duration::from_micros(50), years(1)] {
                            if duration > ms(1) && !engine.is_shutdown() && fired.load(Ordering::SeqCst) % 8 > 0 {
                                continue;
                            }
                            let mut sleep = pin!(engine.sleep(duration));
                            block_on(sleep.as_mut());
                            match sleep.outcome() {
                                Some(Outcome::Fired) => fired.fetch_add(1, Ordering::SeqCst),
                                Some(Outcome::Stopped) => stopped.fetch_add(1, Ordering::SeqCst),
                                other => panic!("ready with the outcome {other:?}"),
                            };
                        }
                    }
                });
            }
            thread::sleep(Duration::from_micros(200 * round));
            engine.shutdown();
        });
        let stats = engine.stats();
        assert_eq!(stats.pending, 0);
        assert_eq!(stats.armed, stats.fired + stats.cancelled + stats.stopped);
    }
}

#[test]
fn p6_an_engine_dropped_while_its_sleeps_are_held_stops_them() {
    let engine = manual();
    let task = Task::new();
    let mut armed = pin!(engine.sleep(ms(10)));
    let mut unpolled = pin!(engine.sleep(ms(10)));
    assert!(task.poll(armed.as_mut()).is_pending());
    let clone = engine.clone();
    drop(engine);
    assert_eq!(armed.outcome(), None, "another handle keeps the engine alive");
    drop(clone);
    assert_eq!(task.wakes(), 1);
    assert_eq!(armed.outcome(), Some(Outcome::Stopped));
    assert!(task.poll(armed.as_mut()).is_ready());
    assert!(task.poll(unpolled.as_mut()).is_ready());
    assert_eq!(unpolled.outcome(), Some(Outcome::Stopped));
    // They can still be queried, reset and dropped.
    let deadline = armed.deadline();
    armed.as_mut().reset(deadline);
    unpolled.as_mut().disarm();
}

#[test]
fn p6_the_last_reference_to_an_engine_can_be_a_sleep_on_a_thread_that_never_used_it() {
    for armed in [false, true] {
        let arm = move || {
            let mut sleep = Box::pin(manual().sleep(ms(1)));
            let _ = armed && poll_with(sleep.as_mut(), Waker::noop()).is_ready();
            sleep
        };
        let mut sleep = thread::spawn(arm).join().unwrap();
        assert!(poll_with(sleep.as_mut(), Waker::noop()).is_ready());
        assert_eq!(sleep.outcome(), Some(Outcome::Stopped));
        let deadline = sleep.deadline();
        sleep.as_mut().reset(deadline + ms(1));
        thread::spawn(move || drop(sleep)).join().unwrap();
    }
}

#[test]
fn p6_the_last_handle_can_be_dropped_by_a_waker_on_the_driver_thread() {
    let engine = Engine::builder().build().unwrap();
    let mut other = Box::pin(engine.sleep(years(1)));
    assert!(poll_with(other.as_mut(), Waker::noop()).is_pending());
    let mut sleep = Box::pin(engine.sleep(ms(5)));
    let held = Arc::new(Mutex::new(None));
    let dropper = {
        let held = Arc::clone(&held);
        waker(move || drop::<Option<Engine>>(held.lock().unwrap().take()))
    };
    *held.lock().unwrap() = Some(engine);
    if poll_with(sleep.as_mut(), &dropper).is_ready() {
        dropper.wake();
    }
    eventually("the other sleep is stopped", || other.outcome() == Some(Outcome::Stopped));
    assert_eq!(sleep.outcome(), Some(Outcome::Fired));
}

#[test]
fn p6_destructors_of_the_user_may_use_timers_while_the_last_of_an_engine_is_dropped() {
    struct Uses(Option<Pin<Box<Sleep>>>, Arc<AtomicBool>);

    impl Drop for Uses {
        fn drop(&mut self) {
            // Makes a shard of this thread while another is being released, and drops a timer of a third engine.
            let engine = manual();
            assert!(poll_with(pin!(engine.sleep(ms(1))), Waker::noop()).is_pending());
            self.0 = None;
            let _guard = engine.enter();
            drop(time::sleep(ms(1)));
            self.1.store(true, Ordering::SeqCst);
        }
    }

    let (other, went) = (manual(), Arc::new(AtomicBool::new(false)));
    let mut sleep = Box::pin(other.sleep(ms(1)));
    assert!(poll_with(sleep.as_mut(), Waker::noop()).is_pending());
    let uses = Mutex::new(Uses(Some(sleep), Arc::clone(&went)));
    let notify = move || drop(uses.lock().unwrap());
    let engine = Engine::builder().clock(Clock::manual()).driver(Driver::external_with(notify)).build().unwrap();
    drop(engine.sleep(ms(1)));
    drop(engine);
    assert!(!went.load(Ordering::SeqCst), "this thread still has its shard of the engine");
    // The thread releases that shard, and the user's values in it, when it makes another.
    drop(manual().sleep(ms(1)));
    assert!(went.load(Ordering::SeqCst));
    assert_eq!(other.stats().pending, 0);
}
