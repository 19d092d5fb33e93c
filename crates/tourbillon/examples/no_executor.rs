//! Timers without an executor: threads, and a `block_on` of a dozen lines.
//!
//!     cargo run -p tourbillon --example no_executor

use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use tourbillon::time::{DelayQueue, Instant, sleep, timeout};

const MS: Duration = Duration::from_millis(1);

/// A waker that unparks a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, which sleeps whenever the future waits.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

fn main() {
    // Three threads sleep side by side.
    let (sender, awake) = mpsc::channel();
    let start = Instant::now();
    for millis in [300, 100, 200] {
        let sender = sender.clone();
        thread::spawn(move || {
            block_on(sleep(millis * MS));
            sender.send((millis, start.elapsed())).unwrap();
        });
    }
    drop(sender);
    for (millis, after) in awake {
        println!("slept for {millis} ms, awake after {after:?}");
        assert!(after >= millis * MS, "never early");
    }

    // A timeout on a future that is never ready.
    let given_up = block_on(timeout(30 * MS, std::future::pending::<()>()));
    println!("waited for nothing: {given_up:?}");
    assert!(given_up.is_err());

    // A queue that returns items, each at its own time.
    let mut queue = DelayQueue::new();
    for (name, after) in [("third", 30), ("first", 10), ("second", 20)] {
        queue.insert(name, after * MS);
    }
    let mut names = Vec::new();
    while let Some(expired) = block_on(queue.next()) {
        println!("{}", expired.get_ref());
        names.push(expired.into_inner());
    }
    assert_eq!(names, ["first", "second", "third"]);
}
