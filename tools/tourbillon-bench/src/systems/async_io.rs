//! async-io: one `BTreeMap` per process behind one lock, with a queue of a thousand operations before it. A thread that blocks on
//! a future waits in its reactor.

use std::pin::Pin;
use std::time::{Duration, Instant};

use async_io::Timer;

use super::TaskRunner;

pub(crate) const NAME: &str = "async-io";

/// Runs every task on a thread that blocks on it, the last one on the calling thread.
pub(crate) struct BlockOn;

impl<T> TaskRunner<T> for BlockOn
where
    T: Future + Send,
    T::Output: Send,
{
    fn run(&mut self, mut tasks: Vec<T>) -> Vec<T::Output> {
        let Some(last) = tasks.pop() else { return Vec::new() };
        std::thread::scope(|scope| {
            let spawn = |task| scope.spawn(|| async_io::block_on(task));
            let threads: Vec<_> = tasks.into_iter().map(spawn).collect();
            let last = async_io::block_on(last);
            let others = threads.into_iter().map(|thread| thread.join().expect("no task panics"));
            others.chain([last]).collect()
        })
    }
}

pub(crate) fn sleep(duration: Duration) -> Timer {
    Timer::after(duration)
}

pub(crate) fn sleep_until(deadline: Instant) -> Timer {
    Timer::at(deadline)
}

#[inline(always)]
pub(crate) fn reset(mut timer: Pin<&mut Timer>, deadline: Instant) {
    timer.set_at(deadline);
}
