//! Blocked threads, and the threads that serve their timers and sockets (D44, P11).

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use tourbillon_rt::net::UdpSocket;
use tourbillon_rt::{spawn, time};

use super::runtime;
use crate::support::{Blocks, LONG, eventually, in_time, ms, on_each_backend, pair, soon};

/// Blocks the thread, asleep or busy, until another thread releases it.
pub(super) fn block(computes: bool, released: &AtomicBool) {
    while !released.load(Ordering::SeqCst) {
        if !computes {
            thread::sleep(ms(1));
        }
    }
}

#[test]
fn d44_p11_a_worker_that_computes_or_sleeps_makes_neither_timers_nor_sockets_nor_tasks_wait() {
    on_each_backend(|backend| {
        for computes in [false, true] {
            in_time("blocked worker", move || {
                let runtime = runtime(backend, 2);
                let (released, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
                let mut writers = Vec::new();
                // Many, so that some have their timers and sockets on the worker that will be blocked.
                for _ in 0..50 {
                    let (a, b) = runtime.block_on(runtime.spawn(pair())).unwrap();
                    writers.push(b);
                    let done = Arc::clone(&done);
                    runtime.spawn(async move {
                        time::sleep(ms(30)).await;
                        a.read(&mut [0; 1]).await.unwrap();
                        spawn(async {}).await.unwrap();
                        done.fetch_add(1, Ordering::SeqCst);
                    });
                }
                thread::sleep(ms(5));
                let its = Arc::clone(&released);
                let blocked = runtime.spawn(async move { block(computes, &its) });
                thread::sleep(ms(40));
                for writer in &writers {
                    futures_lite::future::block_on(writer.write_all(b"x")).unwrap();
                }
                eventually("all go on", || done.load(Ordering::SeqCst) == 50);
                assert!(!blocked.is_finished());
                released.store(true, Ordering::SeqCst);
                runtime.block_on(blocked).unwrap();
            });
        }
    });
}

#[test]
fn d44_other_threads_do_the_work_of_a_worker_that_is_blocked_inside_of_a_block_on_of_its_task() {
    on_each_backend(|backend| {
        in_time("blocked inside of block_on", move || {
            let runtime = Arc::new(runtime(backend, 2));
            let released = Arc::new(AtomicBool::new(false));
            let (its, within) = (Arc::clone(&released), Arc::clone(&runtime));
            let (sender, receiver) = mpsc::channel();
            let blocked = runtime.spawn(async move {
                within.block_on(async {
                    // A timer of this very thread, for a task on another.
                    let mut sleep = Box::pin(time::sleep(ms(30)));
                    let waker = Waker::from(Arc::new(Sends(sender)));
                    assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                    block(false, &its);
                });
                drop(within);
            });
            receiver.recv_timeout(Duration::from_secs(20)).expect("it fires while its thread is blocked");
            released.store(true, Ordering::SeqCst);
            runtime.block_on(blocked).unwrap();
        });
    });
}

/// A waker that sends.
struct Sends(mpsc::Sender<()>);

impl Wake for Sends {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
    }
}

#[test]
fn d44_other_threads_do_the_work_of_a_worker_that_its_first_task_blocks() {
    on_each_backend(|backend| {
        in_time("blocked at once", move || {
            for _ in 0..30 {
                let runtime = runtime(backend, 2);
                let (released, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
                // Before a worker has parked for the first time.
                for number in 0..20 {
                    let (released, done) = (Arc::clone(&released), Arc::clone(&done));
                    runtime.spawn(async move {
                        if number == 10 {
                            return block(false, &released);
                        }
                        time::sleep(Duration::from_micros(500)).await;
                        done.fetch_add(1, Ordering::SeqCst);
                    });
                }
                eventually("all others have slept", || done.load(Ordering::SeqCst) == 19);
                released.store(true, Ordering::SeqCst);
            }
        });
    });
}

#[test]
fn d44_p11_a_waker_that_blocks_does_not_delay_the_tasks_that_are_woken_at_the_same_time() {
    const OTHERS: usize = 20;
    on_each_backend(|backend| {
        in_time("others beside a waker that blocks", move || {
            let runtime = runtime(backend, 2);
            let (begun, has_begun) = mpsc::channel();
            let (release, released) = mpsc::channel::<()>();
            let blocks = move || {
                begun.send(()).unwrap();
                let _ = released.recv();
            };
            let blocks = Waker::from(Arc::new(Blocks(Mutex::new(Some(blocks)))));
            let woken = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&woken);
            let waits = runtime.spawn(async move {
                let counts = || {
                    let count = Arc::clone(&count);
                    Waker::from(Arc::new(Blocks(Mutex::new(Some(move || _ = count.fetch_add(1, Ordering::SeqCst))))))
                };
                let sockets: Vec<_> = (0..=OTHERS).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
                let mut buffers = [[0; 1]; OTHERS + 1];
                let receives = sockets.iter().zip(&mut buffers).map(|(socket, buffer)| Box::pin(socket.recv(buffer)));
                let mut receives: Vec<_> = receives.collect();
                for (number, receive) in receives.iter_mut().enumerate() {
                    let waker = if number == 0 { blocks.clone() } else { counts() };
                    assert!(receive.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                }
                // All before the worker looks at its sockets again: it gets their events together.
                let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
                for socket in &sockets {
                    sender.send_to(b"x", socket.local_addr().unwrap()).unwrap();
                }
                std::future::pending::<()>().await;
            });
            has_begun.recv_timeout(LONG).unwrap();
            eventually("the others are woken", || woken.load(Ordering::SeqCst) == OTHERS);
            drop(release);
            waits.abort();
            assert!(runtime.block_on(waits).is_err());
        });
    });
}

#[test]
fn d44_p11_other_threads_do_the_work_of_a_worker_that_a_waker_blocks() {
    on_each_backend(|backend| {
        for by_timer in [false, true] {
            in_time("a waker that blocks", move || {
                let runtime = runtime(backend, 2);
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                let address = socket.local_addr().unwrap();
                let (begun, has_begun) = mpsc::channel();
                let (polled, is_polled) = mpsc::channel();
                let (release, released) = mpsc::channel::<()>();
                let blocks = move || {
                    begun.send(()).unwrap();
                    let _ = released.recv();
                };
                let waker = Waker::from(Arc::new(Blocks(Mutex::new(Some(blocks)))));
                // On either worker, so also on the one that will be blocked.
                let others: Vec<_> = (0..40)
                    .map(|_| {
                        runtime.spawn(async move {
                            let (a, b) = pair().await;
                            let echo = spawn(async move { soon("a read", b.read(&mut [0; 1])).await.unwrap() });
                            soon("a sleep", time::sleep(ms(60))).await;
                            a.write_all(b"x").await.unwrap();
                            assert_eq!(echo.await.unwrap(), 1);
                        })
                    })
                    .collect();
                let waits = runtime.spawn(async move {
                    let (mut sleep, mut buffer) = (Box::pin(time::sleep(ms(5))), [0; 1]);
                    let mut receives = pin!(socket.recv(&mut buffer));
                    let is_pending = if by_timer {
                        sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
                    } else {
                        receives.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
                    };
                    assert!(is_pending);
                    polled.send(()).unwrap();
                    std::future::pending::<()>().await;
                });
                is_polled.recv_timeout(LONG).unwrap();
                std::net::UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"x", address).unwrap();
                has_begun.recv_timeout(LONG).unwrap();
                runtime.block_on(async {
                    for other in others {
                        other.await.unwrap();
                    }
                });
                drop(release);
                waits.abort();
                assert!(runtime.block_on(waits).is_err());
            });
        }
    });
}

#[test]
fn d44_an_operation_first_awaited_in_block_on_goes_on_while_that_is_blocked() {
    on_each_backend(|backend| {
        in_time("blocked in block_on", move || {
            let runtime = runtime(backend, 1);
            runtime.block_on(async {
                let (a, b) = pair().await;
                // So that both are registered here, with the reactor and the timers of this thread.
                assert!(a.read(&mut [0; 1]).timeout(ms(1)).await.is_err());
                let mut sleep = Box::pin(time::sleep(ms(30)));
                let mut context = Context::from_waker(Waker::noop());
                assert!(sleep.as_mut().poll(&mut context).is_pending());
                let done = Arc::new(AtomicUsize::new(0));
                let (slept, read) = (Arc::clone(&done), Arc::clone(&done));
                spawn(async move {
                    sleep.await;
                    slept.fetch_add(1, Ordering::SeqCst);
                });
                spawn(async move {
                    a.read(&mut [0; 1]).await.unwrap();
                    read.fetch_add(1, Ordering::SeqCst);
                });
                thread::sleep(ms(10));
                futures_lite::future::block_on(b.write_all(b"x")).unwrap();
                eventually("both have ended, though this thread is blocked", || done.load(Ordering::SeqCst) == 2);
            });
        });
    });
}

#[test]
fn without_workers_a_thread_that_blocks_in_block_on_delays_only_the_tasks_that_wait_for_it() {
    on_each_backend(|backend| {
        in_time("two threads in block_on", move || {
            let runtime = Arc::new(runtime(backend, 0));
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let address = socket.local_addr().unwrap();
            let (begun, has_begun) = mpsc::channel();
            let (release, released) = mpsc::channel::<()>();
            let blocked = {
                let runtime = Arc::clone(&runtime);
                thread::spawn(move || {
                    runtime.block_on(async {
                        let its = spawn(async move { soon("a datagram", socket.recv(&mut [0; 8])).await.unwrap() });
                        time::sleep(ms(1)).await;
                        begun.send(()).unwrap();
                        assert!(released.recv().is_err());
                        its.await.unwrap()
                    })
                })
            };
            has_begun.recv().unwrap();
            runtime.block_on(async {
                for _ in 0..20 {
                    let (a, b) = pair().await;
                    let reads = spawn(async move { soon("a read", a.read(&mut [0; 8])).await.unwrap() });
                    time::sleep(ms(1)).await;
                    b.write_all(b"four").await.unwrap();
                    assert_eq!(soon("the reader", reads).await.unwrap(), 4);
                    assert!(b.read(&mut [0; 1]).timeout(ms(1)).await.is_ok_and(|count| count == 0));
                }
            });
            std::net::UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"late", address).unwrap();
            drop(release);
            assert_eq!(blocked.join().unwrap(), 4, "nothing is lost");
        });
    });
}

#[test]
fn p11_all_workers_are_blocked_and_timers_of_other_threads_fire() {
    on_each_backend(|backend| {
        in_time("all blocked", move || {
            let runtime = runtime(backend, 2);
            let released = Arc::new(AtomicBool::new(false));
            for _ in 0..2 {
                let released = Arc::clone(&released);
                runtime.spawn(async move { block(false, &released) });
            }
            runtime.block_on(time::sleep(ms(5)));
            let _entered = runtime.handle().enter();
            futures_lite::future::block_on(time::sleep(ms(5)));
            released.store(true, Ordering::SeqCst);
        });
    });
}
