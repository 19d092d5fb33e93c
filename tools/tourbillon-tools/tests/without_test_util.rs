//! Tests paused time in a program that depends on `tourbillon` without the feature `test-util`, as the users of a library that
//! depends on it do.
//!
//! This is such a program if it is built alone: `cargo test -p tourbillon-tools --test without_test_util`. With the whole
//! workspace the feature is on, and the results must be the same.

use std::time::{Duration, Instant as RealInstant};

use tokio::runtime::{Builder, Runtime};
use tourbillon::time::{self, DelayQueue, Instant};

const HOUR: Duration = Duration::from_secs(3600);

fn paused() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

#[test]
fn d61_start_paused_is_followed_without_any_feature() {
    let real = RealInstant::now();
    paused().block_on(async {
        let (start, start_theirs) = (Instant::now(), tokio::time::Instant::now());
        time::sleep(HOUR).await;
        tokio::time::sleep(HOUR).await;
        assert!(time::timeout(HOUR, std::future::pending::<()>()).await.is_err());
        let mut ticks = time::interval(HOUR);
        ticks.tick().await;
        ticks.tick().await;
        let mut queue = DelayQueue::new();
        queue.insert("item", HOUR);
        assert!(queue.next().await.is_some());
        assert_eq!((start.elapsed(), start_theirs.elapsed()), (5 * HOUR, 5 * HOUR));
        tokio::time::advance(HOUR).await;
        assert_eq!(start.elapsed(), 6 * HOUR);
        tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(5))).await.unwrap();
        assert_eq!(start.elapsed(), 6 * HOUR);
    });
    assert!(real.elapsed() < HOUR);
}

#[test]
fn d76_runtimes_that_are_stepped_in_turn_keep_their_own_time() {
    let runtimes = [paused(), paused(), paused()];
    for step in 1..20 {
        for (runtime, number) in runtimes.iter().zip(1..) {
            runtime.block_on(async {
                let start = Instant::now();
                time::sleep(number * HOUR).await;
                assert_eq!(start.elapsed(), number * HOUR, "step {step}");
            });
        }
    }
}

#[test]
fn e2_a_runtime_whose_clock_runs_follows_the_real_one() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let real = RealInstant::now();
    runtime.block_on(async { time::sleep(Duration::from_millis(3)).await });
    assert!(real.elapsed() >= Duration::from_millis(3) && real.elapsed() < HOUR);
}

/// A debug build checks every timer. A release build checks the first timer of each thread, and every timer once any clock was
/// paused.
#[cfg(debug_assertions)]
#[test]
fn d75_a_clock_that_is_paused_later_is_noticed() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        time::sleep(Duration::from_millis(1)).await;
        tokio::time::pause();
        let start = Instant::now();
        time::sleep(HOUR).await;
        assert_eq!(start.elapsed(), HOUR);
    });
}
