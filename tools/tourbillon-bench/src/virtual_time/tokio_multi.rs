//! `tourbillon::time` on Tokio's multi-threaded runtime, whose time Tokio cannot pause. A single task that sleeps advances time
//! itself; with several tasks, the waiting thread does.

use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::task::JoinHandle;
use tourbillon::time::{advance, pause, sleep};

use super::cases::{SleepOrder, TaskSleeps, VirtualWork, task};
use crate::harness::arm;

pub(super) const NAME: &str = "tourbillon-multi";

const WORKERS: usize = 2;

/// Returns how long the work takes.
pub(super) fn run(work: &VirtualWork) -> Duration {
    let runtime = Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build();
    let runtime = runtime.expect("a Tokio runtime can be built");
    runtime.block_on(async {
        pause();
        // Only `advance` moves time here.
        advance_and_sleep(TaskSleeps { order: SleepOrder::InTurn, durations: [Duration::from_millis(2)].into() }).await;
        let start = Instant::now();
        match &work.tasks[..] {
            [sleeps] => spawn(advance_and_sleep(sleeps.clone())).await.expect("no task panics"),
            tasks => {
                let mut handles = Vec::new();
                for sleeps in tasks {
                    handles.push(spawn(task(sleep, sleeps.clone())));
                }
                // The step is the unit of the durations. A task may find that more time has passed than it has slept, which does
                // no harm.
                while handles.iter().any(|handle| !handle.is_finished()) {
                    advance(Duration::from_millis(1)).await;
                }
                for handle in handles {
                    handle.await.expect("no task panics");
                }
            }
        }
        start.elapsed()
    })
}

async fn advance_and_sleep(sleeps: TaskSleeps) {
    match sleeps.order {
        SleepOrder::InTurn => {
            for &duration in sleeps.durations.iter() {
                for sleep in arm(&sleep, &[duration]).await {
                    advance(duration).await;
                    sleep.await;
                }
            }
        }
        SleepOrder::AtOnce => {
            let armed = arm(&sleep, &sleeps.durations).await;
            advance(sleeps.longest()).await;
            for sleep in armed {
                sleep.await;
            }
        }
    }
}

/// With a budget, only the first 128 polls of a task would reach the timer.
fn spawn(task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(tokio::task::coop::unconstrained(task))
}
