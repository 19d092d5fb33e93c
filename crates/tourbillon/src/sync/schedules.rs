//! Runs schedules of shuttle for a test, and prints how many there were.
//!
//! Public for the schedules of `tourbillon-rt`, and only with `--cfg shuttle`. `verify/shuttle` says how to repeat a run.

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
/// More steps than any schedule takes, unless threads spin and wait for each other.
const STEPS: usize = 200_000;
/// The number of schedules that are run twice, to see that they can be repeated.
const TWICE: usize = 20;

/// Runs schedules of each kind: `schedules` of each, unless `TOURBILLON_SCHEDULES` says otherwise.
pub fn explore(schedules: usize, schedule: impl Fn() + Send + Sync + Copy + 'static) {
    if let Ok(encoded) = env::var("TOURBILLON_SCHEDULE") {
        let encoded = std::fs::read_to_string(&encoded).unwrap_or(encoded);
        run(ReplayScheduler::new_from_encoded(encoded.trim()), schedule);
        return;
    }
    let number = |name| env::var(name).ok().map(|value| value.parse::<u64>().expect("a number"));
    let count = number("TOURBILLON_SCHEDULES").map_or(schedules, |count| count as usize);
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
    let counts = Rc::new(ScheduleCounts::default());
    let count = Runner::new(CountingScheduler { scheduler, counts: Rc::clone(&counts) }, config).run(schedule);
    (count, counts.steps.get())
}

fn test_name() -> String {
    std::thread::current().name().unwrap_or("?").to_owned()
}

/// A scheduler that counts schedules and steps.
struct CountingScheduler<S> {
    scheduler: S,
    counts: Rc<ScheduleCounts>,
}

/// How many schedules have begun, and how many steps they took together.
#[derive(Default)]
struct ScheduleCounts {
    schedules: Cell<usize>,
    steps: Cell<u64>,
}

impl Drop for ScheduleCounts {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}: schedule {} of its kind has failed", test_name(), self.schedules.get());
        }
    }
}

impl<S: Scheduler> Scheduler for CountingScheduler<S> {
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
