//! An engine at its capacity, in virtual time: how sleeps wait for a slot (D43, D64, D65, P7), and that every surface keeps its
//! meaning on a full engine.
//!
//! - A timer gives its slot back when it fires, is cancelled or is stopped, not when it is polled.
//! - A sleep that waits for a slot ends at its own deadline, like an armed one.
//! - Each free slot is reserved for one waiting sleep, which is woken: first come, first served.

mod changes;
mod free_slots;
mod real_time;
mod shutdown;
#[path = "../support/mod.rs"]
mod support;
mod surfaces;
mod wait_queue;
mod waiting;
mod wake_ups;

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use support::{Task, now, waker, years};
use tourbillon::time::Sleep;
use tourbillon::{Clock, Engine, Slack};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// Returns an engine in virtual time with this capacity.
pub(crate) fn with_slots(capacity: usize) -> Engine {
    Engine::builder().clock(Clock::manual()).slack(Slack::exact()).capacity(capacity).build().unwrap()
}

/// Returns an engine in virtual time that is full for a year, and the sleeps that fill it.
pub(crate) fn full(capacity: usize) -> (Engine, Vec<Sleep>) {
    let engine = with_slots(capacity);
    let taken = (0..capacity).map(|_| engine.try_sleep(years(1)).unwrap()).collect();
    (engine, taken)
}

/// A sleep with a task of its own.
pub(crate) struct Sleeper {
    pub(crate) sleep: Pin<Box<Sleep>>,
    pub(crate) task: Task,
}

impl Sleeper {
    /// Makes a sleep of this length and polls it once.
    pub(crate) fn new(engine: &Engine, after: Duration) -> Sleeper {
        let mut sleeper = Sleeper { sleep: Box::pin(engine.sleep(after)), task: Task::new() };
        assert!(sleeper.poll().is_pending());
        sleeper
    }

    pub(crate) fn poll(&mut self) -> Poll<()> {
        self.task.poll(self.sleep.as_mut())
    }

    /// Returns the number of wake-ups since the last call.
    pub(crate) fn wakes(&self) -> usize {
        self.task.wakes()
    }

    pub(crate) fn reset(&mut self, engine: &Engine, after: Duration) {
        self.sleep.as_mut().reset(now(engine) + after);
    }
}

/// Returns the number of wake-ups of each sleeper since the last call.
pub(crate) fn wakes<const N: usize>(sleepers: [&Sleeper; N]) -> [usize; N] {
    sleepers.map(Sleeper::wakes)
}

/// Runs the closure on another thread.
pub(crate) fn elsewhere<R: Send>(run: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| scope.spawn(run).join().unwrap())
}

/// Returns a waker that records the engine's time at each wake-up, in milliseconds since this call.
pub(crate) fn recording_waker(engine: &Engine) -> (Waker, Arc<Mutex<Vec<u128>>>) {
    let (clock, start, notes) = (engine.clock().clone(), engine.clock().now(), Arc::new(Mutex::new(Vec::new())));
    let written = Arc::clone(&notes);
    let waker = waker(move || {
        let passed = clock.now().as_nanos() - start.as_nanos();
        written.lock().unwrap().push(u128::from(passed / 1_000_000));
    });
    (waker, notes)
}
