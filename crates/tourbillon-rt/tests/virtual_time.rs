//! Virtual time on the runtime, with zero, one and four workers, on both back ends: what moves it, what holds it still, and in which
//! order timers fire (R3, B6, T9, D74, D75, D76).

mod support;

use std::collections::VecDeque;
use std::fs::File;
use std::future::{Future, pending, poll_fn};
use std::io::ErrorKind;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant as RealInstant};

use support::{Flag, Random, eventually, give_way, in_a_child, in_time, kind, ms, on_each_backend, pair, poll_once};
use tourbillon::{Outcome, Scheduler, Time, Timer};
use tourbillon_rt::net::{TcpListener, TcpStream, UdpSocket};
use tourbillon_rt::time::{self, Instant};
use tourbillon_rt::{Backend, JoinError, Runtime, spawn, spawn_blocking, spawn_local};

fn hours(hours: u64) -> Duration {
    Duration::from_secs(3600 * hours)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn paused(backend: Backend, workers: usize) -> Arc<Runtime> {
    Arc::new(Runtime::builder().backend(backend).workers(workers).start_paused(true).build().unwrap())
}

/// Runs the test on a paused runtime with each of these numbers of workers on each back end, and fails if it hangs.
fn with_workers(sizes: &[usize], test: impl Fn(&Arc<Runtime>) + Clone + Send + 'static) {
    on_each_backend(|backend| {
        for workers in sizes {
            let (test, workers) = (test.clone(), *workers);
            in_time(&format!("{backend}, {workers} workers"), move || test(&paused(backend, workers)));
        }
    });
}

fn on_each_size(test: impl Fn(&Arc<Runtime>) + Clone + Send + 'static) {
    with_workers(&[0, 1, 4], test);
}

/// Returns the time of a runtime's clock.
fn now(runtime: &Runtime) -> Time {
    runtime.engine().clock().now()
}

/// A channel for tasks of one or several runtimes and for other threads.
struct Channel<T> {
    values: Mutex<VecDeque<T>>,
    waker: Mutex<Option<Waker>>,
}

impl<T> Channel<T> {
    fn new() -> Arc<Channel<T>> {
        Arc::new(Channel { values: Mutex::default(), waker: Mutex::default() })
    }

    fn send(&self, value: T) {
        self.values.lock().unwrap().push_back(value);
        let waker = self.waker.lock().unwrap().take();
        waker.into_iter().for_each(Waker::wake);
    }

    async fn receive(&self) -> T {
        poll_fn(|context| {
            *self.waker.lock().unwrap() = Some(context.waker().clone());
            self.values.lock().unwrap().pop_front().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

#[test]
fn b6_ten_hours_of_sleep_take_no_time_in_block_on_and_in_tasks() {
    on_each_size(|runtime| {
        let real = RealInstant::now();
        let elapsed = runtime.block_on(async {
            let start = Instant::now();
            time::sleep(hours(10)).await;
            let task = spawn(async move {
                time::sleep(hours(10)).await;
                start.elapsed()
            });
            assert_eq!(task.await.unwrap(), hours(20));
            spawn_local(time::sleep(hours(10))).await.unwrap();
            start.elapsed()
        });
        assert_eq!(elapsed, hours(30), "exactly");
        assert!(real.elapsed() < hours(1));
    });
}

#[test]
fn b6_every_surface_follows_the_runtimes_time() {
    on_each_size(|runtime| {
        runtime.block_on(async {
            let start = Instant::now();
            assert!(time::timeout(hours(1), pending::<()>()).await.is_err());
            assert_eq!(start.elapsed(), hours(1));
            let mut interval = time::interval(hours(1));
            for hour in 1..=5 {
                interval.tick().await;
                assert_eq!(start.elapsed(), hours(hour));
            }
            let called = Channel::new();
            let calls = Arc::clone(&called);
            Timer::after(hours(1)).on_expiry(move |outcome| calls.send(outcome));
            let timer = Timer::after(hours(2));
            let calls = Arc::clone(&called);
            timer.on_expiry(move |outcome| calls.send(outcome));
            // The first timer is dropped, and with it its wait is cancelled.
            assert_eq!(called.receive().await, Outcome::Cancelled);
            assert_eq!(start.elapsed(), hours(5));
            assert_eq!(called.receive().await, Outcome::Fired);
            assert_eq!(start.elapsed(), hours(7));
        });
    });
}

#[test]
fn p5_a_sleep_without_end_ends_when_nothing_else_is_left_to_wait_for() {
    with_workers(&[0, 1], |runtime| {
        runtime.block_on(async {
            time::timeout(Duration::MAX, time::sleep(hours(1))).await.expect("the sleep is shorter");
            time::sleep(Duration::MAX).await;
        });
    });
}

#[test]
fn b6_timers_fire_in_the_order_of_their_deadlines_on_any_number_of_workers() {
    on_each_size(|runtime| {
        let log = Arc::new(Mutex::new(Vec::new()));
        let start = now(runtime);
        let mut random = Random::new();
        let mut waits: Vec<u64> = (1..=500).collect();
        for index in (1..waits.len()).rev() {
            waits.swap(index, random.below(index as u64 + 1) as usize);
        }
        let tasks: Vec<_> = waits
            .into_iter()
            .map(|wait| {
                let (log, runtime) = (Arc::clone(&log), Arc::clone(runtime));
                let sleep = runtime.engine().sleep(secs(wait));
                runtime.clone().spawn(async move {
                    sleep.await;
                    // Another task could run first if time had moved on before this one was run.
                    give_way().await;
                    log.lock().unwrap().push((wait, Duration::from(now(&runtime) - start)));
                })
            })
            .collect();
        runtime.block_on(async {
            for task in tasks {
                task.await.unwrap();
            }
        });
        let expected: Vec<_> = (1..=500).map(|wait| (wait, secs(wait))).collect();
        assert_eq!(*log.lock().unwrap(), expected);
    });
}

#[test]
fn p3_equal_deadlines_fire_as_they_were_armed_on_one_thread() {
    with_workers(&[0], |runtime| {
        let log = Arc::new(Mutex::new(Vec::new()));
        runtime.block_on(async {
            let tasks: Vec<_> = (0..1000)
                .map(|number| {
                    let log = Arc::clone(&log);
                    spawn(async move {
                        time::sleep(hours(1)).await;
                        log.lock().unwrap().push(number);
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        assert_eq!(*log.lock().unwrap(), (0..1000).collect::<Vec<_>>());
    });
}

#[test]
fn d75_timers_from_before_pause_follow_it() {
    on_each_backend(|backend| {
        for workers in [0, 1, 4] {
            in_time("a sleep from before", move || {
                let runtime = Runtime::builder().backend(backend).workers(workers).pausable(true).build().unwrap();
                let outside = runtime.engine().try_sleep(hours(3)).unwrap();
                runtime.block_on(async {
                    let start = Instant::now();
                    let mut sleep = pin!(time::sleep(hours(1)));
                    assert!(poll_once(sleep.as_mut()).await.is_pending());
                    let in_a_task = spawn(time::sleep(hours(2)));
                    // Time runs until it is paused.
                    time::sleep(ms(2)).await;
                    assert!(start.elapsed() >= ms(2));
                    time::pause();
                    let paused = Instant::now();
                    sleep.await;
                    assert!(start.elapsed() >= hours(1) && start.elapsed() < hours(2));
                    in_a_task.await.unwrap();
                    outside.await;
                    assert!(paused.elapsed() > hours(2) && paused.elapsed() < hours(4));
                });
            });
        }
    });
}

#[test]
fn t9_time_that_is_resumed_runs_on_from_where_it_stood_and_can_be_paused_again() {
    on_each_size(|runtime| {
        runtime.block_on(async {
            let start = Instant::now();
            time::sleep(hours(5)).await;
            let sleeper = spawn(time::sleep(ms(20)));
            time::resume();
            let real = RealInstant::now();
            time::sleep(ms(10)).await;
            sleeper.await.unwrap();
            assert!(real.elapsed() >= ms(20), "early");
            assert!(start.elapsed() >= hours(5) + ms(20) && start.elapsed() < hours(6));
            time::resume();
            time::pause();
            time::pause();
            let paused = Instant::now();
            thread::sleep(ms(5));
            assert_eq!(paused.elapsed(), Duration::ZERO);
            time::sleep(hours(1)).await;
            assert_eq!(paused.elapsed(), hours(1));
        });
    });
}

#[test]
fn t9_time_that_is_resumed_or_paused_by_a_task_runs_or_stops_for_all_threads() {
    on_each_size(|runtime| {
        runtime.block_on(async {
            spawn(async { time::resume() }).await.unwrap();
            time::sleep(ms(5)).await;
            let start = Instant::now();
            thread::sleep(ms(2));
            assert!(start.elapsed() >= ms(2), "it runs");
            spawn(async { time::pause() }).await.unwrap();
            let start = Instant::now();
            thread::sleep(ms(2));
            assert_eq!(start.elapsed(), Duration::ZERO);
        });
    });
}

#[test]
fn t9_advance_fires_each_timer_at_its_own_time_and_then_other_tasks_get_a_turn() {
    with_workers(&[0], |runtime| {
        let log = Arc::new(Mutex::new(Vec::new()));
        let (theirs, outer) = (Arc::clone(&log), Arc::clone(runtime));
        runtime.block_on(async move {
            let start = now(&outer);
            let clock = Arc::clone(&outer);
            let show = move || Duration::from(now(&clock) - start);
            let waits = [3, 1, 2, 7].map(|wait| {
                let (log, show) = (Arc::clone(&theirs), show.clone());
                // Callbacks run where the timers fire.
                let timer = Timer::after(secs(wait));
                timer.on_expiry(move |_| log.lock().unwrap().push(("timer", wait, show())));
                timer
            });
            let (log, shown) = (Arc::clone(&theirs), show.clone());
            let task = spawn(async move {
                time::sleep(secs(2)).await;
                log.lock().unwrap().push(("task", 2, shown()));
            });
            give_way().await;
            time::advance(secs(5)).await;
            assert!(task.is_finished(), "it had no turn");
            assert_eq!(show(), secs(5));
            drop(waits);
        });
        let log = log.lock().unwrap();
        let expected = [("timer", 1, secs(1)), ("timer", 2, secs(2)), ("timer", 3, secs(3)), ("task", 2, secs(5))];
        assert_eq!(log[..4], expected);
    });
}

#[test]
fn t9_advance_in_a_task_moves_the_time_of_all_workers() {
    on_each_size(|runtime| {
        runtime.block_on(async {
            let start = Instant::now();
            let sleeper = spawn(async move {
                time::sleep(hours(1)).await;
                start.elapsed()
            });
            spawn(time::advance(hours(3))).await.unwrap();
            assert!(start.elapsed() >= hours(3));
            assert!(sleeper.await.unwrap() >= hours(1));
            let caught = spawn(async {
                time::resume();
                time::advance(secs(1)).await;
            });
            assert!(caught.await.unwrap_err().is_panic(), "time runs");
        });
    });
}

#[test]
fn d74_time_stands_still_during_blocking_work() {
    on_each_size(|runtime| {
        runtime.block_on(async {
            let start = Instant::now();
            let sleeper = spawn(time::sleep(hours(1)));
            for _ in 0..5 {
                let inside = spawn_blocking(move || {
                    thread::sleep(ms(5));
                    // The thread of the blocking pool sees the runtime's time, too.
                    start.elapsed()
                });
                assert_eq!(inside.await.unwrap(), Duration::ZERO);
                assert_eq!(start.elapsed(), Duration::ZERO, "it moved between the end of the work and its wake-up");
            }
            assert!(!sleeper.is_finished());
            sleeper.await.unwrap();
            assert_eq!(start.elapsed(), hours(1));
        });
    });
}

#[test]
fn d74_blocking_work_that_no_task_awaits_holds_time_still_until_it_ends() {
    on_each_size(|runtime| {
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        runtime.block_on(async {
            spawn_blocking(move || {
                thread::sleep(ms(20));
                done.store(true, Ordering::SeqCst);
            });
            // The only sleep: only the end of the work makes a thread look.
            time::sleep(hours(1)).await;
        });
        assert!(is_done.load(Ordering::SeqCst), "time has moved");
        // Also work that panics.
        runtime.block_on(async {
            spawn_blocking(|| {
                thread::sleep(ms(5));
                panic!("as it should");
            });
            time::sleep(hours(1)).await;
        });
    });
}

#[test]
fn d74_blocking_work_that_a_thread_outside_starts_holds_time_still() {
    on_each_size(|runtime| {
        let handle = runtime.handle().clone();
        let (starts, started) = mpsc::channel();
        let outside = thread::spawn(move || {
            let work = handle.spawn_blocking(|| thread::sleep(ms(20)));
            starts.send(()).unwrap();
            work
        });
        started.recv().unwrap();
        let work = outside.join().unwrap();
        let mut work = pin!(work);
        runtime.block_on(async {
            time::sleep(hours(1)).await;
            assert!(poll_once(work.as_mut()).await.is_ready(), "time has moved");
        });
    });
}

#[test]
fn b6_a_task_that_blocks_its_thread_holds_time_still() {
    with_workers(&[1, 4], |runtime| {
        runtime.block_on(async {
            let start = Instant::now();
            let blocks = spawn(async move {
                thread::sleep(ms(50));
                start.elapsed()
            });
            time::sleep(hours(1)).await;
            assert_eq!(blocks.await.unwrap(), Duration::ZERO);
            assert_eq!(start.elapsed(), hours(1));
        });
    });
}

#[test]
fn d76_time_stands_still_while_no_thread_runs_the_runtime() {
    on_each_size(|runtime| {
        let start = now(runtime);
        let polled = Arc::new(AtomicUsize::new(0));
        let polls = Arc::clone(&polled);
        let sleeper = runtime.spawn(async move {
            polls.fetch_add(1, Ordering::SeqCst);
            time::sleep(hours(1)).await;
            polls.fetch_add(1, Ordering::SeqCst);
        });
        runtime.block_on(async { give_way().await });
        thread::sleep(ms(30));
        assert!(polled.load(Ordering::SeqCst) <= 1);
        assert_eq!(now(runtime), start, "it moved between two calls of block_on");
        runtime.block_on(sleeper).unwrap();
        assert_eq!(now(runtime), start + hours(1).into());
        thread::sleep(ms(5));
        assert_eq!(now(runtime), start + hours(1).into());
    });
}

#[test]
fn b6_data_over_loopback_arrives_though_each_read_has_a_time_limit() {
    on_each_size(|runtime| {
        runtime.block_on(async {
            let start = Instant::now();
            let tasks: Vec<_> = (0..8)
                .map(|_| {
                    spawn(async {
                        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                        let address = listener.local_addr().unwrap();
                        let client = spawn(async move {
                            let client = TcpStream::connect(address).timeout(secs(1)).await?;
                            let mut answer = [0; 1];
                            for number in 0..100 {
                                client.write_all(&[number]).timeout(secs(1)).await?;
                                client.read_exact(&mut answer).timeout(secs(1)).await?;
                                assert_eq!(answer, [number]);
                            }
                            Ok::<_, std::io::Error>(())
                        });
                        let (server, _) = listener.accept().timeout(secs(1)).await.unwrap();
                        let mut buffer = [0; 1];
                        while server.read(&mut buffer).timeout(secs(1)).await.unwrap() > 0 {
                            server.write_all(&buffer).timeout(secs(1)).await.unwrap();
                        }
                        client.await.unwrap().unwrap();
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!(start.elapsed(), Duration::ZERO, "a limit has passed");
        });
    });
}

#[test]
fn b6_datagrams_and_data_from_a_socket_of_another_thread_are_seen_before_time_moves() {
    on_each_size(|runtime| {
        runtime.block_on(async {
            let [a, b] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
            b.connect(a.local_addr().unwrap()).unwrap();
            let start = Instant::now();
            let receives = spawn(async move {
                for _ in 0..50 {
                    a.recv(&mut [0; 8]).timeout(secs(1)).await.unwrap();
                }
            });
            for number in 0..50_u64 {
                b.send(&number.to_le_bytes()).await.unwrap();
                give_way().await;
            }
            receives.await.unwrap();
            assert_eq!(start.elapsed(), Duration::ZERO);
            // Bytes that another thread has sent before the task begins to wait.
            let (ours, theirs) = pair().await;
            let sends = thread::spawn(move || {
                let runtime = Runtime::builder().workers(0).build().unwrap();
                runtime.block_on(async { theirs.write_all(b"hello").await.unwrap() });
                theirs
            });
            let theirs = sends.join().unwrap();
            ours.read_exact(&mut [0; 5]).timeout(secs(1)).await.unwrap();
            assert_eq!(start.elapsed(), Duration::ZERO);
            drop(theirs);
        });
    });
}

#[test]
fn f8_a_time_limit_on_a_silent_peer_passes_at_once() {
    on_each_size(|runtime| {
        let real = RealInstant::now();
        runtime.block_on(async {
            let start = Instant::now();
            let (ours, theirs) = pair().await;
            assert_eq!(kind(ours.read(&mut [0; 1]).timeout(hours(1)).await), ErrorKind::TimedOut);
            assert_eq!(start.elapsed(), hours(1));
            let in_a_task = spawn(async move { kind(ours.read(&mut [0; 1]).timeout(hours(1)).await) });
            assert_eq!(in_a_task.await.unwrap(), ErrorKind::TimedOut);
            assert_eq!(start.elapsed(), hours(2));
            drop(theirs);
        });
        assert!(real.elapsed() < hours(1));
    });
}

#[test]
fn b6_a_server_that_waits_for_connections_does_not_hold_time_still() {
    on_each_size(|runtime| {
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    spawn(async move {
                        // The peer answers an hour later.
                        let mut request = [0; 2];
                        stream.read_exact(&mut request).await.unwrap();
                        time::sleep(hours(1)).await;
                        stream.write_all(&request).await.unwrap();
                    });
                }
            });
            let start = Instant::now();
            for hour in 1..=10 {
                let client = TcpStream::connect(address).await.unwrap();
                client.write_all(b"hi").await.unwrap();
                let mut answer = [0; 2];
                client.read_exact(&mut answer).timeout(hours(1) + secs(1)).await.unwrap();
                assert_eq!((&answer, start.elapsed()), (b"hi", hours(hour)));
            }
        });
    });
}

#[test]
fn b6_a_nested_block_on_waits_in_virtual_time() {
    on_each_size(|runtime| {
        let inner = Arc::clone(runtime);
        runtime.block_on(async move {
            let start = Instant::now();
            let other = spawn(time::sleep(hours(1)));
            let nested = Arc::clone(&inner);
            let task = spawn(async move {
                nested.block_on(async {
                    time::sleep(hours(2)).await;
                    let (deep, deeper) = (Arc::clone(&nested), Arc::clone(&nested));
                    deep.block_on(spawn(async move { deeper.block_on(time::sleep(hours(3))) })).unwrap();
                });
                start.elapsed()
            });
            inner.block_on(time::sleep(hours(4)));
            assert!(start.elapsed() >= hours(4));
            assert_eq!(task.await.unwrap(), hours(5));
            other.await.unwrap();
        });
    });
}

#[test]
fn b6_two_runtimes_do_not_share_time() {
    on_each_backend(|backend| {
        for workers in [0, 1, 4] {
            in_time("two runtimes", move || {
                let (one, other) = (paused(backend, workers), paused(backend, workers));
                let real = Runtime::builder().backend(backend).workers(workers).build().unwrap();
                let (start, others) = (now(&one), now(&other));
                one.block_on(async { time::sleep(hours(1)).await });
                assert_eq!((now(&one), now(&other)), (start + hours(1).into(), others));
                other.block_on(async {
                    let before = Instant::now();
                    // A runtime inside of a task of another: the outer time stands still meanwhile.
                    one.block_on(async { time::sleep(hours(1)).await });
                    assert_eq!(before.elapsed(), Duration::ZERO);
                    real.block_on(async { time::sleep(ms(1)).await });
                    time::sleep(secs(7)).await;
                    assert_eq!(before.elapsed(), secs(7));
                });
                assert_eq!((now(&one), now(&other)), (start + hours(2).into(), others + secs(7).into()));
                real.block_on(async {
                    let before = RealInstant::now();
                    time::sleep(ms(2)).await;
                    assert!(before.elapsed() >= ms(2));
                });
            });
        }
    });
}

/// A thread outside the runtime wakes a task; time could move at any moment, for another task always sleeps.
#[test]
fn b6_time_does_not_move_between_a_wake_up_and_the_task_that_it_wakes() {
    on_each_size(|runtime| {
        let values = Channel::new();
        let (sends, is_over) = (Arc::clone(&values), Arc::new(AtomicBool::new(false)));
        let (clock, over) = (Arc::clone(runtime), Arc::clone(&is_over));
        let outside = thread::spawn(move || {
            let mut after = Vec::new();
            let start = now(&clock);
            eventually("time moves", || now(&clock) > start);
            for number in 0..2000_usize {
                sends.send(number);
                // The time after the wake-up: the task has run by now, or runs at this time.
                after.push(now(&clock));
                if number % 100 == 0 {
                    thread::sleep(Duration::from_micros(50));
                }
            }
            over.store(true, Ordering::SeqCst);
            after
        });
        let clock = Arc::clone(runtime);
        let seen = runtime.block_on(async move {
            let ticks = spawn(async move {
                while !is_over.load(Ordering::SeqCst) {
                    time::sleep(secs(1)).await;
                }
            });
            let receives = spawn(async move {
                let mut seen = Vec::new();
                for _ in 0..2000 {
                    let number = values.receive().await;
                    assert_eq!(number, seen.len());
                    seen.push(now(&clock));
                }
                seen
            });
            let seen = receives.await.unwrap();
            ticks.await.unwrap();
            seen
        });
        let after = outside.join().unwrap();
        for (number, (seen, after)) in seen.iter().zip(&after).enumerate() {
            assert!(seen <= after, "value {number} was sent at {after:?} and received at {seen:?}");
        }
    });
}

/// The same for the future of `block_on` itself, and for a local task.
#[test]
fn b6_time_does_not_move_between_a_wake_up_and_the_future_of_block_on() {
    on_each_size(|runtime| {
        let [first, second] = [(); 2].map(|()| Channel::new());
        let (sends, answers, clock) = (Arc::clone(&first), Arc::clone(&second), Arc::clone(runtime));
        let outside = thread::spawn(move || {
            let mut after = Vec::new();
            let start = now(&clock);
            eventually("time moves", || now(&clock) > start);
            for number in 0..500 {
                [&sends, &answers][number % 2].send(());
                after.push(now(&clock));
                if number % 50 == 0 {
                    thread::sleep(Duration::from_micros(50));
                }
            }
            after
        });
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let ticks = runtime.spawn(async move {
            while !over.load(Ordering::SeqCst) {
                time::sleep(secs(1)).await;
            }
        });
        let clock = Arc::clone(runtime);
        let (even, odd) = runtime.block_on(async {
            let local = Arc::clone(&clock);
            let odd = spawn_local(async move {
                let mut seen = Vec::new();
                for _ in 0..250 {
                    second.receive().await;
                    seen.push(now(&local));
                }
                seen
            });
            let mut even = Vec::new();
            for _ in 0..250 {
                first.receive().await;
                even.push(now(&clock));
            }
            (even, odd.await.unwrap())
        });
        is_over.store(true, Ordering::SeqCst);
        runtime.block_on(ticks).unwrap();
        let after = outside.join().unwrap();
        let seen = even.into_iter().zip(odd).flat_map(|(even, odd)| [even, odd]);
        for (number, (seen, after)) in seen.zip(after).enumerate() {
            assert!(seen <= after, "wake-up {number} at {after:?} was seen at {seen:?}");
        }
    });
}

#[test]
fn b6_a_timer_that_was_cancelled_disarmed_or_pushed_later_does_not_move_time() {
    on_each_size(|runtime| {
        let flag = Flag::default();
        let raises = flag.clone();
        let clock = Arc::clone(runtime);
        runtime.block_on(async move {
            let mut held = pin!(time::sleep(secs(5)));
            assert!(poll_once(held.as_mut()).await.is_pending());
            // By now the timer has its place among the pending ones, and keeps it when it is disarmed.
            time::sleep(ms(1)).await;
            held.as_mut().disarm();
            let start = now(&clock);
            let mut armed: Vec<_> = (1..300).map(|second| Box::pin(time::sleep(secs(second)))).collect();
            for sleep in &mut armed {
                assert!(poll_once(sleep.as_mut()).await.is_pending());
            }
            drop(armed);
            let raiser = thread::spawn(move || {
                thread::sleep(ms(20));
                raises.raise();
            });
            flag.await;
            assert_eq!(now(&clock), start, "no timer was due");
            raiser.join().unwrap();
            // A timer that is reset to later fires at its new time, to the nanosecond.
            let mut later = pin!(time::sleep(secs(1)));
            assert!(poll_once(later.as_mut()).await.is_pending());
            later.as_mut().reset(Instant::now() + secs(9));
            later.await;
            assert_eq!(now(&clock), start + secs(9).into());
        });
    });
}

#[test]
fn b6_a_timer_that_a_thread_outside_arms_while_all_sleep_fires() {
    on_each_size(|runtime| {
        let channel = Channel::new();
        let (sends, outside) = (Arc::clone(&channel), Arc::clone(runtime));
        let start = now(runtime);
        let arms = thread::spawn(move || {
            thread::sleep(ms(20));
            let timer = Timer::on(outside.engine());
            timer.expires_after(hours(1));
            timer.on_expiry(move |outcome| sends.send(outcome));
            timer
        });
        let outcome = runtime.block_on(channel.receive());
        assert_eq!((outcome, now(runtime)), (Outcome::Fired, start + hours(1).into()));
        drop(arms.join().unwrap());
    });
}

#[test]
fn b6_several_threads_inside_block_on_share_the_runtimes_time() {
    on_each_size(|runtime| {
        let start = now(runtime);
        // All of them are inside before any of their sleeps ends.
        let arrived = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (1..=4)
            .map(|hour| {
                let (runtime, arrived) = (Arc::clone(runtime), Arc::clone(&arrived));
                thread::spawn(move || {
                    let sleep = runtime.engine().sleep(hours(hour));
                    arrived.fetch_add(1, Ordering::SeqCst);
                    eventually("all have arrived", || arrived.load(Ordering::SeqCst) == 4);
                    runtime.block_on(async {
                        sleep.await;
                        now(&runtime)
                    })
                })
            })
            .collect();
        for (hour, thread) in (1..).zip(threads) {
            let ended = thread.join().unwrap();
            assert!(ended >= start + hours(hour).into() && ended <= start + hours(4).into());
        }
    });
}

#[test]
fn d77_thousands_of_sleeps_end_at_their_own_times() {
    on_each_size(|runtime| {
        runtime.block_on(async {
            let start = Instant::now();
            let tasks: Vec<_> = (0..100)
                .map(|first| {
                    spawn(async move {
                        for _ in 0..50 {
                            time::sleep(secs(1) + ms(first)).await;
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!(start.elapsed(), 50 * (secs(1) + ms(99)));
        });
    });
}

/// Takes all descriptors that the process may still have.
fn all_descriptors() -> Vec<File> {
    let limit = libc::rlimit { rlim_cur: 256, rlim_max: 256 };
    // SAFETY: the pointer is to a local value, which the call reads. The limit is that of a child process.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

/// Runs in a process that has built nothing else: no descriptor is freed while this runs.
fn block_on_without_a_reactor(test: &str, backend: Backend) {
    in_a_child(test, &[], || {
        let runtime = match Runtime::builder().backend(backend).workers(1).start_paused(true).build() {
            Ok(runtime) => Arc::new(runtime),
            Err(why) => return println!("NOT TESTED ON {backend}: it is refused here ({why})"),
        };
        let _taken = all_descriptors();
        let start = now(&runtime);
        let (values, clock) = (Channel::new(), Arc::clone(&runtime));
        let sends = Arc::clone(&values);
        runtime.block_on(async {
            let nothing = UdpSocket::bind("127.0.0.1:0").expect_err("there are no descriptors");
            assert_eq!(nothing.raw_os_error(), Some(libc::EMFILE));
            time::sleep(hours(1)).await;
            assert_eq!(now(&clock), start + hours(1).into());
            spawn(time::sleep(hours(1))).await.unwrap();
            let outside = thread::spawn(move || {
                thread::sleep(ms(10));
                sends.send(now(&clock));
            });
            let blocking = spawn_blocking(|| thread::sleep(ms(20)));
            // Another thread has woken the task, and it runs at the time of the wake-up.
            assert_eq!(values.receive().await, start + hours(2).into());
            blocking.await.unwrap();
            outside.join().unwrap();
            time::sleep(hours(1)).await;
        });
        assert_eq!(now(&runtime), start + hours(3).into());
    });
}

#[test]
fn b6_block_on_without_a_reactor_waits_in_virtual_time_on_epoll() {
    block_on_without_a_reactor("b6_block_on_without_a_reactor_waits_in_virtual_time_on_epoll", Backend::Epoll);
}

#[test]
fn b6_block_on_without_a_reactor_waits_in_virtual_time_on_io_uring() {
    block_on_without_a_reactor("b6_block_on_without_a_reactor_waits_in_virtual_time_on_io_uring", Backend::Uring);
}

#[test]
fn e2_pause_within_a_runtime_whose_time_cannot_be_paused_says_so_at_once() {
    on_each_backend(|backend| {
        for workers in [0, 1] {
            in_time("pause", move || {
                let runtime = Runtime::builder().backend(backend).workers(workers).build().unwrap();
                runtime.block_on(async {
                    let task = spawn(async { time::pause() });
                    let Err(JoinError::Panicked(panic)) = task.await else { panic!("it says nothing") };
                    let message = panic.message().unwrap();
                    assert!(message.contains("start_paused"), "{message}");
                });
            });
        }
    });
}

/// The events of a random run, with their virtual times.
type Log = Arc<Mutex<Vec<(u64, Duration)>>>;

/// Random numbers that are the same in two runs.
struct Repeatable(u64);

impl Repeatable {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        self.0 >> 20
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn split(&mut self) -> Repeatable {
        Repeatable(self.next())
    }
}

/// Sleeps, spawns and sends, as the random numbers decide.
fn act(
    mut random: Repeatable,
    depth: u32,
    name: u64,
    channel: Arc<Channel<u64>>,
    log: Log,
) -> Pin<Box<dyn Future<Output = u64> + Send>> {
    Box::pin(async move {
        let start = Instant::now();
        let (mut slept, mut messages) = (Duration::ZERO, 0);
        let mut children = Vec::new();
        for step in 0..6 {
            let event = name * 10 + step;
            match random.below(4) {
                0 | 1 => {
                    let most = 1 << random.below(40);
                    let wait = Duration::from_nanos(random.below(most));
                    time::sleep(wait).await;
                    slept += wait;
                    // Right to the nanosecond: no other task has moved the time past it.
                    assert_eq!(start.elapsed(), slept, "event {event}");
                }
                2 if depth < 4 => {
                    let (child, channel, log) = (name * 8 + step, Arc::clone(&channel), Arc::clone(&log));
                    children.push(spawn(act(random.split(), depth + 1, child, channel, log)));
                }
                _ => {
                    channel.send(event);
                    messages += 1;
                }
            }
            log.lock().unwrap().push((event, slept));
        }
        for child in children {
            messages += child.await.unwrap();
        }
        messages
    })
}

/// Runs the program of this seed, and returns its log and when it ended.
fn random_run(runtime: &Runtime, seed: u64) -> (Vec<(u64, Duration)>, Duration) {
    let (log, channel) = (Log::default(), Channel::new());
    let (logs, sends) = (Arc::clone(&log), Arc::clone(&channel));
    let mut random = Repeatable(seed);
    let elapsed = runtime.block_on(async move {
        let run = spawn(async move {
            let start = Instant::now();
            let receives = spawn({
                let (channel, log) = (Arc::clone(&sends), Arc::clone(&logs));
                async move {
                    let mut received = 0;
                    while let number @ 1.. = channel.receive().await {
                        log.lock().unwrap().push((number, Duration::MAX));
                        received += 1;
                    }
                    received
                }
            });
            let actors: Vec<_> = (1..=8)
                .map(|name| spawn(act(random.split(), 0, name, Arc::clone(&sends), Arc::clone(&logs))))
                .collect();
            let mut sent = 0;
            for actor in actors {
                sent += actor.await.unwrap();
            }
            sends.send(0);
            assert_eq!(receives.await.unwrap(), sent);
            start.elapsed()
        });
        run.await.unwrap()
    });
    let log = std::mem::take(&mut *log.lock().unwrap());
    (log, elapsed)
}

#[test]
fn b6_a_random_run_gives_the_same_log_twice_on_one_thread_and_the_same_times_on_four() {
    on_each_backend(|backend| {
        in_time("a random run", move || {
            let mut random = Random::new();
            for _ in 0..10 {
                let seed = random.next();
                let (log, elapsed) = random_run(&paused(backend, 0), seed);
                assert!(log.len() > 48);
                assert_eq!((&log, elapsed), (&random_run(&paused(backend, 0), seed).0, elapsed));
                assert_eq!((&log, elapsed), (&random_run(&paused(backend, 1), seed).0, elapsed), "one worker");
                // Tasks that one deadline has woken run concurrently, so their order within one moment varies; the times are the same.
                let (others, elapsed_with_four) = random_run(&paused(backend, 4), seed);
                let sorted = |mut log: Vec<_>| {
                    log.sort_unstable();
                    log
                };
                assert_eq!((sorted(log), elapsed), (sorted(others), elapsed_with_four));
            }
        });
    });
}

#[test]
fn b6_a_paused_runtime_ends_while_its_tasks_sleep() {
    on_each_size(|runtime| {
        runtime.spawn(async { time::sleep(hours(1)).await });
        let polled = runtime.block_on(async {
            let mut sleep = pin!(time::sleep(hours(2)));
            sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
        });
        assert!(!polled);
        runtime.handle().spawn_blocking(|| thread::sleep(ms(5)));
    });
}

#[test]
fn d61_a_scheduler_with_its_default_threads_makes_each_run_at_its_own_time() {
    on_each_size(|runtime| {
        runtime.block_on(async {
            let (start, log) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
            let jobs: Scheduler<u32> = Scheduler::builder().build().unwrap();
            let seen = Arc::clone(&log);
            let job = move |_: &_| {
                // Slow in real time: the clock waits.
                thread::sleep(ms(2));
                seen.lock().unwrap().push(start.elapsed());
            };
            jobs.schedule(1, secs(60), job).unwrap();
            time::advance(secs(600)).await;
            let minutes = |count: u64| (1..=count).map(|minute| secs(60 * minute)).collect::<Vec<_>>();
            assert_eq!(*log.lock().unwrap(), minutes(10));
            // The same when the runtime moves its clock by itself.
            time::sleep(secs(630)).await;
            assert_eq!(*log.lock().unwrap(), minutes(20));
        });
    });
}
