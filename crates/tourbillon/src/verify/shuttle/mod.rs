//! Schedules: whole engines, with their drivers, their surfaces and three to six threads that use them, run step by step in a random order
//! (shuttle).
//!
//! ```text
//!     RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=target/shuttle cargo test -p tourbillon --no-default-features --lib shuttle -- --nocapture
//! ```
//!
//! Loom models (`verify::loom`) try every order of a few steps, and every value that the memory model allows. Schedules try some orders of
//! thousands of steps, in which all accesses are sequentially consistent. Another thread may run at every access through `sync` and at each
//! reading of a clock. Half of the schedules choose a thread at random at each step (`random`), half let one thread run until one of a few
//! points that were chosen before (`PCT`). The actions of the threads are random, too.
//!
//! Each schedule checks: no timer is early (P1); each timer ends once, by the counts of the threads that use it and by the engine's own
//! (P2); order, where it is promised (P3); each callback runs once; slots are given back (P7); no two threads are inside a shard at once;
//! and no thread waits for ever. Time does not pass by itself: a [`World`](world::World) moves it, and not while a thread waits that should
//! have been woken. So a lost wake-up leaves all threads waiting, which shuttle reports.
//!
//! To repeat a run, or the one schedule of it that failed (shuttle prints it; it can be long, so it can be in a file):
//!
//! ```text
//!     TOURBILLON_SEED=1794812433559153725 ...
//!     TOURBILLON_SCHEDULE=91024fb7.. ...      or the name of a file
//!     TOURBILLON_SCHEDULES=100000 ...         runs this many of each kind
//! ```

mod counted_sleep;
mod told;
mod world;

mod capacity;
mod delay_queue;
mod named;
mod order;
mod scheduler;
mod sleeps;
mod timers;
mod workers;

use std::cell::Cell;
use std::env;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::time::Instant;

use shuttle::scheduler::{
    PctScheduler, RandomScheduler, ReplayScheduler, Schedule, Scheduler, Task, TaskId,
    UncontrolledNondeterminismCheckScheduler,
};
use shuttle::{Config, MaxSteps, Runner};

/// The bug depth of PCT: one more than the number of points at which it switches to another thread.
const DEPTH: usize = 4;
/// No schedule takes this many steps, unless threads spin while they wait for each other.
const STEPS: usize = 200_000;
/// How many schedules of each kind a test runs, unless `TOURBILLON_SCHEDULES` says otherwise.
const SCHEDULES: usize = 2000;
/// How many schedules are run twice, to check that they can be repeated.
const TWICE: usize = 20;

/// Runs schedules of each kind.
fn explore(schedule: impl Fn() + Send + Sync + Copy + 'static) {
    if let Ok(encoded) = env::var("TOURBILLON_SCHEDULE") {
        let encoded = std::fs::read_to_string(&encoded).unwrap_or(encoded);
        run(ReplayScheduler::new_from_encoded(encoded.trim()), schedule);
        return;
    }
    let number = |name| env::var(name).ok().map(|value| value.parse::<u64>().expect("a number"));
    let count = number("TOURBILLON_SCHEDULES").map_or(SCHEDULES, |count| count as usize);
    let seed = number("TOURBILLON_SEED").unwrap_or_else(|| RandomState::new().hash_one(0));
    let test = std::thread::current().name().unwrap_or("?").to_owned();
    println!("{test}: seed {seed}");
    let start = Instant::now();
    let first = RandomScheduler::new_from_seed(seed, TWICE);
    run(UncontrolledNondeterminismCheckScheduler::new(first), schedule);
    let (random, random_steps) = run(RandomScheduler::new_from_seed(seed, count), schedule);
    let (pct, pct_steps) = run(PctScheduler::new_from_seed(seed, DEPTH, count), schedule);
    let steps = random_steps + pct_steps;
    println!("{test}: {random} schedules at random, {pct} by PCT, {steps} steps, {:.1?}", start.elapsed());
}

/// Runs schedules, and returns how many there were and how many steps they took together.
fn run(scheduler: impl Scheduler + 'static, schedule: impl Fn() + Send + Sync + 'static) -> (usize, u64) {
    let mut config = Config::new();
    // Shuttle's threads have a small stack by default.
    config.stack_size = 1 << 18;
    config.max_steps = MaxSteps::FailAfter(STEPS);
    // Silences the warning that weaker orderings are treated as `SeqCst`.
    config.silence_warnings = true;
    let steps = Rc::new(Cell::new(0));
    let count = Runner::new(CountingScheduler { scheduler, steps: steps.clone() }, config).run(schedule);
    (count, steps.get())
}

/// A scheduler that counts the steps.
struct CountingScheduler<S> {
    scheduler: S,
    steps: Rc<Cell<u64>>,
}

impl<S: Scheduler> Scheduler for CountingScheduler<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.scheduler.new_execution()
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, is_yielding: bool) -> Option<TaskId> {
        self.steps.set(self.steps.get() + 1);
        self.scheduler.next_task(runnable, current, is_yielding)
    }

    fn next_u64(&mut self) -> u64 {
        self.scheduler.next_u64()
    }
}
