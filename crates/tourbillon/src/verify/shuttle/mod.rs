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
//! and no thread waits for ever. Time does not pass by itself: a [`CheckedEngine`](checked_engine::CheckedEngine) moves it, and not while a
//! thread waits that should have been woken. So a lost wake-up leaves all threads waiting, which shuttle reports.
//!
//! To repeat a run, or the one schedule of it that failed (shuttle prints it; it can be long, so it can be in a file):
//!
//! ```text
//!     TOURBILLON_SEED=1794812433559153725 ...
//!     TOURBILLON_SCHEDULE=91024fb7.. ...      or the name of a file
//!     TOURBILLON_SCHEDULES=100000 ...         runs this many of each kind
//! ```

mod checked_engine;
mod counted_sleep;
mod outcome_counts;

mod capacity;
mod delay_queue;
mod expiring_map;
mod named;
mod order;
mod scheduler;
mod sleeps;
mod timers;
mod workers;

/// Runs schedules of each kind.
fn explore(schedule: impl Fn() + Send + Sync + Copy + 'static) {
    crate::sync::schedules::explore(2000, schedule);
}
