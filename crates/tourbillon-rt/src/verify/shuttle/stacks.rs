//! Tasks that block on tasks: how many of them are on the stack of one thread (D67).

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use shuttle::thread_local;

use super::explore;
use super::world::{ProgramWorld, one_of};
use crate::spawn;
use crate::sync::under_shuttle::SUBSTITUTES;

thread_local! {
    /// Tasks on the stack of this thread.
    static TASKS: Cell<usize> = const { Cell::new(0) };
}

/// More than the workers and substitutes of a schedule.
const TASKS_OF_A_LONG_CHAIN: usize = SUBSTITUTES + 5;

/// A task on the stack of a thread, until this is dropped.
struct OnStack;

impl OnStack {
    /// Panics if there are more than `most` on the stack of the calling thread.
    fn new(most: usize) -> OnStack {
        TASKS.with(|tasks| tasks.set(tasks.get() + 1));
        let on_stack = OnStack;
        let tasks = TASKS.with(Cell::get);
        assert!(tasks <= most, "{tasks} tasks are on top of each other");
        on_stack
    }
}

impl Drop for OnStack {
    fn drop(&mut self) {
        TASKS.with(|tasks| tasks.set(tasks.get() - 1));
    }
}

/// A task that blocks on a task, and so on, `tasks` in all. Returns how many have run.
fn chain(world: ProgramWorld, tasks: usize, most: usize) -> Pin<Box<dyn Future<Output = usize> + Send>> {
    Box::pin(async move {
        let _on_stack = OnStack::new(most);
        if tasks == 1 {
            return 1;
        }
        let next = spawn(chain(world.clone(), tasks - 1, most));
        let runtime = world.runtime().expect("it is in use");
        runtime.block_on(next).expect("it is not cancelled and does not panic") + 1
    })
}

/// Runs a chain of `tasks` tasks, of which one thread has at most `most` on its stack.
fn run_chain(workers: usize, tasks: usize, most: usize) {
    let (runtime, world) = ProgramWorld::new(workers);
    let first = runtime.spawn(chain(world.clone(), tasks, most));
    assert_eq!(runtime.block_on(first).expect("it is not cancelled and does not panic"), tasks);
    drop(world);
    assert_eq!(Arc::strong_count(&runtime), 1, "no task keeps the runtime");
}

#[test]
fn d67_no_task_runs_on_top_of_another_while_there_are_threads_for_all() {
    explore(|| {
        let workers = one_of(3);
        // Without workers the thread in `block_on` runs tasks.
        run_chain(workers, workers.max(1) + SUBSTITUTES, 1);
    });
}

#[test]
fn d67_a_chain_of_more_tasks_than_there_are_threads_ends() {
    explore(|| run_chain(one_of(3), TASKS_OF_A_LONG_CHAIN, TASKS_OF_A_LONG_CHAIN));
}
