//! An engine on a manual clock, turned and advanced by a loop that polls the tasks itself, without a runtime or a thread.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use tourbillon::{Clock, Driver, Engine};

use super::cases::{VirtualWork, task};
use crate::systems::tourbillon::sleep_on;

pub(super) const NAME: &str = "tourbillon-by-hand";

/// Returns how long the work takes.
pub(super) fn run(work: &VirtualWork) -> Duration {
    let engine = Engine::builder().clock(Clock::manual()).driver(Driver::external()).shards(1).build();
    let engine = engine.expect("an engine can be built");
    engine.advance(Duration::from_millis(2));
    let mut tasks: Vec<ManualTask> =
        work.tasks.iter().map(|sleeps| ManualTask::new(task(sleep_on(&engine), sleeps.clone()))).collect();
    let start = Instant::now();
    loop {
        tasks.retain_mut(|task| !task.run());
        if tasks.is_empty() {
            return start.elapsed();
        }
        let turn = engine.turn();
        if turn.fired == 0 {
            engine.advance(turn.time_left().expect("a task that has not ended sleeps"));
        }
    }
}

/// A task, and whether it has been woken.
struct ManualTask {
    future: Pin<Box<dyn Future<Output = ()>>>,
    woken: Arc<WokenFlag>,
    waker: Waker,
}

struct WokenFlag(AtomicBool);

impl Wake for WokenFlag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl ManualTask {
    fn new(future: impl Future<Output = ()> + 'static) -> ManualTask {
        let woken = Arc::new(WokenFlag(AtomicBool::new(true)));
        ManualTask { future: Box::pin(future), waker: woken.clone().into(), woken }
    }

    /// Polls the task if it has been woken. Returns whether it has ended.
    fn run(&mut self) -> bool {
        self.woken.0.swap(false, Ordering::Acquire)
            && self.future.as_mut().poll(&mut Context::from_waker(&self.waker)).is_ready()
    }
}
