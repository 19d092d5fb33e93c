//! Shutdown and drop in the middle of work (D41).

use std::future::pending;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tourbillon::Outcome;
use tourbillon_rt::net::TcpListener;
use tourbillon_rt::{Runtime, spawn, spawn_local, time};

use super::{Dropped, runtime};
use crate::support::{LONG, eventually, give_way, in_time, ms, on_each_backend, pair};

/// Spawns tasks of all kinds that never end by themselves: on sockets, on timers, busy, local ones, blocked in a queue of their own.
fn load(runtime: &Runtime, dropped: &Arc<AtomicUsize>) -> usize {
    let mut count = 0;
    for number in 0..40_u64 {
        let held = Dropped(Arc::clone(dropped));
        count += 1;
        runtime.spawn(async move {
            let _held = held;
            match number % 5 {
                0 => {
                    let (a, _b) = pair().await;
                    let mut buffer = [0; 16];
                    let _ = a.read(&mut buffer).timeout(Duration::from_secs(3600)).await;
                }
                1 => {
                    let (a, b) = pair().await;
                    loop {
                        a.write_all(&[1; 1000]).await.unwrap();
                        b.read_exact(&mut [0; 1000]).await.unwrap();
                    }
                }
                2 => loop {
                    time::sleep(Duration::from_micros(number * 3)).await;
                    let _ = spawn(async { give_way().await }).await;
                },
                3 => loop {
                    give_way().await;
                },
                _ => {
                    let task = spawn_local(async { pending::<()>().await });
                    let _ = task.await;
                }
            }
        });
    }
    count
}

#[test]
fn d41_shutdown_under_load_ends_every_task_drops_its_future_and_returns() {
    on_each_backend(|backend| {
        for workers in [0, 1, 2, 4] {
            for with_timeout in [false, true] {
                in_time("shutdown under load", move || {
                    let runtime = runtime(backend, workers);
                    let dropped = Arc::new(AtomicUsize::new(0));
                    let count = load(&runtime, &dropped);
                    runtime.block_on(time::sleep(ms(5)));
                    if with_timeout {
                        let shutdown = runtime.shutdown_timeout(ms(10));
                        assert!(shutdown.aborted >= count, "{shutdown:?}");
                        // A worker that got no processor meanwhile counts as blocked, and ends its tasks later.
                        if shutdown.blocked > 0 {
                            eventually("the last are dropped", || dropped.load(Ordering::SeqCst) == count);
                        }
                    } else {
                        drop(runtime);
                    }
                    assert_eq!(dropped.load(Ordering::SeqCst), count, "{workers} workers, {with_timeout}");
                });
            }
        }
    });
}

#[test]
fn d41_shutdown_while_other_threads_spawn_abort_and_wait() {
    on_each_backend(|backend| {
        in_time("shutdown while others spawn", move || {
            for round in 0..20 {
                let runtime = runtime(backend, 2);
                let (stop, dropped) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
                let threads: Vec<_> = (0..3)
                    .map(|kind| {
                        let (handle, stop, dropped) =
                            (runtime.handle().clone(), Arc::clone(&stop), Arc::clone(&dropped));
                        thread::spawn(move || {
                            let mut count = 0;
                            while !stop.load(Ordering::SeqCst) {
                                let held = Dropped(Arc::clone(&dropped));
                                count += 1;
                                let task = handle.spawn(async move {
                                    let _held = held;
                                    time::sleep(Duration::from_micros(20)).await;
                                });
                                match kind {
                                    0 => drop(task),
                                    1 => task.abort(),
                                    _ => drop(futures_lite::future::block_on(task)),
                                }
                            }
                            count
                        })
                    })
                    .collect();
                thread::sleep(Duration::from_micros(300 * round));
                drop(runtime);
                stop.store(true, Ordering::SeqCst);
                let count: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
                eventually("all are dropped", || dropped.load(Ordering::SeqCst) == count);
            }
        });
    });
}

#[test]
fn d41_a_runtime_that_is_dropped_in_its_own_task_under_load_ends_all_others() {
    on_each_backend(|backend| {
        in_time("dropped in its own task", move || {
            for workers in [1, 3] {
                let runtime = runtime(backend, workers);
                let handle = runtime.handle().clone();
                let dropped = Arc::new(AtomicUsize::new(0));
                let count = load(&runtime, &dropped);
                runtime.block_on(time::sleep(ms(3)));
                let (sender, receiver) = mpsc::channel();
                handle.spawn(async move {
                    drop(runtime);
                    sender.send(()).unwrap();
                });
                receiver.recv_timeout(LONG).unwrap();
                eventually("all are dropped", || dropped.load(Ordering::SeqCst) == count);
                assert!(futures_lite::future::block_on(handle.spawn(async {})).unwrap_err().is_cancelled());
            }
        });
    });
}

#[test]
fn d41_a_runtime_that_is_shut_down_within_its_own_task_or_blocking_call_does_not_wait_for_itself() {
    on_each_backend(|backend| {
        in_time("shut down from within", move || {
            let (sender, receiver) = mpsc::channel();
            for blocking in [false, true] {
                let (runtime, sender) = (runtime(backend, 1), sender.clone());
                let handle = runtime.handle().clone();
                let end = move || sender.send(runtime.shutdown_timeout(LONG)).unwrap();
                if blocking {
                    handle.spawn_blocking(end);
                } else {
                    handle.spawn(async move { end() });
                }
                receiver.recv_timeout(LONG).unwrap();
            }
        });
    });
}

#[test]
fn d41_after_shutdown_every_use_of_a_leftover_handle_is_an_error_or_an_outcome() {
    on_each_backend(|backend| {
        in_time("after shutdown", move || {
            let runtime = runtime(backend, 2);
            let handle = runtime.handle().clone();
            let (a, b) = runtime
                .block_on(runtime.spawn(async {
                    let (a, b) = pair().await;
                    assert!(a.read(&mut [0; 1]).timeout(ms(1)).await.is_err());
                    (a, b)
                }))
                .unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            drop(runtime);
            assert!(futures_lite::future::block_on(handle.spawn(async {})).unwrap_err().is_cancelled());
            assert_eq!(futures_lite::future::block_on(handle.spawn_blocking(|| 4)).unwrap(), 4);
            let _entered = handle.enter();
            let mut sleep = pin!(time::sleep(Duration::from_secs(3600)));
            futures_lite::future::block_on(sleep.as_mut());
            assert_eq!(sleep.outcome(), Some(Outcome::Stopped));
            assert!(futures_lite::future::block_on(listener.accept()).is_err());
            assert!(futures_lite::future::block_on(a.read(&mut [0; 4])).is_err());
            assert!(futures_lite::future::block_on(spawn_local(async {})).is_err());
            // An operation that need not wait needs no runtime.
            futures_lite::future::block_on(b.write_all(b"abc")).unwrap();
            assert_eq!(futures_lite::future::block_on(a.read(&mut [0; 4])).unwrap(), 3);
        });
    });
}

#[test]
fn d41_shutdown_lets_local_tasks_finish_too_and_counts_those_that_do_not() {
    on_each_backend(|backend| {
        in_time("local tasks", move || {
            for (takes, time, aborted) in [(ms(5), LONG, 0), (Duration::MAX, ms(5), 1)] {
                let runtime = runtime(backend, 1);
                let finished = Arc::new(AtomicBool::new(false));
                let finishes = Arc::clone(&finished);
                let local = async move {
                    time::sleep(takes).await;
                    // Tasks of one kind spawn those of the other.
                    spawn(async move { finishes.store(true, Ordering::SeqCst) }).await.unwrap();
                };
                runtime.block_on(runtime.spawn(async { drop(spawn_local(local)) })).unwrap();
                let shutdown = runtime.shutdown_timeout(time);
                assert_eq!((shutdown.aborted, shutdown.blocked), (aborted, 0));
                assert_eq!(finished.load(Ordering::SeqCst), aborted == 0);
            }
        });
    });
}

#[test]
fn d41_a_task_that_was_blocked_beyond_shutdown_and_sleeps_in_a_loop_ends_and_does_not_spin() {
    on_each_backend(|backend| {
        in_time("a loop of sleeps", move || {
            let runtime = Runtime::builder().backend(backend).workers(1).thread_name("loops").build().unwrap();
            let (begun, has_begun) = mpsc::channel();
            let (release, released) = mpsc::channel::<()>();
            let dropped = Arc::new(AtomicUsize::new(0));
            let holds = Dropped(Arc::clone(&dropped));
            runtime.spawn(async move {
                let _holds = holds;
                begun.send(()).unwrap();
                let _ = released.recv();
                // With stopped timers none of these would wait.
                loop {
                    time::sleep(ms(1)).await;
                }
            });
            has_begun.recv().unwrap();
            let engine = runtime.engine().clone();
            let shutdown = runtime.shutdown_timeout(ms(20));
            assert_eq!((shutdown.aborted, shutdown.blocked), (1, 1));
            drop(release);
            eventually("the task has ended", || dropped.load(Ordering::SeqCst) == 1);
            eventually("its worker has ended", || crate::support::threads_named("loops").is_empty());
            // With the last worker the timers end.
            let _entered = engine.enter();
            let mut sleep = pin!(time::sleep(LONG));
            futures_lite::future::block_on(sleep.as_mut());
            assert_eq!(sleep.outcome(), Some(Outcome::Stopped));
        });
    });
}

#[test]
fn d41_shutdown_with_each_extreme_of_its_time() {
    on_each_backend(|backend| {
        in_time("extremes", move || {
            for time in [Duration::ZERO, Duration::MAX] {
                for workers in [0, 2] {
                    let runtime = runtime(backend, workers);
                    runtime.spawn(async { give_way().await });
                    runtime.block_on(time::sleep(ms(1)));
                    assert_eq!(runtime.shutdown_timeout(time).blocked, 0, "{time:?}, {workers} workers");
                }
            }
        });
    });
}

#[test]
fn a_thread_that_has_entered_a_runtime_waits_for_its_end_as_any_other() {
    on_each_backend(|backend| {
        for blocking in [false, true] {
            in_time("dropped by a thread that has entered it", move || {
                let runtime = runtime(backend, 2);
                let (dropped, handle) = (Arc::new(AtomicUsize::new(0)), runtime.handle().clone());
                let count = load(&runtime, &dropped);
                runtime.block_on(time::sleep(ms(2)));
                let ends = move || {
                    drop(runtime);
                    dropped.load(Ordering::SeqCst)
                };
                let seen = if blocking {
                    futures_lite::future::block_on(handle.spawn_blocking(ends)).unwrap()
                } else {
                    let _entered = handle.enter();
                    ends()
                };
                assert_eq!(seen, count);
            });
        }
    });
}
