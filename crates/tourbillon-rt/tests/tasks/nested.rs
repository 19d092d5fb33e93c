//! `block_on` within `block_on`, and guards that outlive theirs (D11).

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::thread;

use tourbillon_rt::net::{TcpListener, UdpSocket};
use tourbillon_rt::{Handle, Runtime, spawn, spawn_local, time};

use super::runtime;
use crate::support::{Blocks, in_time, ms, on_each_backend, pair, until};

#[test]
fn a_block_on_within_a_block_on_of_the_same_runtime_has_timers_tasks_and_sockets() {
    on_each_backend(|backend| {
        for workers in [0, 1, 2] {
            in_time(&format!("nested, {backend}, {workers} workers"), move || {
                let runtime = runtime(backend, workers);
                let sum = runtime.block_on(async {
                    let slept = runtime.block_on(async {
                        time::sleep(ms(2)).await;
                        1
                    });
                    let read = runtime.block_on(async {
                        let (a, b) = pair().await;
                        let writes = async {
                            time::sleep(ms(2)).await;
                            b.write_all(b"x").await.unwrap();
                        };
                        let reads = async { a.read(&mut [0; 4]).await.unwrap() };
                        futures_lite::future::zip(reads, writes).await.0
                    });
                    slept + read
                });
                assert_eq!(sum, 2);
            });
        }
    });
}

#[test]
fn a_block_on_within_a_task_of_the_same_runtime_has_timers_tasks_and_sockets() {
    on_each_backend(|backend| {
        for workers in [0, 1, 2] {
            in_time(&format!("nested in a task, {backend}, {workers} workers"), move || {
                let runtime = Arc::new(runtime(backend, workers));
                let inner = Arc::clone(&runtime);
                let task = runtime.spawn(async move {
                    inner.block_on(async {
                        time::sleep(ms(2)).await;
                        let (a, b) = pair().await;
                        let writes = async {
                            time::sleep(ms(2)).await;
                            b.write_all(b"xy").await.unwrap();
                        };
                        let reads = async { a.read(&mut [0; 4]).await.unwrap() };
                        futures_lite::future::zip(reads, writes).await.0
                    })
                });
                assert_eq!(runtime.block_on(task).unwrap(), 2);
            });
        }
    });
}

#[test]
fn p6_a_block_on_within_a_waker_has_timers_and_tasks_of_others_and_says_that_it_has_no_sockets() {
    on_each_backend(|backend| {
        for workers in [0, 1, 2] {
            in_time("block_on within a waker", move || {
                let runtime = Arc::new(runtime(backend, workers));
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                let address = socket.local_addr().unwrap();
                let times = Arc::new(AtomicUsize::new(0));
                let waker = || {
                    let (runtime, times) = (Arc::clone(&runtime), Arc::clone(&times));
                    let blocks = move || {
                        runtime.block_on(async {
                            time::sleep(ms(1)).await;
                            let timed_out = time::timeout(ms(1), std::future::pending::<()>()).await;
                            assert!(timed_out.is_err());
                            // Another thread has to be there to run it.
                            if workers == 2 {
                                assert_eq!(spawn(async { 5 }).await.unwrap(), 5);
                            }
                            assert!(spawn_local(async {}).await.is_err());
                            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                            let received = socket.recv(&mut [0; 1]).await;
                            assert_eq!(received.unwrap_err().kind(), std::io::ErrorKind::NotConnected);
                        });
                        times.fetch_add(1, Ordering::SeqCst);
                    };
                    Waker::from(Arc::new(Blocks(Mutex::new(Some(blocks)))))
                };
                // Woken in a turn of the timers, and by an event of a socket.
                let (of_timer, of_socket) = (waker(), waker());
                let waits = async move {
                    let mut sleep = Box::pin(time::sleep(ms(1)));
                    assert!(sleep.as_mut().poll(&mut Context::from_waker(&of_timer)).is_pending());
                    let mut buffer = [0; 1];
                    let mut receives = pin!(socket.recv(&mut buffer));
                    assert!(receives.as_mut().poll(&mut Context::from_waker(&of_socket)).is_pending());
                    drop((of_timer, of_socket));
                    std::future::pending::<()>().await;
                };
                runtime.block_on(async {
                    let waits = spawn(waits);
                    until("the timer's waker has blocked", || times.load(Ordering::SeqCst) == 1).await;
                    std::net::UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"x", address).unwrap();
                    until("the socket's waker has blocked", || times.load(Ordering::SeqCst) == 2).await;
                    waits.abort();
                    assert!(waits.await.is_err());
                });
            });
        }
    });
}

#[test]
fn a_block_on_of_one_runtime_within_another_waits_for_its_tasks_and_timers() {
    on_each_backend(|backend| {
        in_time("one within the other", move || {
            let (outer, inner) = (runtime(backend, 1), runtime(backend, 1));
            let sum = outer.block_on(async {
                let sum = inner.block_on(async {
                    time::sleep(ms(1)).await;
                    let (a, b) = pair().await;
                    let writes = spawn(async move {
                        time::sleep(ms(1)).await;
                        b.write_all(b"x").await
                    });
                    a.read_exact(&mut [0; 1]).await.unwrap();
                    writes.await.unwrap().unwrap();
                    let reads = spawn(async {
                        let (a, b) = pair().await;
                        b.write_all(b"abc").await.unwrap();
                        a.read(&mut [0; 8]).await.unwrap()
                    });
                    reads.await.unwrap()
                });
                // And then the outer runtime is the current one again.
                let (a, b) = pair().await;
                b.write_all(b"abcd").await.unwrap();
                sum + a.read(&mut [0; 8]).await.unwrap()
            });
            assert_eq!(sum, 7);
        });
    });
}

#[test]
fn d11_a_guard_that_outlives_its_block_on_leaves_the_thread_usable() {
    on_each_backend(|backend| {
        in_time("guards out of order", move || {
            let runtime = runtime(backend, 1);
            let mut kept = None;
            runtime.block_on(async { kept = Some(Handle::current().unwrap().enter()) });
            drop(kept);
            // Whichever runtime the thread is inside of now: nothing hangs.
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let error = futures_lite::future::block_on(listener.accept()).unwrap_err();
            assert!(error.to_string().contains("no tourbillon runtime"), "{error}");
            let read = runtime.block_on(async {
                time::sleep(ms(1)).await;
                let (a, b) = pair().await;
                let writer = spawn(async move { b.write_all(b"abc").await });
                let read = a.read(&mut [0; 8]).await.unwrap();
                writer.await.unwrap().unwrap();
                read
            });
            assert_eq!(read, 3);
        });
    });
}

#[test]
fn a_thread_enters_several_runtimes_and_spawns_on_the_last() {
    on_each_backend(|backend| {
        let (first, second) = (runtime(backend, 1), runtime(backend, 1));
        let names = |runtime: &Runtime| {
            let task = runtime.spawn(async { thread::current().id() });
            futures_lite::future::block_on(task).unwrap()
        };
        let (of_first, of_second) = (names(&first), names(&second));
        let where_spawned = || futures_lite::future::block_on(spawn(async { thread::current().id() })).unwrap();
        let entered = first.handle().enter();
        assert_eq!(where_spawned(), of_first);
        {
            let _entered = second.handle().enter();
            assert_eq!(where_spawned(), of_second);
        }
        assert_eq!(where_spawned(), of_first);
        drop(entered);
        assert!(Handle::current().is_err());
    });
}
