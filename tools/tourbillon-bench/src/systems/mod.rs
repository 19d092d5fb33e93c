//! The systems of the scenarios with a clock, one file each: how to sleep, and the runtime to use.
//!
//! A scenario is written once, as an `async fn` that is given a system's sleep function; the system's runtime runs it.

pub(crate) mod async_io;
pub(crate) mod clock_nanosleep;
pub(crate) mod futures_timer;
pub(crate) mod monoio;
pub(crate) mod native;
pub(crate) mod pingora;
pub(crate) mod smol;
pub(crate) mod tokio;
pub(crate) mod tourbillon;
pub(crate) mod tourbillon_rt;

/// Runs tasks of type `T`.
pub(crate) trait TaskRunner<T: Future> {
    /// Runs all tasks to their end.
    fn run(&mut self, tasks: Vec<T>) -> Vec<T::Output>;

    /// Runs one task to its end.
    fn run_one(&mut self, task: T) -> T::Output {
        self.run(vec![task]).pop().expect("a task has an output")
    }
}
