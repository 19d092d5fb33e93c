//! monoio: one wheel per thread, ticks of a millisecond, no lock and no atomics; a timer cannot leave its thread. Its driver is
//! io_uring, or epoll if that is refused.

use std::time::Instant;

use monoio::time::TimeDriver;
pub(crate) use monoio::time::{Sleep, sleep};
use monoio::{FusionDriver, FusionRuntime, IoUringDriver, LegacyDriver, RuntimeBuilder};

use super::TaskRunner;

pub(crate) const NAME: &str = "monoio";

pub(crate) struct Monoio(FusionRuntime<TimeDriver<IoUringDriver>, TimeDriver<LegacyDriver>>);

impl Monoio {
    pub(crate) fn new() -> Monoio {
        let builder = RuntimeBuilder::<FusionDriver>::new().enable_timer();
        Monoio(builder.build().expect("a monoio runtime can be built"))
    }
}

impl<T: Future + 'static> TaskRunner<T> for Monoio {
    fn run(&mut self, tasks: Vec<T>) -> Vec<T::Output> {
        self.0.block_on(async {
            let handles: Vec<_> = tasks.into_iter().map(monoio::spawn).collect();
            let mut outputs = Vec::with_capacity(handles.len());
            for handle in handles {
                outputs.push(handle.await);
            }
            outputs
        })
    }
}

pub(crate) fn sleep_until(deadline: Instant) -> Sleep {
    monoio::time::sleep_until(monoio::time::Instant::from_std(deadline))
}
