//! Schedules (shuttle): whole runtimes, with their workers, their timers, their monitor, their substitutes and the threads that use them,
//! run step by step in an order that is chosen at random.
//!
//! ```text
//!     RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=target/shuttle cargo test -p tourbillon-rt --no-default-features --lib shuttle -- --nocapture
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
//!     TOURBILLON_SCHEDULES=100000 ...         to run that many of each kind
//! ```

mod program;
mod world;

mod nested;
mod stacks;
mod timers;

/// Runs schedules of each kind.
fn explore(schedule: impl Fn() + Send + Sync + Copy + 'static) {
    tourbillon::schedules::explore(1000, schedule);
}
