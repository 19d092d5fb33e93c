//! `block_on` inside of tasks and of other calls of `block_on` (D66).

use std::sync::Arc;

use shuttle::thread;

use super::explore;
use super::program::program;
use super::world::{Flag, World, one_of};
use crate::{Runtime, spawn_local};

/// How deep programs nest.
const NESTED: usize = 2;

/// Drops the runtime, which waits for its threads, and checks that no program is left.
fn end(runtime: Arc<Runtime>, world: &World) {
    drop(runtime);
    assert!(world.runtime().is_none(), "all programs have ended, and none keeps the runtime");
    world.check();
}

/// One thread runs a program inside of `block_on`.
fn one_user(workers: usize) {
    let (runtime, world) = World::new(workers, 2);
    runtime.block_on(program(world.clone(), NESTED));
    end(runtime, &world);
}

/// Two threads run a program each, in `block_on` or as a task, at the same time.
fn two_users(workers: usize) {
    let (runtime, world) = World::new(workers, 2);
    let other = {
        let (runtime, world) = (Arc::clone(&runtime), world.clone());
        thread::spawn(move || runtime.block_on(program(world, NESTED)))
    };
    let task = runtime.spawn(program(world.clone(), NESTED));
    runtime.block_on(task).expect("programs are not cancelled and do not panic");
    other.join().expect("it does not panic");
    // Without workers each of the two threads runs the other's tasks. With the one that returns first go its local tasks; what those
    // have begun ends with the runtime, and may keep it a little longer.
    if workers > 0 {
        end(runtime, &world);
    }
}

/// The smallest case: threads outside of the runtime wake a `block_on` and another one inside of it, in a local task.
fn outer_and_inner() {
    let (runtime, world) = World::new(one_of(2), 2);
    let (outer, nested) = (Flag::default(), world.clone());
    runtime.block_on(async move {
        let (inner, raised) = (Flag::default(), outer.clone());
        let task = spawn_local(async move {
            nested.raise_later(&raised);
            nested.raise_later(&inner);
            nested.runtime().expect("it is in use").block_on(inner);
        });
        outer.await;
        task.await.expect("it is not cancelled and does not panic");
    });
    end(runtime, &world);
}

#[test]
fn d66_a_nested_block_on_in_a_local_task_leaves_the_outer_wake_up_alone() {
    explore(outer_and_inner);
}

#[test]
fn d66_nested_programs_of_a_runtime_without_workers_end() {
    explore(|| one_user(0));
}

#[test]
fn d66_nested_programs_of_a_runtime_with_workers_end() {
    explore(|| one_user(1 + one_of(2)));
}

#[test]
fn d66_nested_programs_of_two_threads_in_one_runtime_end() {
    explore(|| two_users(one_of(3)));
}
