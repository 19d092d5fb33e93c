//! Virtual time: whose it is, when it moves, on one thread and on several. (T9, B6)

mod by_hand;

use std::future::Future;
use std::sync::mpsc;
use std::time::{Duration, Instant as RealInstant};

use tourbillon::time::{self, Instant};
use tourbillon::{Engine, Time};

fn hours(hours: u64) -> Duration {
    Duration::from_secs(3600 * hours)
}

#[tokio::test]
async fn t9_time_moves_to_the_next_deadline_when_everybody_waits() {
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
async fn t9_time_that_is_resumed_runs_on_from_where_it_stood() {
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
    // There is always a next deadline that time could move on to.
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
fn p5_what_never_ends_does_not_end_at_once_either_however_late_it_is_in_virtual_time() {
    time::pause();
    let centuries = Duration::from_secs(250 * 365 * 24 * 60 * 60).as_nanos() as u64;
    // Around the last moment that can be told from never: it is a minute before the end of the clock.
    for before_the_end in [(1 << 36) + 1, 1 << 36, 1 << 35, 1 << 34, 1, 0] {
        let clock = Engine::current().clock().clone();
        let now = Time::from_nanos(u64::MAX - before_the_end - centuries);
        futures_lite::future::block_on(time::advance((now - clock.now()).into()));
        let mut never = std::pin::pin!(time::sleep(Duration::MAX));
        let task = by_hand::Task::new();
        assert!(task.poll(never.as_mut()).is_pending());
        assert!(never.outcome().is_none(), "{before_the_end} ns before the end");
    }
    time::resume();
}
