//! Tasks where it gets difficult: blocked threads, nested runtimes, foreign threads, shutdown in the middle (F10, D11, D41, D44).

mod support;

use std::future::{Future, pending};
use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use support::{
    LONG, eventually, everywhere, give_way, in_time, ms, on_each_backend, on_each_backend_with, pair, soon, until,
};
use tourbillon::Outcome;
use tourbillon_rt::net::{TcpListener, UdpSocket};
use tourbillon_rt::{Backend, Handle, JoinHandle, Runtime, spawn, spawn_blocking, spawn_local, time};

fn runtime(backend: Backend, workers: usize) -> Runtime {
    Runtime::builder().backend(backend).workers(workers).build().unwrap()
}

/// Says when it is dropped.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A future that others complete, from any thread.
#[derive(Clone, Default)]
struct Flag(Arc<Mutex<(bool, Option<Waker>)>>);

impl Flag {
    fn raise(&self) {
        let waker = {
            let mut flag = self.0.lock().unwrap();
            flag.0 = true;
            flag.1.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Future for Flag {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut flag = self.0.lock().unwrap();
        if flag.0 {
            return Poll::Ready(());
        }
        flag.1 = Some(context.waker().clone());
        Poll::Pending
    }
}

// --- block_on within block_on ---

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

/// A waker that blocks on a future: inside of whoever wakes it.
struct Blocks<F>(Mutex<Option<F>>);

impl<F: FnOnce() + Send + 'static> Wake for Blocks<F> {
    fn wake(self: Arc<Self>) {
        if let Some(blocks) = self.0.lock().unwrap().take() {
            blocks();
        }
    }
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
                            // There has to be somebody else to run it.
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
                // Woken in a turn of the timers, and by what happens to a socket.
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
                // And then it is the outer one again.
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
            // Whatever the thread is inside of now: nothing hangs.
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

// --- blocked threads (D44, P11) ---

/// Blocks the thread, asleep or busy, until it is released.
fn block(computes: bool, released: &AtomicBool) {
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
                // Many, so that some have their timers and sockets on the worker that is to be blocked.
                for _ in 0..50 {
                    let (a, b) = runtime.block_on(runtime.spawn(pair())).unwrap();
                    writers.push(b);
                    let done = Arc::clone(&done);
                    drop(runtime.spawn(async move {
                        time::sleep(ms(30)).await;
                        a.read(&mut [0; 1]).await.unwrap();
                        spawn(async {}).await.unwrap();
                        done.fetch_add(1, Ordering::SeqCst);
                    }));
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
fn d44_a_worker_that_is_blocked_inside_of_a_block_on_of_its_task_is_stood_in_for() {
    on_each_backend(|backend| {
        in_time("blocked inside of block_on", move || {
            let runtime = Arc::new(runtime(backend, 2));
            let released = Arc::new(AtomicBool::new(false));
            let (its, within) = (Arc::clone(&released), Arc::clone(&runtime));
            let (sender, receiver) = mpsc::channel();
            let blocked = runtime.spawn(async move {
                within.block_on(async {
                    // A timer of this very thread, for somebody elsewhere.
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
fn d44_a_worker_that_is_blocked_by_the_first_task_of_its_life_is_stood_in_for() {
    on_each_backend(|backend| {
        in_time("blocked at once", move || {
            for _ in 0..30 {
                let runtime = runtime(backend, 2);
                let (released, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
                // Before a worker has slept for the first time.
                for number in 0..20 {
                    let (released, done) = (Arc::clone(&released), Arc::clone(&done));
                    drop(runtime.spawn(async move {
                        if number == 10 {
                            return block(false, &released);
                        }
                        time::sleep(Duration::from_micros(500)).await;
                        done.fetch_add(1, Ordering::SeqCst);
                    }));
                }
                eventually("all others have slept", || done.load(Ordering::SeqCst) == 19);
                released.store(true, Ordering::SeqCst);
            }
        });
    });
}

#[test]
fn d44_p11_a_worker_that_is_blocked_by_a_waker_is_stood_in_for() {
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
fn d44_what_was_first_awaited_in_block_on_goes_on_while_that_is_blocked() {
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
                drop(spawn(async move {
                    sleep.await;
                    slept.fetch_add(1, Ordering::SeqCst);
                }));
                drop(spawn(async move {
                    a.read(&mut [0; 1]).await.unwrap();
                    read.fetch_add(1, Ordering::SeqCst);
                }));
                thread::sleep(ms(10));
                futures_lite::future::block_on(b.write_all(b"x")).unwrap();
                eventually("both have ended, though this thread is blocked", || done.load(Ordering::SeqCst) == 2);
            });
        });
    });
}

#[test]
fn without_workers_a_thread_that_blocks_in_block_on_delays_what_waits_for_it_and_nothing_else() {
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
                drop(runtime.spawn(async move { block(false, &released) }));
            }
            runtime.block_on(time::sleep(ms(5)));
            let _entered = runtime.handle().enter();
            futures_lite::future::block_on(time::sleep(ms(5)));
            released.store(true, Ordering::SeqCst);
        });
    });
}

// --- wakes and handles ---

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
fn a_task_that_panics_is_an_error_with_what_it_said_and_harms_no_other() {
    everywhere(|| async {
        let neighbours: Vec<_> = (0..50).map(|_| spawn(time::sleep(ms(3)))).collect();
        let says: JoinHandle<()> = spawn(async { resume_unwind(Box::new("on purpose")) });
        let error = says.await.unwrap_err();
        assert!(error.is_panic() && error.to_string().contains("on purpose"), "{error}");
        // Also one whose destructor panics, when it is aborted.
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
                    drop(spawn_local(async {
                        loop {
                            give_way().await;
                        }
                    }));
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
                        // Held until the reader has it: its end would wake it, too.
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
        // It never waits: there is always room to send, and always something to receive.
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

// --- the end ---

/// Tasks of all kinds that never end by themselves: on sockets, on timers, busy, local ones, blocked in a queue of their own.
fn load(runtime: &Runtime, dropped: &Arc<AtomicUsize>) -> usize {
    let mut count = 0;
    for number in 0..40_u64 {
        let held = Dropped(Arc::clone(dropped));
        count += 1;
        drop(runtime.spawn(async move {
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
        }));
    }
    count
}

#[test]
fn d41_shutdown_under_load_ends_every_task_drops_what_it_holds_and_returns() {
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
                        // A worker that got no processor meanwhile is taken for blocked, and ends what it has later.
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
                drop(handle.spawn(async move {
                    drop(runtime);
                    sender.send(()).unwrap();
                }));
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
                    drop(handle.spawn_blocking(end));
                } else {
                    drop(handle.spawn(async move { end() }));
                }
                receiver.recv_timeout(LONG).unwrap();
            }
        });
    });
}

#[test]
fn d41_after_shutdown_every_use_of_what_is_left_is_an_error_or_an_outcome() {
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
            // What need not wait needs nobody.
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
                    // One kind spawns the other.
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
            drop(runtime.spawn(async move {
                let _holds = holds;
                begun.send(()).unwrap();
                let _ = released.recv();
                // With timers that are stopped none of these would wait.
                loop {
                    time::sleep(ms(1)).await;
                }
            }));
            has_begun.recv().unwrap();
            let engine = runtime.engine().clone();
            let shutdown = runtime.shutdown_timeout(ms(20));
            assert_eq!((shutdown.aborted, shutdown.blocked), (1, 1));
            drop(release);
            eventually("the task has ended", || dropped.load(Ordering::SeqCst) == 1);
            eventually("its worker has ended", || support::threads_named("loops").is_empty());
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
                    drop(runtime.spawn(async { give_way().await }));
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
            in_time("dropped by who has entered it", move || {
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

// --- sockets of one runtime on another (D11) ---

#[test]
fn d11_sockets_move_between_runtimes_and_outlive_the_one_that_they_were_registered_with() {
    on_each_backend(|backend| {
        in_time("sockets that move", move || {
            let (first, second) = (runtime(backend, 1), runtime(backend, 1));
            let (a, b) = first
                .block_on(first.spawn(async {
                    let (a, b) = pair().await;
                    assert!(a.read(&mut [0; 1]).timeout(ms(1)).await.is_err());
                    (a, b)
                }))
                .unwrap();
            // While the first one still turns the reactor that it is registered with,
            let reader = a.clone();
            let reads = second.spawn(async move { reader.read(&mut [0; 8]).await.unwrap() });
            thread::sleep(ms(5));
            first.block_on(b.write_all(b"abc")).unwrap();
            assert_eq!(second.block_on(reads).unwrap(), 3);
            // and when that goes in the middle of a wait.
            let reads = second.spawn(async move { a.read(&mut [0; 8]).await.unwrap() });
            thread::sleep(ms(5));
            drop(first);
            second.block_on(b.write_all(b"abcd")).unwrap();
            assert_eq!(second.block_on(reads).unwrap(), 4);
        });
    });
}

#[test]
fn d11_sockets_of_a_block_on_that_has_ended_are_served_by_another_runtime() {
    on_each_backend(|backend| {
        in_time("sockets of an empty seat", move || {
            let (first, second) = (runtime(backend, 0), runtime(backend, 1));
            let (a, b) = first.block_on(async {
                let (a, b) = pair().await;
                assert!(a.read(&mut [0; 1]).timeout(ms(1)).await.is_err());
                (a, b)
            });
            // The first one still exists, and nobody works there.
            let reads = second.spawn(async move { a.read(&mut [0; 8]).await.unwrap() });
            thread::sleep(ms(5));
            second.block_on(b.write_all(b"abc")).unwrap();
            assert_eq!(second.block_on(reads).unwrap(), 3);
            drop(first);
        });
    });
}

#[test]
fn d11_a_socket_that_is_polled_by_another_executor_says_that_there_is_no_runtime() {
    on_each_backend_with(1, |runtime| {
        let (a, b) = runtime.block_on(pair());
        let error = futures_lite::future::block_on(a.read(&mut [0; 4])).unwrap_err();
        assert!(error.to_string().contains("no tourbillon runtime"), "{error}");
        let error = futures_lite::future::block_on(a.read(&mut [0; 4]).timeout(ms(1))).unwrap_err();
        assert!(error.to_string().contains("no tourbillon runtime"), "{error}");
        // Entered is not enough, and that is said too.
        let _entered = runtime.handle().enter();
        assert!(futures_lite::future::block_on(a.read(&mut [0; 4])).is_err());
        runtime.block_on(b.write_all(b"x")).unwrap();
        assert_eq!(runtime.block_on(a.read(&mut [0; 4])).unwrap(), 1);
    });
}
