//! tokio-util's `DelayQueue`: a wheel with ticks of a millisecond; the order within a tick is unspecified. It reads Tokio's
//! clock, which is paused here and advanced by the benchmark.

use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::time::Instant;
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

use super::QueueSystem;

pub(super) struct Delay {
    queue: DelayQueue<u64>,
    start: Instant,
    now: u64,
}

/// Returns a runtime with paused time, which the queue needs. The thread enters it and never leaves.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().expect("a Tokio runtime can be built")
    })
}

impl QueueSystem for Delay {
    const NAME: &'static str = "delay-queue";
    type SystemDeadline = Instant;
    type SystemHandle = Key;

    fn new(_: usize) -> Delay {
        thread_local!(static ENTERED: () = std::mem::forget(runtime().enter()));
        ENTERED.with(|()| ());
        Delay { queue: DelayQueue::new(), start: Instant::now(), now: 0 }
    }

    fn deadline(&self, nanos: u64) -> Instant {
        self.start + Duration::from_nanos(nanos)
    }

    #[inline(always)]
    fn insert(&mut self, deadline: Instant, value: u64) -> Key {
        self.queue.insert_at(value, deadline)
    }

    #[inline(always)]
    fn remove(&mut self, key: Key) -> Option<u64> {
        self.queue.try_remove(&key).map(tokio_util::time::delay_queue::Expired::into_inner)
    }

    #[inline(always)]
    fn reschedule(&mut self, key: Key, deadline: Instant) -> Key {
        self.queue.reset_at(&key, deadline);
        key
    }

    #[inline(always)]
    fn expire(&mut self, now: u64, mut sink: impl FnMut(u64)) {
        runtime().block_on(tokio::time::advance(Duration::from_nanos(now - self.now)));
        self.now = now;
        while let Poll::Ready(Some(expired)) = self.queue.poll_expired(&mut Context::from_waker(Waker::noop())) {
            sink(expired.into_inner());
        }
    }
}
