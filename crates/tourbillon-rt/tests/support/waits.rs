//! Waits that fail if a test hangs.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything takes on a busy machine, unless it hangs.
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns the kind of the error.
pub(crate) fn kind<T>(result: io::Result<T>) -> io::ErrorKind {
    result.err().expect("it is an error").kind()
}

/// Runs a closure on a thread of its own, and fails if it hangs.
pub(crate) fn in_time<T: Send + 'static>(what: &str, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::spawn(move || sender.send(run()));
    match receiver.recv_timeout(LONG) {
        Ok(value) => value,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what}: it hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().expect_err("it has sent nothing"))
        }
    }
}

/// Waits until a condition holds that other threads bring about.
pub(crate) fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LONG, "waited in vain: {what}");
        thread::sleep(Duration::from_micros(200));
    }
}

/// Awaits, on a runtime, a condition that other tasks or threads bring about.
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LONG, "waited in vain: {what}");
        tourbillon_rt::time::sleep(Duration::from_micros(200)).await;
    }
}

/// Awaits a future, and fails if it hangs.
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match tourbillon_rt::time::timeout(LONG, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: it hangs"),
    }
}

/// Polls a future once, with the waker of the calling task.
pub(crate) async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

/// Lets other tasks run.
pub(crate) async fn give_way() {
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
