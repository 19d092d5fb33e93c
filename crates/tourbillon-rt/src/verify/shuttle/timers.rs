//! Timers of a thread that is blocked in a `block_on`, which waits for them (D44, D66).

use std::time::Duration;

use super::explore;
use super::program::{block_when_woken, give_way, millis};
use super::world::{ProgramOptions, ProgramWorld, WaitFlag, one_of};
use crate::{JoinHandle, spawn, time};

/// Begins a task that raises the flag after a while, and may arm its timer on this thread.
async fn raised_after(sleep: Duration) -> (WaitFlag, JoinHandle<()>) {
    let flag = WaitFlag::default();
    let raises = flag.clone();
    let task = spawn(async move {
        time::sleep(sleep).await;
        raises.raise();
    });
    for _ in 0..one_of(4) {
        give_way().await;
    }
    (flag, task)
}

/// A thread that runs tasks blocks in a call of another runtime, and does not turn its timers meanwhile.
fn blocked_in_another_runtime() {
    let ([runtime, other], _world) = ProgramWorld::of([one_of(3), 0], ProgramOptions::default());
    let blocks = async move {
        let (flag, task) = raised_after(millis()).await;
        other.block_on(flag);
        task.await.expect("it is not cancelled and does not panic");
    };
    if one_of(2) == 0 {
        runtime.block_on(blocks);
    } else {
        runtime.block_on(runtime.spawn(blocks)).expect("it is not cancelled and does not panic");
    }
}

/// The thread that runs tasks fires a timer whose waker blocks, in the middle of a turn of its timers.
fn blocked_by_a_waker() {
    let (runtime, world) = ProgramWorld::new(0);
    runtime.block_on(async move {
        // Not at the same time: one turn of the timers wakes their wakers one after the other, and the first would block before the
        // second is woken.
        let (first, second) = (Duration::from_millis(1), Duration::from_millis(4));
        let (flag, task) = raised_after(second).await;
        block_when_woken(&world, flag, time::sleep(first)).await;
        task.await.expect("it is not cancelled and does not panic");
    });
}

#[test]
fn d44_d66_timers_of_a_thread_that_blocks_in_another_runtime_fire() {
    explore(blocked_in_another_runtime);
}

#[test]
fn d44_d66_timers_of_a_thread_that_is_blocked_by_a_waker_fire() {
    explore(blocked_by_a_waker);
}
