//! Two rate limiters that any number of threads and tasks share, without a lock of their own.
//!
//! - By key, for a server: at most so many requests of a client in any window of time; others are refused. Each request that passes is a timer
//!   under the client's name, which lasts for the window, and `NamedTimers::start_if_fewer` counts and starts in one step.
//! - A token bucket, for a client: calls wait for their turn, and may come in bursts after a pause.
//!
//!     cargo run -p tourbillon --example rate_limiter

use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use tokio::sync::Semaphore;
use tourbillon::time::{Instant, interval, sleep};
use tourbillon::{ArmError, NamedTimers};

/// Lets at most `limit` requests of a client pass in any window of time.
#[derive(Clone)]
struct PerClient {
    passed: NamedTimers,
    limit: usize,
    window: Duration,
}

impl PerClient {
    /// `clients` limits the memory: a flood of clients, each with a name of its own, is refused.
    fn new(limit: usize, window: Duration, clients: usize) -> PerClient {
        PerClient { passed: NamedTimers::builder().capacity(clients * limit).build(), limit, window }
    }

    fn may_pass(&self, client: &str) -> bool {
        match self.passed.start_if_fewer(client, self.limit, self.window, |_| ()) {
            Ok(may_pass) => may_pass,
            Err(ArmError::Full { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Holds up to `burst` tokens and gets one more each period.
#[derive(Clone)]
struct TokenBucket {
    tokens: Arc<Semaphore>,
}

impl TokenBucket {
    fn new(burst: usize, period: Duration) -> TokenBucket {
        let tokens = Arc::new(Semaphore::new(burst));
        tokio::spawn(refill(Arc::downgrade(&tokens), burst, period));
        TokenBucket { tokens }
    }

    /// Waits for a token and takes it. Callers get theirs in the order in which they came.
    async fn take(&self) {
        self.tokens.acquire().await.expect("the semaphore is never closed").forget();
    }
}

/// Adds a token each period unless the bucket is full, until the bucket is dropped.
async fn refill(tokens: Weak<Semaphore>, burst: usize, period: Duration) {
    let mut period = interval(period);
    // The first tick is at once, and the bucket begins full.
    period.tick().await;
    loop {
        period.tick().await;
        let Some(tokens) = tokens.upgrade() else { return };
        if tokens.available_permits() < burst {
            tokens.add_permits(1);
        }
    }
}

/// Of many threads that ask at once, exactly as many pass as may.
fn from_many_threads() {
    let limiter = PerClient::new(100, Duration::from_secs(3600), 1);
    let ask = || (0..100).filter(|_| limiter.may_pass("10.0.0.7")).count();
    let passed: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert_eq!(passed, 100);
    assert!(!limiter.may_pass("10.0.0.8"), "there is no room for another client");
    println!("400 requests from four threads: {passed} passed");
}

/// The window slides: each request frees its place when it is as old as the window.
async fn in_a_window() {
    let second = Duration::from_secs(1);
    let limiter = PerClient::new(2, 10 * second, 1000);
    assert!(limiter.may_pass("10.0.0.7"));
    sleep(5 * second).await;
    assert!(limiter.may_pass("10.0.0.7"));
    assert!(!limiter.may_pass("10.0.0.7"));
    assert!(limiter.may_pass("10.0.0.8"), "another client has a limit of its own");
    sleep(6 * second).await;
    assert!(limiter.may_pass("10.0.0.7"), "the first request is eleven seconds old");
    assert!(!limiter.may_pass("10.0.0.7"), "the second is six seconds old");
    println!("two requests in any ten seconds");
}

async fn in_bursts() {
    let period = Duration::from_millis(100);
    let bucket = TokenBucket::new(5, period);
    // After a pause no more than a burst has been saved. The next token comes after half a period.
    sleep(600 * period + period / 2).await;
    let start = Instant::now();
    for call in 1..=8 {
        bucket.take().await;
        println!("call {call} after {:?}", start.elapsed());
        assert!(call > 5 || start.elapsed().is_zero());
    }
    assert_eq!(start.elapsed(), 2 * period + period / 2, "a burst of five, and then one each period");
}

/// The clock is paused, so that this takes no time and is exact. A service leaves `start_paused` away, and has it in its tests.
#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    tokio::task::spawn_blocking(from_many_threads).await.expect("no panic");
    in_a_window().await;
    in_bursts().await;
}
