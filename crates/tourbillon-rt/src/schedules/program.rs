//! Programs at random: what a task, a local task or a `block_on` does in a schedule.
//!
//! A program waits for flags, for timers and for the programs that it has begun, and for nothing else. Threads outside of the runtime, or tasks that
//! do nothing else, raise the flags. So no two programs wait for each other, and each program ends unless the runtime loses a wake-up
//! or leaves a task without a thread.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tourbillon::Span;

use super::world::{Flag, World, one_of};
use crate::clock;
use crate::{JoinError, JoinHandle, spawn, spawn_blocking, spawn_local, time};

/// A program whose nested programs nest so deep at most. It has to be polled inside of the world's runtime.
pub(super) fn program(world: World, depth: usize) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let running = world.begin();
    Box::pin(async move {
        let _running = running;
        let (mut tasks, mut locals): (Vec<JoinHandle<()>>, Vec<JoinHandle<()>>) = Default::default();
        for _ in 0..1 + one_of(3) {
            match one_of(if depth > 0 { 12 } else { 6 }) {
                0 | 1 => flag(&world).await,
                2 => give_way().await,
                3 => tasks.push(spawn_blocking(|| ())),
                4 => sleep().await,
                5 => drop(time::timeout(millis(), flag(&world)).await),
                6 | 7 => tasks.push(spawn(program(world.clone(), depth - 1))),
                8 | 9 => locals.push(spawn_local(program(world.clone(), depth - 1))),
                _ => {
                    if let Some(runtime) = world.runtime() {
                        runtime.block_on(program(world.clone(), depth - 1));
                    }
                }
            }
        }
        for task in tasks {
            task.await.expect("programs are not cancelled and do not panic");
        }
        for local in locals {
            // Its thread may have left the runtime: then it was cancelled.
            let result = local.await;
            assert!(result.as_ref().err().is_none_or(JoinError::is_cancelled), "{result:?}");
        }
    })
}

/// Returns a flag that is raised by a thread outside of the runtime or by a task, some time.
fn flag(world: &World) -> Flag {
    let flag = Flag::default();
    if one_of(4) == 0 {
        let raises = flag.clone();
        drop(spawn(async move { raises.raise() }));
    } else {
        world.raise_later(&flag);
    }
    flag
}

/// Sleeps for a while, and checks that it was not shorter (P1).
async fn sleep() {
    let duration = millis();
    let due = clock::now() + Span::from(duration);
    time::sleep(duration).await;
    assert!(clock::now() >= due, "it fired at {:?}, and was due at {due:?}", clock::now());
}

/// Returns a few milliseconds.
fn millis() -> Duration {
    Duration::from_millis(one_of(4) as u64)
}

/// Lets other tasks run once.
async fn give_way() {
    let mut has_waited = false;
    poll_fn(move |context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
