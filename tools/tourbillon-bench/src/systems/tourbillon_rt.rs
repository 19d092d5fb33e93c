//! Tourbillon's own runtime: a worker turns its own wheel between its tasks and its wait for I/O. Its sleeps are those of
//! `tourbillon.rs`.

use tourbillon_rt::{Backend, BuildError};

use super::TaskRunner;

pub(crate) const NAME: &str = "tourbillon-rt";
pub(crate) const URING: &str = "tourbillon-rt-uring";
pub(crate) const EPOLL: &str = "tourbillon-rt-epoll";

/// A runtime with one worker, which does all the work.
pub(crate) struct TourbillonRt(tourbillon_rt::Runtime);

impl TourbillonRt {
    pub(crate) fn new() -> TourbillonRt {
        TourbillonRt::named(NAME)
    }

    /// Returns a runtime with one worker and paused time.
    #[cfg(feature = "virtual")]
    pub(crate) fn paused() -> TourbillonRt {
        let runtime = tourbillon_rt::Runtime::builder().workers(1).start_paused(true).build();
        TourbillonRt(runtime.expect("a runtime can be built"))
    }

    /// Returns a runtime whose back end the name selects.
    pub(crate) fn named(name: &str) -> TourbillonRt {
        let backend = match name {
            URING => Backend::Uring,
            EPOLL => Backend::Epoll,
            _ => Backend::Auto,
        };
        TourbillonRt(build(backend).expect("a runtime can be built"))
    }

    /// Runs a task to its end on the worker.
    pub(crate) fn on_worker<F>(&self, task: F) -> F::Output
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.0.block_on(self.0.spawn(task)).expect("no task panics")
    }
}

/// Returns whether io_uring is available.
pub(crate) fn try_uring() -> Result<(), BuildError> {
    build(Backend::Uring).map(drop)
}

fn build(backend: Backend) -> Result<tourbillon_rt::Runtime, BuildError> {
    tourbillon_rt::Runtime::builder().workers(1).backend(backend).build()
}

impl<T> TaskRunner<T> for TourbillonRt
where
    T: Future + Send + 'static,
    T::Output: Send + 'static,
{
    fn run(&mut self, tasks: Vec<T>) -> Vec<T::Output> {
        let handles: Vec<_> = tasks.into_iter().map(|task| self.0.spawn(task)).collect();
        self.0.block_on(async {
            let mut outputs = Vec::with_capacity(handles.len());
            for handle in handles {
                outputs.push(handle.await.expect("no task panics"));
            }
            outputs
        })
    }
}
