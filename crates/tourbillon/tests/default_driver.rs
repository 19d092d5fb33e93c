//! The default driver, which moves to a Tokio runtime: blocked workers, several runtimes in one process, and runtimes that end.
#![cfg(tourbillon_driver_task)]

mod support;

use std::sync::mpsc::channel;
use std::task::Waker;
use std::time::{Duration, Instant};

use futures_lite::future::block_on;
use support::{eventually, ms, poll_with};
use tokio::runtime::{Builder, Runtime};
use tourbillon::{Driver, Engine, Outcome};

/// Longer than any pause of a loaded machine.
const LONG: Duration = Duration::from_secs(60);

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn multi_thread(workers: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(workers).enable_all().build().unwrap()
}

fn engine() -> Engine {
    Engine::builder().build().unwrap()
}

fn sleep_inside(runtime: &Runtime, engine: &Engine) {
    runtime.block_on(async { engine.sleep(ms(1)).await });
}

#[test]
fn e3_the_first_timer_inside_a_runtime_moves_the_driver_there() {
    for runtime in [current_thread(), multi_thread(2)] {
        let engine = engine();
        block_on(engine.sleep(ms(1)));
        assert_eq!(runtime.metrics().num_alive_tasks(), 0, "the thread drives outside of a runtime");
        sleep_inside(&runtime, &engine);
        assert_eq!(runtime.metrics().num_alive_tasks(), 1, "the driver is a task");
        for _ in 0..20 {
            sleep_inside(&runtime, &engine);
        }
        assert_eq!(runtime.metrics().num_alive_tasks(), 1, "it is spawned once");
        engine.shutdown();
        runtime.block_on(async {
            while runtime.metrics().num_alive_tasks() > 0 {
                tokio::task::yield_now().await;
            }
        });
    }
}

#[test]
fn e3_p11_timers_fire_while_all_workers_of_the_driver_s_runtime_are_blocked() {
    let (engine, runtime) = (engine(), multi_thread(2));
    sleep_inside(&runtime, &engine);
    let (unblock, blocked) = channel::<()>();
    let blocked = std::sync::Arc::new(std::sync::Mutex::new(blocked));
    let started = std::sync::Arc::new(std::sync::Barrier::new(3));
    for _ in 0..2 {
        let (blocked, started) = (blocked.clone(), started.clone());
        runtime.spawn(async move {
            started.wait();
            let _ = blocked.lock().unwrap().recv_timeout(LONG);
        });
    }
    started.wait();
    let begin = Instant::now();
    for _ in 0..5 {
        block_on(engine.sleep(ms(2)));
    }
    // The first one waits until the thread has taken over, the others do not. The bound is for a loaded machine.
    assert!(begin.elapsed() < LONG / 2, "{:?}", begin.elapsed());
    drop(unblock);
    sleep_inside(&runtime, &engine);
}

#[test]
fn e3_p11_timers_fire_while_no_thread_polls_a_current_thread_runtime() {
    let (engine, runtime) = (engine(), current_thread());
    for _ in 0..3 {
        sleep_inside(&runtime, &engine);
        assert_eq!(runtime.metrics().num_alive_tasks(), 1);
        // Outside of `block_on` the runtime stands still.
        for _ in 0..3 {
            block_on(engine.sleep(ms(1)));
        }
    }
}

#[test]
fn e3_p11_a_runtime_that_stands_still_gives_the_driver_to_another_one() {
    let (engine, idle, busy) = (engine(), current_thread(), multi_thread(1));
    sleep_inside(&idle, &engine);
    assert_eq!(idle.metrics().num_alive_tasks(), 1);
    let start = Instant::now();
    while busy.metrics().num_alive_tasks() == 0 {
        assert!(start.elapsed() < LONG, "the driver stays with a runtime that no thread polls");
        sleep_inside(&busy, &engine);
    }
    // The runtime that has lost the driver ends its task when it is polled again.
    idle.block_on(async {
        while idle.metrics().num_alive_tasks() > 0 {
            tokio::task::yield_now().await;
        }
    });
    sleep_inside(&busy, &engine);
    sleep_inside(&idle, &engine);
}

#[test]
fn e3_a_runtime_that_is_never_run_does_not_keep_the_driver_from_others() {
    let (engine, never_run, busy) = (engine(), current_thread(), multi_thread(1));
    let mut inside = Box::pin(engine.sleep(ms(1)));
    {
        let _context = never_run.enter();
        let _ = poll_with(inside.as_mut(), Waker::noop());
    }
    block_on(inside.as_mut());
    let start = Instant::now();
    while busy.metrics().num_alive_tasks() == 0 {
        assert!(start.elapsed() < LONG, "the driver waits for a runtime that is never run");
        sleep_inside(&busy, &engine);
    }
}

#[test]
fn e3_an_engine_that_was_built_on_a_runtime_moves_to_another_one() {
    let first = current_thread();
    let engine = first.block_on(async { Engine::builder().driver(Driver::tokio()).build().unwrap() });
    sleep_inside(&first, &engine);
    drop(first);
    let second = multi_thread(1);
    sleep_inside(&second, &engine);
    assert_eq!(second.metrics().num_alive_tasks(), 1);
}

#[test]
fn e3_d41_when_the_driver_s_runtime_ends_the_thread_fires_what_is_pending_and_the_next_runtime_gets_the_driver() {
    let engine = engine();
    for round in 0..5 {
        let runtime = if round % 2 == 0 { current_thread() } else { multi_thread(1) };
        let mut pending = Box::pin(engine.sleep(ms(20)));
        let _ = poll_with(pending.as_mut(), Waker::noop());
        sleep_inside(&runtime, &engine);
        assert_eq!(runtime.metrics().num_alive_tasks(), 1, "round {round}");
        drop(runtime);
        block_on(pending.as_mut());
        assert_eq!(pending.outcome(), Some(Outcome::Fired));
        block_on(engine.sleep(ms(1)));
    }
}

#[test]
fn e3_one_runtime_drives_the_timers_of_all() {
    let engine = engine();
    let runtimes = [multi_thread(1), multi_thread(1), multi_thread(1)];
    sleep_inside(&runtimes[0], &engine);
    let tasks: Vec<_> = (0..300)
        .map(|index| {
            let engine = engine.clone();
            runtimes[index % 3].spawn(async move {
                for round in 0..10 {
                    engine.sleep(Duration::from_micros(200 + 37 * (index as u64 + round))).await;
                }
            })
        })
        .collect();
    runtimes[0].block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    // Where the workers of the first runtime got no processor for a while, the driver has moved to another.
    eventually("the driver is one task", || {
        runtimes.iter().map(|runtime| runtime.metrics().num_alive_tasks()).sum::<usize>() == 1
    });
}

#[test]
fn e3_a_driver_thread_stays_a_thread() {
    let (engine, runtime) = (Engine::builder().driver(Driver::thread()).build().unwrap(), current_thread());
    sleep_inside(&runtime, &engine);
    assert_eq!(runtime.metrics().num_alive_tasks(), 0);
}

#[test]
fn e3_p5_shutdown_ends_a_driver_whose_runtime_stands_still() {
    let (engine, runtime) = (engine(), current_thread());
    sleep_inside(&runtime, &engine);
    let mut pending = Box::pin(engine.sleep(LONG));
    let _ = poll_with(pending.as_mut(), Waker::noop());
    engine.shutdown();
    block_on(pending.as_mut());
    assert_eq!(pending.outcome(), Some(Outcome::Stopped));
}

#[test]
fn e3_p2_timers_fire_once_while_the_driver_moves_between_its_thread_and_its_task() {
    let engine = engine();
    let (begin, runtime) = (Instant::now(), current_thread());
    let mut armed = 0;
    // The runtime is polled in bursts, so that the driver moves again and again.
    while begin.elapsed() < ms(400) {
        let mut sleeps: Vec<_> =
            (1..=50).map(|index| Box::pin(engine.sleep(Duration::from_micros(137 * index)))).collect();
        for sleep in &mut sleeps {
            // On a slow machine a sleep may be due at its first poll: it is not armed then.
            armed += u64::from(poll_with(sleep.as_mut(), Waker::noop()).is_pending());
        }
        sleep_inside(&runtime, &engine);
        for mut sleep in sleeps {
            let due = sleep.deadline();
            block_on(sleep.as_mut());
            assert!(tourbillon::time::Instant::now() >= due, "early");
            assert_eq!(sleep.outcome(), Some(Outcome::Fired));
        }
    }
    let stats = engine.stats();
    assert_eq!((stats.fired, stats.pending), (stats.armed, 0), "each timer fires once");
    assert!(stats.fired >= armed, "{stats:?}, {armed} armed outside of the runtime");
}
