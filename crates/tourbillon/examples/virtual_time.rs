//! A test in virtual time: a retry loop with exponential backoff that takes hours, in milliseconds.
//!
//!     cargo run -p tourbillon --features test-util --example virtual_time

use std::cell::RefCell;
use std::time::Duration;

use tourbillon::time::error::Elapsed;
use tourbillon::time::{self, Instant, sleep, timeout};

/// The code under test, which knows nothing of virtual time.
async fn retry<T>(limit: Duration, mut attempt: impl AsyncFnMut() -> Option<T>) -> Result<T, Elapsed> {
    let attempts = async {
        let mut pause = Duration::from_secs(1);
        loop {
            if let Some(value) = attempt().await {
                return value;
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(3600));
        }
    };
    timeout(limit, attempts).await
}

/// A server that is down for a while, takes a second to answer, and records when it was asked.
struct Server {
    up_at: Instant,
    asked: RefCell<Vec<Instant>>,
}

impl Server {
    fn down_for(duration: Duration) -> Server {
        Server { up_at: Instant::now() + duration, asked: RefCell::default() }
    }

    async fn ask(&self) -> Option<&'static str> {
        self.asked.borrow_mut().push(Instant::now());
        sleep(Duration::from_secs(1)).await;
        (Instant::now() >= self.up_at).then_some("answer")
    }
}

const HOUR: Duration = Duration::from_secs(3600);

fn main() {
    let real = std::time::Instant::now();
    // The loop finds a server that is back after ten hours, at the latest one longest pause later.
    // (From here on time is virtual on this thread: `time::run` moves it to the next deadline when its future waits.)
    time::pause();
    let (start, server) = (Instant::now(), Server::down_for(10 * HOUR));
    let answer = time::run(retry(24 * HOUR, async || server.ask().await));
    println!("asked {} times, {answer:?} after {:?}", server.asked.borrow().len(), start.elapsed());
    assert_eq!(answer, Ok("answer"));
    assert!(start.elapsed() >= 10 * HOUR && start.elapsed() <= 11 * HOUR + Duration::from_secs(1));

    // The pauses are exactly as intended: one second, two, four, up to an hour; plus the second for the answer.
    let asked = server.asked.borrow();
    for (attempt, pair) in asked.windows(2).enumerate() {
        let pause = Duration::from_secs(1 << attempt.min(12)).min(HOUR);
        assert_eq!(pair[1] - pair[0], pause + Duration::from_secs(1));
    }

    // With a server that does not come back, the loop ends at its limit, to the nanosecond.
    let (start, server) = (Instant::now(), Server::down_for(Duration::MAX));
    let answer = time::run(retry(24 * HOUR, async || server.ask().await));
    println!("asked {} times, {answer:?} after {:?}", server.asked.borrow().len(), start.elapsed());
    assert!(answer.is_err());
    assert_eq!(start.elapsed(), 24 * HOUR);

    println!("and all of that in {:?}", real.elapsed());
    assert!(real.elapsed() < Duration::from_secs(60));
}
