//! Schedules: whole engines, with their drivers, their surfaces and three to six threads that use them, run step by step in an order
//! that is chosen at random (shuttle).
//!
//! ```text
//!     RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=target/shuttle cargo test -p tourbillon --lib schedules -- --nocapture
//! ```
//!
//! Models (`models`) try every order of a few steps, and every value that the memory model allows; what is here tries some orders of
//! thousands of steps, with everything sequentially consistent. Where others may run is everything that goes through `sync`, and each
//! reading of a clock. Half of the schedules choose who goes on at each step (`random`), half let one thread run until one of a few
//! points that were chosen before (`PCT`). What the threads do is chosen at random, too.
//!
//! What is checked in each schedule: nothing is early (P1); each timer ends once, by the books of those who use it and by the engine's
//! own (P2); order, where it is promised (P3); each callback is called once; room is given back (P7); no two threads are inside of a
//! shard at once; and nobody waits for ever. Time does not pass by itself: a [`World`](world::World) moves it, and never on while
//! somebody waits who should have been woken. So a wake-up that is lost leaves all threads waiting, and that is what shuttle reports.
//!
//! To repeat a run, or the one schedule of it that failed (shuttle prints it; it can be long, so it can be in a file):
//!
//! ```text
//!     TOURBILLON_SEED=1794812433559153725 ...
//!     TOURBILLON_SCHEDULE=91024fb7.. ...      or the name of a file
//!     TOURBILLON_SCHEDULES=100000 ...         for so many of each kind
//! ```

mod kept;
mod told;
mod world;

mod capacity;
mod delay_queue;
mod jobs;
mod named;
mod order;
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

/// So many points at which PCT lets another thread go on, and one more.
const DEPTH: usize = 4;
/// No schedule here takes so many steps, unless threads wait for each other awake.
const STEPS: usize = 200_000;
/// So many schedules of each kind does a test run if nobody asks for more.
const SCHEDULES: usize = 2000;
/// So many are run twice, to see that they can be repeated.
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

/// How many schedules were run, and how many steps they took together.
fn run(scheduler: impl Scheduler + 'static, schedule: impl Fn() + Send + Sync + 'static) -> (usize, u64) {
    let mut config = Config::new();
    // Unlike threads of the system, those of shuttle have little room by default.
    config.stack_size = 1 << 18;
    config.max_steps = MaxSteps::FailAfter(STEPS);
    // That orders other than `SeqCst` are taken for it.
    config.silence_warnings = true;
    let steps = Rc::new(Cell::new(0));
    let count = Runner::new(Counting { scheduler, steps: steps.clone() }, config).run(schedule);
    (count, steps.get())
}

/// Counts the steps.
struct Counting<S> {
    scheduler: S,
    steps: Rc<Cell<u64>>,
}

impl<S: Scheduler> Scheduler for Counting<S> {
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
