//! Wakes, handles, and tasks that never yield (F10, T12).

use std::future::{Future, pending};
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use tourbillon_rt::net::UdpSocket;
use tourbillon_rt::{JoinHandle, spawn, spawn_blocking, spawn_local, time};

use super::blocked::block;
use super::{Dropped, runtime};
use crate::support::{
    Flag, eventually, everywhere, give_way, in_time, ms, on_each_backend, on_each_backend_with, pair, soon, until,
};

#[test]
fn f10_tasks_are_woken_from_foreign_threads_and_none_is_missed() {
    on_each_backend_with(2, |runtime| {
        let rounds = 300;
        let (sender, receiver) = mpsc::channel::<Flag>();
        let raisers: Vec<_> = {
            let receiver = Arc::new(Mutex::new(receiver));
            (0..3)
                .map(|_| {
                    let receiver = Arc::clone(&receiver);
                    thread::spawn(move || {
                        loop {
                            let flag = receiver.lock().unwrap().recv();
                            let Ok(flag) = flag else { return };
                            flag.raise();
                        }
                    })
                })
                .collect()
        };
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let sender = sender.clone();
                runtime.spawn(async move {
                    for _ in 0..rounds {
                        let flag = Flag::default();
                        sender.send(flag.clone()).unwrap();
                        soon("a wake from a foreign thread", flag).await;
                    }
                })
            })
            .collect();
        drop(sender);
        for task in tasks {
            runtime.block_on(task).unwrap();
        }
        raisers.into_iter().for_each(|raiser| raiser.join().unwrap());
    });
}

#[test]
fn a_task_that_panics_is_an_error_with_its_message_and_harms_no_other() {
    everywhere(|| async {
        let neighbours: Vec<_> = (0..50).map(|_| spawn(time::sleep(ms(3)))).collect();
        let says: JoinHandle<()> = spawn(async { resume_unwind(Box::new("on purpose")) });
        let error = says.await.unwrap_err();
        assert!(error.is_panic() && error.to_string().contains("on purpose"), "{error}");
        // Also a task that is aborted and whose destructor panics.
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                resume_unwind(Box::new("in a destructor"));
            }
        }
        let bomb = spawn(async {
            let _bomb = Bomb;
            pending::<()>().await;
        });
        give_way().await;
        bomb.abort();
        assert!(bomb.await.is_err());
        let blocking: JoinHandle<()> = spawn_blocking(|| resume_unwind(Box::new(7)));
        assert!(blocking.await.unwrap_err().is_panic());
        for task in neighbours {
            task.await.unwrap();
        }
    });
}

#[test]
fn abort_races_with_the_end_of_the_task_and_one_of_the_two_is_seen() {
    on_each_backend_with(2, |runtime| {
        let (mut ended, mut cancelled) = (0, 0);
        let dropped = Arc::new(AtomicUsize::new(0));
        for round in 0..3000 {
            let flag = Flag::default();
            let (its, held) = (flag.clone(), Dropped(Arc::clone(&dropped)));
            let task = runtime.spawn(async move {
                let _held = held;
                its.await;
                1
            });
            if round % 2 == 0 {
                flag.raise();
                task.abort();
            } else {
                task.abort();
                flag.raise();
            }
            match runtime.block_on(task) {
                Ok(1) => ended += 1,
                Err(error) if error.is_cancelled() => cancelled += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(ended + cancelled, 3000);
        eventually("all are dropped", || dropped.load(Ordering::SeqCst) == 3000);
    });
}

#[test]
fn a_join_handle_that_is_dropped_in_the_middle_of_a_wait_detaches() {
    everywhere(|| async {
        let (done, mut flags) = (Arc::new(AtomicUsize::new(0)), Vec::new());
        for _ in 0..50 {
            let (done, flag) = (Arc::clone(&done), Flag::default());
            flags.push(flag.clone());
            let task = spawn(async move {
                flag.await;
                done.fetch_add(1, Ordering::SeqCst);
            });
            assert!(time::timeout(Duration::from_micros(50), task).await.is_err());
        }
        flags.iter().for_each(Flag::raise);
        until("all have run on", || done.load(Ordering::SeqCst) == 50).await;
    });
}

#[test]
fn a_task_awaits_itself_through_others_a_hundred_deep() {
    everywhere(|| async {
        fn chain(depth: u32) -> Pin<Box<dyn Future<Output = u32> + Send>> {
            Box::pin(async move {
                if depth == 0 {
                    time::sleep(ms(1)).await;
                    return 0;
                }
                spawn(chain(depth - 1)).await.unwrap() + 1
            })
        }
        assert_eq!(chain(100).await, 100);
    });
}

#[test]
fn spawn_blocking_runs_beside_the_workers_and_can_use_the_runtime() {
    on_each_backend_with(1, |runtime| {
        let released = Arc::new(AtomicBool::new(false));
        let blocked: Vec<_> = (0..4)
            .map(|number| {
                let released = Arc::clone(&released);
                runtime.handle().spawn_blocking(move || {
                    block(false, &released);
                    number
                })
            })
            .collect();
        // The worker is free.
        assert_eq!(runtime.block_on(runtime.spawn(async { 5 })).unwrap(), 5);
        released.store(true, Ordering::SeqCst);
        for (number, task) in blocked.into_iter().enumerate() {
            task.abort();
            assert_eq!(runtime.block_on(task).unwrap(), number);
        }
        let spawns = runtime.handle().spawn_blocking(|| futures_lite::future::block_on(spawn(async { 6 })).unwrap());
        assert_eq!(runtime.block_on(spawns).unwrap(), 6);
    });
}

#[test]
fn a_task_that_wakes_itself_for_ever_starves_neither_timers_nor_sockets_nor_other_tasks() {
    for workers in [0, 1] {
        on_each_backend_with(workers, |runtime| {
            runtime.block_on(async {
                let stop = Arc::new(AtomicBool::new(false));
                let busy: Vec<_> = (0..3)
                    .map(|_| {
                        let stop = Arc::clone(&stop);
                        spawn(async move {
                            while !stop.load(Ordering::Relaxed) {
                                give_way().await;
                            }
                        })
                    })
                    .collect();
                let others = spawn(async {
                    for _ in 0..5 {
                        time::sleep(ms(1)).await;
                        let (a, b) = pair().await;
                        let reads = spawn(async move { a.read(&mut [0; 4]).await.unwrap() });
                        time::sleep(ms(1)).await;
                        b.write_all(b"x").await.unwrap();
                        assert_eq!(reads.await.unwrap(), 1);
                    }
                });
                soon("the others", others).await.unwrap();
                stop.store(true, Ordering::Relaxed);
                for task in busy {
                    task.await.unwrap();
                }
            });
        });
    }
}

#[test]
fn a_local_task_that_wakes_itself_for_ever_starves_no_task_from_outside() {
    on_each_backend(|backend| {
        for workers in [0, 1] {
            in_time("a busy local task", move || {
                let runtime = runtime(backend, workers);
                let handle = runtime.handle().clone();
                let busy = async {
                    spawn_local(async {
                        loop {
                            give_way().await;
                        }
                    });
                };
                let spawned = thread::spawn(move || handle.spawn(async { 7 }));
                if workers == 0 {
                    runtime.block_on(async {
                        busy.await;
                        assert_eq!(spawned.join().unwrap().await.unwrap(), 7);
                    });
                } else {
                    runtime.block_on(runtime.spawn(busy)).unwrap();
                    assert_eq!(runtime.block_on(spawned.join().unwrap()).unwrap(), 7);
                    assert_eq!(runtime.block_on(runtime.spawn(async { 8 })).unwrap(), 8);
                }
            });
        }
    });
}

#[test]
fn the_future_of_block_on_that_wakes_itself_for_ever_starves_no_socket_of_others() {
    on_each_backend(|backend| {
        for workers in [0, 1] {
            in_time("a busy block_on", move || {
                let runtime = runtime(backend, workers);
                runtime.block_on(async {
                    let (a, b) = pair().await;
                    let reads = spawn(async move { a.read(&mut [0; 4]).await.unwrap() });
                    let local = spawn_local(async move {
                        time::sleep(ms(2)).await;
                        b.write_all(b"x").await.unwrap();
                        // Held until the reader has the byte: the end of the stream would wake it, too.
                        b
                    });
                    while !reads.is_finished() {
                        give_way().await;
                    }
                    assert_eq!(reads.await.unwrap(), 1);
                    drop(local.await);
                });
            });
        }
    });
}

#[test]
fn t12_a_task_whose_socket_always_has_data_is_ended_by_its_timeout() {
    everywhere(|| async {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to_itself = socket.local_addr().unwrap();
        // It never waits: there is always room to send, and always a datagram to receive.
        let busy = async {
            let mut buffer = [0; 16];
            loop {
                socket.send_to(b"again", to_itself).await.unwrap();
                socket.recv(&mut buffer).await.unwrap();
            }
        };
        assert!(time::timeout(ms(3), busy).await.is_err());
    });
}
