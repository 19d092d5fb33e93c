//! Virtual time on a current-thread Tokio runtime: it is Tokio's own clock. (D61, D74 to D77, E2)

mod support;

use std::future::poll_fn;
use std::io::Write;
use std::pin::{Pin, pin};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::Poll;
use std::time::{Duration, Instant as RealInstant};

use support::{ms, us};
use tokio::io::AsyncReadExt;
use tokio::runtime::{Builder, Runtime};
use tourbillon::scheduler::{Plan, Shutdown};
use tourbillon::time::{self, DelayQueue, Instant};
use tourbillon::{Engine, NamedTimers, Outcome, Scheduler, Timer};

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

/// Polls a future once.
async fn is_ready<F: Future>(mut future: Pin<&mut F>) -> bool {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await
}

fn runtime(is_paused: bool) -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(is_paused).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn d61_a_runtime_that_was_built_paused_is_followed_without_a_call() {
    let (start, start_theirs) = (Instant::now(), tokio::time::Instant::now());
    time::sleep(HOUR).await;
    assert_eq!((start.elapsed(), start_theirs.elapsed()), (HOUR, HOUR));
    tokio::time::sleep(HOUR).await;
    assert_eq!((start.elapsed(), start_theirs.elapsed()), (2 * HOUR, 2 * HOUR));
    assert_eq!(start.into_std(), start_theirs.into_std(), "both crates show one clock");
}

#[tokio::test]
async fn e2_either_pause_stops_both_clocks_and_either_resume_starts_both() {
    for is_ours in [true, false, true] {
        if is_ours {
            time::pause();
        } else {
            tokio::time::pause();
        }
        let (start, start_theirs) = (Instant::now(), tokio::time::Instant::now());
        tokio::join!(time::sleep(HOUR), tokio::time::sleep(2 * HOUR));
        assert!(start.elapsed() >= 2 * HOUR && start_theirs.elapsed() == start.elapsed());
        if is_ours {
            tokio::time::resume();
        } else {
            time::resume();
        }
        let real = RealInstant::now();
        time::sleep(ms(3)).await;
        assert!(real.elapsed() >= ms(3));
    }
    // Each call is harmless where it has nothing to do.
    time::resume();
    time::pause();
    time::pause();
}

#[tokio::test]
async fn e2_either_advance_moves_both_clocks() {
    time::pause();
    let (start, start_theirs) = (Instant::now(), tokio::time::Instant::now());
    let sleepers = [tokio::spawn(time::sleep(HOUR)), tokio::spawn(tokio::time::sleep(HOUR - ms(1)))];
    tokio::task::yield_now().await;
    tokio::time::advance(HOUR).await;
    // Tokio's `advance` does not wait for the tasks whose timers are due.
    assert_eq!(sleepers[0].is_finished(), sleepers[1].is_finished());
    tokio::task::yield_now().await;
    assert!(sleepers.iter().all(tokio::task::JoinHandle::is_finished));
    let sleeper = tokio::spawn(tokio::time::sleep(HOUR - ms(1)));
    tokio::task::yield_now().await;
    time::advance(HOUR).await;
    assert!(sleeper.is_finished());
    assert_eq!((start.elapsed(), start_theirs.elapsed()), (2 * HOUR, 2 * HOUR));
}

#[tokio::test]
#[should_panic(expected = "call `pause` first")]
async fn t9_a_runtime_whose_clock_runs_cannot_be_advanced() {
    time::advance(HOUR).await;
}

#[tokio::test(start_paused = true)]
async fn d74_time_is_paused_while_blocking_work_runs() {
    let start = Instant::now();
    let mut deadline = pin!(time::sleep(HOUR));
    let work = tokio::task::spawn_blocking(|| std::thread::sleep(ms(30)));
    tokio::select! {
        () = deadline.as_mut() => panic!("time moved while a thread was working"),
        done = work => done.unwrap(),
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    let path = std::env::current_exe().unwrap();
    let metadata = time::timeout(HOUR, tokio::fs::metadata(path)).await.expect("a file takes no virtual time");
    assert!(metadata.unwrap().is_file());
    assert_eq!(start.elapsed(), Duration::ZERO);
    deadline.await;
    assert_eq!(start.elapsed(), HOUR);
}

#[tokio::test]
async fn d75_timers_created_before_pause_follow_it() {
    let mut sleep = pin!(time::sleep(HOUR));
    let mut armed = pin!(time::sleep(2 * HOUR));
    assert!(!is_ready(armed.as_mut()).await);
    let mut interval = time::interval(3 * HOUR);
    interval.tick().await;
    let mut queue = DelayQueue::new();
    queue.insert("late", 4 * HOUR);
    let timer = Timer::new();
    timer.expires_after(5 * HOUR);
    let names = NamedTimers::new();
    let named = names.create("six").wait(6 * HOUR).unwrap();
    let jobs: Scheduler<u32> = Scheduler::builder().build().unwrap();
    jobs.schedule(7, 7 * HOUR, |_: &_| {}).unwrap();
    let real = RealInstant::now();

    time::pause();
    let start = Instant::now();
    let at = |hours: u32| {
        let elapsed = start.elapsed();
        assert!(elapsed <= hours * HOUR && elapsed + SECOND * 30 > hours * HOUR, "{elapsed:?} instead of {hours} h");
    };
    sleep.as_mut().await;
    at(1);
    armed.as_mut().await;
    at(2);
    interval.tick().await;
    at(3);
    assert_eq!(queue.next().await.unwrap().into_inner(), "late");
    at(4);
    assert_eq!(timer.wait().await, Outcome::Fired);
    at(5);
    assert_eq!(named.await, Outcome::Fired);
    at(6);
    time::sleep_until(start + 7 * HOUR + SECOND).await;
    assert_eq!(jobs.report(&7).unwrap().runs, 1);
    assert!(real.elapsed() < HOUR / 2);
}

#[test]
fn d76_the_time_of_a_runtime_is_paused_while_no_thread_runs_it() {
    let runtime = runtime(true);
    let (start, task) = runtime.block_on(async {
        let task = tokio::spawn(async {
            time::sleep(HOUR).await;
            Instant::now()
        });
        tokio::task::yield_now().await;
        (Instant::now(), task)
    });
    std::thread::sleep(ms(30));
    let context = runtime.enter();
    assert_eq!(Instant::now(), start);
    drop(context);
    assert!(!task.is_finished());
    assert_eq!(runtime.block_on(task).unwrap(), start + HOUR);
}

#[test]
fn d76_each_runtime_has_its_own_time() {
    let (one, other, real) = (runtime(true), runtime(true), runtime(false));
    let elapsed = |runtime: &Runtime, by: Duration| {
        runtime.block_on(async {
            let start = Instant::now();
            if !by.is_zero() {
                time::sleep(by).await;
            }
            (start, start.elapsed())
        })
    };
    let (start, _) = elapsed(&one, Duration::ZERO);
    let (start_of_other, _) = elapsed(&other, Duration::ZERO);
    for hours in 1..5 {
        assert_eq!(elapsed(&one, HOUR), (start + (hours - 1) * HOUR, HOUR));
        assert_eq!(elapsed(&other, 2 * HOUR), (start_of_other + 2 * (hours - 1) * HOUR, 2 * HOUR));
        assert!(elapsed(&real, ms(1)).1 < HOUR / 2);
    }
}

#[test]
fn d76_a_sleep_of_one_runtime_that_is_polled_in_another_follows_its_own() {
    let (one, other) = (runtime(true), runtime(true));
    let mut sleep = {
        let _context = one.enter();
        Box::pin(time::sleep(HOUR))
    };
    other.block_on(async {
        let result = time::timeout(2 * HOUR, sleep.as_mut()).await;
        assert!(result.is_err(), "the time of another runtime ended the sleep");
    });
    one.block_on(sleep);
}

/// Tokio would move its clock to a timer that no longer exists, if one were left registered.
#[tokio::test(start_paused = true)]
async fn e2_time_does_not_move_to_a_sleep_that_was_dropped_or_postponed() {
    let start = Instant::now();
    for _ in 0..10 {
        time::timeout(HOUR, std::future::ready(())).await.unwrap();
        let mut sleep = Box::pin(time::sleep(HOUR));
        let mut other = Box::pin(time::sleep(2 * HOUR));
        assert!(!is_ready(sleep.as_mut()).await);
        assert!(!is_ready(other.as_mut()).await);
        drop(sleep);
        other.as_mut().disarm();
        idle().await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
    let mut sleep = pin!(time::sleep(HOUR));
    assert!(!is_ready(sleep.as_mut()).await);
    sleep.as_mut().reset(start + 5 * HOUR);
    idle_until_time_moves(start).await;
    assert_eq!(start.elapsed(), 5 * HOUR, "time must not stop at the first deadline");
    assert!(sleep.is_elapsed());
}

#[tokio::test(start_paused = true)]
async fn e2_time_does_not_move_to_a_wait_of_a_timer_that_was_cancelled() {
    let (start, timer, names) = (Instant::now(), Timer::new(), NamedTimers::new());
    for _ in 0..10 {
        timer.expires_after(HOUR);
        timer.on_expiry(|_| {});
        timer.cancel();
        drop(names.create("dropped").wait(HOUR).unwrap());
        names.start("cancelled", HOUR, |_| {}).unwrap();
        assert_eq!(names.cancel("cancelled"), 1);
        idle().await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
    names.start("stopped", HOUR, |_| {}).unwrap();
    names.shutdown();
    timer.expires_after(HOUR);
    let wait = timer.wait();
    timer.expires_after(3 * HOUR);
    assert_eq!(wait.await, Outcome::Cancelled);
    idle().await;
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn e2_time_does_not_move_to_an_item_that_was_removed_from_a_queue_or_postponed() {
    let (start, mut queue) = (Instant::now(), DelayQueue::new());
    let key = queue.insert("removed", HOUR);
    let other = queue.insert("postponed", 2 * HOUR);
    assert!(!is_ready(pin!(queue.next())).await);
    queue.remove(&key);
    queue.reset(&other, 5 * HOUR);
    idle_until_time_moves(start).await;
    assert!(start.elapsed() > 4 * HOUR && start.elapsed() <= 5 * HOUR, "{:?}", start.elapsed());
    assert_eq!(queue.next().await.unwrap().into_inner(), "postponed");
    assert_eq!(start.elapsed(), 5 * HOUR);
    let key = queue.insert("removed", HOUR);
    assert!(!is_ready(pin!(queue.next())).await);
    queue.remove(&key);
    idle().await;
    assert_eq!(start.elapsed(), 5 * HOUR);
}

#[tokio::test(start_paused = true)]
async fn e2_time_does_not_move_to_a_job_that_was_removed_or_paused() {
    let start = Instant::now();
    let jobs: Scheduler<u32> = Scheduler::builder().build().unwrap();
    for _ in 0..10 {
        jobs.schedule(1, HOUR, |_: &_| {}).unwrap();
        jobs.schedule(2, HOUR, |_: &_| {}).unwrap();
        assert!(jobs.remove(&1) && jobs.pause(&2));
        idle().await;
        assert!(jobs.remove(&2));
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}

/// Leaves the runtime idle again and again until its time has moved: on a busy machine the byte may come before the runtime is idle.
async fn idle_until_time_moves(start: Instant) {
    let begin = RealInstant::now();
    while start.elapsed().is_zero() {
        assert!(begin.elapsed() < Duration::from_secs(60), "the runtime is idle, and its time does not move");
        idle().await;
    }
}

/// Leaves the runtime idle until a byte comes from another thread, in real time.
async fn idle() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut send = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let receive = listener.accept().unwrap().0;
    receive.set_nonblocking(true).unwrap();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(ms(2));
        send.write_all(b"x").unwrap();
    });
    let mut receive = tokio::net::TcpStream::from_std(receive).unwrap();
    receive.read_exact(&mut [0]).await.unwrap();
    thread.join().unwrap();
}

#[tokio::test(start_paused = true)]
async fn e2_deadlines_finer_than_a_millisecond_fire_in_order_and_never_early() {
    let start = Instant::now();
    let (log, mut tasks) = (Arc::new(Mutex::new(Vec::new())), Vec::new());
    let micros = [900, 100, 1500, 1499, 300, 1501, 2000, 700, 3999, 1];
    for after in micros {
        let log = Arc::clone(&log);
        tasks.push(tokio::spawn(async move {
            time::sleep_until(start + us(after)).await;
            log.lock().unwrap().push((after, start.elapsed()));
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let log = log.lock().unwrap();
    assert!(log.is_sorted_by_key(|(after, _)| *after), "{log:?}");
    for (after, at) in &*log {
        assert!(*at >= us(*after) && *at < us(*after) + ms(1), "{after} us at {at:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn e2_advancing_by_less_than_a_millisecond_is_exact() {
    let start = Instant::now();
    let mut sleep = pin!(time::sleep(us(1250)));
    let mut poll = async || is_ready(sleep.as_mut()).await;
    assert!(!poll().await);
    for step in 1..=4_u64 {
        time::advance(us(312)).await;
        assert_eq!(start.elapsed(), us(312 * step));
        assert!(!poll().await, "early");
    }
    time::advance(us(2)).await;
    assert!(poll().await);
    assert_eq!(start.elapsed(), us(1250));
}

#[tokio::test]
async fn t9_a_clock_paused_in_the_middle_of_a_millisecond_reaches_whole_milliseconds_exactly() {
    std::thread::sleep(us(1437));
    time::pause();
    let start = Instant::now();
    for step in 1..=50 {
        time::sleep(ms(7)).await;
        assert_eq!(start.elapsed(), ms(7 * step));
    }
    time::advance(us(333)).await;
    let start = Instant::now();
    for step in 1..=50 {
        time::sleep(ms(7)).await;
        assert_eq!(start.elapsed(), ms(7 * step));
    }
}

#[tokio::test(start_paused = true)]
async fn d61_a_scheduler_with_its_default_threads_makes_ten_runs_in_ten_minutes() {
    let (start, times) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
    let jobs: Scheduler<&str> = Scheduler::builder().build().unwrap();
    let log = Arc::clone(&times);
    jobs.schedule("minutely", MINUTE, move |run: &tourbillon::scheduler::Run<_>| {
        // Slow in real time: the clock waits.
        std::thread::sleep(ms(2));
        log.lock().unwrap().push((run.due() - start, start.elapsed()));
    })
    .unwrap();
    let minutes = |from: u32, to: u32| (from..=to).map(|minute| (minute * MINUTE, minute * MINUTE)).collect::<Vec<_>>();
    time::advance(10 * MINUTE).await;
    assert_eq!(*times.lock().unwrap(), minutes(1, 10));
    // The same when Tokio moves its clock by itself.
    time::sleep(10 * MINUTE).await;
    time::sleep(ms(1)).await;
    assert_eq!(*times.lock().unwrap(), minutes(1, 20));
    time::blocking_advance(10 * MINUTE);
    assert_eq!(*times.lock().unwrap(), minutes(1, 30));
}

#[tokio::test(start_paused = true)]
async fn d61_async_jobs_and_their_own_sleeps_follow_too() {
    let (start, (send, receive)) = (Instant::now(), mpsc::channel());
    let jobs: Scheduler<&str> = Scheduler::builder().build().unwrap();
    let send = Mutex::new(send);
    jobs.schedule_async("slow", Plan::every(MINUTE).times(3), move |_| {
        let send = send.lock().unwrap().clone();
        async move {
            time::sleep(10 * SECOND).await;
            send.send(start.elapsed()).unwrap();
        }
    })
    .unwrap();
    time::advance(10 * MINUTE).await;
    let at: Vec<_> = receive.try_iter().collect();
    assert_eq!(at, [70, 130, 190].map(Duration::from_secs));
}

#[tokio::test(start_paused = true)]
async fn d61_cron_jobs_follow_virtual_time() {
    let (start, times) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
    let jobs: Scheduler<&str> = Scheduler::builder().build().unwrap();
    let log = Arc::clone(&times);
    let hourly = tourbillon::Cron::parse("0 * * * *").unwrap().in_zone("UTC").unwrap();
    jobs.schedule("hourly", hourly, move |_: &_| log.lock().unwrap().push(start.elapsed())).unwrap();
    time::advance(5 * HOUR).await;
    let times = times.lock().unwrap();
    assert_eq!(times.len(), 5, "{times:?}");
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == HOUR), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn e2_waits_for_the_wall_clock_follow_virtual_time() {
    let wall = std::time::SystemTime::now;
    let is_about = |elapsed: Duration| elapsed <= HOUR + ms(1) && elapsed + 30 * SECOND >= HOUR;
    let start = Instant::now();
    Engine::current().sleep_until_wall(wall() + HOUR).await;
    assert!(is_about(start.elapsed()));
    let (timer, start) = (Timer::new(), Instant::now());
    timer.expires_at_wall(wall() + HOUR);
    assert_eq!(timer.wait().await, Outcome::Fired);
    assert!(is_about(start.elapsed()));
}

#[tokio::test(start_paused = true)]
async fn e2_callbacks_run_at_their_own_times_before_advance_returns() {
    let (start, log) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
    let names = NamedTimers::new();
    for minute in [3, 1, 2] {
        let log = Arc::clone(&log);
        names
            .start("tea", minute * MINUTE, move |outcome| log.lock().unwrap().push((outcome, start.elapsed())))
            .unwrap();
    }
    let timer = Timer::new();
    timer.expires_after(4 * MINUTE);
    timer.on_expiry({
        let log = Arc::clone(&log);
        move |outcome| log.lock().unwrap().push((outcome, start.elapsed()))
    });
    time::advance(10 * MINUTE).await;
    let expected: Vec<_> = (1..=4).map(|minute| (Outcome::Fired, minute * MINUTE)).collect();
    assert_eq!(*log.lock().unwrap(), expected);
}

#[test]
fn e2_timers_of_a_runtime_that_has_ended_are_stopped() {
    let runtime = runtime(true);
    let mut sleep = {
        let _context = runtime.enter();
        Box::pin(time::sleep(HOUR))
    };
    runtime.block_on(async { assert!(!is_ready(sleep.as_mut()).await) });
    drop(runtime);
    assert_eq!(sleep.outcome(), Some(Outcome::Stopped));
    futures_lite::future::block_on(sleep.as_mut());
    // No code uses that runtime any more.
    sleep.as_mut().reset(Instant::now() + HOUR);
    futures_lite::future::block_on(sleep);
}

#[test]
fn e2_a_runtime_without_a_time_driver_has_timers_that_follow_the_real_clock() {
    let runtime = Builder::new_current_thread().build().unwrap();
    let real = RealInstant::now();
    runtime.block_on(async { time::sleep(ms(2)).await });
    assert!(real.elapsed() >= ms(2));
}

#[test]
#[should_panic(expected = "call `enable_time`")]
fn e2_a_paused_runtime_that_cannot_be_advanced_panics_with_a_message_that_says_what_to_do() {
    let runtime = Builder::new_current_thread().start_paused(true).build().unwrap();
    runtime.block_on(async { time::sleep(HOUR).await });
}

#[test]
fn d76_many_runtimes_are_made_and_dropped() {
    for _ in 0..200 {
        let runtime = runtime(true);
        runtime.block_on(async {
            let start = Instant::now();
            let held = tokio::spawn(time::sleep(100 * HOUR));
            time::sleep(HOUR).await;
            assert_eq!(start.elapsed(), HOUR);
            held.abort();
        });
    }
}

#[tokio::test(start_paused = true)]
async fn d77_t10_ten_thousand_sleeps_fire_in_the_order_of_their_deadlines() {
    let start = Instant::now();
    let log = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..10_000_u64)
        .map(|number| {
            let (log, after) = (Arc::clone(&log), ms(number * 7919 % 5_000));
            tokio::spawn(async move {
                time::sleep(after).await;
                log.lock().unwrap().push((start.elapsed(), after));
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let log = log.lock().unwrap();
    assert!(log.is_sorted() && log.iter().all(|(at, after)| at == after));
}

/// Like a simulator: hosts with a runtime each, on one thread, stepped in turn.
#[test]
fn e2_runtimes_that_are_stepped_in_turn_on_one_thread_keep_their_own_time() {
    let hosts: Vec<_> = (0..5).map(|_| (runtime(true), tokio::task::LocalSet::new())).collect();
    let (send, receive) = mpsc::channel();
    for (number, (runtime, local)) in hosts.iter().enumerate() {
        let (send, _context) = (send.clone(), runtime.enter());
        local.spawn_local(async move {
            let start = Instant::now();
            let mut ticks = time::interval(ms(3 + number as u64));
            for _ in 0..20 {
                ticks.tick().await;
                send.send((number, start.elapsed())).unwrap();
            }
        });
    }
    for _ in 0..200 {
        for (runtime, local) in &hosts {
            runtime.block_on(local.run_until(time::sleep(ms(1))));
        }
    }
    drop(send);
    let mut ticks = [0; 5];
    for (number, at) in receive {
        assert_eq!(at, ms((3 + number as u64) * ticks[number]));
        ticks[number] += 1;
    }
    assert_eq!(ticks, [20; 5]);
}

#[test]
fn e2_threads_that_make_the_first_timers_of_a_runtime_at_once_share_its_time() {
    for _ in 0..50 {
        let (runtime, start) = (runtime(true), Barrier::new(4));
        let first = || {
            let _context = runtime.enter();
            start.wait();
            time::try_sleep(HOUR).unwrap()
        };
        let sleeps: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(first)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(sleeps.iter().all(|sleep| sleep.outcome().is_none()));
        runtime.block_on(async { time::sleep(HOUR).await });
        assert!(sleeps.iter().all(|sleep| sleep.outcome() == Some(Outcome::Fired)));
    }
}

#[tokio::test(start_paused = true)]
async fn e2_a_job_after_one_that_was_removed_or_postponed_runs_on_time() {
    let start = Instant::now();
    let jobs: Scheduler<u32> = Scheduler::builder().build().unwrap();
    let (send, receive) = mpsc::channel();
    let job = |send: &mpsc::Sender<Duration>| {
        let send = Mutex::new(send.clone());
        move |_: &_| send.lock().unwrap().send(start.elapsed()).unwrap()
    };
    jobs.schedule(1, SECOND, |_: &_| {}).unwrap();
    assert!(jobs.remove(&1));
    jobs.schedule(2, Plan::once(2 * SECOND), job(&send)).unwrap();
    time::sleep(3 * SECOND).await;
    assert_eq!(receive.try_iter().collect::<Vec<_>>(), [2 * SECOND]);
    jobs.schedule(3, SECOND, |_: &_| {}).unwrap();
    jobs.reschedule(&3, HOUR).unwrap();
    jobs.schedule(4, Plan::once(2 * SECOND), job(&send)).unwrap();
    time::sleep(3 * SECOND).await;
    assert_eq!(receive.try_iter().collect::<Vec<_>>(), [5 * SECOND]);
}

#[tokio::test(start_paused = true)]
async fn e2_a_scheduler_that_has_ended_does_not_hold_time() {
    for how in [Shutdown::Drain, Shutdown::Abort] {
        let jobs: Scheduler<u32> = Scheduler::builder().build().unwrap();
        jobs.schedule(1, SECOND, |_: &_| {}).unwrap();
        time::sleep(3 * SECOND).await;
        jobs.shutdown(how).wait();
        // Its threads are ending, or have ended.
        for _ in 0..3 {
            jobs.start();
            let _ended = jobs.shutdown(Shutdown::Abort);
            std::thread::sleep(ms(2));
        }
        let start = Instant::now();
        time::advance(HOUR).await;
        time::sleep(HOUR).await;
        assert_eq!(start.elapsed(), 2 * HOUR);
    }
}

#[tokio::test(start_paused = true)]
async fn e2_a_callback_and_a_thread_that_has_entered_the_engine_move_the_same_time() {
    let (start, engine) = (Instant::now(), Engine::current());
    let moved = std::thread::spawn(move || {
        let _entered = engine.enter();
        time::pause();
        time::blocking_advance(HOUR);
        start.elapsed()
    });
    assert_eq!(moved.join().unwrap(), HOUR);
    assert_eq!(start.elapsed(), HOUR);
    let (timer, (send, receive)) = (Timer::new(), mpsc::channel());
    timer.expires_after(HOUR);
    timer.on_expiry(move |_| {
        time::blocking_advance(MINUTE);
        send.send(start.elapsed()).unwrap();
    });
    time::sleep(2 * HOUR).await;
    assert_eq!(receive.try_iter().collect::<Vec<_>>(), [2 * HOUR + MINUTE]);
}

#[tokio::test(start_paused = true)]
async fn e2_all_of_many_named_timers_due_at_once_are_called_at_their_time() {
    let (start, names, log) = (Instant::now(), NamedTimers::new(), Arc::new(Mutex::new(Vec::new())));
    for _ in 0..20_000 {
        let log = Arc::clone(&log);
        names.start("crowd", HOUR, move |_| log.lock().unwrap().push(start.elapsed())).unwrap();
    }
    time::sleep(2 * HOUR).await;
    let log = log.lock().unwrap();
    assert!(log.len() == 20_000 && log.iter().all(|at| *at == HOUR));
}
