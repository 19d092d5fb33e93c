//! `block_on` inside of tasks, of wakers, and of other calls of `block_on` (D66).

use std::sync::Arc;

use shuttle::thread;

use super::explore;
use super::program::program;
use super::world::{ProgramOptions, ProgramWorld, WaitFlag, one_of};
use crate::{spawn, spawn_local};

/// How deep programs nest.
const NESTED: usize = 2;

/// One thread runs a program inside of `block_on`.
fn one_user(workers: usize) {
    let (runtime, world) = ProgramWorld::new(workers);
    runtime.block_on(program(world.clone(), NESTED));
    drop(runtime);
    world.check();
}

/// Two threads run a program each, in `block_on` or as a task, at the same time.
fn two_users(workers: usize) {
    let (runtime, world) = ProgramWorld::new(workers);
    let other = {
        let (runtime, world) = (Arc::clone(&runtime), world.clone());
        thread::spawn(move || runtime.block_on(program(world, NESTED)))
    };
    let task = runtime.spawn(program(world.clone(), NESTED));
    runtime.block_on(task).expect("programs are not cancelled and do not panic");
    other.join().expect("it does not panic");
    drop(runtime);
    // Without workers each of the two threads runs the other's tasks. The local tasks of the thread that returns first are dropped;
    // programs that those have begun end with the runtime, and may keep it a little longer.
    if workers > 0 {
        world.check();
    }
}

/// One thread runs a program that nests calls of two runtimes.
fn two_runtimes() {
    let ([first, second], world) = ProgramWorld::of([one_of(3), one_of(3)], ProgramOptions::default());
    first.block_on(program(world.clone(), NESTED));
    drop((first, second));
}

/// One thread runs a program whose timers have wakers that block.
fn wakers_that_block() {
    let options = ProgramOptions { blocking_wakers: true, ..ProgramOptions::default() };
    let ([runtime], world) = ProgramWorld::of([1 + one_of(2)], options);
    runtime.block_on(program(world.clone(), NESTED));
    drop(runtime);
}

/// One thread runs a program that aborts tasks, and drops the runtime while others have not ended.
fn left_behind() {
    let ([runtime], world) =
        ProgramWorld::of([one_of(3)], ProgramOptions { aborts: true, ..ProgramOptions::default() });
    drop(runtime.spawn(program(world.clone(), NESTED)));
    runtime.block_on(program(world, NESTED));
    drop(runtime);
}

/// A runtime ends while its worker is blocked in a call of another runtime, and a substitute has nothing to do.
fn ends_while_blocked() {
    let ([runtime, other], world) = ProgramWorld::of([1, 0], ProgramOptions::default());
    let nested = world.clone();
    let task = runtime.spawn(async move {
        drop(spawn(async {}));
        let flag = WaitFlag::default();
        nested.raise_later(&flag);
        other.block_on(flag);
    });
    drop((task, runtime));
}

/// The smallest case: threads outside of the runtime wake a `block_on` and another one inside of it, in a local task.
fn outer_and_inner() {
    let (runtime, world) = ProgramWorld::new(one_of(2));
    let (outer, nested) = (WaitFlag::default(), world.clone());
    runtime.block_on(async move {
        let (inner, raised) = (WaitFlag::default(), outer.clone());
        let task = spawn_local(async move {
            nested.raise_later(&raised);
            nested.raise_later(&inner);
            nested.runtime().expect("it is in use").block_on(inner);
        });
        outer.await;
        task.await.expect("it is not cancelled and does not panic");
    });
    drop(runtime);
    world.check();
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

#[test]
fn d66_programs_that_nest_calls_of_two_runtimes_end() {
    explore(two_runtimes);
}

#[test]
fn d66_nested_programs_end_though_wakers_block_the_threads_that_fire_timers() {
    explore(wakers_that_block);
}

#[test]
fn d41_d66_a_runtime_ends_while_its_tasks_nest_and_leaves_none_of_them_behind() {
    explore(left_behind);
}

/// Shuttle reports a thread that does not sleep: PCT may let it run for ever.
#[test]
fn p9_d66_a_substitute_sleeps_while_the_runtime_waits_for_its_blocked_worker() {
    explore(ends_while_blocked);
}
