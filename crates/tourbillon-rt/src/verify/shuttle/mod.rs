//! Schedules (shuttle): whole runtimes, with their workers, their timers, their monitor, their substitutes and the threads that use them,
//! run step by step in an order that is chosen at random.
//!
//! ```text
//!     RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=target/shuttle cargo test -p tourbillon-rt --no-default-features --release --lib shuttle -- --nocapture
//! ```
//!
//! Models (`verify/loom`) try every order of a few steps of one part; schedules try some orders of thousands of steps of all parts
//! together, with every atomic operation sequentially consistent. Other threads may run at each use of `sync`. Half of the schedules
//! choose the next thread at each step (`random`), half let one thread run until one of a few points that were chosen before (`PCT`). The
//! actions of the threads are chosen at random, too: see [`program`].
//!
//! The code is the real one, with five exceptions: the back end has no sockets and only parks and wakes (`reactor/sys/parking.rs`); the
//! clock is a manual one, and the thread that moves it also fires the timers that no worker turns; the monitor's alarm goes off at any
//! moment (`executor/monitor/alarm/schedule.rs`); timeouts of condition variables come at any moment or never; and the queues of tasks
//! are behind shuttle's locks (`sync/queues.rs`). The rest is in `sync/under_shuttle`.
//!
//! Each schedule checks that all programs end, that no timer is early (P1), that `block_on` returns, and that the runtime and all its
//! threads end. A lost wake-up leaves threads waiting for ever, and shuttle reports that as a deadlock.
//!
//! To repeat a run, or the one schedule of it that failed (shuttle prints it; it can be long, so it can be in a file):
//!
//! ```text
//!     TOURBILLON_SEED=1794812433559153725 ...
//!     TOURBILLON_SCHEDULE=91024fb7.. ...      or the name of a file
//!     TOURBILLON_SCHEDULES=100000 ...         for so many of each kind
//! ```

mod program;
mod world;

mod nested;
mod stacks;
mod timers;

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

/// PCT changes the order of the threads at so many points less one.
const DEPTH: usize = 4;
/// More steps than any schedule takes, unless threads spin and wait for each other.
const STEPS: usize = 200_000;
/// The number of schedules of each kind that a test runs unless `TOURBILLON_SCHEDULES` says otherwise.
const SCHEDULES: usize = 1000;
/// The number of schedules that are run twice, to see that they can be repeated.
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
    let test = test_name();
    println!("{test}: seed {seed}");
    let start = Instant::now();
    let first = RandomScheduler::new_from_seed(seed, TWICE);
    run(UncontrolledNondeterminismCheckScheduler::new(first), schedule);
    let (random, random_steps) = run(RandomScheduler::new_from_seed(seed, count), schedule);
    let (pct, pct_steps) = run(PctScheduler::new_from_seed(seed, DEPTH, count), schedule);
    let steps = random_steps + pct_steps;
    println!("{test}: {random} schedules at random, {pct} by PCT, {steps} steps, {:.1?}", start.elapsed());
}

/// Returns how many schedules were run, and how many steps they took together.
fn run(scheduler: impl Scheduler + 'static, schedule: impl Fn() + Send + Sync + 'static) -> (usize, u64) {
    let mut config = Config::new();
    // Nested calls need a larger stack than shuttle's default.
    config.stack_size = 1 << 19;
    config.max_steps = MaxSteps::FailAfter(STEPS);
    // Shuttle would warn that it treats every memory order as `SeqCst`.
    config.silence_warnings = true;
    let counts = Rc::new(Counts::default());
    let count = Runner::new(Counting { scheduler, counts: Rc::clone(&counts) }, config).run(schedule);
    (count, counts.steps.get())
}

fn test_name() -> String {
    std::thread::current().name().unwrap_or("?").to_owned()
}

/// A scheduler that counts schedules and steps.
struct Counting<S> {
    scheduler: S,
    counts: Rc<Counts>,
}

/// How many schedules have begun, and how many steps they took together.
#[derive(Default)]
struct Counts {
    schedules: Cell<usize>,
    steps: Cell<u64>,
}

impl Drop for Counts {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}: schedule {} of its kind has failed", test_name(), self.schedules.get());
        }
    }
}

impl<S: Scheduler> Scheduler for Counting<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.counts.schedules.set(self.counts.schedules.get() + 1);
        self.scheduler.new_execution()
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, is_yielding: bool) -> Option<TaskId> {
        self.counts.steps.set(self.counts.steps.get() + 1);
        self.scheduler.next_task(runnable, current, is_yielding)
    }

    fn next_u64(&mut self) -> u64 {
        self.scheduler.next_u64()
    }
}
