//! `Scheduler`: one binary, so that it is linked once.
//!
//! Most tests use virtual time and no threads: the thread that advances the engine makes the runs, so every test takes the same
//! course each time. A slow job is an async one that sleeps. Tests of threads count events and never read a clock.

#[path = "../random/mod.rs"]
mod random;
#[path = "../support/mod.rs"]
mod support;

mod asynchronous;
mod ending;
mod failures;
mod faults;
mod keys;
mod lifecycle;
mod limits;
mod memory;
mod missed;
mod overflow;
mod overlap;
mod plans;
mod races;
mod requests;
mod retry;
mod schedule;
mod sequences;
mod tokio_context;
mod until;
mod upsert;

use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use support::{eventually, manual, ms};
use tourbillon::scheduler::{Builder, Plan, Run, Scheduler};
use tourbillon::time::Instant;
use tourbillon::{Engine, Time};

/// A scheduler on an engine whose time moves only by [`Story::pass`], and a log of the runs.
struct Story {
    engine: Engine,
    scheduler: Scheduler<&'static str>,
    log: Arc<Mutex<Vec<Made>>>,
    start: Time,
    origin: Instant,
}

/// A run that has begun. Times are in nanoseconds since the start of the story.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Made {
    key: &'static str,
    number: u64,
    due: u64,
    at: u64,
}

impl Story {
    fn new() -> Story {
        Story::with(|builder| builder)
    }

    fn with(rules: impl FnOnce(Builder<&'static str>) -> Builder<&'static str>) -> Story {
        let engine = manual();
        let scheduler = rules(Scheduler::builder().engine(&engine).threads(0)).build().unwrap();
        let start = engine.clock().now();
        let origin = now_on(&engine);
        Story { engine, scheduler, log: Arc::default(), start, origin }
    }

    /// Returns a closure that records its runs.
    fn writes(&self) -> impl Fn(&Run<&'static str>) + Clone + Send + Sync + 'static {
        let (engine, log) = (self.engine.clone(), Arc::clone(&self.log));
        let (start, origin) = (self.start, self.origin);
        move |run| {
            let due = run.due().saturating_duration_since(origin).as_nanos() as u64;
            let at = (engine.clock().now() - start).as_nanos();
            log.lock().unwrap().push(Made { key: run.key(), number: run.number(), due, at });
        }
    }

    /// Schedules a job that records its runs and takes no time.
    fn add(&self, key: &'static str, plan: impl Into<Plan>) {
        self.scheduler.schedule(key, plan, self.writes()).unwrap();
    }

    /// Schedules a job that records its runs, each of which takes this long.
    fn add_slow(&self, key: &'static str, plan: impl Into<Plan>, takes: Duration) {
        let writes = self.writes();
        let job = move |run: Run<&'static str>| {
            writes(&run);
            tourbillon::time::sleep(takes)
        };
        self.scheduler.schedule_async(key, plan, job).unwrap();
    }

    /// Lets time pass. Runs that come due are made on time.
    fn pass(&self, time: Duration) {
        self.engine.advance(time);
    }

    /// Lets time pass without driving the engine.
    fn stall(&self, time: Duration) {
        self.engine.clock().advance(time);
        self.turn();
    }

    /// Makes the runs that are due.
    fn turn(&self) {
        while self.engine.turn().more {}
    }

    fn now(&self) -> Duration {
        Duration::from(self.engine.clock().now() - self.start)
    }

    /// Returns the instant this long after the start of the story.
    fn instant(&self, after: Duration) -> Instant {
        self.origin + after
    }

    fn made(&self) -> Vec<Made> {
        std::mem::take(&mut self.log.lock().unwrap())
    }

    /// Returns the keys of the runs and the times at which they began, in milliseconds.
    fn made_at_ms(&self) -> Vec<(&'static str, u64)> {
        self.made().into_iter().map(|made| (made.key, made.at / 1_000_000)).collect()
    }

    /// Returns the times at which runs began, in milliseconds.
    fn ms(&self) -> Vec<u64> {
        self.made().into_iter().map(|made| made.at / 1_000_000).collect()
    }

    /// Returns the times at which runs were due, in milliseconds.
    fn due_ms(&self) -> Vec<u64> {
        self.made().into_iter().map(|made| made.due / 1_000_000).collect()
    }
}

/// Returns the time of an engine's clock.
fn now_on(engine: &Engine) -> Instant {
    let _entered = engine.enter();
    Instant::now()
}

/// A shared counter.
#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

impl Count {
    fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Returns a job that counts its runs.
    fn job<K>(&self) -> impl Fn(&Run<K>) + Send + Sync + 'static + use<K> {
        let count = self.clone();
        move |_| count.add()
    }
}

/// A gate that jobs wait at until it is opened.
#[derive(Clone)]
struct Gate(Arc<Mutex<Receiver<()>>>);

impl Gate {
    /// Returns a closed gate, and a sender whose drop opens it.
    fn new() -> (Sender<()>, Gate) {
        let (sender, receiver) = channel();
        (sender, Gate(Arc::new(Mutex::new(receiver))))
    }

    fn wait(&self) {
        let _opened = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).recv();
    }

    /// Returns a job that counts the runs that it begins, and then waits at the gate.
    fn job<K>(self, begun: &Count) -> impl Fn(&Run<K>) + Send + Sync + 'static + use<K> {
        let begun = begun.clone();
        move |_| {
            begun.add();
            self.wait();
        }
    }
}

/// Keeps a thread of the scheduler busy with one run until the returned sender is dropped. A millisecond passes.
fn keep_busy<K: Hash + Eq + Send + Sync + 'static>(engine: &Engine, scheduler: &Scheduler<K>, key: K) -> Sender<()> {
    let (opener, gate) = Gate::new();
    let begun = Count::default();
    assert!(scheduler.schedule(key, Plan::once(ms(1)), gate.job(&begun)).is_ok());
    engine.advance(ms(1));
    eventually("the thread is busy", || begun.get() == 1);
    opener
}

/// Runs `call` on a thread of its own, and fails if it does not return within ten minutes, which is enough on a loaded machine.
fn promptly<T: Send + 'static>(what: &str, call: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    let thread = std::thread::spawn(move || _ = sender.send(call()));
    match receiver.recv_timeout(Duration::from_secs(600)) {
        Ok(value) => value,
        Err(_) if thread.is_finished() => {
            std::panic::resume_unwind(thread.join().err().unwrap_or_else(|| Box::new("no answer")))
        }
        Err(_) => panic!("does not return: {what}"),
    }
}
