//! One small program under every kind of executor, and under none.

mod support;

use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant as StdInstant};

use support::{ms, poll_with, waker};
use tourbillon::time::{Instant, interval, sleep, sleep_until, timeout};
use tourbillon::{Engine, Outcome};

/// Sleeps, times out, ticks, resets and races, under any executor.
async fn program() {
    let start = StdInstant::now();
    sleep(ms(3)).await;
    sleep_until(Instant::now() + ms(2)).await;
    assert!(start.elapsed() >= ms(5));

    assert!(timeout(ms(2), std::future::pending::<()>()).await.is_err());
    assert_eq!(timeout(Duration::from_secs(60), async { 5 }).await, Ok(5));
    let slow = async {
        sleep(ms(2)).await;
        "in time"
    };
    assert_eq!(timeout(Duration::from_secs(60), slow).await, Ok("in time"));

    let start = StdInstant::now();
    let mut interval = interval(ms(1));
    for _ in 0..4 {
        interval.tick().await;
    }
    assert!(start.elapsed() >= ms(3), "the first tick is at once");

    let mut moved = pin!(sleep(Duration::from_secs(3600)));
    moved.as_mut().reset(Instant::now() + ms(2));
    moved.as_mut().await;
    assert_eq!(moved.outcome(), Some(Outcome::Fired));

    // Two at once: the shorter one wins and the other is dropped.
    let first = async {
        sleep(ms(2)).await;
        1
    };
    let second = async {
        sleep(Duration::from_secs(3600)).await;
        2
    };
    assert_eq!(futures_lite::future::or(first, second).await, 1);

    // On a separate engine.
    let engine = Engine::builder().build().unwrap();
    let mut waits = pin!(engine.sleep(Duration::from_secs(3600)));
    assert!(futures_lite::future::poll_once(waits.as_mut()).await.is_none());
    engine.shutdown();
    waits.as_mut().await;
    assert_eq!(waits.outcome(), Some(Outcome::Stopped));
}

#[test]
fn b1_under_tokio_with_one_thread() {
    // Without Tokio's time and I/O drivers: neither is needed.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..10).map(|_| tokio::spawn(program())).collect();
        program().await;
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn b1_under_tokio_with_many_threads() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..20).map(|_| tokio::spawn(program())).collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[cfg(tourbillon_driver_task)]
#[test]
fn b1_under_tokio_with_its_driver_as_a_task_there() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let engine = runtime.block_on(async { Engine::builder().driver(tourbillon::Driver::tokio()).build().unwrap() });
    let tasks: Vec<_> = (0..10)
        .map(|n| {
            let engine = engine.clone();
            runtime.spawn(async move {
                for _ in 0..10 {
                    let start = StdInstant::now();
                    engine.sleep(ms(n % 3)).await;
                    assert!(start.elapsed() >= ms(n % 3));
                }
            })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!(engine.stats().pending, 0);
}

#[test]
fn b1_under_smol() {
    smol::block_on(async {
        let tasks: Vec<_> = (0..10).map(|_| smol::spawn(program())).collect();
        program().await;
        for task in tasks {
            task.await;
        }
    });
}

#[test]
fn b1_under_a_bare_block_on() {
    futures_lite::future::block_on(program());
    let local = smol::LocalExecutor::new();
    let tasks: Vec<_> = (0..10).map(|_| local.spawn(program())).collect();
    futures_lite::future::block_on(local.run(async {
        for task in tasks {
            task.await;
        }
    }));
}

#[test]
fn b1_on_bare_threads_with_park_and_unpark() {
    // The smallest possible executor, on several threads at once.
    fn run(future: impl Future<Output = ()>) {
        let mut future = pin!(future);
        let this = thread::current();
        let unpark = waker(move || this.unpark());
        while poll_with(future.as_mut(), &unpark).is_pending() {
            thread::park();
        }
    }
    thread::scope(|scope| {
        for _ in 0..5 {
            scope.spawn(|| run(program()));
        }
    });
}

#[test]
fn b1_a_task_that_moves_between_executors_keeps_its_timers() {
    type Task = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;
    let task: Arc<Mutex<Option<Task>>> = Arc::new(Mutex::new(Some(Box::pin(program()))));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    // Each executor gives the task up after a poll and a short time; the next one continues with its timers.
    let a_while = |task: &Mutex<Option<Task>>, executor: usize| {
        let Some(mut program) = task.lock().unwrap().take() else { return true };
        let part = async {
            futures_lite::future::or(
                async {
                    program.as_mut().await;
                    true
                },
                async {
                    sleep(Duration::from_micros(300)).await;
                    false
                },
            )
            .await
        };
        let done = match executor {
            0 => runtime.block_on(part),
            1 => smol::block_on(part),
            2 => futures_lite::future::block_on(part),
            _ => thread::scope(|scope| scope.spawn(|| futures_lite::future::block_on(part)).join().unwrap()),
        };
        if !done {
            *task.lock().unwrap() = Some(program);
        }
        done
    };
    let start = StdInstant::now();
    for executor in (0..4).cycle() {
        if a_while(&task, executor) {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "the task does not end");
    }
}

#[test]
fn b1_without_any_runtime_a_thread_can_wait_for_a_sleep() {
    let start = StdInstant::now();
    futures_lite::future::block_on(sleep(ms(5)));
    assert!(start.elapsed() >= ms(5));
    // Without an executor, with nothing but a waker.
    let (sender, receiver) = mpsc::channel();
    let mut sleep = pin!(sleep(ms(5)));
    let waker = waker(move || sender.send(()).unwrap());
    if poll_with(sleep.as_mut(), &waker).is_ready() {
        waker.wake();
    }
    receiver.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(sleep.is_elapsed());
}
