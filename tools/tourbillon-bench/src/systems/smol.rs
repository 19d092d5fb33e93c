//! smol: async-io's timers under smol's executor, which runs on the calling thread.

use super::TaskRunner;
pub(crate) use super::async_io::{sleep, sleep_until};

pub(crate) const NAME: &str = "smol";

pub(crate) struct Smol;

impl<T> TaskRunner<T> for Smol
where
    T: Future + Send + 'static,
    T::Output: Send + 'static,
{
    fn run(&mut self, tasks: Vec<T>) -> Vec<T::Output> {
        let executor = smol::Executor::new();
        let tasks: Vec<_> = tasks.into_iter().map(|task| executor.spawn(task)).collect();
        smol::block_on(executor.run(async {
            let mut outputs = Vec::with_capacity(tasks.len());
            for task in tasks {
                outputs.push(task.await);
            }
            outputs
        }))
    }
}
