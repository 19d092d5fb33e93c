//! Tasks, workers, shutdown, on both back ends (F3, F10).

mod support;

use std::cell::Cell;
use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use support::{eventually, everywhere, ms, on_each_backend, on_each_backend_with, pair};
use tourbillon::Outcome;
use tourbillon_rt::net::{TcpListener, TcpStream, UdpSocket};
use tourbillon_rt::{Backend, Handle, JoinError, Runtime, spawn, spawn_blocking, spawn_local, time};

/// Counts its drop.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Counts its wake-ups.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Lets other tasks run.
async fn give_way() {
    let mut given = false;
    poll_fn(|context| {
        if std::mem::replace(&mut given, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[test]
fn f10_a_hundred_thousand_tasks_each_run_once() {
    everywhere(|| async {
        let count = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..100_000)
            .map(|number| {
                let count = Arc::clone(&count);
                spawn(async move {
                    if number % 3 == 0 {
                        give_way().await;
                    }
                    count.fetch_add(1, Ordering::Relaxed);
                    number
                })
            })
            .collect();
        for (number, task) in tasks.into_iter().enumerate() {
            assert_eq!(task.await.unwrap(), number);
        }
        assert_eq!(count.load(Ordering::Relaxed), 100_000);
    });
}

#[test]
fn f10_tasks_spawn_tasks_and_wake_each_other_across_workers() {
    everywhere(|| async {
        fn tree(depth: u32) -> std::pin::Pin<Box<dyn Future<Output = usize> + Send>> {
            Box::pin(async move {
                if depth == 0 {
                    return 1;
                }
                let (left, right) = (spawn(tree(depth - 1)), spawn(tree(depth - 1)));
                left.await.unwrap() + right.await.unwrap()
            })
        }
        assert_eq!(tree(10).await, 1024);
    });
}

#[test]
fn p6_the_panic_of_a_task_comes_out_of_its_handle_and_harms_no_other_task() {
    everywhere(|| async {
        let bad = spawn(async { resume_unwind(Box::new("on purpose")) as u32 });
        let good = spawn(async { 7 });
        let error = bad.await.unwrap_err();
        assert!(error.is_panic() && !error.is_cancelled());
        assert_eq!(error.to_string(), "the task has panicked: on purpose");
        assert_eq!(good.await.unwrap(), 7);
    });
}

#[test]
fn p6_a_destructor_that_panics_takes_neither_its_worker_nor_its_task_along() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            resume_unwind(Box::new("on purpose"));
        }
    }
    everywhere(|| async {
        let bad = Bad;
        let task = spawn(async move {
            give_way().await;
            std::mem::forget(bad);
            5
        });
        assert_eq!(task.await.unwrap(), 5);
        let bad = Bad;
        let aborted = spawn(async move {
            let _bad = bad;
            pending::<()>().await;
        });
        aborted.abort();
        assert!(aborted.await.unwrap_err().is_cancelled());
        assert_eq!(spawn(async { 6 }).await.unwrap(), 6);
    });
}

#[test]
fn p6_a_result_or_a_payload_of_a_task_may_panic_when_it_is_dropped() {
    /// Counts its drop, and panics in it.
    struct Bad(#[expect(dead_code, reason = "it is dropped, too")] Dropped);
    impl Drop for Bad {
        fn drop(&mut self) {
            resume_unwind(Box::new("on purpose"));
        }
    }
    on_each_backend_with(2, |runtime| {
        let dropped = Arc::new(AtomicUsize::new(0));
        let bad = || Bad(Dropped(Arc::clone(&dropped)));
        let (returned, thrown, blocking) = (bad(), bad(), bad());
        runtime.spawn(async { returned });
        runtime.spawn(async { resume_unwind(Box::new(thrown)) });
        runtime.handle().spawn_blocking(|| blocking);
        eventually("all have ended", || dropped.load(Ordering::SeqCst) == 3);
        // Also if the task has ended before its handle is dropped.
        let late = bad();
        let task = runtime.spawn(async { late });
        eventually("it has ended", || task.is_finished());
        drop(task);
        assert_eq!(dropped.load(Ordering::SeqCst), 4);
        assert_eq!(runtime.block_on(runtime.spawn(async { 6 })).unwrap(), 6);
    });
}

#[test]
fn p6_a_waker_that_panics_when_the_task_it_awaits_has_ended_harms_no_other_task() {
    struct Bad(AtomicUsize);
    impl Wake for Bad {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
            resume_unwind(Box::new("on purpose"));
        }
    }
    on_each_backend_with(2, |runtime| {
        let (sender, receiver) = mpsc::channel();
        let is_ended = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_ended);
        let mut task = runtime.spawn(poll_fn(move |context| {
            sender.send(context.waker().clone()).unwrap();
            if ends.load(Ordering::SeqCst) { Poll::Ready(7) } else { Poll::Pending }
        }));
        let its = receiver.recv_timeout(Duration::from_secs(20)).unwrap();
        let bad = Arc::new(Bad(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&bad));
        assert!(Pin::new(&mut task).poll(&mut Context::from_waker(&waker)).is_pending());
        is_ended.store(true, Ordering::SeqCst);
        its.wake();
        eventually("it is woken", || bad.0.load(Ordering::SeqCst) == 1);
        drop(waker);
        eventually("a waker that has been woken is dropped", || Arc::strong_count(&bad) == 1);
        assert_eq!(runtime.block_on(task).unwrap(), 7);
    });
}

#[test]
fn the_last_task_that_polls_a_handle_is_woken_and_no_waker_is_kept() {
    on_each_backend_with(1, |runtime| {
        let mut task = runtime.spawn(pending::<()>());
        let wakers = [(); 2].map(|()| Arc::new(Count::default()));
        for waker in [0, 1, 1, 0, 1] {
            let waker = Waker::from(Arc::clone(&wakers[waker]));
            assert!(Pin::new(&mut task).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        task.abort();
        eventually("it is woken", || wakers[1].0.load(Ordering::SeqCst) == 1);
        assert_eq!(wakers[0].0.load(Ordering::SeqCst), 0);
        let waker = Waker::from(Arc::clone(&wakers[0]));
        assert!(Pin::new(&mut task).poll(&mut Context::from_waker(&waker)).is_ready());
        drop(waker);
        eventually("the wakers are dropped", || wakers.iter().all(|waker| Arc::strong_count(waker) == 1));
    });
}

#[test]
fn an_aborted_task_is_dropped_whether_it_waits_or_is_ready_or_has_finished() {
    everywhere(|| async {
        let dropped = Arc::new(AtomicUsize::new(0));
        let held = Dropped(Arc::clone(&dropped));
        let waiting = spawn(async move {
            let _held = held;
            pending::<()>().await;
        });
        time::sleep(ms(1)).await;
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
        let finished = spawn(async { 3 });
        time::sleep(ms(2)).await;
        if finished.is_finished() {
            finished.abort();
        }
        assert_eq!(finished.await.unwrap(), 3);
    });
}

#[test]
fn a_task_runs_on_when_its_handle_is_dropped() {
    everywhere(|| async {
        let (sender, receiver) = mpsc::channel();
        spawn(async move {
            give_way().await;
            sender.send(1).unwrap();
        });
        while receiver.try_recv().is_err() {
            time::sleep(Duration::from_micros(100)).await;
        }
    });
}

#[test]
fn spawn_local_runs_on_its_own_thread_also_when_it_is_woken_from_others() {
    on_each_backend_with(2, |runtime| {
        let test = || async {
            let (own, count) = (thread::current().id(), Rc::new(Cell::new(0)));
            let its = Rc::clone(&count);
            let task = spawn_local(async move {
                for _ in 0..50 {
                    assert_eq!(spawn(async { 1 }).await.unwrap(), 1);
                    assert_eq!(spawn_blocking(|| 2).await.unwrap(), 2);
                    assert_eq!(thread::current().id(), own);
                    its.set(its.get() + 1);
                }
            });
            task.await.unwrap();
            count.get()
        };
        assert_eq!(runtime.block_on(test()), 50);
        // On a worker: a task that may not move makes one that cannot.
        let (sender, receiver) = mpsc::channel();
        runtime.spawn(async move { drop(spawn_local(async move { sender.send(*Rc::new(5) * 5).unwrap() })) });
        assert_eq!(receiver.recv_timeout(Duration::from_secs(20)).unwrap(), 25);
    });
}

#[test]
fn a_local_task_ends_with_its_block_on() {
    on_each_backend_with(1, |runtime| {
        let dropped = Arc::new(AtomicUsize::new(0));
        let held = Dropped(Arc::clone(&dropped));
        let (task,) = runtime.block_on(async {
            let waits = async move {
                let _held = held;
                pending::<()>().await;
            };
            (spawn_local(waits),)
        });
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
    });
}

#[test]
fn d41_without_a_runtime_there_are_errors_and_no_panics() {
    let no_runtime = |error| assert!(matches!(error, JoinError::NoRuntime));
    futures_lite::future::block_on(async {
        no_runtime(spawn(async {}).await.unwrap_err());
        no_runtime(spawn_local(async {}).await.unwrap_err());
        assert_eq!(spawn_blocking(|| 3).await.unwrap(), 3);
        assert!(Handle::current().is_err());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = listener.accept().await.unwrap_err();
        assert!(error.to_string().contains("no tourbillon runtime"), "{error}");
        // An operation that need not wait works.
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"self", socket.local_addr().unwrap()).await.unwrap();
        time::sleep(ms(1)).await;
        assert_eq!(socket.recv(&mut [0; 8]).await.unwrap(), 4);
    });
}

#[test]
fn d41_after_shutdown_tasks_are_cancelled_and_nothing_panics() {
    on_each_backend(|backend| {
        let runtime = Runtime::builder().backend(backend).workers(2).build().unwrap();
        let handle = runtime.handle().clone();
        let waits = runtime.spawn(pending::<()>());
        drop(runtime);
        futures_lite::future::block_on(async {
            assert!(waits.await.unwrap_err().is_cancelled());
            assert!(handle.spawn(async {}).await.unwrap_err().is_cancelled());
        });
    });
}

#[test]
fn a_dropped_runtime_drops_the_futures_of_its_tasks() {
    on_each_backend(|backend| {
        for workers in [0, 1, 3] {
            let runtime = Runtime::builder().backend(backend).workers(workers).build().unwrap();
            let dropped = Arc::new(AtomicUsize::new(0));
            for number in 0..300 {
                let held = Dropped(Arc::clone(&dropped));
                runtime.spawn(async move {
                    let _held = held;
                    match number % 3 {
                        0 => pending().await,
                        1 => time::sleep(Duration::from_secs(3600)).await,
                        _ => loop {
                            give_way().await;
                        },
                    }
                });
            }
            runtime.block_on(time::sleep(ms(2)));
            drop(runtime);
            assert_eq!(dropped.load(Ordering::SeqCst), 300, "{workers} workers");
        }
    });
}

#[test]
fn t10_a_sleep_that_outlives_its_runtime_ends_as_stopped() {
    on_each_backend(|backend| {
        let runtime = Runtime::builder().backend(backend).workers(1).build().unwrap();
        let mut sleep = Box::pin(runtime.engine().sleep(Duration::from_secs(3600)));
        assert!(runtime.block_on(poll_fn(|context| Poll::Ready(sleep.as_mut().poll(context).is_pending()))));
        drop(runtime);
        futures_lite::future::block_on(sleep.as_mut());
        assert_eq!(sleep.outcome(), Some(Outcome::Stopped));
    });
}

#[test]
fn shutdown_lets_tasks_finish_in_its_time_and_counts_those_that_do_not() {
    on_each_backend(|backend| {
        let build = || Runtime::builder().backend(backend).workers(2).build().unwrap();
        let runtime = build();
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..10 {
            let done = Arc::clone(&done);
            runtime.spawn(async move {
                time::sleep(ms(5)).await;
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        let shutdown = runtime.shutdown_timeout(Duration::from_secs(20));
        assert_eq!((shutdown.aborted, shutdown.blocked, done.load(Ordering::SeqCst)), (0, 0, 10));
        let runtime = build();
        (0..10).for_each(|_| drop(runtime.spawn(pending::<()>())));
        let shutdown = runtime.shutdown_timeout(ms(5));
        assert_eq!((shutdown.aborted, shutdown.blocked), (10, 0));
    });
}

#[test]
fn shutdown_does_not_wait_for_a_blocked_worker_beyond_its_time() {
    on_each_backend(|backend| {
        let runtime = Runtime::builder().backend(backend).workers(1).build().unwrap();
        let (release, blocked) = mpsc::channel::<()>();
        let started = Arc::new(AtomicBool::new(false));
        let starts = Arc::clone(&started);
        runtime.spawn(async move {
            starts.store(true, Ordering::SeqCst);
            let _ = blocked.recv();
        });
        eventually("it blocks", || started.load(Ordering::SeqCst));
        let shutdown = runtime.shutdown_timeout(ms(20));
        assert_eq!((shutdown.aborted, shutdown.blocked), (1, 1));
        drop(release);
    });
}

#[test]
fn a_runtime_can_be_dropped_within_one_of_its_tasks() {
    on_each_backend(|backend| {
        let runtime = Runtime::builder().backend(backend).workers(2).build().unwrap();
        let (sender, receiver) = mpsc::channel();
        let handle = runtime.handle().clone();
        handle.spawn(async move {
            drop(runtime);
            sender.send(()).unwrap();
        });
        receiver.recv_timeout(Duration::from_secs(20)).unwrap();
    });
}

#[test]
fn block_on_inside_of_tasks_and_of_block_on_blocks_and_does_not_panic() {
    on_each_backend_with(2, |runtime| {
        let inner = Arc::new(Runtime::builder().backend(runtime.backend()).workers(1).build().unwrap());
        let nested = || {
            let inner = Arc::clone(&inner);
            async move {
                inner.block_on(async {
                    time::sleep(ms(1)).await;
                    spawn(async { 9 }).await.unwrap()
                })
            }
        };
        assert_eq!(runtime.block_on(nested()), 9);
        assert_eq!(runtime.block_on(runtime.spawn(nested())).unwrap(), 9);
    });
}

#[test]
fn the_panic_of_the_future_of_block_on_comes_out_and_the_runtime_goes_on() {
    on_each_backend_with(1, |runtime| {
        let thrown = catch_unwind(AssertUnwindSafe(|| runtime.block_on(async { resume_unwind(Box::new(4)) })));
        assert_eq!(*thrown.unwrap_err().downcast::<i32>().unwrap(), 4);
        assert_eq!(runtime.block_on(async { spawn(async { 5 }).await.unwrap() }), 5);
    });
}

#[test]
fn block_on_on_many_threads_at_once() {
    on_each_backend_with(2, |runtime| {
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        runtime.block_on(async {
                            let (a, b) = pair().await;
                            let writer = spawn(async move { b.write_all(b"abc").await });
                            a.read_exact(&mut [0; 3]).timeout(Duration::from_secs(20)).await.unwrap();
                            writer.await.unwrap().unwrap();
                        });
                    }
                });
            }
        });
    });
}

/// How a task blocks its thread.
#[derive(Clone, Copy)]
enum Blocked {
    InASystemCall,
    ByComputing,
}

/// Blocks the calling thread until the other end of the channel is gone.
fn block(how: Blocked, until: &mpsc::Receiver<()>) {
    match how {
        Blocked::InASystemCall => _ = until.recv(),
        Blocked::ByComputing => {
            while until.try_recv() == Err(mpsc::TryRecvError::Empty) {
                std::hint::spin_loop();
            }
        }
    }
}

/// Many sleeps and reads, of which some are on each thread's own shard and reactor, and the number of each that have ended.
#[derive(Clone, Default)]
struct MixedLoad {
    slept: Arc<AtomicUsize>,
    read: Arc<AtomicUsize>,
}

impl MixedLoad {
    const TASKS: usize = 100;

    fn start(&self, runtime: &Runtime) {
        for number in 0..MixedLoad::TASKS as u64 {
            let MixedLoad { slept, read } = self.clone();
            runtime.spawn(async move {
                let (a, b) = pair().await;
                spawn(async move {
                    a.read_exact(&mut [0; 1]).await.unwrap();
                    read.fetch_add(1, Ordering::SeqCst);
                });
                time::sleep(ms(20 + number % 10)).await;
                slept.fetch_add(1, Ordering::SeqCst);
                b.write_all(b"x").await.unwrap();
            });
        }
    }

    fn must_end(&self) {
        eventually("all have slept, though a thread is blocked", || {
            self.slept.load(Ordering::SeqCst) == MixedLoad::TASKS
        });
        eventually("all have read, though a thread is blocked", || {
            self.read.load(Ordering::SeqCst) == MixedLoad::TASKS
        });
    }
}

#[test]
fn d44_p11_tasks_timers_and_sockets_of_a_blocked_worker_are_served_by_others() {
    on_each_backend_with(2, |runtime| {
        for how in [Blocked::InASystemCall, Blocked::ByComputing] {
            let load = MixedLoad::default();
            load.start(runtime);
            runtime.block_on(time::sleep(ms(5)));
            let (release, until) = mpsc::channel::<()>();
            runtime.spawn(async move { block(how, &until) });
            load.must_end();
            drop(release);
        }
    });
}

#[test]
fn d44_p11_sockets_that_were_first_used_in_block_on_are_served_while_that_is_blocked() {
    on_each_backend_with(1, |runtime| {
        for how in [Blocked::InASystemCall, Blocked::ByComputing] {
            let (release, until) = mpsc::channel::<()>();
            let read = Arc::new(AtomicUsize::new(0));
            let reads = Arc::clone(&read);
            thread::scope(|scope| {
                scope.spawn(|| {
                    runtime.block_on(async move {
                        let (a, b) = pair().await;
                        assert!(a.read(&mut [0; 1]).timeout(ms(1)).await.is_err());
                        spawn(async move {
                            a.read_exact(&mut [0; 1]).await.unwrap();
                            reads.fetch_add(1, Ordering::SeqCst);
                        });
                        spawn(async move {
                            time::sleep(ms(20)).await;
                            b.write_all(b"x").await.unwrap();
                            std::future::pending::<()>().await;
                        });
                        block(how, &until);
                    });
                });
                eventually("it is read", || read.load(Ordering::SeqCst) == 1);
                drop(release);
            });
        }
    });
}

#[test]
fn tasks_that_never_yield_by_themselves_do_not_starve_others() {
    everywhere(|| async {
        // A socket that always has data: each read succeeds at once.
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let greedy: Vec<_> = (0..4)
            .map(|_| {
                let stop = Arc::clone(&stop);
                spawn(async move {
                    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                    while !stop.load(Ordering::SeqCst) {
                        socket.send_to(b"more", address).await.unwrap();
                    }
                })
            })
            .collect();
        for _ in 0..10 {
            time::sleep(ms(1)).await;
        }
        stop.store(true, Ordering::SeqCst);
        for task in greedy {
            task.await.unwrap();
        }
    });
}

#[test]
fn p1_f4_sleeps_on_workers_are_never_early_and_all_end() {
    everywhere(|| async {
        let tasks: Vec<_> = (0..2000_u64)
            .map(|number| {
                spawn(async move {
                    let (start, wanted) = (Instant::now(), Duration::from_micros(number * 7919 % 20_000));
                    time::sleep(wanted).await;
                    assert!(start.elapsed() >= wanted, "{:?} of {wanted:?}", start.elapsed());
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

/// Returns how often the threads with that name have gone to sleep or been interrupted.
fn wake_ups(name: &str) -> u64 {
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let read = |file| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        if !read("comm").starts_with(name) {
            continue;
        }
        let status = read("status");
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sum += count.map_or(0, |count| count.trim().parse::<u64>().unwrap());
    }
    sum
}

#[test]
fn p9_d9_an_idle_runtime_with_a_hundred_thousand_timers_and_many_sockets_does_not_wake_up() {
    on_each_backend(|backend| {
        let name = format!("idle-{backend}");
        let runtime = Runtime::builder().backend(backend).workers(2).thread_name(&name).build().unwrap();
        for number in 0..100_000 {
            runtime.spawn(async move { time::sleep(Duration::from_secs(1000 + number % 1000)).await });
        }
        let connections: Vec<(TcpStream, TcpStream)> = runtime.block_on(async {
            let mut connections = Vec::new();
            for _ in 0..100 {
                connections.push(pair().await);
            }
            connections
        });
        for (a, _) in &connections {
            let a = a.clone();
            runtime.spawn(async move { a.read(&mut [0; 1]).timeout(Duration::from_secs(3600)).await.map(drop) });
        }
        eventually("all of them wait", || runtime.engine().stats().pending == 100_100);
        // The monitor has to see that all workers are parked, and on a busy machine some park late.
        let is_still = || {
            let before = wake_ups(&name);
            thread::sleep(ms(1000));
            wake_ups(&name) == before
        };
        assert!((0..30).any(|_| is_still()), "it wakes up each second");
    });
}

#[test]
fn the_back_end_that_was_asked_for_is_the_one_that_is_taken() {
    if std::env::var_os("TOURBILLON_BACKEND").is_some() {
        return;
    }
    on_each_backend(|backend| {
        assert_eq!(Runtime::builder().backend(backend).workers(1).build().unwrap().backend(), backend);
    });
    let auto = Runtime::builder().workers(1).build().unwrap().backend();
    assert_ne!(auto, Backend::Auto);
    assert_eq!("io_uring".parse(), Ok(Backend::Uring));
    assert!("kqueue".parse::<Backend>().unwrap_err().to_string().contains("kqueue"));
}
