//! Threads and their shards: more threads than shards, threads that end, timers that migrate, several engines on one thread.

mod support;

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;

use futures_lite::future::block_on;
use support::{Log, Task, manual, ms, poll_with, waker, with_shards};
use tourbillon::time::{self, Instant, Sleep};
use tourbillon::{Engine, Outcome};

#[test]
fn p6_two_engines_on_one_thread_are_independent() {
    let engines = [manual(), manual()];
    let log = Log::default();
    let mut sleeps = Vec::new();
    for name in 0..100_u64 {
        let mut sleep = Box::pin(engines[name as usize % 2].sleep(ms(10)));
        assert!(poll_with(sleep.as_mut(), &log.waker(name)).is_pending());
        sleeps.push(sleep);
    }
    assert_eq!(engines[0].advance(ms(10)), 50);
    assert!(log.take().iter().all(|name| name % 2 == 0));
    // Dropped in another order, and outside the context of an engine.
    sleeps.truncate(50);
    assert_eq!(engines[1].stats().pending, 25);
    assert_eq!(engines[1].advance(ms(10)), 25);
}

#[test]
fn p6_more_threads_than_shards_share_them() {
    let engine = with_shards(2);
    let log = Log::default();
    let sleeps: Mutex<Vec<Pin<Box<Sleep>>>> = Mutex::default();
    let all_here = std::sync::Barrier::new(8);
    thread::scope(|scope| {
        for name in 0..8 {
            let (engine, log, sleeps, all_here) = (&engine, &log, &sleeps, &all_here);
            scope.spawn(move || {
                let mut sleep = Box::pin(engine.sleep(ms(10 + name)));
                assert!(poll_with(sleep.as_mut(), &log.waker(name)).is_pending());
                // All threads are alive at once, so that six have no shard of their own.
                all_here.wait();
                // Half of the sleeps are cancelled on their own thread.
                if name % 2 == 0 {
                    sleeps.lock().unwrap().push(sleep);
                }
            });
        }
    });
    let stats = engine.stats();
    assert_eq!((stats.armed, stats.cancelled, stats.pending, stats.shards), (8, 4, 4, 2));
    assert_eq!(engine.advance(ms(100)), 4);
    assert_eq!(log.take(), [0, 2, 4, 6]);
}

#[test]
fn p6_timers_of_threads_that_have_ended_fire_and_their_shards_are_used_again() {
    let engine = with_shards(4);
    let log = Log::default();
    let mut sleeps = Vec::new();
    for name in 0..100 {
        let armed = thread::scope(|scope| {
            let arm = || {
                let mut sleep = Box::pin(engine.sleep(ms(10)));
                assert!(poll_with(sleep.as_mut(), &log.waker(name)).is_pending());
                sleep
            };
            scope.spawn(arm).join().unwrap()
        });
        sleeps.push(armed);
    }
    assert_eq!(engine.stats().shards, 1, "each thread took over from the one before");
    assert_eq!(engine.advance(ms(10)), 100);
    assert_eq!(log.take(), (0..100).collect::<Vec<_>>());
}

#[test]
fn p6_timers_can_be_used_and_dropped_in_the_destructors_of_thread_locals() {
    struct Late {
        engine: Engine,
        sleep: Option<Pin<Box<Sleep>>>,
        went_well: Arc<AtomicBool>,
    }

    impl Drop for Late {
        fn drop(&mut self) {
            let mut own = Box::pin(self.engine.sleep(ms(10)));
            assert!(poll_with(own.as_mut(), Waker::noop()).is_pending());
            let mut global = Box::pin(time::sleep(ms(1)));
            block_on(global.as_mut());
            assert_eq!(global.outcome(), Some(Outcome::Fired));
            if let Some(mut sleep) = self.sleep.take() {
                assert_eq!(poll_with(sleep.as_mut(), &waker(|| {})), Poll::Pending);
                sleep.as_mut().reset(Instant::now() + ms(1));
            }
            let _guard = self.engine.enter();
            drop(time::sleep(ms(1)));
            drop(Engine::current());
            self.went_well.store(true, Ordering::SeqCst);
        }
    }

    thread_local! {
        // On most systems the first thread-local to be made is the last to be destroyed; both orders are tried below.
        static LATE: std::cell::RefCell<Option<Late>> = const { std::cell::RefCell::new(None) };
    }

    // Where no thread starts while another runs such destructors, the driver of the global engine has to exist before.
    if cfg!(not(tourbillon_threads_start_in_destructors)) {
        block_on(time::sleep(ms(1)));
    }
    for before in [false, true] {
        let went_well = Arc::new(AtomicBool::new(false));
        let (engine, went_well_there) = (with_shards(4), Arc::clone(&went_well));
        let its_engine = engine.clone();
        thread::spawn(move || {
            let engine = its_engine;
            if before {
                LATE.with(|_| {});
            }
            let mut sleep = Box::pin(engine.sleep(ms(10)));
            assert!(poll_with(sleep.as_mut(), Waker::noop()).is_pending());
            let late = Late { engine, sleep: Some(sleep), went_well: went_well_there };
            LATE.set(Some(late));
        })
        .join()
        .unwrap();
        assert!(went_well.load(Ordering::SeqCst), "with the thread local made before: {before}");
        let stats = engine.stats();
        assert_eq!((stats.pending, stats.armed), (0, stats.cancelled + stats.fired));
    }
}

#[test]
fn b5_the_stats_of_timers_that_have_migrated_to_another_shard_add_up() {
    let engine = with_shards(2);
    // This thread has the first shard, and arms no timer in it.
    drop(engine.sleep(ms(1)));
    let task = Task::new();
    let mut sleep = thread::scope(|scope| {
        let arm = || {
            let mut sleep = Box::pin(engine.sleep(ms(10)));
            assert!(poll_with(sleep.as_mut(), Waker::noop()).is_pending());
            sleep
        };
        scope.spawn(arm).join().unwrap()
    });
    assert!(task.poll(sleep.as_mut()).is_pending());
    assert_eq!(engine.advance(ms(10)), 1);
    let stats = engine.stats();
    assert_eq!((stats.armed, stats.fired, stats.pending), (1, 1, 0));
}
