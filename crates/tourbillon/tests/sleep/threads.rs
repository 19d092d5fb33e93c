//! Sleeps that are polled, reset or dropped on other threads, and dropped runtimes.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use tourbillon::time::{Sleep, sleep};
use tourbillon::{Clock, Engine, Outcome};

use crate::boxed;
use crate::support::{Log, NANO, Task, eventually, manual, ms, now, poll_with, years};

/// Returns an engine with a shard for each thread, and one with a single shard for all.
fn many_shards_and_one() -> [Engine; 2] {
    [1, 4].map(|shards| Engine::builder().clock(tourbillon::Clock::manual()).shards(shards).build().unwrap())
}

#[test]
fn t8_a_sleep_polled_on_another_thread_follows_its_task() {
    for engine in many_shards_and_one() {
        let (here, there) = (Task::new(), Task::new());
        let mut sleep = boxed(engine.sleep(ms(10)));
        assert!(here.poll(sleep.as_mut()).is_pending());
        let poll_there = |mut sleep: Pin<Box<Sleep>>| {
            thread::scope(|scope| {
                let poll = || {
                    assert!(there.poll(sleep.as_mut()).is_pending());
                    sleep
                };
                scope.spawn(poll).join().unwrap()
            })
        };
        sleep = poll_there(sleep);
        assert_eq!((here.wakers_held(), there.wakers_held()), (0, 1));
        engine.advance(ms(5));
        // To the first thread and back: each poll comes from another thread than the one before.
        assert!(here.poll(sleep.as_mut()).is_pending());
        sleep = poll_there(sleep);
        assert_eq!(engine.advance(ms(5) - NANO), 0);
        assert_eq!(engine.advance(NANO), 1);
        assert_eq!((here.wakes(), there.wakes()), (0, 1));
        assert!(here.poll(sleep.as_mut()).is_ready());
        let stats = engine.stats();
        assert_eq!(
            (stats.armed, stats.fired, stats.cancelled, stats.pending),
            (1, 1, 0, 0),
            "it was one timer the whole time"
        );
    }
}

#[test]
fn b7_a_disarmed_sleep_that_follows_its_task_to_another_thread_stays_disarmed() {
    for engine in many_shards_and_one() {
        let (here, there) = (Task::new(), Task::new());
        let mut sleep = boxed(engine.sleep(ms(10)));
        assert!(here.poll(sleep.as_mut()).is_pending());
        sleep.as_mut().disarm();
        thread::scope(|scope| {
            scope.spawn(|| assert!(there.poll(sleep.as_mut()).is_pending()));
        });
        assert_eq!(engine.advance(years(1)), 0);
        assert!(there.poll(sleep.as_mut()).is_pending());
        sleep.as_mut().arm();
        engine.turn();
        assert_eq!((here.wakes(), there.wakes()), (0, 1));
        assert!(there.poll(sleep.as_mut()).is_ready());
    }
}

#[test]
fn t8_a_sleep_polled_by_the_same_task_on_another_thread_needs_no_other_waker() {
    for engine in many_shards_and_one() {
        let task = Task::new();
        let mut sleep = boxed(engine.sleep(ms(10)));
        assert!(task.poll(sleep.as_mut()).is_pending());
        thread::scope(|scope| {
            scope.spawn(|| assert!(task.poll(sleep.as_mut()).is_pending()));
        });
        assert_eq!(engine.advance(ms(10)), 1);
        assert_eq!(task.wakes(), 1);
    }
}

#[test]
#[cfg_attr(miri, ignore = "miri need not recognise a waker and its clone as the same")]
fn p3_a_poll_by_the_same_task_on_another_thread_keeps_a_sleep_in_its_place_among_equals() {
    let engine = Engine::builder().clock(Clock::manual()).shards(1).build().unwrap();
    let log = Log::default();
    let [mut first, mut second] = [ms(10), ms(10)].map(|duration| boxed(engine.sleep(duration)));
    let waker = log.waker(1);
    assert!(poll_with(first.as_mut(), &waker).is_pending());
    assert!(poll_with(second.as_mut(), &log.waker(2)).is_pending());
    thread::scope(|scope| {
        scope.spawn(|| assert!(poll_with(first.as_mut(), &waker).is_pending()));
    });
    engine.advance(ms(10));
    assert_eq!(log.take(), [1, 2]);
}

#[test]
fn f9_a_sleep_dropped_on_another_thread_is_cancelled() {
    for engine in many_shards_and_one() {
        let task = Task::new();
        let mut sleep = boxed(engine.sleep(ms(10)));
        assert!(task.poll(sleep.as_mut()).is_pending());
        thread::spawn(move || drop(sleep)).join().unwrap();
        assert_eq!(task.wakers_held(), 0, "its waker is dropped at once");
        let stats = engine.stats();
        assert_eq!((stats.armed, stats.cancelled, stats.pending), (1, 1, 0));
        assert_eq!(engine.advance(ms(20)), 0);
        assert_eq!(task.wakes(), 0);
    }
}

#[test]
fn t8_a_sleep_reset_on_another_thread_wakes_its_task_at_the_new_deadline() {
    for engine in many_shards_and_one() {
        for (to, what) in
            [(ms(50), "later"), (ms(5), "earlier"), (ms(10), "at the same time"), (Duration::ZERO, "at once")]
        {
            let task = Task::new();
            let start = now(&engine);
            let mut sleep = boxed(engine.sleep(ms(10)));
            assert!(task.poll(sleep.as_mut()).is_pending());
            let mut sleep = thread::spawn(move || {
                sleep.as_mut().reset(start + to);
                sleep
            })
            .join()
            .unwrap();
            if to > Duration::ZERO {
                engine.advance(to - NANO);
                assert_eq!(task.wakes(), 0, "{what}");
                engine.advance(NANO);
            }
            assert_eq!(task.wakes(), 1, "{what}");
            engine.advance(ms(100));
            assert_eq!(task.wakes(), 0, "{what}");
            assert!(task.poll(sleep.as_mut()).is_ready());
        }
        let stats = engine.stats();
        assert_eq!((stats.armed, stats.fired, stats.pending), (4, 4, 0));
    }
}

#[test]
fn t12_a_task_that_wakes_itself_all_the_time_still_sees_its_timer() {
    // On real executors and the real clock: the task keeps its thread busy, so another thread has to fire the timer.
    async fn spin() {
        let mut sleep = pin!(sleep(ms(20)));
        std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            sleep.as_mut().poll(context)
        })
        .await;
    }
    let current_thread = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let multi_thread = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    current_thread.block_on(spin());
    multi_thread.block_on(async { tokio::spawn(spin()).await.unwrap() });
    smol::block_on(spin());
    futures_lite::future::block_on(spin());
}

#[test]
fn d41_a_runtime_dropped_while_a_sleep_is_held_elsewhere_harms_neither() {
    let engine = manual();
    let held: Arc<Mutex<Option<Pin<Box<Sleep>>>>> = Arc::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let task = {
        let (held, engine) = (Arc::clone(&held), engine.clone());
        runtime.spawn(async move {
            let mut sleep = boxed(engine.sleep(ms(10)));
            std::future::poll_fn(|context| {
                assert!(sleep.as_mut().poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
            *held.lock().unwrap() = Some(sleep);
            // The task and its waker live until the runtime is dropped.
            std::future::pending::<()>().await;
        })
    };
    eventually("the task holds its sleep", || held.lock().unwrap().is_some());
    drop(runtime);
    drop(task);
    let mut sleep = held.lock().unwrap().take().unwrap();
    assert!(!sleep.is_elapsed());
    // The sleep fires into a waker of a dropped runtime, or is polled on another runtime first.
    let here = Task::new();
    assert!(here.poll(sleep.as_mut()).is_pending());
    assert_eq!(engine.advance(ms(10)), 1);
    assert_eq!(here.wakes(), 1);
    assert!(here.poll(sleep.as_mut()).is_ready());
}

#[test]
fn d41_a_sleep_whose_runtime_is_dropped_fires_without_harm() {
    let engine = manual();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut sleep = boxed(engine.sleep(ms(10)));
    runtime.block_on(std::future::poll_fn(|context| {
        assert!(sleep.as_mut().poll(context).is_pending());
        Poll::Ready(())
    }));
    drop(runtime);
    assert_eq!(engine.advance(ms(10)), 1);
    assert_eq!((sleep.outcome(), engine.stats().waker_panics), (Some(Outcome::Fired), 0));
}
