//! Tokio: one wheel per runtime behind one lock, ticks of a millisecond. The driver also waits for I/O, as in a server and with
//! `#[tokio::main]`.

use std::pin::Pin;
use std::time::Instant;

pub(crate) use tokio::time::{Sleep, sleep};

use super::TaskRunner;

pub(crate) const CURRENT: &str = "tokio-current";
pub(crate) const MULTI: &str = "tokio-multi";

/// A Tokio runtime, which is also used for other systems.
pub(crate) struct Tokio(tokio::runtime::Runtime);

impl Tokio {
    pub(crate) fn current_thread() -> Tokio {
        Tokio::build(tokio::runtime::Builder::new_current_thread())
    }

    pub(crate) fn multi_thread(workers: usize) -> Tokio {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(workers);
        Tokio::build(builder)
    }

    /// Returns a runtime with paused time.
    #[cfg(feature = "virtual")]
    pub(crate) fn paused() -> Tokio {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.start_paused(true);
        Tokio::build(builder)
    }

    fn build(mut builder: tokio::runtime::Builder) -> Tokio {
        Tokio(builder.enable_all().build().expect("a Tokio runtime can be built"))
    }
}

impl<T> TaskRunner<T> for Tokio
where
    T: Future + Send + 'static,
    T::Output: Send + 'static,
{
    fn run(&mut self, tasks: Vec<T>) -> Vec<T::Output> {
        self.0.block_on(async {
            // With a budget, only the first 128 polls of a task would reach the timer.
            let spawn = |task| tokio::spawn(tokio::task::coop::unconstrained(task));
            let handles: Vec<_> = tasks.into_iter().map(spawn).collect();
            let mut outputs = Vec::with_capacity(handles.len());
            for handle in handles {
                outputs.push(handle.await.expect("no task panics"));
            }
            outputs
        })
    }
}

pub(crate) fn sleep_until(deadline: Instant) -> Sleep {
    tokio::time::sleep_until(deadline.into())
}

#[inline(always)]
pub(crate) fn reset(sleep: Pin<&mut Sleep>, deadline: tokio::time::Instant) {
    sleep.reset(deadline);
}
