//! Virtual time: which threads share it and when it moves, on one thread and on several. (T9, B6, E2) That of a current-thread Tokio
//! runtime is in `virtual_time_tokio.rs`.

mod support;

use std::future::Future;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant as RealInstant};

use tourbillon::time::{self, Instant};
use tourbillon::{Engine, Scheduler, Time};

fn hours(hours: u64) -> Duration {
    Duration::from_secs(3600 * hours)
}

#[tokio::test]
async fn t9_time_moves_to_the_next_deadline_when_all_tasks_wait() {
    time::pause();
    let (start, real) = (Instant::now(), RealInstant::now());
    time::sleep(hours(10)).await;
    assert_eq!(start.elapsed(), hours(10));
    assert!(real.elapsed() < hours(1));
}

#[tokio::test(start_paused = true)]
async fn t9_a_runtime_that_was_built_paused_has_virtual_time_here_too() {
    let start = Instant::now();
    time::sleep(hours(1)).await;
    assert_eq!(start.elapsed(), hours(1));
    time::advance(hours(2)).await;
    assert_eq!(start.elapsed(), hours(3));
}

#[tokio::test]
async fn t9_time_that_is_resumed_runs_on_from_its_paused_value() {
    time::pause();
    let start = Instant::now();
    time::advance(hours(5)).await;
    time::resume();
    time::sleep(Duration::from_millis(2)).await;
    let elapsed = start.elapsed();
    assert!(elapsed >= hours(5) + Duration::from_millis(2) && elapsed < hours(6), "{elapsed:?}");
}

#[tokio::test]
async fn p5_a_sleep_without_end_ends_when_nothing_else_is_left_to_wait_for() {
    time::pause();
    time::sleep(Duration::MAX).await;
    time::timeout(Duration::MAX, time::sleep(hours(1))).await.expect("the sleep is shorter");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn b6_all_threads_of_a_runtime_share_its_virtual_time_and_timers_fire_in_order() {
    time::pause();
    if !support::auto_advances() {
        return;
    }
    let start = Instant::now();
    let (send, receive) = mpsc::channel();
    let mut tasks = Vec::new();
    for hour in [5, 1, 4, 2, 3] {
        let send = send.clone();
        tasks.push(tokio::spawn(async move {
            time::sleep(hours(hour)).await;
            send.send((hour, start.elapsed())).unwrap();
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    drop(send);
    let woken: Vec<_> = receive.into_iter().collect();
    assert_eq!(woken, (1..=5).map(|hour| (hour, hours(hour))).collect::<Vec<_>>());
}

#[test]
fn b6_other_threads_join_by_entering_the_engine() {
    time::pause();
    if !support::auto_advances() {
        return;
    }
    let engine = Engine::current();
    let start = Instant::now();
    let threads: Vec<_> = (1..=3)
        .map(|hour| {
            let engine = engine.clone();
            std::thread::spawn(move || {
                let _entered = engine.enter();
                futures_lite::future::block_on(time::sleep(hours(hour)));
                Instant::now()
            })
        })
        .collect();
    for (thread, hour) in threads.into_iter().zip(1..) {
        assert!(thread.join().unwrap() >= start + hours(hour));
    }
    assert!(start.elapsed() >= hours(3));
}

#[test]
fn t9_time_does_not_move_while_a_thread_is_busy_or_sleeps() {
    time::pause();
    if !support::auto_advances() {
        return;
    }
    let start = Instant::now();
    let mut sleep = Box::pin(time::sleep(hours(1)));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(sleep.as_mut().poll(&mut context).is_pending());
    let real = RealInstant::now();
    std::thread::sleep(Duration::from_millis(30));
    while real.elapsed() < Duration::from_millis(60) {}
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(sleep.as_mut().poll(&mut context).is_pending());
}

#[test]
fn b6_virtual_time_of_one_thread_is_not_that_of_another() {
    time::pause();
    futures_lite::future::block_on(time::advance(hours(7)));
    let elsewhere = std::thread::spawn(|| Instant::now().into_std()).join().unwrap();
    assert!(Instant::now().into_std() > elsewhere + hours(6));
}

#[test]
#[should_panic(expected = "call `pause` first")]
fn t9_time_that_runs_cannot_be_advanced() {
    futures_lite::future::block_on(time::advance(hours(1)));
}

#[tokio::test]
async fn t9_time_does_not_move_on_before_a_task_that_was_woken_has_run() {
    time::pause();
    let start = Instant::now();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    // There is always a next deadline that time could move to.
    let mut others: Vec<_> =
        (1..=300).map(|step| Box::pin(time::sleep(Duration::from_millis(10 * step + 5)))).collect();
    assert!(others.iter_mut().all(|sleep| sleep.as_mut().poll(&mut context).is_pending()));
    for step in 1..=300 {
        let due = start + Duration::from_millis(10 * step);
        time::sleep_until(due).await;
        assert_eq!(Instant::now(), due);
    }
}

#[test]
fn p5_an_endless_sleep_does_not_end_however_late_it_is_in_virtual_time() {
    time::pause();
    let centuries = Duration::from_secs(250 * 365 * 24 * 60 * 60).as_nanos() as u64;
    // Around the last time that differs from never: it is a minute before the end of the clock.
    for before_the_end in [(1 << 36) + 1, 1 << 36, 1 << 35, 1 << 34, 1, 0] {
        let clock = Engine::current().clock().clone();
        let now = Time::from_nanos(u64::MAX - before_the_end - centuries);
        futures_lite::future::block_on(time::advance((now - clock.now()).into()));
        let mut never = std::pin::pin!(time::sleep(Duration::MAX));
        let task = support::Task::new();
        assert!(task.poll(never.as_mut()).is_pending());
        assert!(never.outcome().is_none(), "{before_the_end} ns before the end");
    }
    time::resume();
}

#[test]
fn e2_time_moves_only_by_advance_where_the_engine_cannot_know_that_all_threads_wait() {
    time::pause();
    let start = Instant::now();
    let waiting = std::thread::spawn({
        let engine = Engine::current();
        move || futures_lite::future::block_on(engine.sleep(hours(1)))
    });
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(start.elapsed(), Duration::ZERO);
    while !waiting.is_finished() {
        time::blocking_advance(hours(1));
    }
    waiting.join().unwrap();
}

#[test]
fn b6_a_future_that_is_run_in_virtual_time_never_waits() {
    let real = RealInstant::now();
    let log = time::run(async {
        let (start, log) = (Instant::now(), std::cell::RefCell::new(Vec::new()));
        let sleep = async |hour| {
            time::sleep(hours(hour)).await;
            log.borrow_mut().push((hour, start.elapsed()));
        };
        futures_lite::future::zip(futures_lite::future::zip(sleep(3), sleep(1)), sleep(2)).await;
        log.into_inner()
    });
    assert_eq!(log, (1..=3).map(|hour| (hour, hours(hour))).collect::<Vec<_>>());
    assert!(real.elapsed() < hours(1));
}

#[test]
fn b6_an_executor_that_is_a_future_runs_in_virtual_time() {
    let executor = smol::LocalExecutor::new();
    let start = time::run(executor.run(async {
        let start = Instant::now();
        let tasks: Vec<_> = (1..=50).map(|hour| executor.spawn(time::sleep(hours(hour)))).collect();
        for (task, hour) in tasks.into_iter().zip(1..) {
            task.await;
            assert_eq!(start.elapsed(), hours(hour));
        }
        start
    }));
    assert_eq!(start.elapsed(), hours(50), "time is paused afterwards");
}

#[test]
fn b6_a_future_that_waits_for_another_thread_is_woken_by_it() {
    let (send, receive) = smol::channel::bounded(1);
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(10));
        send.send_blocking("here").unwrap();
    });
    assert_eq!(time::run(receive.recv()), Ok("here"));
    thread.join().unwrap();
}

#[tokio::test]
#[should_panic(expected = "start_paused")]
async fn e2_a_future_is_not_run_in_virtual_time_inside_a_tokio_runtime() {
    time::run(std::future::ready(()));
}

/// Schedules a job of one minute, and returns its log of the clock.
fn minutely(jobs: &Scheduler<&'static str>) -> Arc<Mutex<Vec<Duration>>> {
    let (start, log) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&log);
    let job = move |_: &_| {
        std::thread::sleep(Duration::from_millis(1));
        seen.lock().unwrap().push(start.elapsed());
    };
    jobs.schedule("minutely", Duration::from_secs(60), job).unwrap();
    log
}

fn minutes(count: u64) -> Vec<Duration> {
    (1..=count).map(|minute| Duration::from_secs(60 * minute)).collect()
}

#[test]
fn d61_a_scheduler_with_its_default_threads_follows_a_paused_thread() {
    time::pause();
    let log = minutely(&Scheduler::builder().build().unwrap());
    assert_eq!(*log.lock().unwrap(), [], "the handle was dropped, and the jobs with it");
    let jobs = Scheduler::builder().build().unwrap();
    let log = minutely(&jobs);
    time::blocking_advance(Duration::from_secs(600));
    assert_eq!(*log.lock().unwrap(), minutes(10));
}

#[test]
fn d61_a_scheduler_with_its_default_threads_follows_an_engine_with_a_manual_clock() {
    let engine = support::manual();
    let _entered = engine.enter();
    let jobs = Scheduler::builder().build().unwrap();
    let log = minutely(&jobs);
    engine.advance(Duration::from_secs(600));
    assert_eq!(*log.lock().unwrap(), minutes(10));
    // The same through the functions of `tourbillon::time`.
    time::blocking_advance(Duration::from_secs(600));
    assert_eq!(*log.lock().unwrap(), minutes(20));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d61_a_scheduler_with_its_default_threads_follows_a_runtime_with_several_workers() {
    time::pause();
    let jobs = Scheduler::builder().build().unwrap();
    let log = minutely(&jobs);
    time::advance(Duration::from_secs(600)).await;
    assert_eq!(*log.lock().unwrap(), minutes(10));
}

#[test]
fn d61_cron_jobs_follow_an_engine_with_a_manual_clock() {
    let engine = support::manual();
    let jobs: Scheduler<u32> = Scheduler::builder().engine(&engine).build().unwrap();
    let daily = tourbillon::Cron::parse("30 4 * * *").unwrap().in_zone("UTC").unwrap();
    jobs.schedule(1, daily, |_: &_| {}).unwrap();
    engine.advance(hours(24 * 7));
    assert_eq!(jobs.report(&1).unwrap().runs, 7);
}

#[test]
fn e2_a_job_may_advance_its_own_time() {
    let engine = support::manual();
    let jobs: Scheduler<u32> = Scheduler::builder().engine(&engine).build().unwrap();
    let (clock, moved) = (engine.clone(), Arc::new(Mutex::new(0)));
    let count = Arc::clone(&moved);
    jobs.schedule(1, tourbillon::scheduler::Plan::every(hours(1)).times(2), move |_: &_| {
        clock.advance(Duration::from_secs(1));
        *count.lock().unwrap() += 1;
    })
    .unwrap();
    engine.advance(hours(3));
    assert_eq!(*moved.lock().unwrap(), 2);
}

/// In a process of its own, so that its standard error can be read.
#[test]
fn e2_a_thread_that_does_not_follow_prints_that_and_what_to_add() {
    const CHILD: &str = "TOURBILLON_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        time::pause();
        let engine = Engine::current();
        let real = std::thread::spawn(|| futures_lite::future::block_on(time::sleep(Duration::from_millis(1))));
        real.join().unwrap();
        let follows = std::thread::spawn(move || {
            let _entered = engine.enter();
            drop(time::sleep(hours(1)));
        });
        follows.join().unwrap();
        return;
    }
    let name = "e2_a_thread_that_does_not_follow_prints_that_and_what_to_add";
    let mut child = support::this_program();
    let output = child.args([name, "--exact", "--nocapture"]).env(CHILD, "1").output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text.matches("follow the real clock").count(), 1, "{text}");
    assert!(text.contains("engine.enter()"), "{text}");
}
